// SPDX-License-Identifier: Apache-2.0

// Package slots decides which of the steps that want an attempt get one.
//
// A step passes its limits in one fixed order (action, provider, engine) and holds a
// slot of each until its attempt ends. Because the order is fixed, two steps can never
// wait for each other. Each limit serves accounts in rotation and an account's steps in
// order of arrival, so a flood of steps from one account delays another account by at
// most one round. A grant costs O(1).
//
// The package stores nothing: after a restart the engine counts the open attempts
// again. It starts no goroutine, and its caller must synchronize; only Usage may be called at
// any time.
package slots

import (
	"github.com/roux-engine/roux/internal/journal"
)

// A Request is a step instance's request for an attempt. It lasts until that attempt
// ends. H is what the caller stores with it.
type Request[H any] struct {
	Account string
	Ref     journal.Ref
	Fence   journal.Fence // of its attempt, once it has started
	Holder  H

	limits    []*Limit[H]
	passed    int       // limits held: limits[:passed]
	waitingAt *Limit[H] // the limit whose queue it is in, or nil
	reported  *Limit[H] // the limit that EachBlocked last reported, or nil
	withdrawn bool
	parted    bool // see Arbiter.Part
}

// Parted reports whether the attempt holds no slot of the engine, see Arbiter.Part.
func (r *Request[H]) Parted() bool { return r.parted }

// Withdrawn reports whether the request has ended.
func (r *Request[H]) Withdrawn() bool { return r.withdrawn }

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
