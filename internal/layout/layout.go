// SPDX-License-Identifier: Apache-2.0

// Package layout decides where the boxes and lines of a drawn graph go.
//
// Its input is boxes of known size, groups of boxes (nested as deep as wanted)
// and edges; its answer is coordinates. The steps are those of layered drawing:
// ranks along the longest paths, tightened; bends where an edge crosses a rank;
// an order within each rank by medians and swaps of neighbours; coordinates after
// Brandes and Köpf; routes through the gaps between ranks. A group is laid out
// first and is then one box among its siblings; an edge from or to its inside
// passes its border at a port.
//
// The answer depends on the graph alone: not on the order in which it is given,
// not on a clock. The package never decides what a box says or how it looks,
// and knows nothing of recipes.
package layout

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// The limits of one graph. Time and memory grow with the number of bends, which
// is bounded as well: an edge past that bound is drawn straight.
const (
	MaxBoxes = 20_000
	MaxEdges = 200_000
	MaxDepth = 132 // a recipe may nest 64 scopes, of two groups each, and an undoing in the last
	maxSide  = 1 << 20
	maxBends = 100_000
)

// A Direction is where edges lead.
type Direction uint8

// The directions.
const (
	Down  Direction = iota // from top to bottom
	Right                  // from left to right
)

// A Style is how a route runs through the gap between two ranks.
type Style uint8

// The styles.
const (
	// Curved routes are waypoints. Two that follow each other are joined by a
	// straight line where they share the coordinate across the direction, else
	// by a curve that leaves and enters along the direction.
	Curved Style = iota
	// Orthogonal routes turn at right angles only, each source on tracks of its own.
	Orthogonal
)

// A Graph is what is to be drawn. Lengths are in any unit, whole and at most 2^20.
type Graph struct {
	Direction Direction
	Style     Style
	Nodes     []Node
	Groups    []Group
	Edges     []Edge

	// BoxGap lies between boxes of a rank, RankGap at least between ranks,
	// LineGap between lines along the direction and between a line and a box,
	// TrackGap between lines across it. PortGap is how far apart lines meet a
	// side of a box; 0 = all in its middle.
	BoxGap, RankGap, LineGap, TrackGap, PortGap int
	// MaxRank is how many boxes a rank holds before the next one takes over
	// the rest; 0 = no bound.
	MaxRank int
}

// A Node is a box. Ids are unique among nodes and groups. Boxes of a rank keep
// the order of Order, then of ID, where crossings do not decide.
type Node struct {
	ID    string
	W, H  int
	Group string // "" = outermost
	Order int
}

// A Group is a box around its members. Pad is the space inside its border:
// above (where a title may stand), right, below, left. W and H are its least size.
type Group struct {
	ID    string
	Group string // the group around it
	W, H  int
	Pad   [4]int
	Order int
}

// An Edge leads from one box or group to another, in any group; neither may lie
// inside the other. ID names it in the answer.
type Edge struct {
	ID, From, To string
}

// A Point is a place.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// A Box is where a node or group is; X and Y are its upper left corner.
type Box struct {
	ID string `json:"id"`
	X  int    `json:"x"`
	Y  int    `json:"y"`
	W  int    `json:"w"`
	H  int    `json:"h"`
}

// A Route is where an edge runs, from border to border.
type Route struct {
	ID     string  `json:"id"`
	Points []Point `json:"points"`
}

// A Layout is the answer: everything sorted by id, inside 0,0 – W,H.
type Layout struct {
	W      int     `json:"w"`
	H      int     `json:"h"`
	Nodes  []Box   `json:"nodes"`
	Groups []Box   `json:"groups"`
	Edges  []Route `json:"edges"`
}

// Compute lays a graph out. It refuses a graph over the limits
// (fault.StepLimit, fault.DepthExceeded) and one that contradicts itself
// (fault.InputInvalid). Cycles are drawn with an edge that runs back.
func Compute(g *Graph) (*Layout, error) {
	t, err := newTree(g)
	if err != nil {
		return nil, err
	}
	if err := t.connect(); err != nil {
		return nil, err
	}
	t.arrange(t.root)
	return t.layout(), nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.InputInvalid, "graph: "+format, args...)
}

func (g *Graph) check() error {
	if n := len(g.Nodes) + len(g.Groups); n > MaxBoxes {
		return fault.New(fault.StepLimit, "graph: %d boxes, at most %d can be drawn", n, MaxBoxes)
	}
	if n := len(g.Edges); n > MaxEdges {
		return fault.New(fault.StepLimit, "graph: %d edges, at most %d can be drawn", n, MaxEdges)
	}
	sizes := [][]int{{g.BoxGap, g.RankGap, g.LineGap, g.TrackGap, g.PortGap, g.MaxRank}}
	for i := range g.Nodes {
		sizes = append(sizes, []int{g.Nodes[i].W, g.Nodes[i].H})
	}
	for i := range g.Groups {
		sizes = append(sizes, []int{g.Groups[i].W, g.Groups[i].H}, g.Groups[i].Pad[:])
	}
	for _, list := range sizes {
		for _, n := range list {
			if n < 0 || n > maxSide {
				return invalid("a length is %d, want 0 to %d", n, maxSide)
			}
		}
	}
	return nil
}

// layout reads the answer off the tree.
func (t *tree) layout() *Layout {
	l := &Layout{Nodes: []Box{}, Groups: []Box{}, Edges: []Route{}}
	t.flip(&l.W, &l.H, t.root.w, t.root.h)
	t.root.place(0, 0)
	for _, it := range t.items {
		b := Box{ID: it.id}
		t.flip(&b.X, &b.Y, it.x, it.y)
		t.flip(&b.W, &b.H, it.w, it.h)
		if it.group {
			l.Groups = append(l.Groups, b)
		} else {
			l.Nodes = append(l.Nodes, b)
		}
	}
	for i := range t.edges {
		e := &t.edges[i]
		r := Route{ID: e.id, Points: e.route(t.style)}
		for j, p := range r.Points {
			t.flip(&r.Points[j].X, &r.Points[j].Y, p.X, p.Y)
		}
		l.Edges = append(l.Edges, r)
	}
	byID := func(a, b Box) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(l.Nodes, byID)
	slices.SortFunc(l.Groups, byID)
	slices.SortFunc(l.Edges, func(a, b Route) int { return strings.Compare(a.ID, b.ID) })
	return l
}

// flip writes a pair of the inner axes (across, along) as (x, y).
func (t *tree) flip(x, y *int, across, along int) {
	if t.right {
		across, along = along, across
	}
	*x, *y = across, along
}
