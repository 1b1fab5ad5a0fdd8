// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"cmp"
	"fmt"
	"slices"
)

// An Arbiter grants requests in the order described above. Make one with New.
type Arbiter[H any] struct {
	granted   []*Request[H] // passed all limits since the last EachGranted
	blocked   []*Request[H] // came to a full limit since the last EachBlocked
	engine    *Limit[H]
	actions   map[string]*Limit[H]
	providers map[string]*Limit[H]
}

// New returns an arbiter for an engine that runs at most n attempts at once.
func New[H any](n int) *Arbiter[H] {
	return &Arbiter[H]{
		engine:    newLimit[H](fmt.Sprintf("waits for one of the engine's %d slots", n), n),
		actions:   map[string]*Limit[H]{},
		providers: map[string]*Limit[H]{},
	}
}

// Limits returns the limits that an attempt of an action passes, in order: n bounds
// the action, perProvider all actions of its provider (0 = no bound), and the engine's
// own bound is always last.
func (a *Arbiter[H]) Limits(action, provider string, n, perProvider int) []*Limit[H] {
	var limits []*Limit[H]
	if n > 0 {
		g := a.actions[action]
		if g == nil {
			g = newLimit[H](fmt.Sprintf("waits for one of the %d slots of action %q", n, action), n)
			a.actions[action] = g
		}
		limits = append(limits, g)
	}
	if perProvider > 0 && provider != "" {
		g := a.providers[provider]
		if g == nil {
			g = newLimit[H](fmt.Sprintf("waits for one of the %d slots of provider %q", perProvider, provider), perProvider)
			a.providers[provider] = g
		}
		limits = append(limits, g)
	}
	return append(limits, a.engine)
}

// Request enters k into the run's set, which must have none of that step instance, and
// takes it through its limits as far as they are open.
func (a *Arbiter[H]) Request(run *Set[H], k *Request[H], limits []*Limit[H]) {
	k.limits = limits
	run.add(k)
	a.advance(k)
}

// Hold enters a request whose attempt has been handed out already, past every limit,
// also where a limit then has more attempts than slots. The set must have none of that
// step instance.
func (a *Arbiter[H]) Hold(run *Set[H], k *Request[H], limits []*Limit[H]) {
	k.limits, k.passed = limits, len(limits)
	for _, g := range limits {
		g.used++
	}
	run.add(k)
}

// advance takes k through the limits as far as they are open.
func (a *Arbiter[H]) advance(k *Request[H]) {
	for k.passed < len(k.limits) {
		g := k.limits[k.passed]
		if g.used >= g.slots || g.turn != nil {
			g.enqueue(k)
			a.blocked = append(a.blocked, k)
			return
		}
		g.pass(k)
	}
	a.granted = append(a.granted, k)
}

// Withdraw ends a request: its attempt has ended, or its step no longer wants one.
// The slots that it held go to the requests that wait for them.
func (a *Arbiter[H]) Withdraw(k *Request[H]) {
	if k.withdrawn {
		return
	}
	k.withdrawn = true
	for _, g := range k.limits[:k.passed] {
		g.used--
	}
	for _, g := range k.limits[:k.passed] {
		a.serve(g)
	}
}

// WithdrawAll ends every request of a run, in the order of their step instances, and
// empties its set.
func (a *Arbiter[H]) WithdrawAll(run *Set[H]) {
	all := make([]*Request[H], 0, run.Len())
	run.Each(func(k *Request[H]) { all = append(all, k) })
	*run = Set[H]{}
	slices.SortFunc(all, func(x, y *Request[H]) int {
		return cmp.Or(cmp.Compare(x.Ref.Path, y.Ref.Path), cmp.Compare(x.Ref.Step, y.Ref.Step))
	})
	for _, k := range all {
		a.Withdraw(k)
	}
}

// serve grants g's free slots to the requests in its queues.
func (a *Arbiter[H]) serve(g *Limit[H]) {
	for g.used < g.slots {
		k := g.dequeue()
		if k == nil {
			return
		}
		g.pass(k)
		a.advance(k)
	}
}

// Granted reports whether EachGranted has requests to report.
func (a *Arbiter[H]) Granted() bool { return len(a.granted) > 0 }

// EachGranted calls fn for every request that has passed all its limits since the
// last call. One that was withdrawn meanwhile is among them.
func (a *Arbiter[H]) EachGranted(fn func(*Request[H])) {
	granted := a.granted
	a.granted = nil
	for _, k := range granted {
		fn(k)
	}
	if a.granted == nil {
		clear(granted)
		a.granted = granted[:0]
	}
}

// EachBlocked calls fn for every request that has come to a full limit since the last
// call and still waits, with the reason why. A request comes to each limit once, so it
// is told each reason once.
func (a *Arbiter[H]) EachBlocked(fn func(k *Request[H], reason string)) {
	blocked := a.blocked
	for _, k := range blocked {
		if !k.withdrawn && k.at != nil {
			fn(k, k.at.reason)
		}
	}
	clear(blocked)
	a.blocked = blocked[:0]
}

// InUse is how many of the engine's slots are held.
func (a *Arbiter[H]) InUse() int { return a.engine.used }

// A Usage is the state of one limit.
type Usage struct {
	Reason   string // what a request that waits here is told
	Slots    int
	InUse    int
	Accounts int // accounts with requests in its queues
}

// Usage returns the state of the limits that have slots in use or requests waiting,
// by reason.
func (a *Arbiter[H]) Usage() []Usage {
	var all []Usage
	add := func(g *Limit[H]) {
		if g.used != 0 || g.turn != nil || len(g.queues) != 0 {
			all = append(all, Usage{g.reason, g.slots, g.used, len(g.queues)})
		}
	}
	add(a.engine)
	for _, g := range a.actions {
		add(g)
	}
	for _, g := range a.providers {
		add(g)
	}
	slices.SortFunc(all, func(x, y Usage) int { return cmp.Compare(x.Reason, y.Reason) })
	return all
}
