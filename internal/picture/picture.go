// SPDX-License-Identifier: Apache-2.0

// Package picture draws recipes and runs: it decides what of a plan is a box, a
// group and an edge, what of a run's journal is shown on them, and writes the
// result as SVG, Mermaid, DOT, text or JSON.
//
// The same plan gives the same picture, before, during and after a run. Names
// and messages come from strangers: every form escapes them, and none holds a
// control character. The package asks no clock and no disk, decides nothing
// about a run, and leaves coordinates to layout.
package picture

import (
	"github.com/roux-engine/roux/internal/layout"
)

// A Picture is a graph with what is to be said about it.
type Picture struct {
	Name     string // of the recipe
	Note     string // a line about the run; "" for a recipe
	Run      bool   // the picture shows a run: steps have a state
	Imported bool   // the run came in a bundle; Note says so, too
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
	// Lines say what it does and when: the first stands on the card of a
	// recipe, all of them in its description.
	Lines []string
	Group string // "" = outermost
	Order int
	State *State // of a run
	// Untaken says that the run ended without the step, or went another way.
	Untaken  bool
	Critical bool
	Repeated bool // inside a loop: one card stands for all iterations
}

// A Group is a box around steps: a side of a condition, a branch, the body of
// a loop, a fallback, a compensation; or, with role "step", a step together with
// the graphs it owns.
type Group struct {
	ID, Title, Role, Group string
	Order                  int
	Untaken                bool
}

// Dashed says that the group is off the usual way.
func (g *Group) Dashed() bool { return g.Role == "fallback" || g.Role == "compensation" }

// An Edge leads from a step (or the group that holds it with what it owns) to one
// that comes after it.
type Edge struct {
	ID, From, To string
	Kind         EdgeKind
	Label        string
	Taken        bool // the run went this way
	Untaken      bool // the run did not
	Critical     bool
}

// Aside says that the edge is off the usual way: it opens a fallback or a
// compensation, or leads back from a fallback.
func (e *Edge) Aside() bool {
	return e.Kind == Opens && (e.Label == "fallback" || e.Label == "compensation") || e.Kind == Rejoins
}

// word is what stands beside the beginning of the edge: why it is taken.
func (e *Edge) word() string {
	switch {
	case e.Kind == Passes:
		return e.Label
	case e.Kind == Opens && e.Label == "fallback":
		return "on failure"
	}
	return ""
}

// reads is what an edge of data carries.
func (e *Edge) reads() string {
	if e.Kind == Reads {
		return e.Label
	}
	return ""
}

// EdgeKind is why an edge is there.
type EdgeKind string

// The kinds of edge.
const (
	Follows EdgeKind = "follows" // the second waits for the first
	Opens   EdgeKind = "opens"   // the step starts the group
	Reads   EdgeKind = "reads"   // the second reads what the first made
	Passes  EdgeKind = "passes"  // the condition was false and has no else: the second follows at once
	Rejoins EdgeKind = "rejoins" // the second follows when the fallback has taken the place of its step
)

// Options say how a picture is drawn.
type Options struct {
	Direction layout.Direction
	// Width is how many columns text may have; default 120.
	Width int
}

// mostInRank keeps pictures of wide plans in a shape that a screen can show:
// more steps than this beside each other go to further ranks.
const mostInRank = 24

// graph is the picture as layout wants it, with sizes by size.
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

// A drawn picture has its coordinates by id.
type drawn struct {
	*layout.Layout
	boxes  map[string]layout.Box
	routes map[string][]layout.Point
}

func draw(g *layout.Graph) (*drawn, error) {
	l, err := layout.Compute(g)
	if err != nil {
		return nil, err
	}
	d := &drawn{Layout: l, boxes: map[string]layout.Box{}, routes: map[string][]layout.Point{}}
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

// statusLine is what a card of a run says below its name.
func (n *Node) statusLine() string {
	switch {
	case n.State != nil:
		return n.State.line(n.Repeated)
	case n.Untaken:
		return "not run"
	}
	return "pending"
}

// status is the status whose look the card has; "" for a recipe.
func (p *Picture) status(n *Node) string {
	switch {
	case !p.Run:
		return ""
	case n.State != nil:
		return n.State.Status()
	}
	return "pending"
}

// cardLines are the lines under the name on a card.
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
