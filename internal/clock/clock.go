// SPDX-License-Identifier: Apache-2.0

// Package clock is the time of an engine.
//
// It decides how the time goes on while the wall clock jumps. It reads no clock itself.
package clock

import (
	"sync/atomic"
	"time"
)

// A Clock is the engine's time. It starts at the wall clock and advances with the
// monotonic clock, so that a jump of the wall clock moves no timer (I10).
type Clock struct {
	source func() time.Time
	began  time.Time
	wall   atomic.Int64 // of began, UTC µs
}

// Start sets the clock to the wall clock, which source reads.
func (c *Clock) Start(source func() time.Time) {
	c.source, c.began = source, source()
	c.wall.Store(c.began.UnixMicro())
}

// Now returns the time, UTC µs. Any goroutine may call it.
func (c *Clock) Now() int64 { return c.wall.Load() + c.source().Sub(c.began).Microseconds() }

// AtLeast moves the clock forward to t if it is behind, because the wall clock was
// turned back while the process was down. Time then continues from the journal's;
// otherwise every timer would wait for the difference.
func (c *Clock) AtLeast(t int64) {
	if behind := t - c.Now(); behind > 0 {
		c.wall.Add(behind)
	}
}
