// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/roux-engine/roux/internal/mutation"
)

// An Arbiter grants requests in the order that the package comment describes. Make one
// with New.
type Arbiter[H any] struct {
	granted   []*Request[H] // have passed all limits since the last EachGranted
	blocked   []*Request[H] // have reached a full limit since the last EachBlocked
	engine    *Limit[H]
	paused    bool          // see Pause
	deferred  []*Request[H] // since Pause, in the order of their requests
	mu        sync.Mutex    // of the keys of the maps: Usage reads them in other goroutines
	actions   map[string]*Limit[H]
	providers map[string]*Limit[H]
}

// New returns an arbiter for an engine that runs at most n attempts at once.
func New[H any](n int) *Arbiter[H] {
	return &Arbiter[H]{
		engine:    newLimit[H]("engine", "", fmt.Sprintf("waits for one of the engine's %d slots", n), n),
		actions:   map[string]*Limit[H]{},
		providers: map[string]*Limit[H]{},
	}
}

// Limits returns the limits that an attempt of an action passes, in order. n bounds the
// action and perProvider all actions of its provider (0 = no bound). The engine's own
// limit is always last.
func (a *Arbiter[H]) Limits(action, provider string, n, perProvider int) []*Limit[H] {
	var limits []*Limit[H]
	if n > 0 {
		l := a.actions[action]
		if l == nil {
			l = newLimit[H]("action", action, fmt.Sprintf("waits for one of the %d slots of action %q", n, action), n)
			a.keep(a.actions, action, l)
		}
		limits = append(limits, l)
	}
	if perProvider > 0 && provider != "" {
		l := a.providers[provider]
		if l == nil {
			l = newLimit[H]("provider", provider, fmt.Sprintf("waits for one of the %d slots of provider %q", perProvider, provider), perProvider)
			a.keep(a.providers, provider, l)
		}
		limits = append(limits, l)
	}
	return append(limits, a.engine)
}

func (a *Arbiter[H]) keep(limits map[string]*Limit[H], name string, l *Limit[H]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	limits[name] = l
}

// Request adds req to the run's set and passes it through the limits that have free
// slots. The set must have no other request of that step instance.
func (a *Arbiter[H]) Request(run *Set[H], req *Request[H], limits []*Limit[H]) {
	req.limits = limits
	run.add(req)
	a.advance(req)
}

// Hold adds the request of an attempt that has already been handed out. It passes every
// limit, even one that then has more attempts than slots; a request that WithdrawAll has
// kept holds them already. The set must have no other request of that step instance.
func (a *Arbiter[H]) Hold(run *Set[H], req *Request[H], limits []*Limit[H]) {
	a.Count(req, limits)
	run.add(req)
}

// Count is Hold for an attempt of a run that is not in memory.
func (a *Arbiter[H]) Count(req *Request[H], limits []*Limit[H]) {
	if req.limits != nil {
		return
	}
	req.limits, req.passed, req.parted = limits, len(limits), !slices.Contains(limits, a.engine)
	for _, l := range limits {
		l.used.Add(1)
	}
}

// Part gives back the engine's slot of an attempt that no worker of this process carries out
// any more, and reports whether it holds others.
func (a *Arbiter[H]) Part(req *Request[H]) bool {
	if mutation.JobSlot {
		a.Withdraw(req)
		return false
	}
	if !req.parted && req.passed == len(req.limits) {
		req.parted = true
		req.passed--
		req.limits = req.limits[:req.passed]
		a.engine.used.Add(-1)
		a.serve(a.engine)
	}
	return req.passed > 0
}

// advance passes req through its next limits until one is full.
func (a *Arbiter[H]) advance(req *Request[H]) {
	if a.paused {
		a.deferred = append(a.deferred, req)
		return
	}
	for req.passed < len(req.limits) {
		l := req.limits[req.passed]
		if int(l.used.Load()) >= l.slots || l.next != nil {
			l.enqueue(req)
			a.blocked = append(a.blocked, req)
			return
		}
		l.acquire(req)
	}
	a.granted = append(a.granted, req)
}

// Withdraw ends a request because its attempt has ended or its step no longer wants
// one. Its slots go to waiting requests.
func (a *Arbiter[H]) Withdraw(req *Request[H]) {
	if req.withdrawn {
		return
	}
	req.withdrawn = true
	if req.waitingAt != nil {
		req.waitingAt.waiting.Add(-1)
	}
	for _, l := range req.limits[:req.passed] {
		l.used.Add(-1)
	}
	for _, l := range req.limits[:req.passed] {
		a.serve(l)
	}
}

