// SPDX-License-Identifier: Apache-2.0

// Package watchdog decides when a disk that neither fails nor answers has hung too long. It reads
// no clock, and ends nothing: the engine does.
package watchdog

import (
	"time"

	"github.com/roux-engine/roux/fault"
)

// ErrHangs is why an engine ends if its disk has not finished a commit for HangsAfter:
// the disk neither fails nor answers, and waiting callers must get an error. The store
// may be in a call that never returns, so nothing may wait for it: the process must end
// (F32).
var ErrHangs = fault.New(fault.StoreFailed,
	"the disk has not finished a write for %s, so nothing more is acknowledged: check the disk, then start again", HangsAfter)

// HangsAfter is how long a commit may take, and Checks how often it is looked at in that time.
const (
	HangsAfter = 10 * time.Second
	Checks     = 10
	// Interval is the time between two checks, in µs. Checks are counted because
	// elapsed time is not enough: a process that was stopped for an hour in the middle
	// of a commit finds that an hour has passed although its disk is well.
	Interval = int64(HangsAfter/time.Microsecond) / Checks
)

// A Watchdog watches the commit in progress. It costs one comparison in each pass of
// the loop, and no timer of its own.
type Watchdog struct {
	Sent      uint64 // commits sent to the committer
	watched   uint64 // the commit that is watched
	checks    int
	NextCheck int64 // time of the next check, UTC µs; 0 = nothing to watch
}

// Hangs checks the commit if a check is due, and reports whether the disk has hung too
// long.
func (w *Watchdog) Hangs(committing bool, now int64) bool {
	switch {
	case !committing:
		w.NextCheck = 0
	case w.NextCheck == 0 || w.watched != w.Sent:
		w.watched, w.checks, w.NextCheck = w.Sent, 0, now+Interval
	case now >= w.NextCheck:
		w.checks++
		w.NextCheck = now + Interval
	}
	return w.NextCheck != 0 && w.checks >= Checks
}
