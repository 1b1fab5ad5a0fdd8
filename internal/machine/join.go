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

// advanceComposite opens the next iteration of a composite or joins it.
func (r *Run) advanceComposite(c *composite) {
	s, i := c.scope, c.step
	step := s.step(r.plan, i)
	if c.child != nil {
		r.joinChildRun(s, i, c)
		return
	}
	if c.err != nil {
		r.finalFailure(s, i, &Failure{Code: c.err.code, Msg: c.err.msg}, nil)
		return
	}
	switch c.kind {
	case parallelComposite:
		r.joinParallel(s, i, step, c)
	case loopComposite:
		if !c.ended && c.loop.rounds != nil && r.advanceRounds(s, i, step, c) {
			return
		}
		if !c.ended && c.loop.hasItem() {
			if f := r.checkOpen(step.Body); f != nil {
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

// joinInner ends a condition or a fallback with the outcome of its one scope.
func (r *Run) joinInner(s *scope, i int32, c *composite) {
	since := r.clock - s.steps[i].at
	switch {
	case c.inner == childFailed || c.inner == childCancelled:
		msg := c.cause.msg
		if first, ok := s.errs[i]; ok && c.kind == fallbackComposite { // the failure that the fallback replaced
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

var childStatusNames = [...]string{"running", "completed", "failed", "cancelled"}

// joinParallel ends a parallel step: {branches: [{status, output, error}], winner}.
func (r *Run) joinParallel(s *scope, i int32, step *plan.Step, c *composite) {
	if !c.succeeded(step) {
		r.finalFailure(s, i, c.branchesFailure(), nil)
		return
	}
	raw := c.parallelOutput(step, true)
	if len(raw) > maxInline {
		// The outputs of the branches stay readable by name; only this summary leaves
		// them out.
		raw = c.parallelOutput(step, false)
	}
	if f := r.checkOutput(raw); f != nil {
		r.finalFailure(s, i, f, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: raw, M: r.clock - s.steps[i].at})
}

// branchesFailure is the failure of a join. It names each branch that failed and has
// the code of the first.
func (c *composite) branchesFailure() *Failure {
	f := &Failure{Code: fault.StepFailed, Msg: "no branch succeeded"}
	var each []string
	for k := range c.branches {
		b := &c.branches[k]
		if b.status != childFailed {
			continue
		}
		if len(each) == 0 {
			f.Code, f.Msg = b.err.code, fmt.Sprintf("branch %d: %s", k, b.err.msg)
		}
		if len(each) < maxNamed {
			each = append(each, fmt.Sprintf("branch %d: %s: %s", k, b.err.code, cutText(b.err.msg)))
		}
	}
	if c.nFailed > 1 {
		f.Msg = fmt.Sprintf("%d branches failed: %s", c.nFailed, strings.Join(each, "; "))
	}
	if more := int(c.nFailed) - len(each); more > 0 {
		f.Msg += fmt.Sprintf("; and %d more", more)
	}
	return f
}

// cutText shortens a message that is quoted in another; messages may nest.
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
		v.Status = childStatusNames[b.status]
		if b.out != nil && full && b.status == childOK {
			v.Output = b.out.raw
		}
		if b.status == childFailed {
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
	if l.nFailed > 0 && step.Strategy != plan.Ignore {
		msg := l.firstErr.msg
		if l.nFailed > 1 {
			msg = fmt.Sprintf("%d items failed; the first: %s", l.nFailed, l.firstErr.msg)
		}
		r.finalFailure(s, i, &Failure{Code: l.firstErr.code, Msg: msg}, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: l.withAccumulated(l.output()), M: r.clock - s.steps[i].at})
}

// sweepScope settles the open steps of a scope that has ended.
func (r *Run) sweepScope(s *scope) {
	if s.reason == 0 && s.downstream == nil && s.failed >= 0 {
		s.downstream = s.findDownstream(r.plan)
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
		case s.downstream[i] && r.plan.UpstreamFail:
			ev = journal.Event{Kind: journal.EvNodeFailed, Code: fault.UpstreamFailure, Text: "not run: " +
				fmt.Sprintf("%q", r.plan.Steps[s.failed].ID) + " failed before it"}
		case s.downstream[i]:
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

// findDownstream marks every step that depends, directly or not, on the failed step.
func (s *scope) findDownstream(p *plan.Plan) []bool {
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
