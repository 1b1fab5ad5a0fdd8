// SPDX-License-Identifier: Apache-2.0

package roux

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
)

// AccountRules are what applies to the runs of an account.
type AccountRules struct {
	// Unmetered accounts do not pay for their runs.
	Unmetered bool
	// MaxCredits is the most that one run may pay. Default 10,000.
	MaxCredits int64
	// MaxLiveRuns is how many runs may be live at once: how many may have begun and not
	// ended, whatever they wait for. More are queued, up to ten times as many, and begin as
	// others end. A negative number is no limit. Default 100; accounts that do not pay have
	// no limit unless it is set.
	MaxLiveRuns int
	// Day is what the account may spend in a day; its Reset is not used.
	Day Budget
	// Keys are what it may spend with a key of that name. A run is started with one of
	// them, or with none.
	Keys map[string]Budget
	// TimeZone is where days, weeks and months begin. Default UTC.
	TimeZone *time.Location
	// LowBalance are levels of the available credits. When they fall below one, the feed
	// has a change with Limit "account".
	LowBalance []int64
}

// A Budget limits what may be spent in a period. What is reserved for a run counts when
// it is reserved; what is released counts no longer.
type Budget struct {
	Limit int64 // whole credits; 0 = no limit
	// Reset says when the budget begins anew: "daily", "weekly" (on Monday) or "monthly".
	// "" and "none" are never.
	Reset string
	// Audit reports that the limit is exceeded, and refuses nothing.
	Audit bool
}

func (b Budget) budget() (ledger.Budget, error) {
	out := ledger.Budget{Limit: b.Limit, Reset: cmp.Or(ledger.Reset(b.Reset), ledger.Never), Audit: b.Audit}
	return out, out.Check()
}

func (r AccountRules) rules() (out engine.AccountRules, err error) {
	out = engine.AccountRules{Unmetered: r.Unmetered, MaxCredits: r.MaxCredits, MaxLiveRuns: r.MaxLiveRuns, LowBalance: r.LowBalance}
	out.Budgets.Zone = r.TimeZone
	if out.Budgets.Day, err = r.Day.budget(); err != nil {
		return out, err
	}
	for name, b := range r.Keys {
		if out.Budgets.Keys == nil {
			out.Budgets.Keys = map[string]ledger.Budget{}
		}
		if out.Budgets.Keys[name], err = b.budget(); err != nil {
			return out, fmt.Errorf("key %q: %w", name, err)
		}
	}
	return out, nil
}

// For returns the engine as another account sees it: what it starts, reads and grants
// belongs to that account. Both are one engine, so closing one closes both.
func (e *Engine) For(account string) *Engine {
	return &Engine{account: cmp.Or(account, engine.LocalAccount), node: e.node}
}

// A Grant adds credits to an account, as a lot. Lots are used in the order of their
// priority, their expiry and their grant.
type Grant struct {
	// Key names the grant and its lot. A repeated grant with the same key changes
	// nothing, and one with other terms is fault.IdempotencyMismatch. Required.
	Key    string
	Amount int64 // whole credits
	// Promotional marks credits that were not paid for.
	Promotional bool
	Priority    int32     // lots with a lower one are used first
	Effective   time.Time // when the lot takes effect; zero = at once
	Expires     time.Time // zero = never
}

// A Lot is a grant and what has become of it. Free, Held, Spent, Expired and Voided add
// up to Amount.
type Lot struct {
	Key         string
	Amount      int64
	Promotional bool
	Priority    int32
	Effective   time.Time
	Expires     time.Time // zero = never
	Free        int64     // can be reserved while the lot lasts
	Held        int64     // by runs that have not ended
	Spent       int64
	Expired     int64
	Voided      int64
}

// A Balance is the state of an account's credits at one time. Pending, Available, Held,
// Spent, Expired and Voided add up to Granted.
type Balance struct {
	Granted   int64
	Pending   int64 // of lots that have not taken effect
	Available int64
	Held      int64 // by runs that have not ended
	Spent     int64
	Expired   int64
	Voided    int64
}

// An Entry is one movement of credits of an account. Entries are never changed.
type Entry struct {
	Number uint64 // 1, 2, 3 … per account
	Key    string // unique in the account
	// Kind is grant, reserve, extend, settle, release, adjust, expire or void.
	Kind   string
	Time   time.Time
	Amount int64
	Lots   []LotAmount // the parts of Amount
	Run    string      // that it was reserved or paid for; "" = none
	Note   string
}

