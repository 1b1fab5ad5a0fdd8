// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sharedGraphs reads the graphs of real workflows, each a map from a task to
// those that follow it, from the shared data beside the repository.
func sharedGraphs(t testing.TB) map[string]*Graph {
	t.Helper()
	dir := cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared")
	names, err := filepath.Glob(filepath.Join(dir, "data/dags/flowbench/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Skip("no shared data: set ROUX_SHARED to the directory that holds data/dags")
	}
	graphs := map[string]*Graph{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var next map[string][]string
		if err := json.Unmarshal(data, &next); err != nil {
			t.Fatal(err)
		}
		graphs[strings.TrimSuffix(filepath.Base(name), ".json")] = fromMap(next)
	}
	return graphs
}

func fromMap(next map[string][]string) *Graph {
	g := like(&Graph{})
	seen := map[string]bool{}
	for from, list := range next {
		seen[from] = true
		for _, to := range list {
			seen[to] = true
			g.Edges = append(g.Edges, Edge{from + " " + to, from, to})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		g.Nodes = append(g.Nodes, Node{ID: id, W: 200, H: 56})
	}
	return g
}

// thousand is a graph of 1,000 steps in layers of about 30, every step with
// one to three predecessors not far above it.
func thousand(n int) *Graph {
	g := like(&Graph{})
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		g.Nodes = append(g.Nodes, Node{ID: strconv.Itoa(i), W: 200, H: 56, Order: i})
		if i < 30 {
			continue
		}
		for range 1 + r.IntN(3) {
			from := i - 15 - r.IntN(min(60, i-14))
			id := fmt.Sprint(from, " ", i)
			if !slices.ContainsFunc(g.Edges[max(0, len(g.Edges)-3):], func(e Edge) bool { return e.ID == id }) {
				g.Edges = append(g.Edges, Edge{id, strconv.Itoa(from), strconv.Itoa(i)})
			}
		}
	}
	return g
}

// quickest is the least time of a few tries: what the work takes when nothing
// else does.
func quickest(t testing.TB, g *Graph) time.Duration {
	best := time.Duration(1 << 62)
	for range 5 {
		begin := time.Now()
		compute(t, g)
		best = min(best, time.Since(begin))
	}
	return best
}

// TestRealGraphs: the eight graphs of 12 to 539 tasks and one of 1,000 steps
// are laid out within 50 ms, the same each time and however they are given,
// without boxes that overlap.
func TestRealGraphs(t *testing.T) {
	graphs := sharedGraphs(t)
	if len(graphs) != 8 {
		t.Errorf("%d shared graphs, want 8", len(graphs))
	}
	graphs["thousand"] = thousand(1_000)
	for _, name := range slices.Sorted(maps.Keys(graphs)) {
		for _, style := range []Style{Curved, Orthogonal} {
			t.Run(fmt.Sprint(name, " ", style), func(t *testing.T) {
				g := graphs[name]
				g.Style = style
				l := compute(t, g)
				if err := check(g, l); err != nil {
					t.Error(err)
				}
				if style == Orthogonal {
					if err := through(g, l); err != nil {
						t.Error(err)
					}
				}
				took := quickest(t, g)
				t.Logf("%d boxes, %d edges: %v, %d × %d", len(g.Nodes), len(g.Edges), took.Round(10*time.Microsecond), l.W, l.H)
				if took > 50*time.Millisecond && !racing {
					t.Errorf("took %v, want at most 50 ms", took)
				}
				want := encode(t, l)
				for seed := range uint64(3) {
					shuffle(g, seed)
					if encode(t, compute(t, g)) != want {
						t.Fatal("another order of the input gives another picture")
					}
				}
			})
		}
	}
}

func BenchmarkCompute(b *testing.B) {
	graphs := sharedGraphs(b)
	graphs["1000"], graphs["10000"] = thousand(1_000), thousand(10_000)
	for _, name := range slices.Sorted(maps.Keys(graphs)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compute(b, graphs[name])
			}
		})
	}
}
