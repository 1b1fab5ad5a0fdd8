// SPDX-License-Identifier: Apache-2.0

// Package slots decides which step that wants an attempt gets one.
//
// A step passes its limits in one fixed order (action, provider, engine) and holds
// each until its attempt ends. Because the order is fixed, two steps can never wait
// for each other. Each limit serves accounts in turn and an account's steps in order
// of arrival, so that one account's flood costs another at most the steps in front of
// it in the circle. A grant costs O(1).
//
// The package knows nothing durable: after a restart the engine counts the open
// attempts again. It starts no goroutine and takes no lock; its caller does.
package slots

import (
	"github.com/roux-engine/roux/internal/journal"
)

// A Request is a step instance's request for an attempt, until that attempt's end.
// H is what the caller keeps with it.
type Request[H any] struct {
	Account string
	Ref     journal.Ref
	Fence   journal.Fence // of its attempt, once that has begun
	Holder  H

	limits    []*Limit[H]
	passed    int       // limits held: limits[:passed]
	at        *Limit[H] // where it waits; nil = nowhere
	withdrawn bool
}

// Withdrawn reports whether the request has ended.
func (k *Request[H]) Withdrawn() bool { return k.withdrawn }

// A Set holds the requests of one run, by step instance. Most runs have a few; those
// of wide plans are found by their step, or by an index in inner scopes. The zero Set
// is empty.
type Set[H any] struct {
	few []*Request[H]
	// Instead of few, past maxFew and until none is left:
	wide  bool
	n     int
	root  []*Request[H] // of the run's own scope, by step
	inner map[journal.Ref]*Request[H]
}

const maxFew = 8

// Len is the number of requests.
func (s *Set[H]) Len() int { return len(s.few) + s.n }

// Get returns the request of a step instance, or nil.
func (s *Set[H]) Get(ref journal.Ref) *Request[H] {
	if s.wide {
		if ref.Path != "" {
			return s.inner[ref]
		}
		if int(ref.Step) < len(s.root) {
			return s.root[ref.Step]
		}
		return nil
	}
	for _, k := range s.few {
		if k.Ref == ref {
			return k
		}
	}
	return nil
}

// add adds the request of a step instance that has none.
func (s *Set[H]) add(k *Request[H]) {
	if !s.wide && len(s.few) < maxFew {
		s.few = append(s.few, k)
		return
	}
	few := s.few
	s.wide, s.few = true, nil
	for _, k := range few {
		s.add(k)
	}
	s.n++
	if k.Ref.Path != "" {
		if s.inner == nil {
			s.inner = make(map[journal.Ref]*Request[H], 2*maxFew)
		}
		s.inner[k.Ref] = k
		return
	}
	if short := int(k.Ref.Step) + 1 - len(s.root); short > 0 {
		s.root = append(s.root, make([]*Request[H], short)...)
	}
	s.root[k.Ref.Step] = k
}

// Remove removes k; a request that is not in the set is ignored. What k holds stays
// held until Arbiter.Withdraw.
func (s *Set[H]) Remove(k *Request[H]) {
	if s.wide {
		if s.Get(k.Ref) != k {
			return
		}
		if k.Ref.Path != "" {
			delete(s.inner, k.Ref)
		} else {
			s.root[k.Ref.Step] = nil
		}
		if s.n--; s.n == 0 {
			*s = Set[H]{} // a wide run that only waits holds no memory for it
		}
		return
	}
	for i, have := range s.few {
		if have == k {
			last := len(s.few) - 1
			s.few[i], s.few[last] = s.few[last], nil
			s.few = s.few[:last]
			return
		}
	}
}

// Each calls fn for every request, in no particular order.
func (s *Set[H]) Each(fn func(*Request[H])) {
	for _, k := range s.few {
		fn(k)
	}
	for _, k := range s.root {
		if k != nil {
			fn(k)
		}
	}
	for _, k := range s.inner {
		fn(k)
	}
}
