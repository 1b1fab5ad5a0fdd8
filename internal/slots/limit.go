// SPDX-License-Identifier: Apache-2.0

package slots

import "sync/atomic"

// A Limit bounds how many attempts run at once.
type Limit[H any] struct {
	of, name   string // what is limited, as in Usage
	reason     string
	slots      int
	used       atomic.Int64 // read by Usage, as waiting is; only the caller changes them
	waiting    atomic.Int64 // requests in the queues that have not been withdrawn
	queues     map[string]*accountQueue[H]
	next       *accountQueue[H] // the account served next; non-empty queues form a ring
	lastServed string           // the account served last
}

// An accountQueue holds one account's requests at a limit.
type accountQueue[H any] struct {
	account    string
	queue      []*Request[H]
	head       int
	prev, next *accountQueue[H] // nil when not in the ring
}

func newLimit[H any](of, name, reason string, slots int) *Limit[H] {
	return &Limit[H]{of: of, name: name, reason: reason, slots: slots, queues: map[string]*accountQueue[H]{}}
}

func (l *Limit[H]) forgetWaiting() {
	l.queues, l.next, l.lastServed = map[string]*accountQueue[H]{}, nil, ""
}

func (l *Limit[H]) acquire(req *Request[H]) {
	l.used.Add(1)
	req.passed++
	l.lastServed = req.Account
}

func (l *Limit[H]) enqueue(req *Request[H]) {
	req.waitingAt = l
	l.waiting.Add(1)
	q := l.queues[req.Account]
	if q == nil {
		q = &accountQueue[H]{account: req.Account}
		l.queues[req.Account] = q
	}
	q.queue = append(q.queue, req)
	if q.next != nil {
		return
	}
	if l.next == nil {
		q.prev, q.next, l.next = q, q, q
		return
	}
	// A new account joins the ring just before the account served last, which has had its
	// share. If that account is not in the ring, the new one joins at the end.
	before := l.next
	if lastQueue := l.queues[l.lastServed]; lastQueue != nil && lastQueue != q {
		before = lastQueue
		if l.next == lastQueue {
			l.next = q
		}
	}
	q.prev, q.next = before.prev, before
	q.prev.next, before.prev = q, q
}

// dequeue removes and returns the next request of the account that is served next,
// skipping withdrawn ones. It returns nil when none waits.
func (l *Limit[H]) dequeue() *Request[H] {
	for l.next != nil {
		q := l.next
		var req *Request[H]
		for q.head < len(q.queue) && req == nil {
			req = q.queue[q.head]
			q.queue[q.head] = nil
			q.head++
			req.waitingAt = nil
			if req.withdrawn {
				req = nil // it no longer counts
			} else {
				l.waiting.Add(-1)
			}
		}
		l.next = q.next
		if q.head == len(q.queue) {
			l.removeQueue(q)
		} else if q.head > 64 && q.head*2 > len(q.queue) {
			n := copy(q.queue, q.queue[q.head:])
			clear(q.queue[n:]) // otherwise their runs could not be freed
			q.queue, q.head = q.queue[:n], 0
		}
		if req != nil {
			return req
		}
	}
	return nil
}

// removeQueue removes an empty queue from the ring and forgets it, so that an account
// without requests costs nothing.
func (l *Limit[H]) removeQueue(q *accountQueue[H]) {
	if q.next == q {
		l.next = nil
	} else {
		q.prev.next, q.next.prev = q.next, q.prev
	}
	delete(l.queues, q.account)
}
