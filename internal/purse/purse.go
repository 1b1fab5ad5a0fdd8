// SPDX-License-Identifier: Apache-2.0

// Package purse decides ahead of the disk what the accounts of runs can pay.
//
// A purse is an account as it will be after the batches encoded so far. The machine asks
// what is available and emits events that reserve, extend and settle; the purse makes
// the entries that belong to them, and remembers which steps wait for credits. Whether
// the entries are recorded is decided by the guard of the store: after a refusal or a
// lost batch the account is read again.
//
// It never decides what a run costs, and makes nothing durable.
package purse

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
)

// A Host is the engine around the purses. W is what waits for credits: a step of a run.
type Host[W any] interface {
	Now() int64 // UTC µs, never falls
	// Pays reports whether an account pays for its runs.
	Pays(account string) bool
	// Budgets returns what the account may spend, and Watch which levels of its credits are
	// reported; nil = none. They are asked for once a purse.
	Budgets(account string) ledger.Budgets
	Watch(account string) *ledger.Watch
	// Read returns the account as stored. The host's time is not before its entries
	// afterwards.
	Read(account string) (*ledger.Account, error)
	// Committing reports whether a batch has been encoded whose outcome is not known.
	Committing() bool
	// Ahead calls fn with the entries of the account that Write added to the batch under
	// construction.
	Ahead(account string, fn func([]*ledger.Entry))
	// Write adds entries that belong to no run to the batch under construction.
	Write(account string, entries []*ledger.Entry)
	// Missing returns how many credits w waits for; 0 = none any more. dropped means that
	// it does not wait, or asks again by itself.
	Missing(w W) (n int64, dropped bool)
	// Resume lets w ask for an attempt again.
	Resume(w W)
	// Warn is told of an account that cannot be read, or cannot be what it ought to be.
	Warn(msg, account string, err error)
}

// retryAfter is how long an account that could not be read is left alone, in µs.
const retryAfter = 1_000_000

// maxPurses bounds the accounts that are kept in memory between commits.
const maxPurses = 10_000

// A purse is what is known of one account.
//
// The entries of runs are made when their batch is encoded, in the order of its
// transitions, because the store applies them in that order. Until then what the runs
// of the batch need is only promised. Nothing that a run of the batch releases can be
// used before the next batch.
type purse[W any] struct {
	name     string
	account  *ledger.Account  // nil = it must be read
	stale    bool             // in Purses.stale
	promised int64            // credits that runs of the batch under construction need
	waiting  []waiting[W]     // steps that wait for credits, first come first
	keys     map[string]int64 // what those of them need that were started with a key
	budgets  ledger.Budgets
	reset    int64 // when the next of them begins anew
	watch    *ledger.Watch
	grown    bool            // in Purses.grown
	given    []*ledger.Entry // what adjustments have given back that may not be recorded yet

	free    int64 // what was available when it was last counted
	counted bool
	next    int64 // when a lot takes effect or ends; 0 = never
}

// Purses are those of the accounts that pay. They are for one goroutine at a time.
type Purses[W any] struct {
	host   Host[W]
	byName map[string]*purse[W]
	grown  []*purse[W] // perhaps some that wait can go on
	stale  []*purse[W] // to read again when no commit is in flight
	next   int64       // the earliest next of all
	rules  *atomic.Bool
}

// New returns purses that are read when they are asked for.
func New[W any](host Host[W]) *Purses[W] {
	return &Purses[W]{host: host, byName: map[string]*purse[W]{}, rules: new(atomic.Bool)}
}

// RulesChanged makes the next Tick ask for the budgets and the levels of accounts again. It
// may be called by any goroutine.
func (ps *Purses[W]) RulesChanged() { ps.rules.Store(true) }

// Reset forgets all accounts, because nobody knows which entries were written.
func (ps *Purses[W]) Reset() {
	ps.byName, ps.grown, ps.stale, ps.next = map[string]*purse[W]{}, nil, nil, 0
}

