// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// critical marks the critical path of a run that has ended.
func (f *Fold) critical(pic *Picture) error {
	if !f.Status.Terminal() {
		return fault.New(fault.Usage, "the run is %s: a critical path is that of a finished run", f.Status)
	}
	if f.Times.Full {
		return fault.New(fault.StepLimit, "the run has more than %d step instances: its critical path is not looked for", view.MaxTimed)
	}
	f.Times.Index(f.Plan)
	c := &criticalPath{f: f, steps: map[int32]bool{}, edges: map[[2]int32]bool{}, graphs: map[int32]bool{}}
	c.scope("", 0, 1<<62)
	at := map[string]int32{}
	for i := range pic.Nodes {
		n := &pic.Nodes[i]
		n.Critical = c.steps[n.Step]
		at[n.ID] = n.Step
		for _, g := range f.Plan.Steps[n.Step].Graphs() {
			if c.graphs[g] {
				at[scopeOf(f.Plan, n.ID, g)] = n.Step
			}
		}
	}
	for i := range pic.Edges {
		switch e := &pic.Edges[i]; e.Kind {
		case Opens:
			_, e.Critical = at[e.To]
		case Follows:
			e.Critical = c.edges[[2]int32{at[strings.TrimSuffix(e.From, "/")], at[e.To]}]
		}
	}
	return nil
}

type criticalPath struct {
	f      *Fold
	steps  map[int32]bool
	graphs map[int32]bool
	edges  map[[2]int32]bool
}

// last returns the step of a scope that ended last, but not after until.
func (c *criticalPath) last(path journal.Path, among []int32, until int64) (step int32, end int64) {
	step = plan.None
	for _, i := range among {
		if at, ok := c.f.Times.Ended(journal.Ref{Path: path, Step: i}); ok && at <= until && (step == plan.None || at >= end) {
			step, end = i, at
		}
	}
	return step, end
}

// scope follows the path backwards from the last step of a scope to the steps
// that it waited for.
func (c *criticalPath) scope(path journal.Path, graph int32, until int64) {
	g := &c.f.Plan.Graphs[graph]
	all := make([]int32, g.N)
	for i := range all {
		all[i] = g.First + int32(i)
	}
	step, end := c.last(path, all, until)
	for step != plan.None {
		c.steps[step] = true
		c.inner(journal.Ref{Path: path, Step: step}, end)
		before, at := c.last(path, c.f.Plan.Steps[step].Preds, end)
		if before != plan.None {
			c.edges[[2]int32{before, step}] = true
		}
		step, end = before, at
	}
}

// inner follows the scopes of a step: the one that ended last, but not after
// until.
func (c *criticalPath) inner(ref journal.Ref, until int64) {
	best, graph, latest := journal.Path(""), plan.None, int64(-1)
	for _, path := range c.f.Times.Scopes(ref) {
		for _, g := range c.f.Plan.Steps[ref.Step].Graphs() {
			gr := &c.f.Plan.Graphs[g]
			if gr.Role == plan.Compensation {
				continue
			}
			all := make([]int32, gr.N)
			for i := range all {
				all[i] = gr.First + int32(i)
			}
			step, end := c.last(path, all, until)
			if step != plan.None && (end > latest || end == latest && path < best) {
				best, graph, latest = path, g, end
			}
		}
	}
	if graph != plan.None {
		c.graphs[graph] = true
		c.scope(best, graph, until)
	}
}
