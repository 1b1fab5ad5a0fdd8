// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// LocalAccount is the account of the command line. Without rules of its own it does not
// pay.
const LocalAccount = "local"

// DefaultMaxCredits is the most that a run may pay unless its account's rules say
// otherwise (X157).
const DefaultMaxCredits = 10_000

// AccountRules are what applies to the runs of an account.
type AccountRules struct {
	// Unmetered accounts do not pay: their runs move no credits.
	Unmetered bool
	// MaxCredits is the most that one run may pay. Default DefaultMaxCredits.
	MaxCredits int64
}

// defaultRules are those of an account that the configuration does not name.
func defaultRules(account string) AccountRules {
	return AccountRules{Unmetered: account == LocalAccount}
}

// terms returns the terms of a run of an account that pays, and nil for others. A recipe
// whose formula gives no number of credits is fault.PriceUnknown.
func (e *Engine) terms(req *StartRequest, prog *program) (*journal.Credits, error) {
	rules := e.cfg.Accounts(req.Account)
	if req.MaxCredits < 0 {
		return nil, fault.New(fault.InputInvalid, "maxCredits is %d: want at least 1", req.MaxCredits)
	}
	if rules.Unmetered {
		return nil, nil
	}
	b := prog.budget(e.cfg.Actions, req)
	if b.Problem != "" {
		return nil, fault.New(fault.PriceUnknown, "the credits of a run cannot be estimated: %s", b.Problem)
	}
	c := &journal.Credits{Estimated: min(b.Expected, ledger.MaxAmount), Most: cmp.Or(rules.MaxCredits, DefaultMaxCredits), Policy: ledger.Policy(b.Policy)}
	for _, most := range [...]int64{b.Cap, req.MaxCredits} {
		if most > 0 {
			c.Most = min(c.Most, most)
		}
	}
	c.Reserved = ledger.Reservation(c.Estimated, c.Most)
	if len(b.Missing) > 0 { // R15: a name in the formula has no value yet
		c.Estimated, c.Reserved = cmp.Or(c.Estimated, c.Most), c.Most
	}
	return c, nil
}

// budget returns what a run of the plan may cost. It is computed once for a plan whose
// cost does not depend on the input.
func (p *program) budget(actions Actions, req *StartRequest) *compile.Budget {
	if b := p.fixed.Load(); b != nil {
		return b
	}
	pl := p.machine.Plan()
	b := compile.Estimate(pl, actions, compile.Known{Input: req.Parameters, Files: fileFacts(req.Files)})
	if depends := pl.Estimate != nil && pl.Estimate.Strategy != "" && pl.Estimate.Strategy != "fixed" ||
		slices.ContainsFunc(pl.Steps, func(s plan.Step) bool { return s.Kind == plan.Loop }); !depends {
		p.fixed.Store(b)
	}
	return b
}

// fileFacts describe files as file-inspect returns them.
func fileFacts(files []journal.File) (facts []map[string]any) {
	for _, f := range files {
		extended := map[string]any{}
		_ = json.Unmarshal(f.Extended, &extended) // nil when the file was not inspected
		for k, v := range extended {
			if n, ok := v.(float64); ok && n == float64(int64(n)) {
				extended[k] = int64(n)
			}
		}
		facts = append(facts, map[string]any{"hash": f.Hash, "name": f.Name, "mimeType": f.MimeType, "sizeBytes": f.Size, "extended": extended})
	}
	return facts
}

// A creditChange moves credits of an account and belongs to no run: a grant, or the end
// of a lot.
type creditChange struct {
	void   bool
	lot    string // the key of the grant, which also names its lot
	amount int64
	terms  ledger.Terms
	note   string

	entries []*ledger.Entry // what it came to
	tries   int             // how often the store has refused them
}

// change decides a change of an account. One that was made before changes nothing.
func (ps *purses) change(account string, ch *creditChange) error {
	p := ps.of(account)
	if p == nil {
		return fault.New(fault.InputInvalid, "account %s does not pay for its runs and has no credits", account)
	}
	if err := ps.load(p); err != nil {
		return err
	}
	ps.expire(p)
	lot, exists := p.account.Lot(ch.lot)
	var err error
	switch {
	case ch.void && exists && lot.VoidedAt != 0:
		return nil
	case ch.void:
		ch.entries, err = one(p.account.Void(ps.c.now, "void/"+ch.lot, ch.lot, ch.note))
	case exists && !ch.repeats(&lot):
		return fault.New(fault.IdempotencyMismatch, "key %q was used for another grant", ch.lot)
	case exists:
		return nil
	default:
		ch.entries, err = one(p.account.Grant(ps.c.now, ch.lot, ch.amount, ch.terms))
	}
	if err != nil {
		return err
	}
	ps.write(p, ch.entries)
	ps.grow(p)
	return nil
}

// repeats reports whether a grant is the one that made the lot.
func (ch *creditChange) repeats(lot *ledger.Lot) bool {
	terms := ch.terms
	if terms.Effective == 0 {
		terms.Effective = lot.Created // it took effect at once
	}
	return ch.amount == lot.Granted && terms == lot.Terms
}

// refusedChange handles entries that belong to no run and do not fit the stored account,
// because entries that they were decided after were refused. They are decided again.
func (ps *purses) refusedChange(b *batch, t *store.Transition, err error) {
	b.inputs = slices.DeleteFunc(b.inputs, func(in *input) bool {
		if in.kind != inCredits || len(in.credits.entries) == 0 || in.credits.entries[0] != t.Entries[0] {
			return false
		}
		in.credits.entries = nil
		if in.credits.tries++; in.credits.tries > 3 {
			in.out.err = err
			return false
		}
		ps.c.backlog = append(ps.c.backlog, in)
		return true
	})
}

// A GrantRequest adds a lot of credits to an account.
type GrantRequest struct {
	Account string
	// Key names the grant and its lot: a repeated request with the same key changes
	// nothing, and one with other terms is fault.IdempotencyMismatch.
	Key    string
	Amount int64 // whole credits
	Terms  ledger.Terms
}

// Grant grants credits, and returns the lot once it is durable.
func (e *Engine) Grant(ctx context.Context, req GrantRequest) (ledger.Lot, error) {
	in := creditsInput(req.Account, &creditChange{lot: req.Key, amount: req.Amount, terms: req.Terms})
	return e.changeCredits(ctx, in)
}

// VoidLot ends a lot: its free credits can no longer be used. Runs that hold some of
// them keep these; what they release is voided too.
func (e *Engine) VoidLot(ctx context.Context, account, lot, note string) (ledger.Lot, error) {
	return e.changeCredits(ctx, creditsInput(account, &creditChange{void: true, lot: lot, note: note}))
}

func creditsInput(account string, ch *creditChange) *input {
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
	lot, _ := account.Lot(in.credits.lot)
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

// Rules returns what applies to the runs of an account.
func (e *Engine) Rules(account string) AccountRules { return e.cfg.Accounts(account) }
