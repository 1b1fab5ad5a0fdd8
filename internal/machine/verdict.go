// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// runDue reports whether every scope has settled and the run has not ended.
func (r *Run) runDue() bool {
	return r.root != nil && r.alive == 0 && !r.status.Terminal()
}

// advanceRun ends the run, after its compensations.
func (r *Run) advanceRun() {
	switch {
	case r.compensating:
		r.emitCompensated()
	case r.phase == phaseOpen:
		r.decideVerdict()
	case len(r.compensations) > 0:
		u := r.compensations[len(r.compensations)-1]
		s, i := r.at(u)
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompensating})
	default:
		r.end(r.verdict, r.code, r.message, r.failedStep)
	}
}

func (r *Run) emitCompensated() {
	s, i := r.at(r.compensations[len(r.compensations)-1])
	c := s.comps[i]
	ev := journal.Event{Kind: journal.EvNodeCompensated}
	if c.inner != childOK {
		ev.Flag, ev.Code, ev.Text = 1, c.cause.code, c.cause.msg
	}
	r.emitStep(s, i, ev)
}

// decideVerdict applies the plan's result rule (R9, X93, X94).
func (r *Run) decideVerdict() {
	verdict, failed := journal.RunCompleted, r.root.failed
	switch {
	case r.plan.Leaves && r.plan.Drain:
		verdict = r.leavesVerdict()
	case failed >= 0: // fail_fast fails at once, whatever the status of the leaves (X118)
		verdict = journal.RunFailed
	}
	if verdict == journal.RunCompleted {
		data, f := r.outputs()
		if f == nil {
			r.settleCredits(false)
			r.emitRun(journal.Event{Kind: journal.EvRunCompleted, Data: data, N: r.Used(), Flag: r.failureFlag(), Text: r.failedSteps()})
			return
		}
		if f.Phase != "" {
			viol, _ := json.Marshal(f.Violations)
			r.emitRun(journal.Event{Kind: journal.EvRunContract, Text: f.Phase, Data: viol})
		}
		r.fixVerdict(journal.RunFailed, f.Code, f.Msg, -1)
		return
	}
	code, msg := fault.StepFailed, "a step failed"
	if verdict == journal.RunCancelled {
		code, msg = fault.ExecutionCancelled, "a step was cancelled"
	}
	if failed >= 0 {
		se := r.root.errs[failed-r.root.g.First]
		code, msg = se.code, se.msg
	}
	r.fixVerdict(verdict, code, msg, failed)
}

// maxNamed bounds how many failed steps run.completed names.
const maxNamed = 20

// failedSteps returns the ids of the root steps that failed and were not handled, at
// most maxNamed of them, separated by commas. A run can complete in spite of them,
// because only its leaves decide (R9).
func (r *Run) failedSteps() string {
	if !r.failures {
		return ""
	}
	var ids []string
	for i := range r.root.steps {
		st := &r.root.steps[i]
		if st.status == journal.StepFailed && st.flags&flagHandled == 0 && len(ids) < maxNamed {
			ids = append(ids, r.root.step(r.plan, int32(i)).ID)
		}
	}
	return strings.Join(ids, ",")
}

// leavesVerdict applies the result rule of the workflow-execution source (X93): a run is
// completed if no leaf failed or was cancelled, else cancelled if a step was cancelled
// and none failed, else failed. A failure that continue_on_error handled counts like
// any other end (R9).
func (r *Run) leavesVerdict() journal.RunStatus {
	leaves, failed, cancelled := true, false, false
	for i := range r.root.steps {
		st := &r.root.steps[i]
		lost := st.status == journal.StepFailed && st.flags&flagHandled == 0
		failed = failed || lost
		cancelled = cancelled || st.status == journal.Cancelled
		if len(r.root.step(r.plan, int32(i)).Succs) == 0 && (lost || st.status == journal.Cancelled) {
			leaves = false
		}
	}
	switch {
	case leaves:
		return journal.RunCompleted
	case cancelled && !failed:
		return journal.RunCancelled
	}
	return journal.RunFailed
}

func (r *Run) failureFlag() uint8 {
	if r.failures {
		return 1
	}
	return 0
}

// fixVerdict ends the run, now or after its compensations.
func (r *Run) fixVerdict(verdict journal.RunStatus, code fault.Code, msg string, failed int32) {
	if len(r.compensations) > 0 {
		r.emitRun(journal.Event{Kind: journal.EvRunEnding, Flag: uint8(verdict), Code: code, Text: msg, N: int64(failed)})
		return
	}
	r.end(verdict, code, msg, failed)
}

