// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A graph is that of a real workflow, and what is known of it.
type graph struct {
	tasks  []string            // in the order in which one worker carries them out, first come first served
	before map[string][]string // the tasks that a task depends on
	Nodes  int                 `json:"nodes"`
	Depth  int                 `json:"critical_path_tasks"`
	// Ideal is the makespan by the number of workers, if every task takes 1.
	Ideal map[string]int `json:"ideal_steps_by_workers_when_every_task_takes_1"`
}

// readGraphs reads the graphs from the shared data beside the repository.
func readGraphs(t *testing.T) map[string]*graph {
	t.Helper()
	dir := cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared")
	facts, err := os.ReadFile(filepath.Join(dir, "data/dags/FACTS.json"))
	if err != nil {
		t.Skip("no shared data: set ROUX_SHARED to the directory that holds data/dags")
	}
	var graphs map[string]*graph
	if err := json.Unmarshal(facts, &graphs); err != nil {
		t.Fatal(err)
	}
	for name, g := range graphs {
		data, err := os.ReadFile(filepath.Join(dir, "data", name))
		if err != nil {
			t.Fatal(err)
		}
		var next map[string][]string
		if err := json.Unmarshal(data, &next); err != nil {
			t.Fatal(err)
		}
		g.order(next)
	}
	return graphs
}

