// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// A child run that inherits the context of its parent is handed the values that its expressions read
// there, once, when it is started. What becomes of them in the parent later does not change them.

// contexts are the names of the contexts in the start of a run.
var contexts = [...]string{plan.OfInput: "input", plan.OfWorkflow: "workflow", plan.OfSteps: "steps", plan.OfNames: "names"}

// captureAll returns what a step hands to its child run, as [journal.Start] has it. What has no value now is
// left out.
func (e *env) captureAll(list []plan.Capture) ([]byte, *Failure) {
	all := map[string]any{}
	e.substitute = false
	for k := range list {
		h := &list[k]
		var one vars
		one.list = append(one.list, e.capture(&h.Var))
		v, ok := one.exprValue(&one.list[0])
		if one.err != nil {
			return nil, failureOf(one.err, fault.InternalError)
		}
		if step, isStep := v.(map[string]any); isStep && h.Of == plan.OfSteps {
			step = maps.Clone(step) // others may read it
			delete(step, "result")  // it is the output
			v = step
		}
		if h.Field != "" && ok {
			fields, _ := v.(map[string]any)
			v, ok = fields[h.Field]
		}
		if !ok {
			continue
		}
		if jsonx.HasReserved(v) { // a value of the recipe: it must not become a reference to a file
			return nil, failureOf(journal.ErrReserved(fmt.Sprintf("what the child run inherits as %q", h.Name)), fault.InputInvalid)
		}
		of := contexts[h.Of]
		if all[of] == nil {
			all[of] = map[string]any{}
		}
		all[of].(map[string]any)[h.Name] = v
	}
	if mutation.Isolate {
		all[contexts[plan.OfInput]] = e.run.start.Parameters
	}
	if len(all) == 0 || mutation.Inherit {
		return nil, nil
	}
	raw, err := jsonx.Canonical(all)
	switch {
	case err != nil:
		return nil, failureOf(err, fault.TemplateError)
	case len(raw) > maxInline:
		return nil, &Failure{Code: fault.ValueTooLarge, Msg: "the context that the child run inherits has " + sizeText(int64(len(raw))) + ", the limit is " +
			sizeText(maxInline) + "; pass less of it as inputs"}
	}
	return raw, nil
}

// inherited returns what the run has of one context of its parent.
func (in *inputs) inherited(of plan.Context) map[string]any {
	if len(in.start.Inherited) == 0 {
		return nil
	}
	if in.vars == nil {
		in.vars = new(startVars)
	}
	all, _ := once(&in.vars.inherited, in.decodeInherited).(map[string]any)
	fields, _ := all[contexts[of]].(map[string]any)
	return fields
}

func (in *inputs) decodeInherited() any {
	v, err := jsonx.Decode(in.start.Inherited, journal.ValueLimits)
	if err != nil {
		return map[string]any{} // this engine encoded it
	}
	all, _ := v.(map[string]any)
	steps, _ := all[contexts[plan.OfSteps]].(map[string]any)
	for _, step := range steps {
		fields, _ := step.(map[string]any)
		if out, ok := fields["output"]; ok {
			fields["result"] = out
		}
	}
	return all
}
