// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
)

// The arbiter decides which step that wants an attempt gets one. It knows
// nothing durable: holdings are recounted from open attempts when runs load.
//
// A step passes its limits in one fixed order (action, provider, engine) and
// holds each until its attempt ends. The fixed order is why two steps can never
// wait for each other. Each limit serves accounts in turn and an account's steps
// in order of arrival, so that one account's flood costs another at most the
// steps in front of it in the circle. A grant costs O(1).
type arbiter struct {
	granted []*slotRequest // passed all limits; the core tells their runs
	blocked []*slotRequest // came to a full limit since the last look
	whole   *limit         // the engine's own bound
	actions map[string]*limit
	outside map[string]*limit // providers
}

// A slotRequest is a step instance's request for an attempt, until that attempt's end.
type slotRequest struct {
	l      *loadedRun
	ref    journal.Ref
	fence  journal.Fence // of its attempt, once it was granted
	fl     *inFlight     // its attempt, while that is out
	limits []*limit
	passed int    // limits held: limits[:passed]
	at     *limit // where it waits; nil = nowhere
	told   *limit // the reason its run last heard
	dead   bool   // withdrawn
}

// A limit bounds how many attempts run at once.
type limit struct {
	reason string
	slots  int
	used   int
	queues map[string]*accountQueue
	turn   *accountQueue // the account to be served next; queues that are not empty form a circle
	last   string        // the account served last
}

// An accountQueue is one account's queue at a limit.
type accountQueue struct {
	account    string
	queue      []*slotRequest
	head       int
	prev, next *accountQueue // nil when not in the circle
}

func newArbiter(slots int) *arbiter {
	return &arbiter{
		whole:   newLimit(fmt.Sprintf("waits for one of the engine's %d slots", slots), slots),
		actions: map[string]*limit{},
		outside: map[string]*limit{},
	}
}

func newLimit(reason string, slots int) *limit {
	return &limit{reason: reason, slots: slots, queues: map[string]*accountQueue{}}
}

// action returns the limits of an action: slots bounds the action, per its
// provider; 0 = no bound.
func (a *arbiter) action(name, provider string, slots, per int) []*limit {
	var limits []*limit
	if slots > 0 {
		g := a.actions[name]
		if g == nil {
			g = newLimit(fmt.Sprintf("waits for one of the %d slots of action %q", slots, name), slots)
			a.actions[name] = g
		}
		limits = append(limits, g)
	}
	if per > 0 && provider != "" {
		g := a.outside[provider]
		if g == nil {
			g = newLimit(fmt.Sprintf("waits for one of the %d slots of provider %q", per, provider), per)
			a.outside[provider] = g
		}
		limits = append(limits, g)
	}
	return append(limits, a.whole)
}

// request brings a step to its first limit.
func (a *arbiter) request(l *loadedRun, ref journal.Ref, limits []*limit) {
	if l.requests.get(ref) != nil {
		return // asked again by recovery
	}
	k := &slotRequest{l: l, ref: ref, limits: limits}
	l.requests.add(k)
	a.advance(k)
}

// holds counts an attempt that is already handed out, past every limit.
func (a *arbiter) holds(l *loadedRun, ref journal.Ref, fence journal.Fence, limits []*limit) {
	if l.requests.get(ref) != nil {
		return
	}
	k := &slotRequest{l: l, ref: ref, fence: fence, limits: limits, passed: len(limits)}
	for _, g := range limits {
		g.used++
	}
	l.requests.add(k)
}

// advance takes k through the limits as far as they are open.
func (a *arbiter) advance(k *slotRequest) {
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

// withdraw ends a request or a holding: its attempt is over, or its step no longer
// wants one.
func (a *arbiter) withdraw(k *slotRequest) {
	if k.dead {
		return
	}
	k.dead = true
	for _, g := range k.limits[:k.passed] {
		g.used--
	}
	for _, g := range k.limits[:k.passed] {
		a.serve(g)
	}
}

// withdrawAll ends everything a run wants or holds, in the order of its refs.
func (a *arbiter) withdrawAll(l *loadedRun) {
	all := make([]*slotRequest, 0, l.requests.len())
	l.requests.all(func(k *slotRequest) { all = append(all, k) })
	l.requests = requestSet{}
	slices.SortFunc(all, func(x, y *slotRequest) int {
		return cmp.Or(cmp.Compare(x.ref.Path, y.ref.Path), cmp.Compare(x.ref.Step, y.ref.Step))
	})
	for _, k := range all {
		a.withdraw(k)
	}
}

// serve lets in who waits at g, as far as it has room.
func (a *arbiter) serve(g *limit) {
	for g.used < g.slots {
		k := g.dequeue()
		if k == nil {
			return
		}
		g.pass(k)
		a.advance(k)
	}
}

func (g *limit) pass(k *slotRequest) {
	g.used++
	k.passed++
	g.last = k.l.key.Account
}

func (g *limit) enqueue(k *slotRequest) {
	k.at = g
	account := k.l.key.Account
	ln := g.queues[account]
	if ln == nil {
		ln = &accountQueue{account: account}
		g.queues[account] = ln
	}
	ln.queue = append(ln.queue, k)
	if ln.next != nil {
		return
	}
	if g.turn == nil {
		ln.prev, ln.next, g.turn = ln, ln, ln
		return
	}
	// A new account comes last in the circle, but before the one that was served
	// just now: that one is at the end of the line by what it got.
	end := g.turn
	if l := g.queues[g.last]; l != nil && l != ln {
		end = l
		if g.turn == l {
			g.turn = ln
		}
	}
	ln.prev, ln.next = end.prev, end
	ln.prev.next, end.prev = ln, ln
}

// dequeue takes the next live request of the account whose turn it is.
func (g *limit) dequeue() *slotRequest {
	for g.turn != nil {
		ln := g.turn
		var k *slotRequest
		for ln.head < len(ln.queue) && k == nil {
			k = ln.queue[ln.head]
			ln.queue[ln.head] = nil
			ln.head++
			k.at = nil
			if k.dead {
				k = nil
			}
		}
		g.turn = ln.next
		if ln.head == len(ln.queue) {
			g.leave(ln)
		} else if ln.head > 64 && ln.head*2 > len(ln.queue) {
			n := copy(ln.queue, ln.queue[ln.head:])
			clear(ln.queue[n:]) // they would hold their runs in memory
			ln.queue, ln.head = ln.queue[:n], 0
		}
		if k != nil {
			return k
		}
	}
	return nil
}

// leave takes an account without requests out of the circle. Its queue is forgotten
// so that accounts long gone cost nothing.
func (g *limit) leave(ln *accountQueue) {
	if ln.next == ln {
		g.turn = nil
	} else {
		ln.prev.next, ln.next.prev = ln.next, ln.prev
	}
	delete(g.queues, ln.account)
}
