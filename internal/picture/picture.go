// SPDX-License-Identifier: Apache-2.0

// Package picture draws recipes and runs. It decides which parts of a plan are
// boxes, groups and edges, which parts of a run's journal are shown on them, and
// writes the result as SVG, Mermaid, DOT, text or JSON.
//
// The same plan gives the same picture before, during and after a run. Names and
// messages are untrusted: every form escapes them, and none contains control
// characters. The package uses no clock and no disk, decides nothing about a
// run, and leaves coordinates to layout.
package picture

import (
	"github.com/roux-engine/roux/internal/layout"
)

// A Picture is a graph of steps with their descriptions and states.
type Picture struct {
	Name     string // of the recipe
	Note     string // a line about the run; "" for a recipe
	Run      bool   // the picture shows a run: steps have a state
	Imported bool   // the run came in a bundle; Note says so too
	Nodes    []Node
	Groups   []Group
	Edges    []Edge
}

// A Node is a step.
type Node struct {
	ID    string // its path: check.then.convert, pages[].resize, par[0].fetch
	Step  int32  // its number in the plan
	Kind  string
	Label string
	// Lines describe what the step does and when. The drawing of a recipe shows the
	// first line in the step's box and all of them in the box's description.
	Lines []string
	Group string // "" = outermost
	Order int
	State *State // of a run
	// Untaken is set when the run ended without the step, or took another path.
	Untaken  bool
	Critical bool
	Repeated bool // inside a loop: one card stands for all iterations
}

// A Group is a box around steps: a side of a condition, a branch, the body of a
// loop, a fallback, a compensation. With role "step" it holds a step and the
// graphs it owns.
type Group struct {
	ID, Title, Role, Group string
	Order                  int
	Untaken                bool
}

// Dashed reports whether the group is off the normal path.
func (g *Group) Dashed() bool { return g.Role == "fallback" || g.Role == "compensation" }

// An Edge leads from a step, or the group that holds it and its graphs, to one
// that comes after it.
type Edge struct {
	ID, From, To string
	Kind         EdgeKind
	Label        string
	Taken        bool // the run took this edge
	Untaken      bool // the run did not take this edge
	Critical     bool
}

// Aside reports whether the edge is off the normal path: it opens a fallback or
// a compensation, or leads back from a fallback.
func (e *Edge) Aside() bool {
	return e.Kind == Opens && (e.Label == "fallback" || e.Label == "compensation") || e.Kind == Rejoins
}

// caption is the text beside the start of the edge: why it is taken.
func (e *Edge) caption() string {
	switch {
	case e.Kind == Passes:
		return e.Label
	case e.Kind == Opens && e.Label == "fallback":
		return "on failure"
	}
	return ""
}

// dataName is the name of the data that an edge of kind Reads carries.
func (e *Edge) dataName() string {
	if e.Kind == Reads {
		return e.Label
	}
	return ""
}

// EdgeKind is the reason for an edge.
type EdgeKind string

// The kinds of edge.
const (
	Follows EdgeKind = "follows" // the second waits for the first
	Opens   EdgeKind = "opens"   // the step starts the group
	Reads   EdgeKind = "reads"   // the second reads the output of the first
	Passes  EdgeKind = "passes"  // the condition was false and has no else, so the second follows at once
	Rejoins EdgeKind = "rejoins" // the second follows when the fallback of the first has completed
)

// Options configure the drawing.
type Options struct {
	Direction layout.Direction
	// Width is the number of columns for text. Default 120.
	Width int
}

// maxPerRank keeps pictures of wide plans in a shape that fits a screen: more
// steps than this in parallel go to further ranks.
const maxPerRank = 24

// graph converts the picture to the input of layout. size and group return the
// sizes.
func (p *Picture) graph(size func(*Node) (w, h int), group func(*Group) layout.Group) *layout.Graph {
	g := &layout.Graph{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		w, h := size(n)
		g.Nodes = append(g.Nodes, layout.Node{ID: n.ID, W: w, H: h, Group: n.Group, Order: n.Order})
	}
	for i := range p.Groups {
		lg := group(&p.Groups[i])
		lg.ID, lg.Group, lg.Order = p.Groups[i].ID, p.Groups[i].Group, p.Groups[i].Order
		g.Groups = append(g.Groups, lg)
	}
	for i := range p.Edges {
		e := &p.Edges[i]
		g.Edges = append(g.Edges, layout.Edge{ID: e.ID, From: e.From, To: e.To})
	}
	return g
}

// A placement is a layout with its coordinates by ID.
type placement struct {
	*layout.Layout
	boxes  map[string]layout.Box
	routes map[string][]layout.Point
}

func place(g *layout.Graph) (*placement, error) {
	l, err := layout.Compute(g)
	if err != nil {
		return nil, err
	}
	d := &placement{Layout: l, boxes: map[string]layout.Box{}, routes: map[string][]layout.Point{}}
	for _, b := range l.Nodes {
		d.boxes[b.ID] = b
	}
	for _, b := range l.Groups {
		d.boxes[b.ID] = b
	}
	for _, r := range l.Edges {
		d.routes[r.ID] = r.Points
	}
	return d, nil
}

// statusLine is the line below the name on a card of a run.
func (n *Node) statusLine() string {
	switch {
	case n.State != nil:
		return n.State.summary(n.Repeated)
	case n.Untaken:
		return "not run"
	}
	return "pending"
}

// status is the status that determines the style of a card; "" for a recipe.
func (p *Picture) status(n *Node) string {
	switch {
	case !p.Run:
		return ""
	case n.State != nil:
		return n.State.Status()
	}
	return "pending"
}

// cardLines are the lines below the name on a card.
func (p *Picture) cardLines(n *Node) []string {
	if !p.Run {
		return n.Lines[:min(len(n.Lines), 3)]
	}
	lines := []string{n.statusLine()}
	if n.State != nil {
		lines = append(lines, n.State.details()...)
	}
	return lines
}