// order orders the tasks of a graph, which is given by what follows each of them.
func (g *graph) order(next map[string][]string) {
	g.before = map[string][]string{}
	for _, from := range slices.Sorted(maps.Keys(next)) {
		for _, to := range next[from] {
			g.before[to] = append(g.before[to], from)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(next)) {
		if len(g.before[task]) == 0 {
			g.tasks = append(g.tasks, task)
		}
	}
	left := map[string]int{}
	for n := 0; n < len(g.tasks); n++ {
		for _, to := range next[g.tasks[n]] {
			if left[to]++; left[to] == len(g.before[to]) {
				g.tasks = append(g.tasks, to)
			}
		}
	}
}

// texts writes a graph in every dialect.
func (g *graph) texts() (texts map[string]string, before map[string][]string) {
	before = map[string][]string{}
	ids := map[string]string{}
	for i, task := range g.tasks {
		ids[task] = fmt.Sprintf("t%d", i)
	}
	var steps, nodes, edges, list, pipes strings.Builder
	for _, task := range g.tasks {
		id := ids[task]
		for _, b := range g.before[task] {
			before[id] = append(before[id], ids[b])
			fmt.Fprintf(&edges, "  - {source_node_id: %s, target_node_id: %s}\n", ids[b], id)
		}
		wait := "[" + strings.Join(before[id], ", ") + "]"
		fmt.Fprintf(&steps, "  - {id: %s, action: {name: noop}, dependsOn: %s}\n", id, wait)
		fmt.Fprintf(&nodes, "  - {id: %s, handler: noop, dependencies: %s}\n", id, wait)
		fmt.Fprintf(&list, "  - {id: %s, action: {name: noop}}\n", id)
		fmt.Fprintf(&pipes, "    - {name: %s, type: noop, dependsOn: %s}\n", id, wait)
	}
	return map[string]string{
		"recipe":   "name: g\norder: none\non_upstream_failure: fail\nresult: steps\nsteps:\n" + steps.String(),
		"dag":      "name: g\nnodes:\n" + nodes.String(),
		"flow":     "name: g\nfailure_policy: fail_fast\nresult_rule: strict\nnodes:\n" + list.String() + "edges:\n" + edges.String(),
		"pipeline": "workflow:\n  name: g\n  order: none\n  on_upstream_failure: fail\n  result: steps\n  steps:\n" + pipes.String(),
	}, before
}

// TestMakespan: the workflows of the shared data, of 12 to 539 tasks, in virtual time (X21, X23, X55, X56): written in
// any dialect they are the same plan; with 1, 4, 16 and 64 attempts at once each task is carried out once, after those
// that it depends on, and the run takes as long as it must.
func TestMakespan(t *testing.T) {
	graphs := readGraphs(t)
	if len(graphs) != 8 {
		t.Errorf("%d graphs", len(graphs))
	}
	for name, g := range graphs {
		texts, before := g.texts()
		p := planOf(t, texts["recipe"], noop())
		if len(p.Steps) != g.Nodes {
			t.Fatalf("%s: %d steps of %d tasks", name, len(p.Steps), g.Nodes)
		}
		for i := range p.Steps {
			var waits []string
			for _, n := range p.Steps[i].Preds {
				waits = append(waits, p.Steps[n].ID)
			}
			want := before[p.Steps[i].ID]
			if slices.Sort(waits); !slices.Equal(waits, slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: %s waits for %v, want %v", name, p.Steps[i].ID, waits, want)
			}
		}
		for dialect, text := range texts {
			if other := planOf(t, text, noop()); other.Hash() != p.Hash() {
				t.Errorf("%s: the plan of the %s is another", name, dialect)
			}
		}
		for workers, ideal := range g.Ideal {
			n, err := strconv.Atoi(workers)
			if err != nil {
				t.Fatal(err)
			}
			if took := makespan(t, texts["recipe"], before, n); took != int64(ideal) {
				t.Errorf("%s: %d tasks by %d workers take %d, want %d", name, g.Nodes, n, took, ideal)
			}
		}
	}
}

// A report is what a worker says after the time that its task takes.
type report struct {
	at, order int64
	ef        Effect
}

// makespan carries out a recipe whose attempts take a second each, and returns how many seconds it took.
func makespan(t *testing.T, text string, before map[string][]string, workers int) int64 {
	t.Helper()
	const second = 1_000_000
	st := memory.New(memory.Options{})
	cfg := Config{Store: st, Actions: catalogue.New(noop()), Logger: testLog(t), Concurrency: workers, SuspendAfter: 1 << 60}
	s, err := OpenStage(t.Context(), cfg, program.NewCache(10), testEpoch)
	if err != nil {
		t.Fatal(err)
	}
	p := planOf(t, text, noop())
	m, err := s.Start(&StartRequest{Account: acc, Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{}
	var away []report
	now, order := int64(testEpoch), int64(0)
	earlier := func(a, b *report) bool { return a.at < b.at || a.at == b.at && a.order < b.order }
	for arrived := []*Message{m}; ; {
		s.Handle(now, arrived...)
		for {
			batch, ok := s.EncodeBatch()
			if !ok {
				break
			}
			if len(batch) == 0 {
				s.Committed(nil, nil)
			} else {
				s.Committed(st.Commit(t.Context(), batch))
			}
		}
		arrived = nil
		for _, ef := range s.Effects() {
			if ef.Kind != machine.CmdDispatch {
				arrived = append(arrived, s.Perform(&ef))
				continue
			}
			id := p.Steps[ef.Ref.Step].ID
			for _, b := range before[id] {
				if !done[b] {
					t.Fatalf("%s began before the end of %s", id, b)
				}
			}
			order++
			away = heap.Push(away, report{now + second, order, ef}, earlier)
		}
		if len(away) > workers {
			t.Fatalf("%d attempts at once, want at most %d", len(away), workers)
		}
		switch {
		case len(arrived) > 0 || s.Busy():
			continue
		case len(away) == 0:
			head, err := st.Head(t.Context(), m.Key())
			if err != nil || head.Status != journal.RunCompleted.String() || len(done) != len(p.Steps) {
				t.Fatalf("the run is %v with %d of %d steps (%v)", head.Status, len(done), len(p.Steps), err)
			}
			return (head.Ended - testEpoch) / second
		}
		now = away[0].at
		for len(away) > 0 && away[0].at == now {
			var r report
			r, away = heap.Pop(away, earlier)
			if id := p.Steps[r.ef.Ref.Step].ID; done[id] {
				t.Fatalf("%s was carried out twice", id)
			} else {
				done[id] = true
			}
			arrived = append(arrived, s.Report(&r.ef, machine.Input{Kind: machine.InResult, Outcome: machine.Success, Output: []byte("1")}, false))
		}
	}
}
