// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"

	"github.com/roux-engine/roux/internal/ledger"
)

// budgets are those of every account in a part of the worlds that pay: a limit for each
// day, and one that never begins anew for the runs with a key.
func (b *bank) budgets() ledger.Budgets {
	if b == nil || b.day == 0 {
		return ledger.Budgets{}
	}
	return ledger.Budgets{Day: ledger.Budget{Limit: b.day}, Keys: map[string]ledger.Budget{"ci": {Limit: 2 * b.day, Reset: ledger.Never}}}
}

// key draws the key of a run.
func (b *bank) key() string {
	if b == nil || b.day == 0 || b.dice.IntN(3) > 0 {
		return ""
	}
	return "ci"
}

// usages are what the entries of an account count in its budgets, by rules of their own.
type usages struct {
	days  map[int64]int64 // by day in UTC
	keyed int64
	holds map[string]*heldDays
}

// heldDays are the days in which a hold was taken, the front of the hold first.
type heldDays struct {
	key   string
	parts [][2]int64 // day, amount
}

// count counts an entry, and checks that no budget is exceeded at this commit.
func (u *usages) count(e *ledger.Entry, limits ledger.Budgets) error {
	if u.days == nil {
		u.days, u.holds = map[int64]int64{}, map[string]*heldDays{}
	}
	const day = 24 * 60 * 60 * 1_000_000
	h := u.holds[e.Hold]
	switch e.Kind {
	case ledger.Reserve, ledger.Extend:
		if h == nil {
			h = &heldDays{key: e.KeyName}
			u.holds[e.Hold] = h
		}
		today := e.At / day
		h.parts = append(h.parts, [2]int64{today, e.Amount()})
		u.days[today] += e.Amount()
		if h.key != "" {
			u.keyed += e.Amount()
		}
		switch {
		case limits.Day.Limit == 0:
		case u.days[today] > limits.Day.Limit:
			return fmt.Errorf("the account has spent %d of %d in a day", u.days[today], limits.Day.Limit)
		case u.keyed > limits.Keys["ci"].Limit:
			return fmt.Errorf("%d of %d are spent with the key", u.keyed, limits.Keys["ci"].Limit)
		}
	case ledger.Settle, ledger.Release:
		for n := e.Amount(); n > 0 && h != nil && len(h.parts) > 0; {
			first := &h.parts[0]
			part := min(n, first[1])
			if n, first[1] = n-part, first[1]-part; e.Kind == ledger.Release {
				u.days[first[0]] -= part
				if h.key != "" {
					u.keyed -= part
				}
			}
			if first[1] == 0 {
				h.parts = h.parts[1:]
			}
		}
	}
	return nil
}
