// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
)

// like sets distances like those of SVG pictures, and returns g.
func like(g *Graph) *Graph {
	g.BoxGap, g.RankGap, g.LineGap, g.TrackGap, g.PortGap = 24, 40, 8, 6, 12
	return g
}

func compute(t interface {
	Helper()
	Fatal(...any)
}, g *Graph) *Layout {
	t.Helper()
	l, err := Compute(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// check checks the promises of every layout: no two boxes overlap, members are
// inside the border of their group, everything is inside the picture, edges
// start and end on the borders of their boxes, and orthogonal routes have right
// angles only.
func check(g *Graph, l *Layout) error {
	boxes, parent, pads := map[string]Box{}, map[string]string{}, map[string][4]int{}
	for _, b := range append(slices.Clone(l.Nodes), l.Groups...) {
		boxes[b.ID] = b
	}
	for _, n := range g.Nodes {
		parent[n.ID] = n.Group
		if b := boxes[n.ID]; b.W != n.W || b.H != n.H {
			return fmt.Errorf("%s is %d×%d, want %d×%d", n.ID, b.W, b.H, n.W, n.H)
		}
	}
	for _, n := range g.Groups {
		parent[n.ID], pads[n.ID] = n.Group, n.Pad
		if b := boxes[n.ID]; b.W < n.W || b.H < n.H {
			return fmt.Errorf("%s is %d×%d, want at least %d×%d", n.ID, b.W, b.H, n.W, n.H)
		}
	}
	if len(boxes) != len(parent) {
		return fmt.Errorf("%d boxes came out of %d", len(boxes), len(parent))
	}
	boxes[""] = Box{W: l.W, H: l.H}
	siblings := map[string][]Box{}
	for id, p := range parent {
		in, out, pad := boxes[id], boxes[p], pads[p]
		if in.X < out.X+pad[3] || in.Y < out.Y+pad[0] || in.X+in.W > out.X+out.W-pad[1] || in.Y+in.H > out.Y+out.H-pad[2] {
			return fmt.Errorf("%v is not inside %v with %v around it", in, out, pad)
		}
		siblings[p] = append(siblings[p], in)
	}
	for _, list := range siblings {
		if a, b, found := overlap(list); found {
			return fmt.Errorf("%v overlaps %v", a, b)
		}
	}
	routes := map[string]Route{}
	for _, r := range l.Edges {
		routes[r.ID] = r
	}
	for _, e := range g.Edges {
		r := routes[e.ID]
		if len(r.Points) < 2 {
			return fmt.Errorf("edge %s has no route", e.ID)
		}
		if p := r.Points[0]; !onBorder(boxes[e.From], p) {
			return fmt.Errorf("edge %s begins at %v, not on %v", e.ID, p, boxes[e.From])
		}
		if p := r.Points[len(r.Points)-1]; !onBorder(boxes[e.To], p) {
			return fmt.Errorf("edge %s ends at %v, not on %v", e.ID, p, boxes[e.To])
		}
		for i := 1; i < len(r.Points); i++ {
			if a, b := r.Points[i-1], r.Points[i]; g.Style == Orthogonal && a.X != b.X && a.Y != b.Y {
				return fmt.Errorf("edge %s is not orthogonal at %v, %v", e.ID, a, b)
			}
		}
	}
	return nil
}

// overlap finds two boxes with a common inner point.
func overlap(list []Box) (a, b Box, found bool) {
	slices.SortFunc(list, func(a, b Box) int { return a.Y - b.Y })
	for i, a := range list {
		for _, b := range list[i+1:] {
			if b.Y >= a.Y+a.H {
				break
			}
			if a.X < b.X+b.W && b.X < a.X+a.W && b.H > 0 && a.H > 0 && a.W > 0 && b.W > 0 {
				return a, b, true
			}
		}
	}
	return a, b, false
}

func onBorder(b Box, p Point) bool {
	across := p.X >= b.X && p.X <= b.X+b.W
	along := p.Y >= b.Y && p.Y <= b.Y+b.H
	return along && (p.X == b.X || p.X == b.X+b.W) || across && (p.Y == b.Y || p.Y == b.Y+b.H)
}

// through returns a box that an edge runs through, other than its ends. A curve
// stays between its ends, so nothing may be in the rectangle they span.
func through(g *Graph, l *Layout) error {
	around := map[string]string{}
	for _, n := range g.Nodes {
		around[n.ID] = n.Group
	}
	for _, n := range g.Groups {
		around[n.ID] = n.Group
	}
	holds := func(group, id string) bool {
		for ; id != ""; id = around[id] {
			if id == group {
				return true
			}
		}
		return false
	}
	ends := map[string]Edge{}
	for _, e := range g.Edges {
		ends[e.ID] = e
	}
	for _, r := range l.Edges {
		for _, b := range append(slices.Clone(l.Nodes), l.Groups...) {
			if e := ends[r.ID]; holds(b.ID, e.From) || holds(b.ID, e.To) {
				continue
			}
			for i := 1; i < len(r.Points); i++ {
				if p, q := r.Points[i-1], r.Points[i]; crosses(b, p, q) {
					return fmt.Errorf("edge %s runs through %v from %v to %v", r.ID, b, p, q)
				}
			}
		}
	}
	return nil
}

func crosses(b Box, p, q Point) bool {
	return max(p.X, q.X) > b.X && min(p.X, q.X) < b.X+b.W && max(p.Y, q.Y) > b.Y && min(p.Y, q.Y) < b.Y+b.H
}

// randomGraph generates a graph: nested groups, edges from earlier to later
// boxes of any group, both directions and styles.
func randomGraph(t *rapid.T) *Graph {
	g := like(&Graph{
		Direction: Direction(rapid.IntRange(0, 1).Draw(t, "direction")),
		Style:     Style(rapid.IntRange(0, 1).Draw(t, "style")),
		MaxRank:   rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "most in a rank"),
	})
	names := []string{""}
	for i := range rapid.IntRange(0, 6).Draw(t, "groups") {
		id := "g" + strconv.Itoa(i)
		g.Groups = append(g.Groups, Group{
			ID: id, Group: rapid.SampledFrom(names).Draw(t, "in"), Pad: [4]int{20, 8, 10, 6}, Order: i,
			W: rapid.SampledFrom([]int{0, 500}).Draw(t, "least width"),
		})
		names = append(names, id)
	}
	for i := range rapid.IntRange(1, 24).Draw(t, "nodes") {
		g.Nodes = append(g.Nodes, Node{
			ID: "n" + strconv.Itoa(i), W: rapid.IntRange(1, 300).Draw(t, "w"), H: rapid.IntRange(1, 90).Draw(t, "h"),
			Group: rapid.SampledFrom(names).Draw(t, "in"), Order: rapid.IntRange(0, 3).Draw(t, "order"),
		})
	}
	t1, err := newTree(g)
	if err != nil {
		t.Fatal(err)
	}
	ids := slices.Clone(names[1:])
	for _, n := range g.Nodes {
		ids = append(ids, n.ID)
	}
	for i := range rapid.IntRange(0, 40).Draw(t, "edges") {
		a := rapid.SampledFrom(ids).Draw(t, "from")
		b := rapid.SampledFrom(ids).Draw(t, "to")
		if x, y := t1.byID[a], t1.byID[b]; x == y || inside(x, y) || inside(y, x) {
			continue
		}
		g.Edges = append(g.Edges, Edge{ID: "e" + strconv.Itoa(i), From: a, To: b})
	}
	return g
}

func TestBoxesAndRoutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := randomGraph(t)
		l := compute(t, g)
		if err := check(g, l); err != nil {
			t.Fatal(err)
		}
		if !turned(t, g) {
			if err := through(g, l); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// turned reports whether an edge was reversed. Groups with edges in both
// directions form a cycle, and an edge that closes it passes its own group.
func turned(t *rapid.T, g *Graph) bool {
	tr, err := newTree(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.connect(); err != nil {
		t.Fatal(err)
	}
	tr.arrange(tr.root)
	for _, it := range append(tr.items, tr.root) {
		for _, k := range it.links {
			if k.back {
				return true
			}
		}
	}
	return false
}

// TestOrderOfInputDoesNotMatter: a shuffled graph gives the same layout.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := randomGraph(t)
		want := encode(t, compute(t, g))
		shuffle(g, rapid.Uint64().Draw(t, "seed"))
		if got := encode(t, compute(t, g)); got != want {
			t.Fatalf("shuffled:\n%s\nbefore:\n%s", got, want)
		}
	})
}

