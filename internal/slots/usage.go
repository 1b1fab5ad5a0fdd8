// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"cmp"
	"sort"

	"github.com/roux-engine/roux/internal/journal"
)

// A Usage is the state of one limit.
type Usage struct {
	Of      string // engine, action, provider, limit, or pause or retries: of a provider
	Name    string // of the action, the provider or the limit
	Key     string // of the limit; of a pause it is the account
	Slots   int    // 0 = it limits when attempts begin
	InUse   int
	Waiting int   // requests in its queues
	Until   int64 // until when nothing begins, UTC µs; 0 = not known, or something does
}

// Usage returns the state of the limits that have slots in use or requests waiting: those of
// actions, keys and providers by name, and the engine's last. Any goroutine may call it, and its
// cost depends only on how many limits there are.
func (a *Arbiter[H]) Usage() []Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Usage
	add := func(q *queue[H]) {
		u := Usage{Of: q.of, Name: q.name, Key: q.key, Waiting: int(q.waiting.Load())}
		if q.limit != nil {
			u.Slots, u.InUse = q.limit.slots, int(q.limit.used.Load())
		} else {
			u.Until = q.throttle.until.Load()
		}
		if u.InUse != 0 || u.Waiting != 0 {
			all = append(all, u)
		}
	}
	for _, limits := range []map[string]*Limit[H]{a.actions, a.providers} {
		for _, l := range limits {
			add(&l.queue)
		}
	}
	for _, one := range a.keys {
		if one.limit != nil {
			add(&one.limit.queue)
		}
		if one.throttle != nil {
			add(&one.throttle.queue)
		}
	}
	sort.Slice(all, func(i, k int) bool { // an instance of slices.SortFunc takes 14 KB of a small binary
		x, y := &all[i], &all[k]
		return cmp.Or(cmp.Compare(x.Of, y.Of), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Key, y.Key), -cmp.Compare(x.Slots, y.Slots)) < 0
	})
	add(&a.engine.queue)
	return all
}

// A Standing is where a step that waits stands at this moment.
type Standing struct {
	Reason   string
	Ahead    int   // steps of its account that come before it, where it waits
	Accounts int   // that have steps waiting there, its own among them
	Until    int64 // UTC µs, when it may go on at the earliest; 0 = not known
	Slots    int   // of the limit where it waits; 0 = it waits for time
	InUse    int
	Holders  []Place // who holds them, of its account; only of limits with few slots
	Behind   *Place  // the step before it that has gone on to the next limit, and is waited for
}

// A Place is a step instance of a run.
type Place struct {
	Run string
	Ref journal.Ref
}

// Standing returns where a request stands; ok is false if it does not wait. req may be nil.
func (a *Arbiter[H]) Standing(req *Request[H]) (s Standing, ok bool) {
	if req == nil || req.waitingAt == nil || req.withdrawn {
		return Standing{}, false
	}
	at := req.waitingAt
	s = Standing{Reason: a.reason(req), Accounts: max(len(at.accounts), 1)}
	if l := at.limit; l != nil {
		s.Ahead, s.Slots, s.InUse = at.ahead(req), l.slots, int(l.used.Load())
		for _, h := range l.holders {
			if h.Key.Account == req.Key.Account {
				s.Holders = append(s.Holders, Place{h.Key.Run, h.Ref})
			}
		}
		return s, true
	}
	t := at.throttle
	s.Ahead = at.ahead(req)
	why, until := t.check(a.now, req)
	s.Until = until
	if acct := at.accounts[req.Key.Account]; why == mayBegin && acct != nil {
		if g := acct.groups[req.route]; g != nil && g.out != nil {
			s.Behind = &Place{g.out.Key.Run, g.out.Ref}
			if g.out.waitingAt != nil {
				s.Reason = a.reason(g.out)
			}
		}
	}
	return s, true
}
