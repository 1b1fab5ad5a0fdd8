// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/roux-engine/roux/fault"
)

// ErrHangs is why an engine ends if its disk has not finished a commit for hangsAfter:
// the disk neither fails nor answers, and waiting callers must get an error. The store
// may be in a call that never returns, so nothing may wait for it: the process must end
// (F32).
var ErrHangs = fault.New(fault.StoreFailed,
	"the disk has not finished a write for %s, so nothing more is acknowledged: check the disk, then start again", hangsAfter)

const (
	hangsAfter = 10 * time.Second
	hangChecks = 10
	// hangInterval is the time between two checks, in µs. Checks are counted because
	// elapsed time is not enough: a process that was stopped for an hour in the middle
	// of a commit finds that an hour has passed although its disk is well.
	hangInterval = int64(hangsAfter/time.Microsecond) / hangChecks
)

// A watchdog watches the commit in progress. It costs one comparison in each pass of
// the loop, and no timer of its own.
type watchdog struct {
	sent      uint64 // commits sent to the committer
	watched   uint64 // the commit that is watched
	checks    int
	nextCheck int64 // time of the next check, UTC µs; 0 = nothing to watch
}

// hangs checks the commit if a check is due, and reports whether the disk has hung too
// long.
func (w *watchdog) hangs(committing bool, now int64) bool {
	switch {
	case !committing:
		w.nextCheck = 0
	case w.nextCheck == 0 || w.watched != w.sent:
		w.watched, w.checks, w.nextCheck = w.sent, 0, now+hangInterval
	case now >= w.nextCheck:
		w.checks++
		w.nextCheck = now + hangInterval
	}
	return w.nextCheck != 0 && w.checks >= hangChecks
}
