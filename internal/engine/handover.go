// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/internal/watchdog"
)

// A handover passes the core from the loop's goroutine to another one while the loop is
// in a call that may block.
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
//
// The core belongs to one goroutine at a time. To guarantee this, leaving begins an
// absence with a unique number, and the goroutine that claims the absence, by one
// compare-and-swap, owns the core. A loop that returns and cannot claim its own absence
// has lost the core and must return.
type handover struct {
	// state is the number of the absence and, in its low two bits, where the loop is.
	state atomic.Uint64

	woken          atomic.Bool   // something has arrived since the loop began its pass
	standbyCall    chan struct{} // 1 slot: something has arrived while the loop was acting
	standbyRunning bool          // there is a standby goroutine; used by the owner of the core

	hangTimer *time.Timer  // runs while the loop commits
	checks    atomic.Int32 // checks of this commit so far
}

// Where the loop's goroutine is.
const (
	present    = iota // it owns the core
	committing        // in Store.Commit
	acting            // in an action
	whereMask  = 3
)

func (h *handover) init(check func()) {
	h.standbyCall = make(chan struct{}, 1)
	h.hangTimer = time.AfterFunc(time.Hour, check)
	h.hangTimer.Stop()
}

// leave begins an absence. The caller owns the core, and has lost it if it cannot claim
// the absence afterwards.
func (h *handover) leave(state uint64) (absence uint64) {
	absence = ((h.state.Load() | whereMask) + 1) | state
	h.state.Store(absence)
	return absence
}

// claim takes the core from an absence. Of several goroutines that try, one succeeds.
func (h *handover) claim(absence uint64) bool {
	return h.state.CompareAndSwap(absence, absence&^whereMask)
}

// away returns the current absence, and ok if the loop is in the given state.
func (h *handover) away(state uint64) (absence uint64, ok bool) {
	absence = h.state.Load()
	return absence, absence&whereMask == state
}

// wake wakes the standby goroutine if the loop is acting. It first records that
// something has arrived: either wake sees that the loop is away, or the loop, having
// left, sees the record.
func (h *handover) wake() {
	h.woken.Store(true)
	if _, ok := h.away(acting); ok {
		select {
		case h.standbyCall <- struct{}{}:
		default:
		}
	}
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
	h := &e.handover
	h.checks.Store(0)
	absence := h.leave(committing)
	h.hangTimer.Reset(watchdog.HangsAfter / watchdog.Checks)
	r := e.commit(b.transitions)
	h.hangTimer.Stop()
	if !h.claim(absence) {
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
	h := &e.handover
	absence, ok := h.away(committing)
	if !ok {
		return
	}
	if h.checks.Add(1) <= watchdog.Checks {
		h.hangTimer.Reset(watchdog.HangsAfter / watchdog.Checks)
		return
	}
	if h.claim(absence) {
		e.core.recovery.commitHung()
		e.releaseEffects()
		e.finish()
	}
}

// runInline carries out the one attempt that was released, on the loop's own goroutine.
// It returns false if the standby goroutine has taken over the core meanwhile.
func (e *Engine) runInline() (ok bool) {
	h := &e.handover
	if !h.standbyRunning {
		h.standbyRunning = true
		go e.standby()
	}
	attempt := e.jobs[0].(*inFlight)
	e.jobs[0] = nil
	e.jobs = e.jobs[:0]
	attempt.inline = true
	absence := h.leave(acting)
	if h.woken.Load() { // before the loop left, perhaps during the commit
		h.wake()
	}
	returned := false
	defer func() {
		if !returned { // the action ended the goroutine by runtime.Goexit
			e.wake()
		}
	}()
	attempt.Do()
	returned = true
	if h.claim(absence) {
		return true
	}
	e.wake() // the new owner may have emptied the inbox before the report arrived
	return false
}

// standby waits until something arrives while the loop is acting. It then takes over
// the core and runs the loop.
func (e *Engine) standby() {
	h := &e.handover
	for {
		select {
		case <-h.standbyCall:
			if absence, ok := h.away(acting); ok && h.claim(absence) {
				h.standbyRunning = false
				e.loop()
				return
			}
		case <-e.done:
			return
		}
	}
}