// A LotAmount is an amount of one lot.
type LotAmount struct {
	Lot    string // its key
	Amount int64
}

// Grant grants credits to the account, and returns the lot once it is durable. Steps
// that wait for credits go on.
func (e *Engine) Grant(ctx context.Context, g Grant) (Lot, error) {
	terms := ledger.Terms{Source: ledger.Paid, Priority: g.Priority, Effective: micros(g.Effective), Expires: micros(g.Expires)}
	if g.Promotional {
		terms.Source = ledger.Promotional
	}
	l, err := e.node.Engine.Grant(ctx, engine.GrantRequest{Account: e.account, Key: g.Key, Amount: g.Amount, Terms: terms})
	if err != nil {
		return Lot{}, err
	}
	return lotOf(l), nil
}

// VoidLot ends a lot of the account: its free credits can no longer be used. Runs that
// hold credits of it keep them; what they release is voided too.
func (e *Engine) VoidLot(ctx context.Context, key, note string) (Lot, error) {
	l, err := e.node.Engine.VoidLot(ctx, e.account, key, note)
	if err != nil {
		return Lot{}, err
	}
	return lotOf(l), nil
}

// An Adjustment gives back credits that a run has paid, for example after a complaint.
type Adjustment struct {
	// Key names the adjustment. A repeated one with the same key changes nothing, and one
	// of another run or amount is fault.IdempotencyMismatch. Required.
	Key    string
	Run    string // a root run: it has paid for the runs below it
	Amount int64  // whole credits, at most what the run has paid and was not given back
	Note   string // why, for the ledger
}

// Adjust gives back credits to the lots that paid them, what was paid last first, and
// returns the amounts once they are durable. What goes back to a lot that has ended
// expires or is voided at once. Steps that wait for credits go on.
func (e *Engine) Adjust(ctx context.Context, a Adjustment) ([]LotAmount, error) {
	entries, err := e.node.Engine.Adjust(ctx, e.account, a.Run, a.Key, a.Amount, a.Note)
	if err != nil {
		return nil, err
	}
	var back []LotAmount
	for _, in := range entries {
		if in.Kind != ledger.Adjust {
			continue
		}
		for _, p := range in.Parts {
			back = append(back, LotAmount(p))
		}
	}
	return back, nil
}

// Balance returns the account's credits as they were recorded at a time; the zero time
// is now. What is recorded later does not change an earlier balance.
func (e *Engine) Balance(ctx context.Context, at time.Time) (Balance, error) {
	until, t := micros(at), micros(at)
	if at.IsZero() {
		until, t = math.MaxInt64, time.Now().UnixMicro()
	}
	account, err := e.node.Engine.Account(ctx, e.account, until)
	if err != nil {
		return Balance{}, err
	}
	return Balance(account.Balance(max(t, account.At()))), nil
}

// Entries yields the account's entries after number `after`, oldest first.
func (e *Engine) Entries(ctx context.Context, after uint64) iter.Seq2[Entry, error] {
	const page = 1000
	return func(yield func(Entry, error) bool) {
		for n := after; ; {
			entries, err := e.node.Engine.Entries(ctx, e.account, n, page)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, in := range entries {
				n++
				out := Entry{Number: n, Key: in.Key, Kind: in.Kind.String(), Time: time.UnixMicro(in.At).UTC(), Amount: in.Amount(), Run: in.Run, Note: in.Note}
				for _, p := range in.Parts {
					out.Lots = append(out.Lots, LotAmount(p))
				}
				if !yield(out, nil) {
					return
				}
			}
			if len(entries) < page {
				return
			}
		}
	}
}

func lotOf(l ledger.Lot) Lot {
	return Lot{
		Key: l.ID, Amount: l.Granted, Promotional: l.Terms.Source == ledger.Promotional, Priority: l.Terms.Priority,
		Effective: timeOf(l.Terms.Effective), Expires: timeOf(l.Terms.Expires),
		Free: l.Free, Held: l.Held, Spent: l.Spent, Expired: l.Expired, Voided: l.Voided,
	}
}

// micros is a time as the engine has it; 0 = none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
