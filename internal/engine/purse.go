// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

// maxPurses bounds the accounts that are kept in memory between commits.
const maxPurses = 10_000

// A purse is an account as it will be after the batches encoded so far. It decides
// ahead of the disk what runs of the account can pay; the guard of the store has the
// last word.
//
// The entries of runs are made when their batch is encoded, in the order of its
// transitions, because the store applies them in that order. Until then what the runs
// of the batch need is only promised. Nothing that a run of the batch releases can be
// used before the next batch.
type purse struct {
	name     string
	account  *ledger.Account // nil = it must be read
	stale    bool            // it must be read again, when no commit is in flight
	promised int64           // credits that runs of the batch under construction need
	waiting  []waiter        // steps that wait for credits, first come first
	grown    bool            // in purses.grown

	free    int64 // what was available when it was last counted
	counted bool
	next    int64 // when a lot takes effect or ends; 0 = never
}

// A waiter is a step that is blocked because its account has too few credits.
type waiter struct {
	l   *loadedRun
	ref journal.Ref
}

// purses are those of the accounts that pay.
type purses struct {
	c      *core
	byName map[string]*purse
	grown  []*purse // perhaps some that wait can go on
	next   int64    // the earliest next of all
}

func (ps *purses) init(c *core) { *ps = purses{c: c, byName: map[string]*purse{}} }

// reset forgets all accounts, because nobody knows which entries were written.
func (ps *purses) reset() { ps.init(ps.c) }

// of returns the purse of an account that pays, or nil.
func (ps *purses) of(account string) *purse {
	p := ps.byName[account]
	if p == nil && !ps.c.cfg.Accounts(account).Unmetered {
		p = &purse{name: account}
		ps.byName[account] = p
	}
	return p
}

// load reads the account if it is not in memory.
func (ps *purses) load(p *purse) error {
	if p.account != nil && !p.stale {
		return nil
	}
	if p.stale && ps.c.pipeline.committing != nil {
		return fault.New(fault.ServiceUnavailable, "the credits of account %s are being read again; try again in a moment", p.name)
	}
	account, err := ps.c.cfg.Store.Account(ps.c.ctx, p.name, math.MaxInt64)
	if err != nil {
		return err
	}
	for i := range ps.c.pipeline.building.extra {
		if t := &ps.c.pipeline.building.extra[i]; t.Run == "" && t.Account == p.name {
			if err := account.ApplyAll(t.Entries); err != nil {
				ps.c.cfg.Logger.Warn("an entry no longer fits its account", "account", p.name, "err", err)
			}
		}
	}
	p.account, p.stale, p.counted = account, false, false
	ps.c.now = max(ps.c.now, account.At()) // time never falls (I10)
	return nil
}

// count counts what is available, and schedules the next change of a lot.
func (ps *purses) count(p *purse) {
	now := ps.c.now
	if p.counted && (p.next == 0 || now < p.next) {
		return
	}
	p.free, p.next, p.counted = p.account.Available(now), p.account.NextChange(now), true
	if p.next != 0 && (ps.next == 0 || p.next < ps.next) {
		ps.next = p.next
	}
}

// available is what the account can give to another run of the batch under
// construction. An account that cannot be read gives nothing for now.
func (ps *purses) available(account string) int64 {
	p := ps.of(account)
	if p == nil {
		return 0
	}
	if err := ps.load(p); err != nil {
		ps.c.cfg.Logger.Warn("an account could not be read", "account", account, "err", err)
		ps.later(ps.c.now + maxBackoff)
		p.counted = false
		return 0
	}
	ps.count(p)
	return p.free - p.promised
}

// later makes tick look at all purses at a time.
func (ps *purses) later(at int64) {
	if ps.next == 0 || at < ps.next {
		ps.next = at
	}
}

// A creditOp is an event that moves credits and has no entries yet.
type creditOp struct {
	kind journal.EventKind
	n    int64
	at   int64
	gen  uint32
	seq  uint64
}

