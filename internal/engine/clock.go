// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"
	"time"
)

// A clock is the engine's time. It starts at the wall clock and advances with the
// monotonic clock, so that a jump of the wall clock moves no timer (I10).
type clock struct {
	source func() time.Time
	began  time.Time
	wall   atomic.Int64 // of began, UTC µs
}

func (c *clock) start(source func() time.Time) {
	c.source, c.began = source, source()
	c.wall.Store(c.began.UnixMicro())
}

// now returns the time, UTC µs. Any goroutine may call it.
func (c *clock) now() int64 { return c.wall.Load() + c.source().Sub(c.began).Microseconds() }

// atLeast moves the clock forward to t if it is behind, because the wall clock was
// turned back while the process was down. Time then continues from the journal's;
// otherwise every timer would wait for the difference.
func (c *clock) atLeast(t int64) {
	if behind := t - c.now(); behind > 0 {
		c.wall.Add(behind)
	}
}
