// SPDX-License-Identifier: Apache-2.0

// Package handover passes what one goroutine owns to another one while the first is in a call
// that may block.
//
// It decides who owns it: one goroutine at a time. To guarantee this, leaving begins an absence with a
// unique number, and the goroutine that claims the absence, by one compare-and-swap, is the owner. One that
// returns and cannot claim its own absence has lost what it owned and must return. It never decides when to
// leave or to take over, nor what is done meanwhile.
package handover

import "sync/atomic"

// A Handover is one thing that is passed on; its owner is present. The zero value calls nobody. It is safe for
// concurrent use, except that only the owner leaves.
type Handover struct {
	// state is the number of the absence and, in its low two bits, where the owner is.
	state atomic.Uint64
	woken atomic.Bool   // something has arrived since Rested
	call  chan struct{} // 1 slot: something has arrived while the owner was acting
}

// A Where is where the owner is.
type Where uint64

// The places.
const (
	present    Where = iota // it owns the thing
	Committing              // in a call that others only watch
	Acting                  // in a call during which others take over when something arrives
	whereMask  = 3
)

// Open lets Calls receive. It is called before the owner first leaves.
func (h *Handover) Open() { h.call = make(chan struct{}, 1) }

// Leave begins an absence. The caller is the owner, and is not any more if it cannot claim the absence
// afterwards.
func (h *Handover) Leave(to Where) (absence uint64) {
	absence = ((h.state.Load() | whereMask) + 1) | uint64(to)
	h.state.Store(absence)
	return absence
}

// Claim takes what is passed on out of an absence. Of several goroutines that try, one succeeds.
func (h *Handover) Claim(absence uint64) bool {
	return h.state.CompareAndSwap(absence, absence&^whereMask)
}

// Away returns the current absence, and ok if the owner is at that place.
func (h *Handover) Away(at Where) (absence uint64, ok bool) {
	absence = h.state.Load()
	return absence, Where(absence&whereMask) == at
}

// Wake says that something has arrived, and calls the goroutine that waits for Calls if the owner is
// acting. It first records the arrival: either it sees that the owner is away, or the owner, having left,
// sees the record.
func (h *Handover) Wake() {
	h.woken.Store(true)
	if _, ok := h.Away(Acting); ok {
		select {
		case h.call <- struct{}{}:
		default:
		}
	}
}

// Woken reports whether something has arrived since Rested was called.
func (h *Handover) Woken() bool { return h.woken.Load() }

// Rested forgets what has arrived.
func (h *Handover) Rested() { h.woken.Store(false) }

// Calls receives a value when something has arrived while the owner was acting.
func (h *Handover) Calls() <-chan struct{} { return h.call }
