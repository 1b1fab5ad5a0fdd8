// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/terms"
)

// LocalAccount is the account of the command line; see [terms.LocalAccount].
const LocalAccount = terms.LocalAccount

// AccountRules are what applies to the runs of an account.
type AccountRules = terms.Rules

// The defaults of AccountRules.
const (
	DefaultMaxCredits  = terms.DefaultMaxCredits
	DefaultMaxLiveRuns = terms.DefaultMaxLiveRuns
)

// maxTries is how often a change of an account is decided that the store refuses.
const maxTries = 4

// refusedChange handles entries that belong to no run and do not fit the stored account,
// because entries that they were decided after were refused. They are decided again, and
// so are requests that repeat them.
func (c *core) refusedChange(b *batch, t *store.Transition, err error) {
	b.inputs = slices.DeleteFunc(b.inputs, func(in *input) bool {
		if in.kind != inCredits || in.subject() != t.Subject() {
			return false
		}
		c.purses.Refused(in.key.Account, in.credits)
		in.credits.Entries = nil
		if in.tries++; in.tries > maxTries {
			in.out.err = err
			return false
		}
		c.backlog = append(c.backlog, in)
		return true
	})
}

// decideAgain takes the requests out of a batch that were refused for a lack of credits of
// one of the accounts, and decides them again: what entries had taken that the store
// refused, as those of a start whose idempotency key had started a run, is there for them.
// Starts that only the store will refuse, in this batch, are marked; doubts reports whether
// there are any.
func (c *core) decideAgain(b *batch, accounts []string) (doubts bool) {
	b.inputs = slices.DeleteFunc(b.inputs, func(in *input) bool {
		if in.kind != inStart && in.kind != inRun || !in.again && !slices.Contains(accounts, in.key.Account) {
			return false
		}
		switch {
		case in.out.err == nil && in.kind == inStart:
			in.again, doubts = true, true
			return false
		case fault.CodeOf(in.out.err) != fault.InsufficientCredits || in.tries == maxTries:
			return false
		}
		in.tries++
		in.out, in.again = answer{}, false
		c.backlog = append(c.backlog, in)
		return true
	})
	return doubts
}

// A GrantRequest adds a lot of credits to an account; see [purse.GrantRequest].
type GrantRequest = purse.GrantRequest

// Grant grants credits, and returns the lot once it is durable.
func (e *Engine) Grant(ctx context.Context, req GrantRequest) (ledger.Lot, error) {
	return e.changeCredits(ctx, creditsInput(req.Account, req.Change()))
}

// VoidLot ends a lot: its free credits can no longer be used. Runs that hold some of
// them keep these; what they release is voided too.
func (e *Engine) VoidLot(ctx context.Context, account, lot, note string) (ledger.Lot, error) {
	return e.changeCredits(ctx, creditsInput(account, &purse.Change{Void: true, Lot: lot, Note: note}))
}

// Adjust gives back credits that a root run has paid, to the lots that paid them, and
// returns the entries once they are durable. A repeated request with the same key changes
// nothing, and one with other terms is fault.IdempotencyMismatch.
func (e *Engine) Adjust(ctx context.Context, account, run, key string, amount int64, note string) ([]*ledger.Entry, error) {
	head, err := e.cfg.Store.Head(ctx, store.Key{Account: account, Run: run})
	begun, err := purse.Begun(&head, err)
	if err != nil {
		return nil, err
	}
	a, err := purse.ReadAdjustment(ctx, e.cfg.Store, account, run, key, begun)
	if err != nil {
		return nil, err
	}
	in := creditsInput(account, &purse.Change{Adjust: a, Amount: amount, Note: note})
	if _, err := e.changeCredits(ctx, in); err != nil {
		return nil, err
	}
	return in.credits.Made, nil
}

func creditsInput(account string, ch *purse.Change) *input {
	return &input{kind: inCredits, key: store.Key{Account: account}, credits: ch}
}

func (e *Engine) changeCredits(ctx context.Context, in *input) (ledger.Lot, error) {
	if e.stopping.Load() {
		return ledger.Lot{}, errStopping
	}
	if in.key.Account == "" {
		return ledger.Lot{}, fault.New(fault.Usage, "credits belong to an account: name it")
	}
	if err := e.request(ctx, in).err; err != nil {
		return ledger.Lot{}, err
	}
	account, err := e.Account(ctx, in.key.Account, maxTime)
	if err != nil {
		return ledger.Lot{}, err
	}
	lot, _ := account.Lot(in.credits.Lot)
	return lot, nil
}

// maxTime is later than any entry.
const maxTime = 1<<63 - 1

// Account returns the credits of an account as of a time, UTC µs: after the entries that
// were recorded by then. The caller owns what is returned.
func (e *Engine) Account(ctx context.Context, account string, at int64) (*ledger.Account, error) {
	return e.cfg.Store.Account(ctx, account, at)
}

// Entries returns the entries of an account after number `after`, oldest first, at most
// limit.
func (e *Engine) Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error) {
	return e.cfg.Store.Entries(ctx, account, after, limit)
}

// RulesChanged returns when what Config.Accounts now answers applies, also to runs that wait.
func (e *Engine) RulesChanged(ctx context.Context) error {
	e.core.purses.RulesChanged()
	e.core.queues.LimitsChanged()
	return e.Sync(ctx)
}

// A waiter is a step that is blocked because its account has too few credits.
type waiter struct {
	l   *loadedRun
	ref journal.Ref
}

// A purseHost is the core as the purses see it.
type purseHost struct{ *core }

func (h purseHost) Now() int64 { return h.now }

func (h purseHost) Pays(account string) bool { return !h.cfg.Accounts(account).Unmetered }

func (h purseHost) Budgets(account string) ledger.Budgets { return h.cfg.Accounts(account).Budgets }

func (h purseHost) Watch(account string) *ledger.Watch {
	rules := h.cfg.Accounts(account)
	return ledger.NewWatch(rules.LowBalance, rules.Budgets)
}

func (h purseHost) Committing() bool { return h.pipeline.committing != nil }

func (h purseHost) Read(account string) (*ledger.Account, error) {
	a, err := h.cfg.Store.Account(h.ctx, account, maxTime)
	if err == nil {
		h.now = max(h.now, a.At()) // time never falls (I10)
	}
	return a, err
}

func (h purseHost) Ahead(account string, fn func([]*ledger.Entry)) {
	for i := range h.pipeline.building.extra {
		if t := &h.pipeline.building.extra[i]; t.Run == "" && t.Account == account {
			fn(t.Entries)
		}
	}
}

func (h purseHost) Write(account string, entries []*ledger.Entry) {
	building := h.pipeline.building
	building.extra = append(building.extra, store.Transition{Key: store.Key{Account: account}, Epoch: h.epoch, Entries: entries, Watch: h.purses.Watch(account)})
	building.urgent = true
}

func (h purseHost) Missing(w waiter) (n int64, dropped bool) {
	n = w.l.run.CreditsMissing(w.ref)
	if w.l.place != nil {
		n = max(0, n-h.freeAbove(w.l))
	}
	return n, w.l.dropped || w.l.run.Paused() || h.pausedAbove(w.l)
}

func (h purseHost) Resume(w waiter) { h.acquire(w.l, w.ref) }

func (h purseHost) Warn(msg, account string, err error) {
	h.cfg.Logger.Warn(msg, "account", account, "err", err)
}