func (r *Run) end(verdict journal.RunStatus, code fault.Code, msg string, failed int32) {
	ev := journal.Event{Code: code, Text: msg, Flag: r.failureFlag(), N: int64(failed)}
	switch verdict {
	case journal.RunCancelled:
		ev.Kind = journal.EvRunCancelled
	case journal.RunExpired:
		ev.Kind = journal.EvRunExpired
	default:
		ev.Kind = journal.EvRunFailed
	}
	r.settleCredits(ev.Kind == journal.EvRunFailed)
	r.emitRun(ev)
}

// outputs is the run's result: the recipe's `outputs`; else the fields of outputSchema
// that are in the last step's output; else every binding (R41).
func (r *Run) outputs() ([]byte, *Failure) {
	code := r.prog.outputCode()
	if code.err != nil {
		return nil, failureOf(code.err, fault.TemplateError)
	}
	result, f := r.resultValue(code)
	if f != nil {
		return nil, f
	}
	raw, err := jsonx.Canonical(result)
	if err != nil {
		return nil, failureOf(err, fault.TemplateError)
	}
	if len(raw) > maxInline {
		return nil, &Failure{Code: fault.OutputTooLarge, Msg: "the run's outputs have " + sizeText(int64(len(raw))) +
			", the limit is " + sizeText(maxInline) + "; name the wanted ones in `outputs`, or return files"}
	}
	if code.schema == nil {
		return raw, nil
	}
	viol := code.schema.Validate(result)
	if len(viol) == 0 {
		return raw, nil
	}
	f = &Failure{Code: fault.OutputContractViolation, Phase: "output", Msg: "the result does not fit outputSchema: " + strings.TrimSpace(viol[0].Pointer+" "+viol[0].Msg)}
	for _, v := range viol {
		f.Violations = append(f.Violations, strings.TrimSpace(v.Pointer+" "+v.Msg))
	}
	return nil, f
}

// addEarlier adds to a result the fields that outputSchema names and the last step does not have,
// from the latest binding of the root whose value has a field of that name.
func (r *Run) addEarlier(result map[string]any) *Failure {
	var missing []string
	for _, name := range properties(r.plan.OutputSchema) {
		if _, ok := result[name]; !ok {
			missing = append(missing, name)
		}
	}
	for k := len(r.plan.Steps) - 1; k >= 0 && len(missing) > 0; k-- {
		step := &r.plan.Steps[k]
		if step.Slot < 0 || r.plan.Graphs[step.Graph].Frame != 0 {
			continue
		}
		v := r.bound(r.root, step.Slot)
		if v == nil {
			continue
		}
		d, err := v.decoded()
		if err != nil {
			return failureOf(err, fault.InternalError)
		}
		obj, _ := d.(map[string]any)
		missing = slices.DeleteFunc(missing, func(name string) bool {
			field, ok := obj[name]
			if ok {
				result[name] = field
			}
			return ok
		})
	}
	return nil
}

func (r *Run) resultValue(code *outputCode) (map[string]any, *Failure) {
	result := make(map[string]any)
	if len(r.plan.Outputs) > 0 {
		for k := range r.plan.Outputs {
			o := &r.plan.Outputs[k]
			v, err := code.fields[k].Eval(&env{run: r, scope: r.root, vars: o.Expr.Vars})
			if err != nil {
				f := failureOf(err, fault.TemplateError)
				f.Msg = fmt.Sprintf("output %q: %s", o.Name, f.Msg)
				return nil, f
			}
			result[o.Name] = v
		}
		return result, nil
	}
	if out := r.root.g.Out; out != plan.None && len(r.plan.OutputSchema) > 0 {
		if v := r.root.outs[out-r.root.g.First]; v != nil {
			last, _ := v.decoded()
			if obj, ok := last.(map[string]any); ok {
				for _, name := range properties(r.plan.OutputSchema) {
					if field, ok := obj[name]; ok {
						result[name] = field
					}
				}
			}
		}
		if len(result) > 0 {
			return result, r.addEarlier(result)
		}
	}
	if r.plan.OfSteps {
		return r.stepsResult(result)
	}
	for k := range r.plan.Steps {
		step := &r.plan.Steps[k]
		if step.Slot < 0 || r.plan.Graphs[step.Graph].Frame != 0 {
			continue
		}
		if v := r.bound(r.root, step.Slot); v != nil {
			d, err := v.decoded()
			if err != nil {
				return nil, failureOf(err, fault.InternalError)
			}
			result[step.Bind] = d
		}
	}
	return result, nil
}

// stepsResult is the result of a run that has the outputs of its steps as result.
func (r *Run) stepsResult(result map[string]any) (map[string]any, *Failure) {
	for k, v := range r.root.outs {
		if v == nil {
			continue
		}
		d, err := v.decoded()
		if err != nil {
			return nil, failureOf(err, fault.InternalError)
		}
		result[r.plan.Steps[r.root.g.First+k].ID] = d
	}
	return result, nil
}