func shuffle(g *Graph, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	r.Shuffle(len(g.Nodes), func(i, j int) { g.Nodes[i], g.Nodes[j] = g.Nodes[j], g.Nodes[i] })
	r.Shuffle(len(g.Groups), func(i, j int) { g.Groups[i], g.Groups[j] = g.Groups[j], g.Groups[i] })
	r.Shuffle(len(g.Edges), func(i, j int) { g.Edges[i], g.Edges[j] = g.Edges[j], g.Edges[i] })
}

func encode(t interface {
	Helper()
	Fatal(...any)
}, l *Layout) string {
	t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEdgesLeadOn: without cycles, and between siblings, the target of an edge
// is at least a whole gap further along.
func TestEdgesLeadOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := like(&Graph{Direction: Direction(rapid.IntRange(0, 1).Draw(t, "direction"))})
		n := rapid.IntRange(1, 30).Draw(t, "nodes")
		for i := range n {
			g.Nodes = append(g.Nodes, Node{ID: strconv.Itoa(i), W: 50, H: 20})
		}
		for i := range rapid.IntRange(0, 60).Draw(t, "edges") {
			a, b := rapid.IntRange(0, n-1).Draw(t, "a"), rapid.IntRange(0, n-1).Draw(t, "b")
			if a < b {
				g.Edges = append(g.Edges, Edge{strconv.Itoa(i), strconv.Itoa(a), strconv.Itoa(b)})
			}
		}
		at := map[string]Box{}
		for _, b := range compute(t, g).Nodes {
			at[b.ID] = b
		}
		for _, e := range g.Edges {
			a, b := at[e.From], at[e.To]
			end, begin := a.Y+a.H, b.Y
			if g.Direction == Right {
				end, begin = a.X+a.W, b.X
			}
			if begin < end+g.RankGap {
				t.Fatalf("%v leads to %v", a, b)
			}
		}
	})
}

