// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// childEstimates is what the estimators of a plan and of its children share.
type childEstimates struct {
	registered map[plan.ChildRef]*plan.Plan
	done       map[*plan.Step]amount // each step once, however often its recipe is run
	running    map[*plan.Plan]bool   // the plan and those around it
}

func newChildEstimates(root *plan.Plan) *childEstimates {
	c := &childEstimates{registered: map[plan.ChildRef]*plan.Plan{}, done: map[*plan.Step]amount{}, running: map[*plan.Plan]bool{root: true}}
	for _, r := range root.Registered {
		c.registered[r.Ref] = r.Plan
	}
	return c
}

// child returns what the run costs that a step starts. Of its input only the fixed values
// are known.
func (e *estimator) child(st *plan.Step) amount {
	c, ref := e.children, e.p.Children[st.Child.Ref]
	if a, ok := c.done[st]; ok {
		return a
	}
	p := c.registered[ref]
	if !ref.Registered() {
		p = e.p.EmbeddedPlan(ref.Key)
	}
	switch {
	case p == nil:
		e.open = append(e.open, fmt.Sprintf("%s runs the recipe %s, which is not known here and not counted", st.ID, &ref))
		return amount{}
	case c.running[p]:
		e.open = append(e.open, fmt.Sprintf("%s runs the recipe %s again, which is counted once", st.ID, &ref))
		return amount{}
	}
	inner := &estimator{p: p, actions: e.actions, vars: Known{Input: fixedValues(st)}.vars(p), children: c}
	c.running[p] = true
	a := inner.graph(0)
	c.running[p] = false
	for _, o := range inner.open {
		e.open = append(e.open, st.ID+": "+o)
	}
	if most := st.Child.MaxCredits; most > 0 {
		for s := range a.credits {
			a.credits[s] = min(a.credits[s], int64(ledger.Whole(most)))
		}
	}
	if st.TimeoutMS > 0 {
		a.ms[0], a.ms[1] = min(a.ms[0], st.TimeoutMS), min(a.ms[1], st.TimeoutMS)
	}
	c.done[st] = a
	return a
}

// fixedValues returns the inputs of a step that are known before it runs.
func fixedValues(st *plan.Step) map[string]any {
	v, err := jsonx.Decode(st.Params, jsonx.Limits{Bytes: len(st.Params) + 1})
	if err != nil {
		return nil
	}
	fixed, _ := v.(map[string]any)
	for name, v := range fixed {
		if hasTemplate(v) {
			delete(fixed, name)
		}
	}
	return fixed
}