// Next is when Tick has something to do at the latest, UTC µs; 0 = never.
func (ps *Purses[W]) Next() int64 { return ps.next }

// of returns the purse of an account that pays, or nil.
func (ps *Purses[W]) of(account string) *purse[W] {
	p := ps.byName[account]
	if p == nil && ps.host.Pays(account) {
		p = &purse[W]{name: account, budgets: ps.host.Budgets(account), watch: ps.host.Watch(account)}
		ps.byName[account] = p
	}
	return p
}

// load reads the account if it is not in memory.
func (ps *Purses[W]) load(p *purse[W]) error {
	if p.account != nil && !p.stale {
		return nil
	}
	if p.stale && ps.host.Committing() {
		return &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000, Msg: "the credits of account " + p.name + " are being read again; try again in a moment"}
	}
	account, err := ps.host.Read(p.name)
	if err != nil {
		return err
	}
	ps.host.Ahead(p.name, func(entries []*ledger.Entry) {
		if err := account.ApplyAll(entries); err != nil {
			ps.host.Warn("an entry no longer fits its account", p.name, err) // the store will refuse it
		}
	})
	p.account, p.stale, p.counted = account, false, false
	return nil
}

// count counts what is available, and schedules the next change of a lot.
func (ps *Purses[W]) count(p *purse[W]) {
	now := ps.host.Now()
	if p.counted && (p.next == 0 || now < p.next) {
		return
	}
	p.free, p.next, p.counted = p.account.Available(now), p.account.NextChange(now), true
	if len(p.waiting) > 0 {
		if at := p.nextReset(now); at != 0 && (p.next == 0 || at < p.next) {
			p.next = at
		}
	}
	if p.next != 0 && (ps.next == 0 || p.next < ps.next) {
		ps.next = p.next
	}
}

// Readable returns why an account cannot be read now, or nil. A run that starts then is not
// refused for a lack of credits, which nobody knows of.
func (ps *Purses[W]) Readable(account string) error {
	if p := ps.of(account); p != nil {
		return ps.load(p)
	}
	return nil
}

// Available is what the account can give to another run of the batch under
// construction. An account that cannot be read gives nothing for now.
func (ps *Purses[W]) Available(account string) int64 {
	p := ps.of(account)
	if p == nil {
		return 0
	}
	if err := ps.load(p); err != nil {
		ps.host.Warn("an account could not be read", account, err)
		ps.later(ps.host.Now() + retryAfter)
		p.counted = false
		return 0
	}
	ps.count(p)
	return p.free - p.promised
}

// later makes tick look at all purses at a time.
func (ps *Purses[W]) later(at int64) {
	if ps.next == 0 || at < ps.next {
		ps.next = at
	}
}

// A Claim is what a run in memory has to do with the purse of its account.
type Claim struct {
	// Key is the name of the key that the run was started with; "" = none.
	Key string
	// Unpaid is why the account cannot pay. The store will refuse the events that it
	// would have paid, unless it knows the key of the run's start.
	Unpaid error
	moves  []move
	waits  bool // steps of the run have waited for credits
}

// Empty reports whether no entries are due.
func (c *Claim) Empty() bool { return len(c.moves) == 0 }

// A move is an event that moves credits and has no entries yet.
type move struct {
	kind journal.EventKind
	n    int64
	at   int64
	gen  uint32
	seq  uint64
}

// promised is what the events without entries need.
func (c *Claim) promised() (n int64) {
	if c.Unpaid != nil {
		return 0
	}
	for _, m := range c.moves {
		if m.kind != journal.EvCreditsSettled {
			n += m.n
		}
	}
	return n
}

// Note records an event of generation gen of a run that moves credits.
func (ps *Purses[W]) Note(account string, c *Claim, gen uint32, ev *journal.Event) {
	p := ps.of(account)
	if p == nil {
		return // the run was begun elsewhere, on terms that do not apply here
	}
	if mutation.Reserve && ev.Kind == journal.EvCreditsReserved {
		return
	}
	c.moves = append(c.moves, move{ev.Kind, ev.Credits(), ev.At, gen, ev.Seq})
	if ev.Kind != journal.EvCreditsSettled && c.Unpaid == nil {
		p.promise(c.Key, ev.Credits())
	}
}

