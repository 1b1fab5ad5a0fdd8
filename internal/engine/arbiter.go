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
// A step passes its gates in one fixed order (action, provider, engine) and
// holds each until its attempt ends. The fixed order is why two steps can never
// wait for each other. Each gate serves accounts in turn and an account's steps
// in order of arrival, so that one account's flood costs another at most the
// steps in front of it in the circle. A grant costs O(1).
type arbiter struct {
	granted []*ask // passed all gates; the core tells their runs
	blocked []*ask // came to a full gate since the last look
	whole   *gate  // the engine's own bound
	actions map[string]*gate
	outside map[string]*gate // providers
}

// An ask is a step instance's wish for an attempt, until that attempt's end.
type ask struct {
	l      *live
	ref    journal.Ref
	fence  journal.Fence // of its attempt, once it was granted
	fl     *flight       // its attempt, while that is out
	gates  []*gate
	passed int   // gates held: gates[:passed]
	at     *gate // where it waits; nil = nowhere
	told   *gate // the reason its run last heard
	dead   bool  // withdrawn
}

// A gate bounds how many attempts run at once.
type gate struct {
	reason string
	limit  int
	used   int
	lanes  map[string]*lane
	turn   *lane  // the account to be served next; lanes with asks form a circle
	last   string // the account served last
}

// A lane is one account's queue at a gate.
type lane struct {
	account    string
	queue      []*ask
	head       int
	prev, next *lane // nil when not in the circle
}

func newArbiter(limit int) *arbiter {
	return &arbiter{
		whole:   newGate(fmt.Sprintf("waits for one of the engine's %d slots", limit), limit),
		actions: map[string]*gate{},
		outside: map[string]*gate{},
	}
}

func newGate(reason string, limit int) *gate {
	return &gate{reason: reason, limit: limit, lanes: map[string]*lane{}}
}

// action returns the gates of an action: slots bounds the action, per its
// provider; 0 = no bound.
func (a *arbiter) action(name, provider string, slots, per int) []*gate {
	var gates []*gate
	if slots > 0 {
		g := a.actions[name]
		if g == nil {
			g = newGate(fmt.Sprintf("waits for one of the %d slots of action %q", slots, name), slots)
			a.actions[name] = g
		}
		gates = append(gates, g)
	}
	if per > 0 && provider != "" {
		g := a.outside[provider]
		if g == nil {
			g = newGate(fmt.Sprintf("waits for one of the %d slots of provider %q", per, provider), per)
			a.outside[provider] = g
		}
		gates = append(gates, g)
	}
	return append(gates, a.whole)
}

// ask brings a wish to its first gate.
func (a *arbiter) ask(l *live, ref journal.Ref, gates []*gate) {
	if l.asks.get(ref) != nil {
		return // asked again by recovery
	}
	k := &ask{l: l, ref: ref, gates: gates}
	l.asks.add(k)
	a.advance(k)
}

// holds counts an attempt that is already handed out, past every limit.
func (a *arbiter) holds(l *live, ref journal.Ref, fence journal.Fence, gates []*gate) {
	if l.asks.get(ref) != nil {
		return
	}
	k := &ask{l: l, ref: ref, fence: fence, gates: gates, passed: len(gates)}
	for _, g := range gates {
		g.used++
	}
	l.asks.add(k)
}

// advance takes k through the gates as far as they are open.
func (a *arbiter) advance(k *ask) {
	for k.passed < len(k.gates) {
		g := k.gates[k.passed]
		if g.used >= g.limit || g.turn != nil {
			g.enqueue(k)
			a.blocked = append(a.blocked, k)
			return
		}
		g.pass(k)
	}
	a.granted = append(a.granted, k)
}

// withdraw ends a wish or a holding: its attempt is over, or its step no longer
// wants one.
func (a *arbiter) withdraw(k *ask) {
	if k.dead {
		return
	}
	k.dead = true
	for _, g := range k.gates[:k.passed] {
		g.used--
	}
	for _, g := range k.gates[:k.passed] {
		a.serve(g)
	}
}

// withdrawAll ends everything a run wishes or holds, in the order of its refs.
func (a *arbiter) withdrawAll(l *live) {
	all := make([]*ask, 0, l.asks.len())
	l.asks.all(func(k *ask) { all = append(all, k) })
	l.asks = asks{}
	slices.SortFunc(all, func(x, y *ask) int {
		return cmp.Or(cmp.Compare(x.ref.Path, y.ref.Path), cmp.Compare(x.ref.Step, y.ref.Step))
	})
	for _, k := range all {
		a.withdraw(k)
	}
}

// serve lets in who waits at g, as far as it has room.
func (a *arbiter) serve(g *gate) {
	for g.used < g.limit {
		k := g.dequeue()
		if k == nil {
			return
		}
		g.pass(k)
		a.advance(k)
	}
}

func (g *gate) pass(k *ask) {
	g.used++
	k.passed++
	g.last = k.l.key.Account
}

func (g *gate) enqueue(k *ask) {
	k.at = g
	account := k.l.key.Account
	ln := g.lanes[account]
	if ln == nil {
		ln = &lane{account: account}
		g.lanes[account] = ln
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
	if l := g.lanes[g.last]; l != nil && l != ln {
		end = l
		if g.turn == l {
			g.turn = ln
		}
	}
	ln.prev, ln.next = end.prev, end
	ln.prev.next, end.prev = ln, ln
}

// dequeue takes the next living ask of the account whose turn it is.
func (g *gate) dequeue() *ask {
	for g.turn != nil {
		ln := g.turn
		var k *ask
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

// leave takes an account without asks out of the circle. Its lane is forgotten
// so that accounts long gone cost nothing.
func (g *gate) leave(ln *lane) {
	if ln.next == ln {
		g.turn = nil
	} else {
		ln.prev.next, ln.next.prev = ln.next, ln.prev
	}
	delete(g.lanes, ln.account)
}
