// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/ledger"
)

// A Budget is what the table `accounts` says of a budget.
type Budget struct {
	Limit *int64 `json:"limit"`
	Reset string `json:"reset"` // of a key; none if it is not given
	Mode  string `json:"mode"`  // enforce if it is not given
}

// Budgets returns the budgets of the account.
func (r *AccountRules) Budgets() (b ledger.Budgets, err error) {
	if r.TimeZone != "" {
		if b.Zone, err = time.LoadLocation(r.TimeZone); err != nil || r.TimeZone == "Local" {
			return b, fmt.Errorf("time_zone %q: want a name such as Europe/Berlin%s", r.TimeZone, zonesNote)
		}
	}
	if r.Day != nil {
		if r.Day.Reset != "" {
			return b, fmt.Errorf("day: it has no reset, because it begins anew each day")
		}
		if b.Day, err = r.Day.budget(); err != nil {
			return b, fmt.Errorf("day: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Keys)) {
		if err := access.CheckAccount(name); err != nil {
			return b, fmt.Errorf("keys: %q: %w", name, err)
		}
		k := r.Keys[name]
		budget, err := k.budget()
		if err != nil {
			return b, fmt.Errorf("keys: %s: %w", name, err)
		}
		if b.Keys == nil {
			b.Keys = map[string]ledger.Budget{}
		}
		b.Keys[name] = budget
	}
	return b, nil
}

func (k *Budget) budget() (b ledger.Budget, err error) {
	b = ledger.Budget{Reset: ledger.Reset(k.Reset), Audit: k.Mode == "audit"}
	if k.Reset == "" {
		b.Reset = ledger.Never
	}
	switch {
	case k.Limit == nil || *k.Limit == 0:
		return b, fmt.Errorf("want a limit from 1 to %d", int64(ledger.MaxAmount))
	case k.Mode != "" && k.Mode != "enforce" && k.Mode != "audit":
		return b, fmt.Errorf("mode %q: want enforce or audit", k.Mode)
	}
	b.Limit = *k.Limit
	return b, b.Check()
}
