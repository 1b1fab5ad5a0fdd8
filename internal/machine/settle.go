// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// advanceComposite opens a composite's next iteration or joins it.
func (r *Run) advanceComposite(c *composite) {
	s, i := c.scope, c.step
	step := s.step(r.plan, i)
	if c.err != nil {
		r.finalFailure(s, i, &Failure{Code: c.err.code, Msg: c.err.msg}, nil)
		return
	}
	switch c.kind {
	case parallel:
		r.joinParallel(s, i, step, c)
	case looping:
		if !c.ended && c.loop.hasItem() {
			if f := r.opens(step.Body); f != nil {
				r.abortStep(s, i, f)
				return
			}
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeIteration, N: c.loop.next})
			return
		}
		r.joinLoop(s, i, step, c)
	default:
		r.joinInner(s, i, c)
	}
}

// joinInner ends a condition or a fallback with what became of its one scope.
func (r *Run) joinInner(s *scope, i int32, c *composite) {
	since := r.clock - s.steps[i].at
	switch {
	case c.inner == kidFailed || c.inner == kidLost:
		msg := c.cause.msg
		if first, ok := s.errs[i]; ok && c.kind == falling { // what the fallback was for
			msg = fmt.Sprintf("the step failed: %s: %s; its fallback failed: %s", first.code, cutText(first.msg), cutText(msg))
		}
		r.finalFailure(s, i, &Failure{Code: c.cause.code, Msg: msg}, nil)
	case c.out == nil:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: []byte("null"), M: since})
	default:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Flag: 1, M: since})
	}
}

type branchView struct {
	Status string          `json:"status"`
	Output json.RawMessage `json:"output"`
	Error  *errorView      `json:"error"`
}

type errorView struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

var kidNames = [...]string{"running", "completed", "failed", "cancelled"}

// joinParallel ends a parallel step: {branches: [{status, output, error}], winner}.
func (r *Run) joinParallel(s *scope, i int32, step *plan.Step, c *composite) {
	if !c.succeeded(step) {
		r.finalFailure(s, i, c.lostBranches(), nil)
		return
	}
	raw := c.parallelOutput(step, true)
	if len(raw) > maxInline {
		// The branches' own outputs stay readable by name; only this summary
		// of them does without.
		raw = c.parallelOutput(step, false)
	}
	if f := r.fits(raw); f != nil {
		r.finalFailure(s, i, f, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: raw, M: r.clock - s.steps[i].at})
}

// lostBranches is the failure of a join, which names each branch that failed. The
// code is that of the first.
func (c *composite) lostBranches() *Failure {
	f := &Failure{Code: fault.StepFailed, Msg: "no branch succeeded"}
	var each []string
	for k := range c.branches {
		b := &c.branches[k]
		if b.status != kidFailed {
			continue
		}
		if len(each) == 0 {
			f.Code, f.Msg = b.err.code, fmt.Sprintf("branch %d: %s", k, b.err.msg)
		}
		if len(each) < maxNamed {
			each = append(each, fmt.Sprintf("branch %d: %s: %s", k, b.err.code, cutText(b.err.msg)))
		}
	}
	if c.bad > 1 {
		f.Msg = fmt.Sprintf("%d branches failed: %s", c.bad, strings.Join(each, "; "))
	}
	if more := int(c.bad) - len(each); more > 0 {
		f.Msg += fmt.Sprintf("; and %d more", more)
	}
	return f
}

// cutText shortens a message that becomes part of another: they may nest.
func cutText(msg string) string {
	const most = 500
	if len(msg) <= most {
		return msg
	}
	return strings.ToValidUTF8(msg[:most], "") + " …"
}

func (c *composite) parallelOutput(step *plan.Step, full bool) []byte {
	out := struct {
		Branches  []branchView `json:"branches"`
		Winner    *int32       `json:"winner"`
		Truncated bool         `json:"truncated,omitempty"`
	}{Branches: make([]branchView, len(c.branches)), Truncated: !full}
	for k := range c.branches {
		b, v := &c.branches[k], &out.Branches[k]
		v.Status = kidNames[b.status]
		if b.out != nil && full && b.status == kidOK {
			v.Output = b.out.raw
		}
		if b.status == kidFailed {
			v.Error = &errorView{b.err.code, b.err.msg}
		}
	}
	if step.WaitFor != plan.WaitAll && c.winner >= 0 {
		out.Winner = &c.winner
	}
	raw, err := json.Marshal(&out)
	if err != nil {
		return []byte("null")
	}
	if canonical, err := jsonx.CanonicalRaw(raw); err == nil {
		return canonical
	}
	return raw
}

// joinLoop ends a loop with the list of its iterations' outputs.
func (r *Run) joinLoop(s *scope, i int32, step *plan.Step, c *composite) {
	l := c.loop
	if l.bad > 0 && step.Strategy != plan.Ignore {
		msg := l.first.msg
		if l.bad > 1 {
			msg = fmt.Sprintf("%d items failed; the first: %s", l.bad, l.first.msg)
		}
		r.finalFailure(s, i, &Failure{Code: l.first.code, Msg: msg}, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: l.output(), M: r.clock - s.steps[i].at})
}

