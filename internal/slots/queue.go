// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"sync/atomic"

	"github.com/roux-engine/roux/internal/heap"
)

// A queue holds the requests that wait at a limit or at a throttle. It serves accounts in
// rotation, and of an account the request with the highest priority first; of equal ones the
// first that came.
type queue[H any] struct {
	of, name, key string       // what is limited, as in Usage
	limit         *Limit[H]    // whose queue it is, or
	throttle      *Throttle[H] // whose
	waiting       atomic.Int64 // requests in it that have not been withdrawn; read by Usage
	accounts      map[string]*accountQueue[H]
	next          *accountQueue[H] // the account served next; those that have a request to serve form a ring
	lastServed    string           // the account served last
	marked        bool             // it is to be served, see Arbiter.drain
	withdrawn     int              // requests in it that have been withdrawn
	pushed        uint64
}

// An accountQueue holds one account's requests.
type accountQueue[H any] struct {
	account    string
	only       group[H]                // of a limit, or
	groups     map[*Route[H]]*group[H] // of a throttle
	listed     []listing[H]            // a heap of the groups whose first request may be served
	prev, next *accountQueue[H]        // nil when not in the ring
}

// A group holds the requests of an account that have the same limits to pass after a throttle.
// One of them at a time is on its way: if another limit is full, those behind it could not pass
// that either, and stay where they are.
type group[H any] struct {
	at       *queue[H]
	of       *accountQueue[H]
	route    *Route[H]
	reqs     heap.Queue[entry[H]]
	listings int         // in the account's listed, with those that are stale
	out      *Request[H] // the one that is on its way
}

type entry[H any] struct {
	rank float64
	// came orders requests of one rank. At a limit it is when they came there; at a throttle it is
	// when they were made, because one may come back.
	came uint64
	req  *Request[H]
}

// A listing is a group with its first request when it was listed. It is stale if that is
// another one now.
type listing[H any] struct {
	entry[H]
	group *group[H]
}

func earlier[H any](a, b *entry[H]) bool {
	return a.rank > b.rank || a.rank == b.rank && a.came < b.came
}

func earlierListing[H any](a, b *listing[H]) bool { return earlier(&a.entry, &b.entry) }

func (q *queue[H]) forgetWaiting() {
	q.accounts, q.next, q.lastServed = map[string]*accountQueue[H]{}, nil, ""
	q.withdrawn = 0
}

// push adds a request.
func (q *queue[H]) push(req *Request[H], rank float64) {
	req.waitingAt = q
	q.waiting.Add(1)
	q.pushed++
	e := entry[H]{rank, q.pushed, req}
	if q.throttle != nil {
		e.came = req.arrival
	}
	a := q.accounts[req.Key.Account]
	if a == nil {
		a = &accountQueue[H]{account: req.Key.Account}
		a.only.at = q
		q.accounts[a.account] = a
	}
	g := &a.only
	if q.throttle != nil {
		if g = a.groups[req.route]; g == nil {
			g = &group[H]{at: q, of: a, route: req.route}
			if a.groups == nil {
				a.groups = map[*Route[H]]*group[H]{}
			}
			a.groups[req.route] = g
		}
	}
	g.reqs.Push(e, earlier[H])
	if q.throttle != nil && g.out == nil && g.first().req == req {
		a.list(g)
	}
	if q.limit != nil || g.out == nil {
		q.join(a)
	}
}

// list makes the group's first request one that can be served.
func (a *accountQueue[H]) list(g *group[H]) {
	g.listings++
	a.listed = heap.Push(a.listed, listing[H]{*g.first(), g}, earlierListing[H])
}

// others reports whether another request of the group of req is on its way: those of the group that
// wait behind it are not served yet, and come before req.
func (q *queue[H]) others(req *Request[H]) bool {
	if a := q.accounts[req.Key.Account]; a != nil {
		g := a.groups[req.route]
		return g != nil && g.out != nil && g.out != req
	}
	return false
}

// join adds an account to the ring, unless it is in it.
func (q *queue[H]) join(a *accountQueue[H]) {
	if a.next != nil {
		return
	}
	if q.next == nil {
		a.prev, a.next, q.next = a, a, a
		return
	}
	// A new account joins the ring just before the account served last, which has had its
	// share. If that account is not in the ring, the new one joins at the end.
	before := q.next
	if last := q.accounts[q.lastServed]; last != nil && last != a && last.next != nil {
		before = last
		if q.next == last {
			q.next = a
		}
	}
	a.prev, a.next = before.prev, before
	a.prev.next, before.prev = a, a
}

// first returns the request that is served next, and its group; nil when none waits.
func (q *queue[H]) first() (*Request[H], *group[H]) {
	for q.next != nil {
		a := q.next
		if g := a.first(q.limit != nil); g != nil {
			return g.first().req, g
		}
		q.next = a.next
		q.leave(a)
	}
	return nil, nil
}

