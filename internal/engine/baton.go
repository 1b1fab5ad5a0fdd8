// SPDX-License-Identifier: Apache-2.0

package engine

import "sync/atomic"

// A baton is held by the goroutine that runs the loop. The loop leaves it to carry
// out the only attempt there is, because to hand that to the executor and to wait for
// its report wakes two threads for nothing as well. Meanwhile another goroutine
// stands by: it takes the baton as soon as anything happens, however long the
// action takes, so an action never holds up the engine.
type baton struct {
	free     atomic.Bool   // the loop is inside an action
	woken    atomic.Bool   // something happened since the loop began its pass
	call     chan struct{} // 1 slot: something happened while it was
	standing bool          // somebody stands by; of whoever has the baton
}

func (s *baton) init() { s.call = make(chan struct{}, 1) }

// take is how an empty baton is taken; one of several succeeds.
func (s *baton) take() bool { return s.free.CompareAndSwap(true, false) }

// wake calls whoever stands by. It notes first that something happened: either it
// sees the baton free then, or the loop, having left it, sees the note.
func (s *baton) wake() {
	s.woken.Store(true)
	if s.free.Load() {
		select {
		case s.call <- struct{}{}:
		default:
		}
	}
}

// standby takes the baton when it is called.
func (e *Engine) standby() {
	for {
		select {
		case <-e.baton.call:
			if e.baton.take() {
				e.baton.standing = false
				e.loop()
				return
			}
		case <-e.done:
			return
		}
	}
}

// runInline carries out the one attempt that was let out. false means that somebody
// else has taken the baton meanwhile: the core is no longer the caller's.
func (e *Engine) runInline() (back bool) {
	if !e.baton.standing {
		e.baton.standing = true
		go e.standby()
	}
	fl := e.jobs[0].(*inFlight)
	e.jobs[0] = nil
	e.jobs = e.jobs[:0]
	fl.own = true
	e.baton.free.Store(true)
	if e.baton.woken.Load() { // just before, perhaps during the commit
		e.baton.wake()
	}
	returned := false
	defer func() {
		if !returned { // the action ended the goroutine by runtime.Goexit
			e.wake()
		}
	}()
	fl.Do()
	returned = true
	if e.baton.take() {
		return true
	}
	e.wake() // whoever drives now may have looked before the report was there
	return false
}