// sweepScope closes what is still open in a scope that has ended.
func (r *Run) sweepScope(s *scope) {
	if s.reason == 0 && s.down == nil && s.failed >= 0 {
		s.down = s.downstream(r.plan)
	}
	for ; s.cursor < s.g.N && !r.full(); s.cursor++ {
		i := s.cursor
		st := &s.steps[i]
		if st.status.Settled() {
			continue
		}
		begun := st.status.Begun()
		ev := journal.Event{Kind: journal.EvNodeSkipped, Flag: uint8(s.reason)}
		switch {
		case s.reason == journal.ByCancel:
			ev.Kind = journal.EvNodeCancelled
		case begun:
			ev.Kind = journal.EvNodeCancelled
			if s.reason == 0 {
				ev.Flag = uint8(journal.RunEnded)
			}
		case s.reason != 0:
		case s.down[i] && r.plan.UpstreamFail:
			ev = journal.Event{Kind: journal.EvNodeFailed, Code: fault.UpstreamFailure, Text: "not run: " +
				fmt.Sprintf("%q", r.plan.Steps[s.failed].ID) + " failed before it"}
		case s.down[i]:
			ev.Flag = uint8(journal.ParentFailure)
		default:
			ev.Flag = uint8(journal.RunEnded)
		}
		if begun {
			ev.Attempt, ev.M = st.attempt, r.clock-st.at
		}
		r.emitStep(s, i, ev)
	}
}

// downstream marks everything that waits, directly or not, for the failed step.
func (s *scope) downstream(p *plan.Plan) []bool {
	down := make([]bool, s.g.N)
	work := []int32{s.failed}
	for len(work) > 0 {
		step := work[len(work)-1]
		work = work[:len(work)-1]
		for _, next := range p.Steps[step].Succs {
			if k := next - s.g.First; !down[k] {
				down[k] = true
				work = append(work, next)
			}
		}
	}
	return down
}

// runDue: every scope has settled and the run has not ended.
func (r *Run) runDue() bool {
	return r.root != nil && r.alive == 0 && !r.status.Terminal()
}

// advanceRun ends the run, by way of its compensations.
func (r *Run) advanceRun() {
	switch {
	case r.undoing:
		r.undone()
	case r.phase == phaseOpen:
		r.decideVerdict()
	case len(r.undo) > 0:
		u := r.undo[len(r.undo)-1]
		s, i := r.at(u)
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompensating})
	default:
		r.end(r.verdict, r.code, r.message, r.culprit)
	}
}

func (r *Run) undone() {
	s, i := r.at(r.undo[len(r.undo)-1])
	c := s.comps[i]
	ev := journal.Event{Kind: journal.EvNodeCompensated}
	if c.inner != kidOK {
		ev.Flag, ev.Code, ev.Text = 1, c.cause.code, c.cause.msg
	}
	r.emitStep(s, i, ev)
}

// decideVerdict applies the plan's result rule (R9, X93, X94).
func (r *Run) decideVerdict() {
	verdict, culprit := journal.RunCompleted, r.root.failed
	switch {
	case r.plan.Leaves && r.plan.Drain:
		verdict = r.leavesVerdict()
	case culprit >= 0: // fail_fast fails at once, whatever its leaves (X118)
		verdict = journal.RunFailed
	}
	if verdict == journal.RunCompleted {
		data, f := r.outputs()
		if f == nil {
			r.emitRun(journal.Event{Kind: journal.EvRunCompleted, Data: data, N: r.used, Flag: r.failureFlag(), Text: r.failedSteps()})
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
	if culprit >= 0 {
		se := r.root.errs[culprit-r.root.g.First]
		code, msg = se.code, se.msg
	}
	r.fixVerdict(verdict, code, msg, culprit)
}

// maxNamed bounds the failed steps that run.completed names.
const maxNamed = 20

// failedSteps names the failures that the leaves of a completed run outlived
// (R9), separated by commas.
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

// leavesVerdict is the rule of the workflow-execution source (X93). A failure
// that continue_on_error consumed counts as an end like any other (R9).
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

// fixVerdict ends the run now, or after its compensations.
func (r *Run) fixVerdict(verdict journal.RunStatus, code fault.Code, msg string, culprit int32) {
	if len(r.undo) > 0 {
		r.emitRun(journal.Event{Kind: journal.EvRunEnding, Flag: uint8(verdict), Code: code, Text: msg, N: int64(culprit)})
		return
	}
	r.end(verdict, code, msg, culprit)
}

func (r *Run) end(verdict journal.RunStatus, code fault.Code, msg string, culprit int32) {
	ev := journal.Event{Code: code, Text: msg, Flag: r.failureFlag(), N: int64(culprit)}
	switch verdict {
	case journal.RunCancelled:
		ev.Kind = journal.EvRunCancelled
	case journal.RunExpired:
		ev.Kind = journal.EvRunExpired
	default:
		ev.Kind = journal.EvRunFailed
	}
	r.emitRun(ev)
}

// outputs is the run's result: the recipe's `outputs`, else the fields that
// outputSchema names found in the last step's output, else every binding (R41).
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
			return result, nil
		}
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