// take removes the request that first has returned, with its group.
func (q *queue[H]) take(g *group[H]) *Request[H] {
	a, limit := q.next, q.limit != nil
	e := g.reqs.Pop(earlier[H])
	e.req.waitingAt = nil
	q.waiting.Add(-1)
	if !limit {
		_, a.listed = heap.Pop(a.listed, earlierListing[H])
		g.listings--
		g.out, e.req.transit = e.req, g
	}
	q.next = a.next
	if limit && g.reqs.Len() == 0 || !limit && len(a.listed) == 0 {
		q.leave(a)
	}
	return e.req
}

// first returns the group with the account's first request, which is the first of the group's
// heap and has not been withdrawn; nil = there is none to serve.
func (a *accountQueue[H]) first(limit bool) *group[H] {
	if limit {
		if a.only.prune(); a.only.reqs.Len() > 0 {
			return &a.only
		}
		return nil
	}
	for len(a.listed) > 0 {
		l := &a.listed[0]
		g := l.group
		if g.out == nil {
			if g.prune(); g.reqs.Len() > 0 && g.first().req == l.req {
				return g
			}
		}
		_, a.listed = heap.Pop(a.listed, earlierListing[H])
		if g.listings--; g.out == nil && g.reqs.Len() > 0 && g.listings == 0 {
			a.list(g)
		}
		g.forgetIfEmpty()
	}
	return nil
}

// first returns the group's first request; there must be one.
func (g *group[H]) first() *entry[H] { return g.reqs.First(earlier[H]) }

// prune removes the first requests as long as they have been withdrawn.
func (g *group[H]) prune() {
	for g.reqs.Len() > 0 && g.first().req.withdrawn {
		g.reqs.Pop(earlier[H]).req.waitingAt = nil
		g.at.withdrawn--
	}
}

// withdraw records that a request which waits here has been withdrawn. Such requests are removed
// when they are the first, or when most are: a queue may not be served for a day.
func (q *queue[H]) withdraw() {
	q.waiting.Add(-1)
	if q.withdrawn++; q.withdrawn < minWithdrawn || int64(q.withdrawn) < q.waiting.Load() {
		return
	}
	q.withdrawn = 0
	for _, a := range q.accounts {
		a.only.filter()
		a.listed = nil
		for _, g := range a.groups {
			if g.filter(); g.out == nil && g.reqs.Len() == 0 {
				delete(a.groups, g.route)
			} else if g.listings = 0; g.out == nil {
				a.list(g)
			}
		}
		if a.only.reqs.Len()+len(a.listed) > 0 {
			continue
		}
		if a.next != nil {
			q.leave(a)
		} else if len(a.groups) == 0 {
			delete(q.accounts, a.account)
		}
	}
}

// minWithdrawn is how many withdrawn requests are removed at once at the least.
const minWithdrawn = 32

// filter removes the requests that have been withdrawn.
func (g *group[H]) filter() {
	g.reqs.DeleteFunc(func(e entry[H]) bool {
		if e.req.withdrawn {
			e.req.waitingAt = nil
		}
		return e.req.withdrawn
	}, earlier[H])
}

func (g *group[H]) forgetIfEmpty() {
	if g.reqs.Len() == 0 && g.out == nil && g.listings == 0 {
		delete(g.of.groups, g.route)
	}
}

// arrived records that a request which was on its way has passed everything, waits elsewhere or
// was withdrawn. It reports whether the queue has others of its group to serve now.
func (q *queue[H]) arrived(req *Request[H]) bool {
	g := req.transit
	req.transit, g.out = nil, nil
	if q.accounts[g.of.account] != g.of {
		return false // its queue was forgotten
	}
	g.prune()
	if g.reqs.Len() == 0 {
		if g.forgetIfEmpty(); len(g.of.groups) == 0 && g.of.next == nil {
			delete(q.accounts, g.of.account)
		}
		return false
	}
	g.of.list(g)
	q.join(g.of)
	return true
}

// leave removes an account from the ring, and forgets it if it has no requests, so that such an
// account costs nothing.
func (q *queue[H]) leave(a *accountQueue[H]) {
	if a.next == a {
		q.next = nil
	} else {
		if q.next == a {
			q.next = a.next
		}
		a.prev.next, a.next.prev = a.next, a.prev
	}
	a.prev, a.next = nil, nil
	if len(a.groups) == 0 {
		delete(q.accounts, a.account)
	}
}

// ahead returns how many requests of its account are served before req, which waits here: up to
// maxAhead. It looks at all of them, and is only for people who ask.
func (q *queue[H]) ahead(req *Request[H]) (n int) {
	a := q.accounts[req.Key.Account]
	if a == nil {
		return 0
	}
	groups := []*group[H]{&a.only}
	for _, g := range a.groups {
		groups = append(groups, g)
	}
	var mine entry[H]
	for _, g := range groups {
		for e := range g.reqs.All() {
			if e.req == req {
				mine = *e
			}
		}
	}
	for _, g := range groups {
		for e := range g.reqs.All() {
			if n < maxAhead && !e.req.withdrawn && earlier(e, &mine) {
				n++
			}
		}
	}
	return n
}

// maxAhead bounds what ahead counts.
const maxAhead = 100_000
