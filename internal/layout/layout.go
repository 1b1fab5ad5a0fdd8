// SPDX-License-Identifier: Apache-2.0

// Package layout decides where the boxes and lines of a drawn graph go.
//
// Its input is boxes of known size, nested groups of boxes, and edges; its result
// is coordinates. It works by layered drawing (Sugiyama): ranks by longest paths,
// then tightened; bends where an edge crosses a rank; the order within each rank
// by medians and swaps of neighbours; coordinates by the method of Brandes and
// Köpf; routes through the gaps between ranks. A group is laid out first and is
// then one box among its siblings; an edge from or to its inside crosses its
// border at a port.
//
// The result depends on the graph alone: not on the order of its parts, and not
// on a clock. The package never decides what a box contains or how it is drawn,
// and knows nothing of recipes.
package layout

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// Limits of one graph. Time and memory grow with the number of bends, which is
// limited too: an edge beyond that limit is drawn straight.
const (
	MaxBoxes = 20_000
	MaxEdges = 200_000
	MaxDepth = 132 // a recipe may nest 64 scopes of two groups each, and a compensation in the last
	maxSide  = 1 << 20
	maxBends = 100_000
)

// A Direction is the direction of edges.
type Direction uint8

// The directions.
const (
	Down  Direction = iota // from top to bottom
	Right                  // from left to right
)

// A Style determines the shape of a route in the gap between two ranks.
type Style uint8

// The styles.
const (
	// Curved routes are waypoints. Two successive ones are joined by a straight
	// line if they share the coordinate across the direction, else by a curve that
	// starts and ends along the direction.
	Curved Style = iota
	// Orthogonal routes have right angles only. Each source has tracks of its own.
	Orthogonal
)

// A Graph is the input. Lengths are whole numbers of any unit, at most 2^20.
type Graph struct {
	Direction Direction
	Style     Style
	Nodes     []Node
	Groups    []Group
	Edges     []Edge

	// BoxGap is the distance between boxes of a rank, RankGap the least distance
	// between ranks, LineGap the distance between lines along the direction and
	// between a line and a box, TrackGap the distance between lines across the
	// direction. PortGap is the distance between lines that end at one side of a
	// box; 0 = all end in its middle.
	BoxGap, RankGap, LineGap, TrackGap, PortGap int
	// MaxRank is the most boxes in a rank, before the rest move to the next one; 0
	// = no limit.
	MaxRank int
}

// A Node is a box. IDs are unique among nodes and groups. Where crossings do
// not decide, the boxes of a rank are ordered by Order, then by ID.
type Node struct {
	ID    string
	W, H  int
	Group string // "" = outermost
	Order int
}

// A Group is a box around its members. Pad is the space inside its border:
// above (where a title may be), right, below, left. W and H are its least size.
type Group struct {
	ID    string
	Group string // the enclosing group
	W, H  int
	Pad   [4]int
	Order int
}

// An Edge connects two boxes or groups, in any groups. Neither may be inside
// the other. ID identifies its route in the result.
type Edge struct {
	ID, From, To string
}

// A Point is a position.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// A Box is the position of a node or group. X and Y are its upper left corner.
type Box struct {
	ID string `json:"id"`
	X  int    `json:"x"`
	Y  int    `json:"y"`
	W  int    `json:"w"`
	H  int    `json:"h"`
}

// A Route is the path of an edge, from border to border.
type Route struct {
	ID     string  `json:"id"`
	Points []Point `json:"points"`
}

// A Layout is the result. Everything is sorted by ID and within 0,0 – W,H.
type Layout struct {
	W      int     `json:"w"`
	H      int     `json:"h"`
	Nodes  []Box   `json:"nodes"`
	Groups []Box   `json:"groups"`
	Edges  []Route `json:"edges"`
}

// Compute lays out a graph. It refuses a graph over the limits
// (fault.StepLimit, fault.DepthExceeded) and an inconsistent one
// (fault.InputInvalid). In a cycle, one edge is drawn backwards.
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

// layout collects the result from the tree.
func (t *tree) layout() *Layout {
	l := &Layout{Nodes: []Box{}, Groups: []Box{}, Edges: []Route{}}
	t.swapAxes(&l.W, &l.H, t.root.w, t.root.h)
	t.root.place(0, 0)
	for _, it := range t.items {
		b := Box{ID: it.id}
		t.swapAxes(&b.X, &b.Y, it.x, it.y)
		t.swapAxes(&b.W, &b.H, it.w, it.h)
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
			t.swapAxes(&r.Points[j].X, &r.Points[j].Y, p.X, p.Y)
		}
		l.Edges = append(l.Edges, r)
	}
	byID := func(a, b Box) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(l.Nodes, byID)
	slices.SortFunc(l.Groups, byID)
	slices.SortFunc(l.Edges, func(a, b Route) int { return strings.Compare(a.ID, b.ID) })
	return l
}

// swapAxes stores a pair of the inner axes (across, along) as (x, y).
func (t *tree) swapAxes(x, y *int, across, along int) {
	if t.right {
		across, along = along, across
	}
	*x, *y = across, along
}
