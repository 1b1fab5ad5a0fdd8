// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// liveLimit is how many live runs an account of the world may have; 0 = any number. Like
// maxTurn it depends on the seed alone.
func liveLimit(seed uint64) int {
	if n := seed % 19; n != 8 && n != 11 {
		return 0
	}
	return 1 + int(seed/19%3)
}

// rules are those of every account of the world.
func (w *World) rules(account string) engine.AccountRules {
	r := w.bank.rules(account)
	r.MaxLiveRuns = w.limit
	return r
}

// A place is what the checker knows of how a run counts against the limit of its account
// (X206).
type place struct {
	at       int64 // when it was queued, or began at once
	admitted bool  // by the events since the last check
	direct   bool  // it was not queued
	// disturbed runs do not count: they were quarantined, or a change of theirs was
	// refused, so that what they had given back was theirs again.
	disturbed bool
	// undoing runs were cancelled, or expired, while they were queued. They compensate at
	// once what earlier generations have done, above the limit if need be.
	undoing bool
}

// before reports whether a queued run is to be admitted before another one that has
// begun. Among those that came at one time, one may have begun at once.
func (t *runRecord) before(other *runRecord) bool {
	if t.place.at != other.place.at {
		return t.place.at < other.place.at
	}
	return t.key.Run < other.key.Run && !other.place.direct
}

// live reports whether the run counts as live by its durable events: a child run belongs
// to its root.
func (t *runRecord) live() bool {
	status := t.journal.Status()
	return t.tree.self == nil && !t.deleted && t.journal.Last() > 0 && !status.Terminal() && status != journal.RunQueued
}

// checkQueues asserts, after a commit, that no account has more live runs than its limit
// says, and that queued runs were admitted in their order.
func (c *checker) checkQueues() {
	if c.w.limit == 0 {
		return
	}
	live := map[string]int{}
	for _, t := range c.all {
		if t.live() && !t.place.disturbed && !t.place.undoing {
			live[t.key.Account]++
		}
		if !t.place.admitted {
			continue
		}
		t.place.admitted = false
		if t.tree.self != nil {
			continue // it was never queued
		}
		for _, other := range c.all {
			if waits := other.journal.Status() == journal.RunQueued && !other.place.disturbed && !t.place.disturbed; waits &&
				other.key.Account == t.key.Account && other.before(t) {
				c.w.fail("X206: run %s is admitted while run %s, which was queued before, waits", t.key.Run, other.key.Run)
			}
		}
	}
	for _, account := range accounts {
		if n := live[account]; n > c.w.limit {
			c.w.fail("X206: account %s has %d live runs, its limit is %d", account, n, c.w.limit)
		}
	}
}

// checkAdmitted asserts in phase 2, when the engine has nothing to do, that no run waits
// while its account has room for it. One that cannot be read is tried again later, and
// one that is loaded alone after crashes holds up those behind it.
func (w *World) checkAdmitted(p *process) {
	if w.limit == 0 || p.stage.Recovering() {
		clear(w.roomSince)
		return
	}
	for _, account := range accounts {
		live, waits := 0, ""
		for _, t := range w.checker.all {
			switch {
			case t.key.Account != account:
			case t.live():
				live++
			case t.journal.Status() == journal.RunQueued:
				if head, err := w.mem.Head(w.ctx(), t.key); err == nil && head.Quarantine == "" {
					waits = t.key.Run
				}
			}
		}
		if waits == "" || live >= w.limit {
			delete(w.roomSince, account)
			continue
		}
		since, ok := w.roomSince[account]
		if !ok {
			w.roomSince[account] = w.mono
		} else if w.mono-since > lateTolerance {
			w.fail("X206: run %s is queued, and account %s has %d live runs of %d", waits, account, live, w.limit)
		}
	}
}

// Unended implements store.Queue.
func (d *disk) Unended(ctx context.Context, account string) (store.Unended, error) {
	if d.p.w.limit == 0 {
		return d.Store.Unended(ctx, account)
	}
	defer d.enter()()
	if d.readFails() {
		return store.Unended{}, errRead
	}
	return d.Store.Unended(ctx, account)
}

// Queued implements store.Queue.
func (d *disk) Queued(ctx context.Context, after store.Wake, limit int) ([]store.Wake, error) {
	if d.p.w.limit == 0 { // worlds without a limit stay as they were
		return d.Store.Queued(ctx, after, limit)
	}
	defer d.enter()()
	if d.readFails() {
		return nil, errRead
	}
	return d.Store.Queued(ctx, after, limit)
}
