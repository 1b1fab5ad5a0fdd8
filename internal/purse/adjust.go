// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"context"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// An Adjustment gives back credits that a run has paid.
type Adjustment struct {
	Run string
	// Key names it in the account: a repeated adjustment changes nothing.
	Key string

	// Charges are what the run has paid, and Back what was given back of it, as they are
	// recorded, oldest first.
	Charges, Back []*ledger.Entry
}

// A Books reads the recorded entries of accounts; see store.Ledger.
type Books interface {
	Account(ctx context.Context, account string, at int64) (*ledger.Account, error)
	Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error)
}

// Begun is when a run started that is to be adjusted, UTC µs; 0 = it was removed, and the ledger
// knows it. head and err are what the store has answered. Only a root run has paid.
func Begun(head *store.Head, err error) (int64, error) {
	switch {
	case err == nil && head.Root != "":
		err := fault.New(fault.InputInvalid, "run %s is a child run: its root run %s has paid for it", head.Run, head.Root)
		err.Remedy = "Give the credits back to the root: `roux credits adjust " + head.Root + " CREDITS`."
		return 0, err
	case err != nil && fault.CodeOf(err) != fault.RunNotFound:
		return 0, err
	}
	return head.Created, nil
}

// ReadAdjustment reads what an adjustment of a run depends on. begun is when the run
// started, UTC µs, or 0 if that is not known.
func ReadAdjustment(ctx context.Context, b Books, account, run, key string, begun int64) (*Adjustment, error) {
	a := &Adjustment{Run: run, Key: key}
	_, err := EachEntry(ctx, b, account, begun, 0, func(e *ledger.Entry) {
		switch {
		case e.Kind == ledger.Settle && e.Run == run:
			a.Charges = append(a.Charges, e)
		case e.Kind == ledger.Adjust && (e.Run == run || e.Key == adjustKey(e.Hold, key)):
			a.Back = append(a.Back, e)
		}
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// EachEntry calls fn for the entries of an account from a time on, UTC µs, the oldest first.
// The last of them may be about a run that began then: it can be adjusted at any time after
// its end. After about most entries it stops, and all is false; 0 = never.
func EachEntry(ctx context.Context, b Books, account string, from int64, most int, fn func(*ledger.Entry)) (all bool, err error) {
	const page = 10_000
	before, err := b.Account(ctx, account, from-1)
	if err != nil {
		return false, err
	}
	for n := 0; most == 0 || n < most; n += page {
		entries, err := b.Entries(ctx, account, before.Seq()+uint64(n), page)
		if err != nil {
			return false, err
		}
		for _, e := range entries {
			fn(e)
		}
		if len(entries) < page {
			return true, nil
		}
	}
	return false, nil
}

// adjustKey is the key of the entry that gives back credits of a reservation.
func adjustKey(hold, key string) string { return "adjust/" + hold + "/" + key }

// adjust decides an adjustment. Its entries give back what was paid last first.
func (ps *Purses[W]) adjust(p *purse[W], now int64, ch *Change) ([]*ledger.Entry, error) {
	a := ch.Adjust
	if len(a.Key) == 0 || len(a.Key) > ledger.MaxKey {
		return nil, fault.New(fault.InputInvalid, "the key of an adjustment: want 1 to %d bytes", ledger.MaxKey)
	}
	if ch.Amount < 1 || ch.Amount > ledger.MaxAmount {
		return nil, fault.New(fault.InputInvalid, "an adjustment of %d credits: want a whole number from 1 to %d", ch.Amount, int64(ledger.MaxAmount))
	}
	p.given = slices.DeleteFunc(p.given, func(e *ledger.Entry) bool { // what is recorded by now
		return slices.ContainsFunc(a.Back, func(b *ledger.Entry) bool { return b.Key == e.Key })
	})
	back := append(slices.Clone(a.Back), p.given...)
	var paid, returned, repeated int64
	other := false
	of := map[string]int64{} // given back, by reservation
	for _, e := range back {
		if e.Key == adjustKey(e.Hold, a.Key) {
			repeated += e.Amount()
			other = other || e.Run != a.Run
			ch.Made = append(ch.Made, e)
		}
		if e.Run == a.Run {
			returned += e.Amount()
			of[e.Hold] += e.Amount()
		}
	}
	for _, e := range a.Charges {
		paid += e.Amount()
	}
	switch {
	case repeated > 0 && (other || repeated != ch.Amount):
		return nil, fault.New(fault.IdempotencyMismatch, "key %q was used for another adjustment", a.Key)
	case repeated > 0:
		return nil, nil
	case paid == 0:
		err := fault.New(fault.InputInvalid, "account %s has paid nothing for run %s", p.name, a.Run)
		err.Remedy = "A run pays when it ends: `roux credits explain RUN` shows what it has paid. `roux credits grant` adds credits without a run."
		return nil, err
	case ch.Amount > paid-returned:
		err := fault.New(fault.InputInvalid, "%s of run %s, which has paid %d, of which %d were given back", ledger.Credits(ch.Amount), a.Run, paid, returned)
		err.Remedy = "Give back at most what is left. `roux credits grant` adds credits beyond what a run has paid."
		return nil, err
	}
	var entries []*ledger.Entry
	left := ch.Amount
	for _, charge := range slices.Backward(a.Charges) {
		n := min(left, charge.Amount()-of[charge.Hold])
		if n <= 0 {
			continue
		}
		made, err := p.account.Adjust(now, adjustKey(charge.Hold, a.Key), charge, of[charge.Hold], n, ch.Note)
		if err != nil {
			if len(entries)+len(made) > 0 {
				ps.doubt(p)
			}
			return nil, err
		}
		entries = append(entries, made...)
		left -= n
	}
	for _, e := range entries {
		if e.Kind == ledger.Adjust {
			p.given = append(p.given, e)
		}
	}
	ch.Made = entries
	return entries, nil
}

// Refused forgets an adjustment that the store has refused.
func (ps *Purses[W]) Refused(account string, ch *Change) {
	if p := ps.byName[account]; p != nil && ch.Adjust != nil {
		p.given = slices.DeleteFunc(p.given, func(e *ledger.Entry) bool { return slices.Contains(ch.Entries, e) })
	}
}