// note records an event that moves credits of the run's account.
func (ps *purses) note(l *loadedRun, ev *journal.Event) {
	p := ps.of(l.key.Account)
	if p == nil {
		return // the run was begun elsewhere, on terms that do not apply here
	}
	if mutation.Reserve && ev.Kind == journal.EvCreditsReserved {
		return
	}
	l.credits = append(l.credits, creditOp{ev.Kind, ev.Credits(), ev.At, l.run.Generation(), ev.Seq})
	if ev.Kind != journal.EvCreditsSettled && l.unpaid == nil {
		p.promised += ev.Credits()
	}
}

// withdraw takes back what was promised to a run that leaves memory.
func (ps *purses) withdraw(l *loadedRun) {
	if len(l.credits) == 0 {
		return
	}
	if p := ps.byName[l.key.Account]; p != nil {
		p.promised -= l.promised()
		ps.grow(p)
	}
	l.credits = nil
}

// promised is what the run's events since the last batch need.
func (l *loadedRun) promised() (n int64) {
	for _, op := range l.credits {
		if op.kind != journal.EvCreditsSettled && l.unpaid == nil {
			n += op.n
		}
	}
	return n
}

// entries makes the entries of a run's events since the last batch. If the account
// cannot pay them any more, as when a lot has ended since they were decided, it returns
// an entry that the store refuses together with the events.
func (ps *purses) entries(l *loadedRun) []*ledger.Entry {
	p := ps.of(l.key.Account)
	need := l.promised()
	ops := l.credits
	l.credits = nil
	p.promised -= need
	if err := ps.load(p); err != nil && l.unpaid == nil {
		l.unpaid = err
	}
	now := ps.c.now
	if l.unpaid == nil && need > 0 && need > p.account.Available(now) {
		l.unpaid = insufficient(need, p.account.Available(now))
	}
	var entries []*ledger.Entry
	for _, op := range ops {
		if l.unpaid != nil {
			break
		}
		made, err := p.enter(now, l, op)
		if err != nil {
			ps.c.cfg.Logger.Error("the credits of a run could not be moved", "run", l.key.Run, "err", err)
			l.unpaid, p.stale = err, true
		}
		entries = append(entries, made...)
	}
	p.counted = false
	if l.unpaid != nil {
		return unfit(now, l, ops[0])
	}
	if slices.ContainsFunc(entries, func(e *ledger.Entry) bool { return e.Kind == ledger.Release }) {
		ps.grow(p)
	}
	return entries
}

// enter makes the entries of one event.
func (p *purse) enter(now int64, l *loadedRun, op creditOp) ([]*ledger.Entry, error) {
	hold := fmt.Sprintf("%s.%d", l.key.Run, op.gen)
	_, held := p.account.Hold(hold)
	switch {
	case op.kind == journal.EvCreditsSettled:
		return p.account.Settle(now, "settle/"+hold, hold, op.n)
	case held:
		return one(p.account.Extend(now, fmt.Sprintf("extend/%s.%d", hold, op.seq), hold, op.n))
	}
	return one(p.account.Reserve(now, "reserve/"+hold, hold, l.key.Run, op.n, op.at+l.run.Plan().TTLMS*1000))
}

func one(e *ledger.Entry, err error) ([]*ledger.Entry, error) {
	if err != nil {
		return nil, err
	}
	return []*ledger.Entry{e}, nil
}

// unfit is an entry that no account has room for. A start with an idempotency key is
// sent to the store even if it cannot be paid, because the key may have started a run
// already: the store looks at the key first.
func unfit(now int64, l *loadedRun, op creditOp) []*ledger.Entry {
	return []*ledger.Entry{{Key: fmt.Sprintf("unpaid/%s.%d", l.key.Run, op.seq), Kind: ledger.Reserve, At: now,
		Parts: []ledger.Part{{Amount: max(op.n, 1)}}, Hold: "unpaid", Run: l.key.Run}}
}