// TestRankHolds: no rank exceeds MaxRank.
func TestRankHolds(t *testing.T) {
	g := like(&Graph{MaxRank: 4})
	for i := range 30 {
		g.Nodes = append(g.Nodes, Node{ID: strconv.Itoa(i), W: 10, H: 10})
	}
	in := map[int]int{}
	for _, b := range compute(t, g).Nodes {
		if in[b.Y]++; in[b.Y] > 4 {
			t.Fatalf("more than 4 boxes at %d", b.Y)
		}
	}
}

func TestRefused(t *testing.T) {
	node := func(id, group string) Node { return Node{ID: id, W: 1, H: 1, Group: group} }
	deep := &Graph{}
	for i := range MaxDepth + 2 {
		group := ""
		if i > 0 {
			group = strconv.Itoa(i - 1)
		}
		deep.Groups = append(deep.Groups, Group{ID: strconv.Itoa(i), Group: group})
	}
	for _, tt := range []struct {
		name string
		g    *Graph
		code fault.Code
	}{
		{"too many boxes", &Graph{Nodes: make([]Node, MaxBoxes+1)}, fault.StepLimit},
		{"too many edges", &Graph{Edges: make([]Edge, MaxEdges+1)}, fault.StepLimit},
		{"too deep", deep, fault.DepthExceeded},
		{"a box twice", &Graph{Nodes: []Node{node("a", ""), node("a", "")}}, fault.InputInvalid},
		{"a box without a name", &Graph{Nodes: []Node{node("", "")}}, fault.InputInvalid},
		{"no such group", &Graph{Nodes: []Node{node("a", "g")}}, fault.InputInvalid},
		{"a node as a group", &Graph{Nodes: []Node{node("a", ""), node("b", "a")}}, fault.InputInvalid},
		{"a circle of groups", &Graph{Groups: []Group{{ID: "a", Group: "b"}, {ID: "b", Group: "a"}}}, fault.InputInvalid},
		{"a negative size", &Graph{Nodes: []Node{{ID: "a", W: -1}}}, fault.InputInvalid},
		{"a huge gap", &Graph{BoxGap: maxSide + 1}, fault.InputInvalid},
		{"an edge to nowhere", &Graph{Nodes: []Node{node("a", "")}, Edges: []Edge{{"e", "a", "b"}}}, fault.InputInvalid},
		{"an edge to itself", &Graph{Nodes: []Node{node("a", "")}, Edges: []Edge{{"e", "a", "a"}}}, fault.InputInvalid},
		{"an edge to its own inside", &Graph{Nodes: []Node{node("a", "g")}, Groups: []Group{{ID: "g"}}, Edges: []Edge{{"e", "g", "a"}}}, fault.InputInvalid},
		{"an edge twice", &Graph{Nodes: []Node{node("a", ""), node("b", "")}, Edges: []Edge{{"e", "a", "b"}, {"e", "a", "b"}}}, fault.InputInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Compute(tt.g); !errors.Is(err, tt.code) {
				t.Errorf("got %v, want %s", err, tt.code)
			}
		})
	}
}
