// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/internal/handover"
	"github.com/roux-engine/roux/internal/watchdog"
)

// inlineCalls pass the core on while the loop is in a call that may block.
//
// A loop that passes a batch to the committer, or an attempt to the executor, and then
// waits for the answer wakes two threads each time. When only one run is active, this
// is most of what a step costs besides its sync: committing on the loop's goroutine
// saves 10 µs a step of a chain, and running the attempt there as well reduces what a
// step adds to the store's time from 60 µs to between 5 and 23 (p50, go run ./bench
// -shapes chain). So the loop calls the store and the action itself when nothing else
// can happen meanwhile, and another goroutine takes over the core when something does:
//
//	committing  checkCommit takes over when the disk hangs, to end the engine (F32)
//	acting      the standby goroutine takes over as soon as anything arrives, however
//	            long the action takes, and runs the loop from then on
type inlineCalls struct {
	handover.Handover
	standbyRunning bool // there is a standby goroutine; used by the owner of the core

	hangTimer *time.Timer  // runs while the loop commits
	checks    atomic.Int32 // checks of this commit so far
}

func (h *inlineCalls) init(check func()) {
	h.Open()
	h.hangTimer = time.AfterFunc(time.Hour, check)
	h.hangTimer.Stop()
}

// canCommitInline reports whether little but new requests can arrive while this batch
// is being committed: it belongs to one run or one tree of runs, no attempt but the one that it releases
// holds a slot, the inbox is empty, and the core has nothing more to do. Whatever
// arrives all the same waits for the commit.
func (e *Engine) canCommitInline(b *batch) bool {
	return b.oneTree() && e.core.attempts.Arbiter.InUse() <= 1 && e.inbox.Len() == 0 && !e.core.busy()
}

// commitInline commits a batch on the loop's own goroutine. It returns false if the
// disk hung for so long that checkCommit has ended the engine: the caller no longer
// owns the core.
func (e *Engine) commitInline(b *batch) bool {
	h := &e.inline
	h.checks.Store(0)
	absence := h.Leave(handover.Committing)
	h.hangTimer.Reset(watchdog.HangsAfter / watchdog.Checks)
	r := e.commit(b.transitions)
	h.hangTimer.Stop()
	if !h.Claim(absence) {
		return false
	}
	e.core.pipeline.committed(r.verdicts, r.err)
	e.core.pipeline.releaseCommitted()
	return true
}

// checkCommit is called by hangTimer. It ends the engine if the loop's commit does not
// return (F32). Checks are counted, as in the watchdog. A check may still be meant for
// the previous commit, because its timer was stopped too late.
func (e *Engine) checkCommit() {
	h := &e.inline
	absence, ok := h.Away(handover.Committing)
	if !ok {
		return
	}
	if h.checks.Add(1) <= watchdog.Checks {
		h.hangTimer.Reset(watchdog.HangsAfter / watchdog.Checks)
		return
	}
	if h.Claim(absence) {
		e.core.recovery.commitHung()
		e.releaseEffects()
		e.finish()
	}
}

// runInline carries out the one attempt that was released, on the loop's own goroutine.
// It returns false if the standby goroutine has taken over the core meanwhile.
func (e *Engine) runInline() (ok bool) {
	h := &e.inline
	if !h.standbyRunning {
		h.standbyRunning = true
		go e.standby()
	}
	attempt := e.jobs[0].(*inFlight)
	e.jobs[0] = nil
	e.jobs = e.jobs[:0]
	attempt.inline = true
	absence := h.Leave(handover.Acting)
	if h.Woken() { // before the loop left, perhaps during the commit
		h.Wake()
	}
	returned := false
	defer func() {
		if !returned { // the action ended the goroutine by runtime.Goexit
			e.wake()
		}
	}()
	attempt.Do()
	returned = true
	if h.Claim(absence) {
		return true
	}
	e.wake() // the new owner may have emptied the inbox before the report arrived
	return false
}

// standby waits until something arrives while the loop is acting. It then takes over
// the core and runs the loop.
func (e *Engine) standby() {
	h := &e.inline
	for {
		select {
		case <-h.Calls():
			if absence, ok := h.Away(handover.Acting); ok && h.Claim(absence) {
				h.standbyRunning = false
				e.loop()
				return
			}
		case <-e.done:
			return
		}
	}
}
