// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Wanted is what limits may depend on, of the attempt that a step wants or has. It is the same
// whenever it is asked for during the attempt.
type Wanted struct {
	Provider, Model string        // the inputs of these names, as far as they are texts
	Tokens          int64         // the input maxTokens; 0 = it has none
	Retry           bool          // the step has failed before
	Ceiling         ledger.Amount // the most that it may cost
}

// wantedInputs are the names of the inputs that are of interest.
var wantedInputs = [...]string{"provider", "model", "maxTokens"}

// Wants returns what limits may depend on of the attempt of a step. Inputs that cannot be computed
// are left out: the attempt will fail because of them.
func (r *Run) Wants(ref journal.Ref) (w Wanted) {
	s, i := r.at(ref)
	if s == nil {
		return Wanted{}
	}
	brief := r.brief(s, i)
	w.Retry, w.Ceiling = s.steps[i].fails > 0, r.ceilingOf(brief)
	step := s.step(r.plan, i)
	if len(step.Params) == 0 && len(step.Bindings) == 0 {
		return w
	}
	code := r.prog.code(ref.Step)
	if code.err != nil {
		return w
	}
	var t Task
	for _, name := range wantedInputs {
		v, computed := code.input(step, name)
		if computed != nil {
			if t.step == nil {
				t.step = step
				t.resolve(r.env(s, i, step, nil))
			}
			v, _ = computed(&t.vars)
		}
		text, _ := v.(string)
		switch name {
		case "provider":
			w.Provider = text
		case "model":
			w.Model = text
		case "maxTokens":
			w.Tokens, _ = v.(int64)
		}
	}
	return w
}

// input returns the value of an input of a step, or what computes it; nil and nil = it has no
// such input.
func (c *stepCode) input(step *plan.Step, name string) (value any, computed func(*vars) (any, error)) {
	if k := slices.IndexFunc(step.Bindings, func(b plan.Binding) bool { return b.Name == name }); k >= 0 {
		return nil, func(vs *vars) (any, error) { return c.bindings[k].value(&step.Bindings[k], vs) }
	}
	if c.params == nil {
		return nil, nil
	}
	v, p := c.params.Field(name)
	if p == nil {
		return v, nil
	}
	return nil, func(vs *vars) (any, error) { return p.Eval(vs) }
}
