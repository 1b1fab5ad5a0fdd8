// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

// A child run whose step says so (plan.Child.Resume) goes on when the step is tried again after
// it has ended without completing (X104): it opens a generation as a root run does whose user
// retries it, and is the next attempt of the step. Each attempt has a share of its own, and
// its parent pays for what it adds. What an earlier one has used is not charged again, also where
// the policy of the run gave it back.

// keepLastRun remembers the child run of a step that may go on.
func (s *scope) keepLastRun(i int32, run string) {
	if s.lastRuns == nil {
		s.lastRuns = make(map[int32]string, 1)
	}
	s.lastRuns[i] = run
}

// unpaid is what the run has used beyond what earlier attempts have paid for.
func (r *Run) unpaid() ledger.Amount { return r.used - r.funds.before }

// paid is what the run has settled, or its parent has paid for with earlier attempts, in whole
// credits.
func (r *Run) paid() int64 { return r.funds.settled + r.funds.before.Ceil() }

// paidBefore is what the attempts of a child run that has ended have paid for.
func (r *Run) paidBefore() ledger.Amount {
	return max(r.used, r.funds.before+r.childDue(r.status == journal.RunFailed))
}

// resets are the steps that run again when the run goes on.
func (r *Run) resets() *resetSet {
	g := &resetSet{run: r, index: make(map[stepInstance]int)}
	g.addFailed(r.root)
	return g
}

// Resumable reports whether a child run can go on, what memory it has already, and how many
// credits it may use at most: it has ended without completing, and steps of it run again. A run
// that failed although each step of it completed would fail again.
func (r *Run) Resumable() (has journal.Share, ok bool) {
	if r.start == nil || r.start.Child == nil || !r.status.Terminal() || r.status == journal.RunCompleted || len(r.resets().resets) == 0 {
		return has, false
	}
	has.Memory = r.memory()
	if r.metered() {
		has.Credits = max(0, r.start.Credits.Most-r.paidBefore().Ceil())
	}
	return has, true
}

// handleResume opens the next generation of a child run, as another attempt of its step.
func (r *Run) handleResume(in *Input) {
	was := r.start.Child
	if _, ok := r.Resumable(); !ok || in.Fence.Gen < was.Gen || in.Fence.Gen == was.Gen && in.Fence.Attempt <= was.Attempt {
		r.turn.Err = fault.New(fault.Conflict, "run %s is %s and does not go on as attempt %d of its step", r.start.Run, r.statusText(), in.Fence.Attempt)
		return
	}
	g := r.resets()
	g.addRebound()
	resets := g.ordered()
	before := r.paidBefore()
	r.emitRun(journal.Event{Kind: journal.EvRunRetried, N: int64(r.gen) + 1})
	r.emitRun(journal.Event{Kind: journal.EvRunResumed, Attempt: in.Fence.Attempt, M: int64(in.Fence.Gen), N: int64(before), Data: journal.EncodeShare(in.Child.Share)})
	r.emitResets(g, resets, reset{})
}

// applyResumed applies EvRunResumed.
func (r *Run) applyResumed(ev *journal.Event) error {
	share, err := ev.Share()
	if err != nil {
		return errImpossible(ev, err.Error())
	}
	r.funds.before, r.funds.held = ev.PaidBefore(), share.Credits
	r.share = journal.Share{Steps: share.Steps, Memory: share.Memory}
	r.edits = []uint64{ev.Seq} // a child run has no other edits, and only its last place counts
	if r.start == nil {        // otherwise Supply does it
		return nil
	}
	return r.move(ev)
}

// move replaces the place of the run in the run that has started it.
func (r *Run) move(ev *journal.Event) error {
	place, err := ev.Resumed(r.start.Child)
	if err != nil {
		return errImpossible(ev, err.Error())
	}
	st := *r.start
	st.Child = place
	r.start = &st
	return nil
}
