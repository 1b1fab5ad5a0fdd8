// SPDX-License-Identifier: Apache-2.0

// Package terms decides on what terms the runs of an account start: whether the account pays,
// how much one run may cost, and how many runs may be live. It decides nothing about what the
// account has.
package terms

import (
	"cmp"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/program"
)

// LocalAccount is the account of the command line. Without rules of its own it does not
// pay.
const LocalAccount = "local"

// DefaultMaxCredits is the most that a run may pay unless its account's rules say
// otherwise (X157).
const DefaultMaxCredits = 10_000

// Rules are what applies to the runs of an account.
type Rules struct {
	// Unmetered accounts do not pay: their runs move no credits.
	Unmetered bool
	// MaxCredits is the most that one run may pay. Default DefaultMaxCredits.
	MaxCredits int64
	// MaxLiveRuns is how many runs may be live at once; more are queued (X206). A negative
	// number is no limit. Default DefaultMaxLiveRuns; unmetered accounts have no limit
	// unless it is set.
	MaxLiveRuns int
	// Budgets are what the account and its keys may spend. A run names a key only if it is
	// one of them.
	Budgets ledger.Budgets
	// LowBalance are levels of the available credits. A commit by which they fall below one
	// makes a change in the feed of the account.
	LowBalance []int64
}

// DefaultMaxLiveRuns is how many live runs an account that pays may have unless its rules
// say otherwise.
const DefaultMaxLiveRuns = 100

// LiveLimit is how many live runs the account may have; 0 = any number.
func (r Rules) LiveLimit() int {
	switch {
	case r.MaxLiveRuns > 0:
		return r.MaxLiveRuns
	case r.MaxLiveRuns < 0 || r.Unmetered:
		return 0
	}
	return DefaultMaxLiveRuns
}

// Default are those of an account that has none of its own.
func Default(account string) Rules {
	return Rules{Unmetered: account == LocalAccount}
}

// A Request is what the terms of a run depend on, of what it is started with.
type Request struct {
	Account    string
	MaxCredits int64  // the most that the run may pay; 0 = as the recipe or the account says
	Key        string // the key of the account whose budget it counts in; "" = none
}

// Of returns the terms of a run of an account that pays, and nil for others. budget is called
// only if it is needed.
func Of(req Request, rules Rules, budget func() *estimate.Budget) (*journal.Credits, error) {
	if req.MaxCredits < 0 {
		return nil, fault.New(fault.InputInvalid, "maxCredits is %d: want at least 1", req.MaxCredits)
	}
	if rules.Unmetered {
		rules.Budgets = ledger.Budgets{} // it has no keys either
	}
	if err := rules.Budgets.CheckKey(req.Account, req.Key); err != nil || rules.Unmetered {
		return nil, err
	}
	b := budget()
	c, err := program.Terms(b, cmp.Or(rules.MaxCredits, DefaultMaxCredits), req.MaxCredits)
	if err != nil {
		return nil, err
	}
	c.Key, c.Reserved = req.Key, ledger.Reservation(c.Estimated, c.Most)
	if len(b.Missing) > 0 { // R15: a name in the formula has no value yet
		c.Estimated, c.Reserved = cmp.Or(c.Estimated, c.Most), c.Most
	}
	return c, nil
}
