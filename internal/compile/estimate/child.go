// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
	"fmt"

	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// maxCounted is how many steps of child runs an estimate counts.
const maxCounted = 1_000_000

// childEstimates is what the estimators of a plan and of its children share. Runs that
// cannot differ are counted once: how much a run costs depends on its plan, its known
// input and how deep it stands, and not on who asks first.
type childEstimates struct {
	registered map[plan.ChildRef]*plan.Plan
	done       map[childRun]amount
	expected   map[childRun]int64  // how long the run takes, in ms
	byInput    map[*plan.Plan]bool // what a run costs depends on its input
	told       map[openPart]bool   // the parts without a known bound, each told once
	counted    int                 // steps
}

// A childRun is a run as far as its estimate depends on it. The input is that of its step,
// "" when it makes no difference.
type childRun struct {
	plan        *plan.Plan
	input       string
	depth, most int64 // where it stands, and how deep it and those below it may
}

type openPart struct {
	plan *plan.Plan
	step string
}

func newChildEstimates(root *plan.Plan) *childEstimates {
	c := &childEstimates{registered: map[plan.ChildRef]*plan.Plan{}, done: map[childRun]amount{}, expected: map[childRun]int64{}, byInput: map[*plan.Plan]bool{}, told: map[openPart]bool{}}
	for _, r := range root.Registered {
		c.registered[r.Ref] = r.Plan
	}
	return c
}

// rootDepth returns how deep child runs below a root run of p may stand.
func rootDepth(p *plan.Plan) int64 { return cmp.Or(p.Limits.ChildDepth, plan.DefaultChildDepth) }

// childPlan returns the plan of the recipe that a step runs, or nil when it is not known.
func (e *estimator) childPlan(st *plan.Step) *plan.Plan {
	ref := e.p.Children[st.Child.Ref]
	if ref.Key == "" {
		return e.children.registered[ref]
	}
	return e.p.EmbeddedPlan(ref.Key)
}

// child returns what the run costs that a step starts. Of its input only the fixed values
// are known. A recursion counts down to its limit: the step that would go deeper fails and
// costs nothing.
func (e *estimator) child(st *plan.Step) amount {
	c, ref := e.children, e.p.Children[st.Child.Ref]
	if ref.By != "" {
		e.openPart(st, fmt.Sprintf("%s runs the recipe that %s says, whose cost is known when the step runs", st.ID, ref.Name))
		return amount{}
	}
	if e.childPlan(st) == nil {
		e.openPart(st, fmt.Sprintf("%s runs the recipe %s, whose cost is unknown: it is not found here; give the directory that has it (--recipes)", st.ID, &ref))
		return amount{}
	}
	run, ok := e.below(st)
	if !ok {
		return amount{}
	}
	a, done := c.done[run]
	switch {
	case done:
	case c.counted > maxCounted:
		e.openPart(st, fmt.Sprintf("%s runs the recipe %s, which is not counted: there are more than %d steps", st.ID, &ref, maxCounted))
		return amount{}
	default:
		inner := e.inside(st, run)
		a = inner.graph(0)
		c.done[run] = a
		for _, o := range inner.open {
			e.open = append(e.open, st.ID+": "+o)
		}
	}
	if most := st.Child.MaxCredits; most > 0 {
		for s := range a.credits {
			a.credits[s] = min(a.credits[s], int64(ledger.Whole(most)))
		}
	}
	if st.TimeoutMS > 0 {
		a.ms[0], a.ms[1] = min(a.ms[0], st.TimeoutMS), min(a.ms[1], st.TimeoutMS)
	}
	return a
}

// below returns the run that a step starts; ok is false if its recipe is not known, or if it
// would be deeper than runs may nest.
func (e *estimator) below(st *plan.Step) (run childRun, ok bool) {
	p := e.childPlan(st)
	if p == nil {
		return run, false
	}
	run = childRun{plan: p, depth: e.depth + 1, most: e.most}
	if st.Child.Depth > 0 {
		run.most = min(run.most, st.Child.Depth)
	}
	if run.depth > run.most {
		return run, false
	}
	if p.Limits.ChildDepth > 0 {
		run.most = min(run.most, run.depth+p.Limits.ChildDepth)
	}
	if e.children.dependsOnInput(p) {
		run.input = string(st.Params)
	}
	return run, true
}

// inside returns an estimator of the run that a step starts.
func (e *estimator) inside(st *plan.Step, run childRun) *estimator {
	return &estimator{p: run.plan, actions: e.actions, vars: Known{Input: fixedValues(st)}.vars(run.plan), children: e.children, depth: run.depth, most: run.most}
}

// dependsOnInput reports whether the input of a run of p makes a difference: whether a loop
// of it may have as many items as that says.
func (c *childEstimates) dependsOnInput(p *plan.Plan) bool {
	known, ok := c.byInput[p]
	if !ok {
		for i := range p.Steps {
			known = known || p.Steps[i].Kind == plan.Loop
		}
		c.byInput[p] = known
	}
	return known
}

// openPart adds a part without a known bound, unless another run of the plan has told it.
func (e *estimator) openPart(st *plan.Step, text string) {
	part := openPart{e.p, st.ID}
	if !e.children.told[part] {
		e.children.told[part] = true
		e.open = append(e.open, text)
	}
}

// fixedValues returns the inputs of a step that are known before it runs.
func fixedValues(st *plan.Step) map[string]any {
	v, err := jsonx.Decode(st.Params, jsonx.Limits{Bytes: len(st.Params) + 1})
	if err != nil {
		return nil
	}
	fixed, _ := v.(map[string]any)
	for name, v := range fixed {
		if expr.HasTemplate(v) {
			delete(fixed, name)
		}
	}
	return fixed
}
