// SPDX-License-Identifier: Apache-2.0

package engine

import "sync/atomic"

// seat is the driver's: whoever has it runs the loop. The loop leaves it to carry
// out the only attempt there is, because to hand that to the crew and to wait for
// its report wakes two threads for nothing as well. Meanwhile another goroutine
// stands by: it takes the seat as soon as anything happens, however long the
// action takes, so an action never holds up the engine.
type seat struct {
	free     atomic.Bool   // the loop is inside an action
	woken    atomic.Bool   // something happened since the loop began its pass
	call     chan struct{} // 1 slot: something happened while it was
	standing bool          // somebody stands by; of whoever has the seat
}

func (s *seat) init() { s.call = make(chan struct{}, 1) }

// take is how an empty seat is taken; one of several succeeds.
func (s *seat) take() bool { return s.free.CompareAndSwap(true, false) }

// wake calls whoever stands by. It notes first that something happened: either it
// sees the seat free then, or the loop, having left it, sees the note.
func (s *seat) wake() {
	s.woken.Store(true)
	if s.free.Load() {
		select {
		case s.call <- struct{}{}:
		default:
		}
	}
}

// standBy takes the seat when it is called.
func (e *Engine) standBy() {
	for {
		select {
		case <-e.seat.call:
			if e.seat.take() {
				e.seat.standing = false
				e.loop()
				return
			}
		case <-e.done:
			return
		}
	}
}

// lend carries out the one attempt that was let out. false means that somebody
// else has taken the seat meanwhile: the core is no longer the caller's.
func (e *Engine) lend() (back bool) {
	if !e.seat.standing {
		e.seat.standing = true
		go e.standBy()
	}
	fl := e.jobs[0].(*flight)
	e.jobs[0] = nil
	e.jobs = e.jobs[:0]
	fl.own = true
	e.seat.free.Store(true)
	if e.seat.woken.Load() { // just before, perhaps during the commit
		e.seat.wake()
	}
	returned := false
	defer func() {
		if !returned { // the action ended the goroutine by runtime.Goexit
			e.wake()
		}
	}()
	fl.Do()
	returned = true
	if e.seat.take() {
		return true
	}
	e.wake() // whoever drives now may have looked before the report was there
	return false
}
