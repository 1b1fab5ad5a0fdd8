// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync/atomic"
	"time"
)

// deadlines holds the deadlines of a pool's attempts, with one timer for all of them,
// because nearly every attempt returns long before its deadline and a timer per attempt
// would cost more than the attempt.
//
// Attempts with the same timeout expire in the order in which they were added, so each
// timeout has a linked list. There are as many lists as recipes have different timeouts.
// The pool's lock protects everything here.
type deadlines struct {
	byTimeout map[int64]*deadlineList // by TimeoutMS
	timer     *time.Timer
	at        time.Time // when the timer fires; zero if it is not set
	// owner is how the timer finds its pool. It is cleared when the pool stops, because
	// the runtime may keep a stopped timer, and what it refers to, until it would have
	// fired hours later.
	owner *atomic.Pointer[Pool]
}

type deadlineList struct{ first, last *attempt }

// deadlineLinks are the links of an attempt in its list; list is nil when the attempt
// is in none.
type deadlineLinks struct {
	list       *deadlineList
	prev, next *attempt
}

// maxLists is the number of lists above which empty ones are dropped.
const maxLists = 64

func (d *deadlines) add(p *Pool, a *attempt) {
	ln := d.byTimeout[a.task.TimeoutMS]
	if ln == nil {
		if d.byTimeout == nil {
			d.byTimeout = map[int64]*deadlineList{}
		}
		if len(d.byTimeout) >= maxLists {
			d.dropEmpty()
		}
		ln = new(deadlineList)
		d.byTimeout[a.task.TimeoutMS] = ln
	}
	a.links = deadlineLinks{list: ln, prev: ln.last}
	if ln.last != nil {
		ln.last.links.next = a
	} else {
		ln.first = a
	}
	ln.last = a
	if d.at.IsZero() || a.deadline.Before(d.at) {
		d.set(p, a.deadline)
	}
}

func (d *deadlines) dropEmpty() {
	for ms, ln := range d.byTimeout {
		if ln.first == nil {
			delete(d.byTimeout, ms)
		}
	}
}

func (d *deadlines) remove(a *attempt) {
	ln := a.links.list
	if ln == nil {
		return
	}
	if prev := a.links.prev; prev != nil {
		prev.links.next = a.links.next
	} else {
		ln.first = a.links.next
	}
	if next := a.links.next; next != nil {
		next.links.prev = a.links.prev
	} else {
		ln.last = a.links.prev
	}
	a.links = deadlineLinks{}
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

// stop stops the timer. An expireDue that has already started finds the pool
// stopped.
func (d *deadlines) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.owner.Store(nil)
	}
}

// expireDue ends the attempts whose deadline has passed, and sets the timer for the
// next deadline. The timer may fire early, because it was set for an attempt that has
// returned since.
func (p *Pool) expireDue() {
	now := time.Now()
	var expired []*attempt
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	d := &p.deadlines
	next := time.Time{}
	for _, ln := range d.byTimeout {
		for ln.first != nil && !ln.first.deadline.After(now) {
			expired = append(expired, ln.first)
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
	for _, a := range expired {
		go a.expire() // in a goroutine, because the Done callback may be slow
	}
}

func (p *Pool) removeDeadline(a *attempt) {
	p.mu.Lock()
	p.deadlines.remove(a)
	p.mu.Unlock()
}
