// SPDX-License-Identifier: Apache-2.0

// Package slots decides which of the steps that want an attempt get one, and when.
//
// A step passes its limits in one fixed order (action, provider, those of the configuration by
// name, engine) and holds a slot of each until its attempt ends. Because the order is fixed, two
// steps can never wait for each other. A step that has a slot of each begins if all its throttles
// permit it at that time: rates, sums, a service that has asked to wait, one that fails. If one
// does not, the step gives its slots back and waits at the throttle, which lets it try again when
// that can help; so nobody who waits for time keeps a slot from others.
//
// Limits and throttles serve accounts in rotation, and an account's steps by priority and in
// order of arrival, so a flood of steps from one account delays another account by at most one
// round. A grant costs O(1) for each limit that applies, and where priorities or throttles make
// requests wait in another order than that of their arrival, the logarithm of what waits.
//
// The package stores nothing: after a restart the engine counts the open attempts
// again. It reads no clock, starts no goroutine, and its caller must synchronize; only Usage may
// be called at any time.
package slots

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A Request is a step instance's request for an attempt. It lasts until that attempt
// ends. H is what the caller stores with it.
type Request[H any] struct {
	Key     store.Key
	Ref     journal.Ref
	Fence   journal.Fence // of its attempt, once it has started
	Holder  H
	*Demand // nil = none of it

	route     *Route[H]
	claims    []claim // for the route's throttles; nil until it has passed or was counted
	arrival   uint64
	waitingAt *queue[H] // the queue it is in, or nil
	transit   *group[H] // that of the throttle which has let it out, until it waits elsewhere or has passed
	reported  *queue[H] // where EachBlocked last reported it, or nil
	passed    int32     // limits held: limits()[:passed]
	reports   uint8
	// InFlight is true while the attempt is carried out, see Table.
	InFlight  bool
	withdrawn bool
	settled   bool // see Arbiter.Settle
	parted    bool // see Arbiter.Part
}

// A Demand is what limits depend on, beyond the route.
type Demand struct {
	Retry   bool      // the step has failed before
	Tokens  int64     // that the attempt may use; 0 = not known
	Credits int64     // that it may cost, in millionths
	Ranks   []float64 // the priorities at the rules of the route, in its order; nil = all are 0
}

// ID identifies the attempt, once it has started.
func (r *Request[H]) ID() ID { return ID{r.Key, r.Ref, r.Fence} }

// limits are those of the route: without the engine's, which is the last, once it has parted.
func (r *Request[H]) limits() []*Limit[H] {
	if r.parted {
		return r.route.limits[:len(r.route.limits)-1]
	}
	return r.route.limits
}

// retry reports whether the step has failed before.
func (r *Request[H]) retry() bool { return r.Demand != nil && r.Retry }

// Parted reports whether the attempt holds no slot of the engine, see Arbiter.Part.
func (r *Request[H]) Parted() bool { return r.parted }

// Withdrawn reports whether the request has ended.
func (r *Request[H]) Withdrawn() bool { return r.withdrawn }

// rank is the request's priority at a limit or a throttle of a rule.
func (r *Request[H]) rank(of *Rule) float64 {
	if of == nil || r.Demand == nil || r.Ranks == nil {
		return 0
	}
	for i, k := range r.route.keys {
		if k.Rule == of {
			return r.Ranks[i]
		}
	}
	return 0
}

// A Set holds the requests of one run, by step instance. Most runs have a few, which
// are kept in a list. Larger sets are indexed by step, and by reference in inner
// scopes. The zero Set is empty.
type Set[H any] struct {
	list []*Request[H]
	// Used instead of list when there are more than maxList, until none is left:
	indexed bool
	n       int
	root    []*Request[H] // of the root scope, by step
	inner   map[journal.Ref]*Request[H]
}

const maxList = 8

// Len returns the number of requests.
func (s *Set[H]) Len() int { return len(s.list) + s.n }

// Get returns the request of a step instance, or nil.
func (s *Set[H]) Get(ref journal.Ref) *Request[H] {
	if s.indexed {
		if ref.Path != "" {
			return s.inner[ref]
		}
		if int(ref.Step) < len(s.root) {
			return s.root[ref.Step]
		}
		return nil
	}
	for _, req := range s.list {
		if req.Ref == ref {
			return req
		}
	}
	return nil
}

// add adds the request of a step instance that has none.
func (s *Set[H]) add(req *Request[H]) {
	if !s.indexed && len(s.list) < maxList {
		s.list = append(s.list, req)
		return
	}
	list := s.list
	s.indexed, s.list = true, nil
	for _, req := range list {
		s.add(req)
	}
	s.n++
	if req.Ref.Path != "" {
		if s.inner == nil {
			s.inner = make(map[journal.Ref]*Request[H], 2*maxList)
		}
		s.inner[req.Ref] = req
		return
	}
	if short := int(req.Ref.Step) + 1 - len(s.root); short > 0 {
		s.root = append(s.root, make([]*Request[H], short)...)
	}
	s.root[req.Ref.Step] = req
}

// Remove removes req if it is in the set. Its slots stay held until Arbiter.Withdraw.
func (s *Set[H]) Remove(req *Request[H]) {
	if s.indexed {
		if s.Get(req.Ref) != req {
			return
		}
		if req.Ref.Path != "" {
			delete(s.inner, req.Ref)
		} else {
			s.root[req.Ref.Step] = nil
		}
		if s.n--; s.n == 0 {
			*s = Set[H]{} // a run with many steps that only waits must not keep the index
		}
		return
	}
	for i, have := range s.list {
		if have == req {
			last := len(s.list) - 1
			s.list[i], s.list[last] = s.list[last], nil
			s.list = s.list[:last]
			return
		}
	}
}

// Each calls fn for every request, in no particular order.
func (s *Set[H]) Each(fn func(*Request[H])) {
	for _, req := range s.list {
		fn(req)
	}
	for _, req := range s.root {
		if req != nil {
			fn(req)
		}
	}
	for _, req := range s.inner {
		fn(req)
	}
}
