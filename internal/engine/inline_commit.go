// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"sync/atomic"
	"time"
)

// alone says that while this batch is being committed hardly anything can happen
// but new requests: it is one run's, no attempt but the one it lets out holds a
// slot, nobody has called, and the core has come to rest. Then the loop commits by
// itself; what happens all the same waits for it. To hand the batch to the
// committer and to wait for its word wakes two threads for nothing, which is much
// of what a step of a lone chain costs beside its sync.
func (e *Engine) alone(b *batch) bool {
	return len(b.trans) == 1 && e.core.attempts.arbiter.InUse() <= 1 && e.length.Load() == 0 && !e.core.busy()
}

// An inlineCommit is the loop's own commit. While it lasts the loop cannot look whether the
// disk hangs, so a timer does. It is set and stopped for each commit, which wakes
// nobody.
type inlineCommit struct {
	guard *time.Timer
	looks atomic.Int32
	// turn is odd while the loop commits, another number each time. Whoever moves
	// it on from there owns the core: the loop when the disk came back, the timer
	// when it gave up waiting.
	turn atomic.Uint64
}

const turnGone = math.MaxUint64 - 1 // even: the loop has lost the core

func (h *inlineCommit) init(e *Engine) {
	h.guard = time.AfterFunc(time.Hour, e.lookHere)
	h.guard.Stop()
}

// commitHere commits a batch in the loop's own goroutine. false means that the
// disk hung for so long that the engine has ended meanwhile: the core is no
// longer the caller's.
func (e *Engine) commitHere(b *batch) bool {
	h := &e.inline
	h.looks.Store(0)
	turn := h.turn.Add(1)
	h.guard.Reset(hangsAfter / hangLooks)
	r := e.commit(b.trans)
	h.guard.Stop()
	if !h.turn.CompareAndSwap(turn, turn+1) {
		return false
	}
	e.core.committed(r.verdicts, r.err)
	e.core.releaseCommitted()
	return true
}

// lookHere is the timer's: it ends the engine when the loop's commit does not
// come back (F32). Looks are counted, as the watchdog counts them. One may be of
// the commit before: it came too late to be stopped.
func (e *Engine) lookHere() {
	h := &e.inline
	turn := h.turn.Load()
	if turn%2 == 0 {
		return
	}
	if h.looks.Add(1) <= hangLooks {
		h.guard.Reset(hangsAfter / hangLooks)
		return
	}
	if h.turn.CompareAndSwap(turn, turnGone) {
		e.core.hang()
		e.letOut()
		e.finish()
	}
}