// Withdraw takes back what was promised to a run that leaves memory.
func (ps *Purses[W]) Withdraw(account string, c *Claim) {
	if c.Empty() {
		return
	}
	if p := ps.byName[account]; p != nil {
		p.promise(c.Key, -c.promised())
		ps.grow(p)
	}
	c.moves = nil
}

// Entries makes the entries of a run's events since the last batch. If the account
// cannot pay them any more, as when a lot has ended since they were decided, it returns
// an entry that the store refuses together with the events. ttl is that of the run, µs.
func (ps *Purses[W]) Entries(account, run string, c *Claim, ttl int64) []*ledger.Entry {
	p := ps.of(account)
	need := c.promised()
	moves := c.moves
	c.moves = nil
	p.promise(c.Key, -need)
	if err := ps.load(p); err != nil && c.Unpaid == nil {
		c.Unpaid = err
	}
	now := ps.host.Now()
	if c.Unpaid == nil && need > 0 && need > p.account.Available(now) {
		c.Unpaid = ledger.Insufficient(need, p.account.Available(now))
	}
	var entries []*ledger.Entry
	for i := range moves {
		if c.Unpaid != nil {
			break
		}
		made, err := p.enter(now, run, c.Key, &moves[i], ttl)
		if err != nil {
			ps.host.Warn("the credits of run "+run+" could not be moved", account, err)
			c.Unpaid = err
			ps.doubt(p)
		}
		entries = append(entries, made...)
	}
	p.counted = false
	if c.Unpaid != nil {
		return unfit(now, run, &moves[0])
	}
	if slices.ContainsFunc(entries, func(e *ledger.Entry) bool { return e.Kind == ledger.Release }) {
		ps.grow(p)
	}
	return entries
}

// Watch returns which levels of an account's credits are reported; nil = none.
func (ps *Purses[W]) Watch(account string) *ledger.Watch {
	if p := ps.of(account); p != nil {
		return p.watch
	}
	return nil
}