// WithdrawAll ends the requests of a run, in the order of their step instances, and empties
// its set. Those for which keep returns true hold their slots until they are withdrawn.
func (a *Arbiter[H]) WithdrawAll(run *Set[H], keep func(*Request[H]) bool) {
	all := make([]*Request[H], 0, run.Len())
	run.Each(func(req *Request[H]) {
		if !keep(req) {
			all = append(all, req)
		}
	})
	*run = Set[H]{}
	slices.SortFunc(all, func(x, y *Request[H]) int { return x.Ref.Compare(y.Ref) })
	for _, req := range all {
		a.Withdraw(req)
	}
}

// Pause makes all requests wait until Resume, because attempts that have slots are not
// counted at the moment.
func (a *Arbiter[H]) Pause() { a.paused = true }

// Resume grants the free slots to those that waited before, and then to those that have
// requested one since Pause.
func (a *Arbiter[H]) Resume() {
	if !a.paused {
		return
	}
	deferred := a.deferred
	a.paused, a.deferred = false, nil
	a.serve(a.engine)
	for _, limits := range []map[string]*Limit[H]{a.actions, a.providers} {
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			a.serve(limits[name])
		}
	}
	for _, req := range deferred {
		if !req.withdrawn {
			a.advance(req)
		}
	}
}

// ForgetWaiting forgets the requests that wait or have not been reported by EachGranted,
// because all of them will be withdrawn: their slots are not passed on among them.
func (a *Arbiter[H]) ForgetWaiting() {
	a.granted, a.blocked, a.deferred, a.paused = nil, nil, nil, false
	a.engine.forgetWaiting()
	for _, l := range a.actions {
		l.forgetWaiting()
	}
	for _, l := range a.providers {
		l.forgetWaiting()
	}
}

// serve grants the limit's free slots to the requests in its queues.
func (a *Arbiter[H]) serve(l *Limit[H]) {
	for !a.paused && int(l.used.Load()) < l.slots {
		req := l.dequeue()
		if req == nil {
			return
		}
		l.acquire(req)
		a.advance(req)
	}
}

// Granted reports whether EachGranted has requests to report.
func (a *Arbiter[H]) Granted() bool { return len(a.granted) > 0 }

// EachGranted calls fn for every request that has passed all its limits since the last
// call, including those withdrawn meanwhile.
func (a *Arbiter[H]) EachGranted(fn func(*Request[H])) {
	granted := a.granted
	a.granted = nil
	for _, req := range granted {
		fn(req)
	}
	if a.granted == nil {
		clear(granted)
		a.granted = granted[:0]
	}
}

// EachBlocked calls fn for every request that waits at a limit which has not been
// reported for it yet, with the reason.
func (a *Arbiter[H]) EachBlocked(fn func(req *Request[H], reason string)) {
	blocked := a.blocked
	for _, req := range blocked {
		if at := req.waitingAt; !req.withdrawn && at != nil && at != req.reported {
			req.reported = at // a request that has passed a limit since the last call is in blocked twice
			fn(req, at.reason)
		}
	}
	clear(blocked)
	a.blocked = blocked[:0]
}

// InUse returns how many of the engine's slots are held.
func (a *Arbiter[H]) InUse() int { return int(a.engine.used.Load()) }

// A Usage is the state of one limit.
type Usage struct {
	Of      string // engine, action or provider
	Name    string // of the action or the provider
	Slots   int
	InUse   int
	Waiting int // requests in its queues
}

// Usage returns the state of the limits that have slots in use or requests waiting: those of
// actions and of providers by name, and the engine's last. Any goroutine may call it, and its
// cost depends only on how many limits there are.
func (a *Arbiter[H]) Usage() []Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Usage
	add := func(l *Limit[H]) {
		if u := (Usage{l.of, l.name, l.slots, int(l.used.Load()), int(l.waiting.Load())}); u.InUse != 0 || u.Waiting != 0 {
			all = append(all, u)
		}
	}
	for _, limits := range []map[string]*Limit[H]{a.actions, a.providers} {
		for _, l := range limits {
			add(l)
		}
	}
	slices.SortFunc(all, func(x, y Usage) int { return cmp.Or(cmp.Compare(x.Of, y.Of), cmp.Compare(x.Name, y.Name)) })
	add(a.engine)
	return all
}
