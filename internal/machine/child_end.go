// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A ChildEnd is how a child run has ended.
type ChildEnd struct {
	Status  journal.RunStatus
	Used    ledger.Amount // what it costs its parent
	Steps   int64         // that it and those below it began
	Outputs []byte
	Last    string // the step whose output is that of all, if Outputs are those of its steps
	Code    fault.Code
	Msg     string
	Recipe  string // its recipe, for the message
	Step    string // the step of it that failed, if one did
}

// ChildEnd is the end of a child run, as its parent is told of it; ev is the run's last
// event.
func (r *Run) ChildEnd(ev *journal.Event) *ChildEnd {
	e := &ChildEnd{Status: ev.Kind.EndStatus(), Used: r.childDue(ev.Kind == journal.EvRunFailed), Steps: r.steps(),
		Code: ev.Code, Msg: ev.Text, Recipe: r.start.Recipe}
	switch ev.Kind {
	case journal.EvRunCompleted:
		e.Outputs, e.Code, e.Msg = ev.Data, "", ""
		if out := r.plan.Graphs[0].Out; r.plan.OfSteps && out != plan.None {
			e.Last = r.plan.Steps[out].ID
		}
	case journal.EvRunFailed:
		if step := ev.FailedStep(); step >= 0 && int(step) < len(r.plan.Steps) {
			e.Step = r.plan.Steps[step].ID
		}
	case journal.EvRunCancelled:
		e.Code = fault.ExecutionCancelled
	case journal.EvRunExpired:
		e.Code = fault.ExecutionExpired
	}
	return e
}

// message is the failure of a child run as the step shows it: the way to the step that
// failed, and why.
func (e *ChildEnd) message() string {
	switch {
	case e.Code == "":
		return ""
	case e.Step != "":
		return fmt.Sprintf("recipe %q failed in step %q: %s", e.Recipe, e.Step, cutText(e.Msg))
	}
	return fmt.Sprintf("recipe %q is %s: %s", e.Recipe, e.Status, cutText(e.Msg))
}

// childOutput is the output of a step whose child run has completed: the child's result, or
// the parts of it that the step names.
func childOutput(step *plan.Step, end *ChildEnd) ([]byte, *Failure) {
	result := end.Outputs
	if len(result) == 0 {
		result = emptyInput
	}
	last := step.Child.Last && end.Last != ""
	if len(step.Child.Outputs) == 0 && !last {
		return result, nil
	}
	v, err := jsonx.Decode(result, journal.InlineLimits)
	if err != nil {
		return nil, failureOf(err, fault.InternalError)
	}
	if last {
		steps, _ := v.(map[string]any) // without the last one if it was skipped
		raw, err := jsonx.Canonical(steps[end.Last])
		if err != nil {
			return nil, failureOf(err, fault.InternalError)
		}
		return raw, nil
	}
	out := make(map[string]any, len(step.Child.Outputs))
	for _, o := range step.Child.Outputs {
		at := v
		for k, name := range o.Path {
			m, _ := at.(map[string]any)
			var ok bool
			if at, ok = m[name]; !ok {
				return nil, &Failure{Code: fault.OutputContractViolation, Msg: fmt.Sprintf(
					"output %q takes %q of the child run's result, which has no %q", o.Name, strings.Join(o.Path, "."), strings.Join(o.Path[:k+1], "."))}
			}
		}
		out[o.Name] = at
	}
	raw, err := jsonx.Canonical(out)
	if err != nil {
		return nil, failureOf(err, fault.InternalError)
	}
	return raw, nil
}