// enter makes the entries of one event.
func (p *purse[W]) enter(now int64, run, key string, m *move, ttl int64) ([]*ledger.Entry, error) {
	counts := p.budgets.Count(key, now)
	hold := fmt.Sprintf("%s.%d", run, m.gen)
	_, held := p.account.Hold(hold)
	switch {
	case m.kind == journal.EvCreditsSettled && !held:
		return nil, nil // a run that was begun in another data directory, and is carried on here
	case m.kind == journal.EvCreditsSettled:
		return p.account.Settle(now, ledger.EventKey(ledger.Settle, hold, m.seq), hold, m.n)
	case held:
		return one(p.account.ExtendFor(counts, now, ledger.EventKey(ledger.Extend, hold, m.seq), hold, m.n))
	}
	return one(p.account.ReserveFor(counts, now, "reserve/"+hold, hold, run, m.n, m.at+ttl))
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
func unfit(now int64, run string, m *move) []*ledger.Entry {
	return []*ledger.Entry{{Key: fmt.Sprintf("unpaid/%s.%d", run, m.seq), Kind: ledger.Reserve, At: now,
		Parts: []ledger.Part{{Amount: max(m.n, 1)}}, Hold: "unpaid", Run: run}}
}

// Forget makes a purse be read again, because the store has refused entries of it.
func (ps *Purses[W]) Forget(account string) {
	if p := ps.byName[account]; p != nil {
		ps.doubt(p)
		ps.grow(p)
	}
}

// doubt makes a purse be read again.
func (ps *Purses[W]) doubt(p *purse[W]) {
	if !p.stale {
		p.stale = true
		ps.stale = append(ps.stale, p)
	}
}

// Reload reads the accounts in doubt again. It is called while no commit is in flight, so
// that they are complete. Under load there is nearly always one, and until then requests of
// such an account are refused. Of an account that cannot be read, those who ask are told.
func (ps *Purses[W]) Reload() {
	ps.stale = slices.DeleteFunc(ps.stale, func(p *purse[W]) bool {
		return ps.byName[p.name] != p || ps.load(p) == nil
	})
}

// Trim bounds the number of purses. It is called while no commit is in flight, so that
// an account which is read again is complete.
func (ps *Purses[W]) Trim() {
	if len(ps.byName) <= maxPurses {
		return
	}
	for name, p := range ps.byName {
		if p.promised == 0 && len(p.waiting) == 0 && !p.grown && len(p.given) == 0 {
			delete(ps.byName, name)
		}
	}
}

// Wait makes w wait until its account has more credits.
func (ps *Purses[W]) Wait(account string, c *Claim, w W) {
	if p := ps.of(account); p != nil {
		p.waiting = append(p.waiting, waiting[W]{w, c.Key})
		c.waits = true
		if p.account != nil {
			p.counted = false
			ps.count(p)
		}
	}
}

// grow notes that steps which wait for credits of the account may be able to go on.
func (ps *Purses[W]) grow(p *purse[W]) {
	if !p.grown && len(p.waiting) > 0 {
		p.grown = true
		ps.grown = append(ps.grown, p)
	}
}

// Freed notes that an attempt of a run has ended: what it could have cost is free for
// another one.
func (ps *Purses[W]) Freed(account string, c *Claim) {
	if !c.waits {
		return
	}
	if p := ps.byName[account]; p != nil {
		ps.grow(p)
	}
}

// Due reports whether Serve has something to do.
func (ps *Purses[W]) Due() bool {
	return len(ps.grown) > 0 && (!ps.grown[0].stale || !ps.host.Committing())
}

// Serve resumes what waited for credits which are there now, and reports whether to call
// it again. They go on in the order in which they began to wait, except that those whose
// key may spend nothing more do not keep others waiting.
func (ps *Purses[W]) Serve() (moved bool) {
	if !ps.Due() {
		return false
	}
	p := ps.grown[0]
	ps.grown = ps.grown[1:]
	p.grown = false
	left := ps.rooms(p)
	kept := p.waiting[:0]
	for _, w := range p.waiting {
		n, dropped := ps.host.Missing(w.w)
		if dropped {
			continue
		}
		if n > 0 && !left.take(w.key, n) {
			kept = append(kept, w)
			continue
		}
		moved = true
		ps.host.Resume(w.w)
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
	return moved || len(ps.grown) > 0
}

// Tick records the lots that have ended, and lets steps go on when one takes effect.
func (ps *Purses[W]) Tick() {
	now := ps.host.Now()
	if ps.rules.Swap(false) {
		for name, p := range ps.byName {
			p.budgets, p.watch, p.counted = ps.host.Budgets(name), ps.host.Watch(name), false
		}
		ps.next = now
	}
	if ps.next == 0 || now < ps.next {
		return
	}
	ps.next = 0
	for _, name := range slices.Sorted(maps.Keys(ps.byName)) { // in an order that is the same in every process
		p := ps.byName[name]
		if p.counted && (p.next == 0 || now < p.next) {
			if p.next != 0 {
				ps.later(p.next)
			}
			continue
		}
		if err := ps.load(p); err != nil {
			ps.later(now + retryAfter)
			continue
		}
		ps.expire(p)
		p.counted = false
		ps.count(p)
		ps.grow(p)
	}
}

// expire records the lots that have ended with free credits.
func (ps *Purses[W]) expire(p *purse[W]) {
	entries, err := p.account.Expire(ps.host.Now())
	if err != nil {
		ps.host.Warn("the end of a lot could not be recorded", p.name, err)
	}
	ps.write(p, entries)
}

// write adds entries to the batch that belong to no run.
func (ps *Purses[W]) write(p *purse[W], entries []*ledger.Entry) {
	if len(entries) == 0 {
		return
	}
	ps.host.Write(p.name, entries)
	p.counted = false
}
