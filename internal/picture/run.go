// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// A Fold collects from a run's events what its picture shows.
type Fold struct{ *view.Tally }

// NewFold returns an empty Fold for a run of p. With critical it records when
// every step instance ended.
func NewFold(p *plan.Plan, critical bool) *Fold { return &Fold{view.NewTally(p, critical)} }

// Picture returns the picture of the run after the events folded so far.
func (f *Fold) Picture(name string, bindings bool) (*Picture, error) {
	pic := FromPlan(f.Plan, name, bindings)
	pic.Run = true
	pic.Note = fmt.Sprintf("%s, event %d", f.Status, f.Last)
	scopes := map[string]int32{}
	for i := range pic.Nodes {
		n := &pic.Nodes[i]
		f.node(n)
		for _, g := range f.Plan.Steps[n.Step].Graphs() {
			scopes[scopeOf(f.Plan, n.ID, g)] = g
		}
	}
	for i := range pic.Groups {
		g := &pic.Groups[i]
		if graph, ok := scopes[g.ID]; ok {
			g.Untaken = f.NeverOpened(graph)
		}
	}
	steps := map[string]int32{}
	for i := range pic.Nodes {
		n := &pic.Nodes[i]
		steps[n.ID] = n.Step
	}
	for i := range pic.Edges {
		f.edge(&pic.Edges[i], steps, scopes)
	}
	if f.Times != nil {
		if err := f.critical(pic); err != nil {
			return nil, err
		}
		pic.Note += ", critical path marked"
	}
	return pic, nil
}

func (f *Fold) node(n *Node) {
	s := f.Steps[n.Step]
	if s.Own != "" || s.Status() != "pending" || s.Counts["pending"] > 0 {
		n.State = &State{s}
		n.Untaken = s.Status() == "skipped"
		return
	}
	if n.Untaken = f.Status.Terminal() || f.NeverOpened(f.Plan.Steps[n.Step].Graph); n.Untaken {
		return
	}
	if g := f.Plan.Steps[n.Step].Graph; g == 0 || f.Opened[g] > 0 {
		var unmet []string
		for _, pred := range f.Plan.Steps[n.Step].Preds {
			if !f.Settled(pred) {
				unmet = append(unmet, oneLine(f.Plan.Steps[pred].ID))
			}
		}
		if len(unmet) > 0 {
			s.Note = "waits for " + strings.Join(unmet, ", ")
			s.Own = "pending"
			n.State = &State{s}
		}
	}
}

func (f *Fold) edge(e *Edge, steps, scopes map[string]int32) {
	if e.Kind == Opens {
		g := scopes[e.To]
		e.Taken, e.Untaken = f.Opened[g] > 0, f.NeverOpened(g)
		return
	}
	to := steps[e.To]
	switch e.Kind {
	case Passes:
		owner := steps[e.From]
		then := f.Plan.Steps[owner].Then
		e.Taken = f.Opened[then] == 0 && f.Steps[owner].Status() == "completed" && f.Steps[to].Began
		e.Untaken = !e.Taken && (f.Status.Terminal() || f.Settled(owner))
		return
	case Rejoins:
		g := scopes[e.From]
		e.Taken = f.Opened[g] > 0 && f.Steps[to].Began
		e.Untaken = !e.Taken && (f.Status.Terminal() || f.NeverOpened(g))
		return
	}
	e.Taken = f.Steps[to].Began
	e.Untaken = !e.Taken && (f.Status.Terminal() || f.NeverOpened(f.Plan.Steps[to].Graph) || f.Steps[to].Status() == "skipped")
}
