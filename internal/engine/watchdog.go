// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/roux-engine/roux/fault"
)

// ErrHangs is why an engine ends whose disk has not finished a commit for
// hangsAfter: it neither fails nor answers, and whoever waits is told that
// rather than nothing. The store may be inside a call that never returns, so
// nothing of it may be waited for: the process has to end (F32).
var ErrHangs = fault.New(fault.StoreFailed,
	"the disk has not finished a write for %s, so nothing more is acknowledged: check the disk, then start again", hangsAfter)

const (
	hangsAfter = 10 * time.Second
	hangChecks = 10
	// hangLook is how far apart the looks are, in µs. They are counted because
	// time is not enough: a process that was stopped for an hour in the middle of
	// a commit finds the hour gone and its disk well.
	hangInterval = int64(hangsAfter/time.Microsecond) / hangChecks
)

// A watchdog watches over the commit in flight. It costs a comparison for each
// pass of the loop, and no timer of its own.
type watchdog struct {
	sent      uint64 // commits given to the committer
	watched   uint64 // the one that is watched
	checks    int
	nextCheck int64 // UTC µs of the next look; 0 = nothing to watch
}

// hangs looks, if it is time to, and says whether the disk has hung too long.
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
