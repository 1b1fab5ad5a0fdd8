// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync/atomic"
	"time"
)

// deadlines are those of the attempts of a pool, with one timer for all of them:
// nearly every attempt returns long before, and a timer of its own would cost
// more than the attempt.
//
// Attempts of one timeout are due in the order in which they came, so a lane of
// them is a list. There are as many lanes as recipes have different timeouts.
// The pool's lock guards everything here.
type deadlines struct {
	lanes map[int64]*lane // by TimeoutMS
	timer *time.Timer
	at    time.Time // when the timer fires; zero = it is not set
	// owner is how the timer finds its pool, and is cut off when that stops: the
	// runtime may keep a stopped timer until it would have fired, which is hours.
	owner *atomic.Pointer[Pool]
}

type lane struct{ first, last *attempt }

// place is where an attempt stands in its lane; lane is nil when it does not.
type place struct {
	lane       *lane
	prev, next *attempt
}

// maxLanes bounds the empty lanes that are kept.
const maxLanes = 64

func (d *deadlines) add(p *Pool, a *attempt) {
	ln := d.lanes[a.task.TimeoutMS]
	if ln == nil {
		if d.lanes == nil {
			d.lanes = map[int64]*lane{}
		}
		if len(d.lanes) >= maxLanes {
			d.sweep()
		}
		ln = new(lane)
		d.lanes[a.task.TimeoutMS] = ln
	}
	a.place = place{lane: ln, prev: ln.last}
	if ln.last != nil {
		ln.last.place.next = a
	} else {
		ln.first = a
	}
	ln.last = a
	if d.at.IsZero() || a.deadline.Before(d.at) {
		d.set(p, a.deadline)
	}
}

func (d *deadlines) sweep() {
	for ms, ln := range d.lanes {
		if ln.first == nil {
			delete(d.lanes, ms)
		}
	}
}

func (d *deadlines) remove(a *attempt) {
	ln := a.place.lane
	if ln == nil {
		return
	}
	if prev := a.place.prev; prev != nil {
		prev.place.next = a.place.next
	} else {
		ln.first = a.place.next
	}
	if next := a.place.next; next != nil {
		next.place.prev = a.place.prev
	} else {
		ln.last = a.place.prev
	}
	a.place = place{}
}

func (d *deadlines) set(p *Pool, at time.Time) {
	d.at = at
	if d.timer == nil {
		owner := new(atomic.Pointer[Pool])
		owner.Store(p)
		d.owner = owner
		d.timer = time.AfterFunc(time.Until(at), func() {
			if p := owner.Load(); p != nil {
				p.expireDue()
			}
		})
		return
	}
	d.timer.Reset(time.Until(at))
}

// stop ends the timer. expireDue may be on its way, and finds the pool stopped.
func (d *deadlines) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.owner.Store(nil)
	}
}

// expireDue ends the attempts whose time is over, and sets the timer for the
// next. The timer may come too early, for an attempt that has returned since.
func (p *Pool) expireDue() {
	now := time.Now()
	var over []*attempt
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	d := &p.due
	next := time.Time{}
	for _, ln := range d.lanes {
		for ln.first != nil && !ln.first.deadline.After(now) {
			over = append(over, ln.first)
			d.remove(ln.first)
		}
		if ln.first != nil && (next.IsZero() || ln.first.deadline.Before(next)) {
			next = ln.first.deadline
		}
	}
	d.at = time.Time{}
	if !next.IsZero() {
		d.set(p, next)
	}
	p.mu.Unlock()
	for _, a := range over {
		go a.expire() // whoever hears of it may be slow
	}
}

func (p *Pool) forgetDeadline(a *attempt) {
	p.mu.Lock()
	p.due.remove(a)
	p.mu.Unlock()
}