func insufficient(needed, available int64) error {
	return fault.New(fault.InsufficientCredits, "the run needs %s, and the account lacks %d of them (limitSource account)",
		ledger.Credits(needed), needed-max(available, 0))
}

// forget makes a purse be read again, because the store has refused entries of it.
func (ps *purses) forget(account string) {
	if p := ps.byName[account]; p != nil {
		p.stale = true
		ps.grow(p)
	}
}

// trim bounds the number of purses. It is called while no commit is in flight, so that
// an account which is read again is complete.
func (ps *purses) trim() {
	if len(ps.byName) <= maxPurses {
		return
	}
	for name, p := range ps.byName {
		if p.promised == 0 && len(p.waiting) == 0 && !p.grown {
			delete(ps.byName, name)
		}
	}
}

// wait makes a step wait until its account has more credits.
func (ps *purses) wait(l *loadedRun, ref journal.Ref) {
	if p := ps.of(l.key.Account); p != nil {
		p.waiting = append(p.waiting, waiter{l, ref})
		l.unfunded = true
	}
}

// grow notes that steps which wait for credits of the account may be able to go on.
func (ps *purses) grow(p *purse) {
	if !p.grown && len(p.waiting) > 0 {
		p.grown = true
		ps.grown = append(ps.grown, p)
	}
}

// freed is grow for the account of a run whose attempt has ended: its ceiling is free
// for another one.
func (ps *purses) freed(l *loadedRun) {
	if p := ps.byName[l.key.Account]; p != nil && l.unfunded {
		ps.grow(p)
	}
}

// due reports whether serve has something to do.
func (ps *purses) due() bool {
	return len(ps.grown) > 0 && (!ps.grown[0].stale || ps.c.pipeline.committing == nil)
}

// serve requests slots again for steps that waited for credits which are there now, and
// reports whether there were any. They go on in the order in which they began to wait.
func (ps *purses) serve() (moved bool) {
	if !ps.due() {
		return false
	}
	p := ps.grown[0]
	ps.grown = ps.grown[1:]
	p.grown = false
	left := ps.available(p.name)
	kept := p.waiting[:0]
	behind := false
	for _, w := range p.waiting {
		if w.l.dropped {
			continue
		}
		n := w.l.run.CreditsMissing(w.ref)
		if n > 0 && (behind || n > left) {
			behind = true
			kept = append(kept, w)
			continue
		}
		left -= n
		moved = true
		ps.c.attempts.requestSlot(w.l, w.ref, ps.c.limitsOf(w.l, w.ref))
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
	return moved || len(ps.grown) > 0
}

// tick records the lots that have ended, and lets steps go on when one takes effect.
func (ps *purses) tick() {
	if ps.next == 0 || ps.c.now < ps.next {
		return
	}
	ps.next = 0
	for _, p := range ps.byName {
		if p.counted && (p.next == 0 || ps.c.now < p.next) {
			if p.next != 0 {
				ps.later(p.next)
			}
			continue
		}
		if err := ps.load(p); err != nil {
			ps.later(ps.c.now + maxBackoff)
			continue
		}
		ps.expire(p)
		p.counted = false
		ps.count(p)
		ps.grow(p)
	}
}

// expire records the lots that have ended with free credits.
func (ps *purses) expire(p *purse) {
	entries, err := p.account.Expire(ps.c.now)
	if err != nil {
		ps.c.cfg.Logger.Error("the end of a lot could not be recorded", "account", p.name, "err", err)
	}
	ps.write(p, entries)
}

// write adds entries to the batch that belong to no run.
func (ps *purses) write(p *purse, entries []*ledger.Entry) {
	if len(entries) == 0 {
		return
	}
	b := ps.c.pipeline.building
	b.extra = append(b.extra, store.Transition{Key: store.Key{Account: p.name}, Epoch: ps.c.epoch, Entries: entries})
	b.urgent, p.counted = true, false
}
