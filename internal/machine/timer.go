// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// A timer is derived from state and never stored: the deadline of an attempt, the time
// of a retry, the end of a wait (stepState.due), or a step's total_timeout. Timers
// whose state has changed since are ignored.
type timer struct {
	due   int64
	scope *scope
	step  int32
	total bool
}

// compare is a total order, so that timers of the same moment fire in the same order
// in a restored run.
func (a timer) compare(b timer) int {
	total := 0
	switch {
	case a.total && !b.total:
		total = 1
	case b.total && !a.total:
		total = -1
	}
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.scope.path, b.scope.path),
		cmp.Compare(a.scope.g.First+a.step, b.scope.g.First+b.step), total)
}

// arm sets the timer of a step instance for its current status.
func (r *Run) arm(s *scope, i int32, due int64) {
	s.steps[i].due = due
	r.pushTimer(timer{due: due, scope: s, step: i})
}

// armTotal sets the timer for the total_timeout of a step instance that begins now.
func (r *Run) armTotal(s *scope, i int32) {
	if ms := r.brief(s, i).totalTimeoutMS; ms > 0 {
		r.pushTimer(timer{due: r.now + ms*1000, scope: s, step: i, total: true})
	}
}

// timerLive reports whether the timer still applies.
func (r *Run) timerLive(t timer) bool {
	if mutation.Timer {
		return true
	}
	if t.scope.state == scopeSweep {
		return false // its open steps are being cancelled
	}
	st := &t.scope.steps[t.step]
	if t.total {
		// A fallback is not bound by the step's total_timeout, and a step that is
		// being aborted is not aborted again. One whose child run is only to be replaced
		// by another is bound as before.
		if c := t.scope.comps[t.step]; c != nil && c.err != nil && (c.child == nil || !c.child.retry) {
			return false
		}
		return st.status.Begun() && st.flags&flagFallback == 0 && st.at+t.scope.step(r.plan, t.step).TotalTimeoutMS*1000 == t.due
	}
	return st.due == t.due && (st.status == journal.Running || st.status == journal.Retrying || st.status == journal.Waiting)
}

func (r *Run) pushTimer(t timer) {
	if n := r.timers.len(); n > 64 && n > 4*r.busy {
		r.timers.keep(r.timerLive)
	}
	r.timers.push(t)
}

// NextDue is when the run next needs InTimer, UTC µs; 0 = never.
func (r *Run) NextDue() int64 {
	if r.queued() {
		return r.ttlDue
	}
	first := r.timers.first()
	for first != nil && !r.timerLive(*first) {
		r.timers.pop()
		first = r.timers.first()
	}
	next := r.ttlDue
	if r.Failing() {
		next = 0
	}
	if first != nil && (next == 0 || first.due < next) {
		next = first.due
	}
	return next
}

// fireTimers fires the timers that are due at the time of this turn, each once (I9).
func (r *Run) fireTimers() {
	if r.ttlDue > 0 && r.clock >= r.ttlDue && !r.Failing() { // how a failing run ends is decided
		r.unpause("the run has reached its ttl")
		r.emitRun(journal.Event{Kind: journal.EvRunEnding, Flag: uint8(journal.RunExpired), Code: fault.ExecutionExpired, N: -1,
			Text: "the run did not end within its ttl"})
		return
	}
	for !r.full() && !r.queued() {
		first := r.timers.first()
		if first == nil || first.due > r.clock {
			return
		}
		t := *first
		live := r.timerLive(t)
		r.timers.pop()
		if live {
			r.fire(t)
		}
	}
}

func (r *Run) fire(t timer) {
	s, i := t.scope, t.step
	st, step := &s.steps[i], s.step(r.plan, i)
	switch {
	case t.total:
		r.abortStep(s, i, &Failure{Code: fault.StepTimeout, Msg: "the step did not end within its total_timeout"})
	case st.status == journal.Running && s.comps[i] != nil: // its child run
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeAborting, Flag: 1, Code: fault.StepTimeout, Text: "the child run took longer than the step's timeout"})
	case st.status == journal.Running:
		r.failStep(s, i, &Failure{Code: fault.StepTimeout, Msg: "the attempt ran longer than its timeout"}, nil)
	case st.status == journal.Retrying:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeQueued})
	case st.status == journal.Waiting && step.Signal != "":
		r.finalFailure(s, i, &Failure{Code: fault.WaitTimeout, Msg: "no signal \"" + step.Signal + "\" came in time"}, nil)
	case st.status == journal.Waiting && step.Kind == plan.Action:
		j := s.jobs[i]
		r.failStep(s, i, &Failure{Code: fault.JobExpired, Msg: fmt.Sprintf("job %q of provider %s did not end within its time to live", j.id, j.provider)}, nil)
	case st.status == journal.Waiting && step.Kind == plan.Wait:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: []byte("null"), M: r.clock - st.at})
	}
}
