// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/terms"
)

// accountName is a flag with the name of an account.
type accountName struct{ value *string }

func (n accountName) String() string {
	if n.value == nil {
		return ""
	}
	return *n.value
}

// Set implements pflag.Value.
func (n accountName) Set(text string) error {
	if err := access.CheckAccount(text); err != nil {
		return err
	}
	*n.value = text
	return nil
}

// Type implements pflag.Value; help shows it.
func (accountName) Type() string { return "name" }

// inAccount begins a message about an account other than the default one.
func (a *app) inAccount() string {
	if a.account == config.Account {
		return ""
	}
	return fmt.Sprintf("account %s: ", a.account)
}

// rules returns the rules of the accounts that the configuration names.
func (a *app) rules() map[string]engine.AccountRules {
	rules := map[string]engine.AccountRules{}
	for name, r := range a.config.Accounts() {
		own := terms.Default(name)
		if r.Unmetered != nil {
			own.Unmetered = *r.Unmetered
		}
		if r.MaxCredits != nil {
			own.MaxCredits = *r.MaxCredits
		}
		if r.MaxLiveRuns != nil {
			own.MaxLiveRuns = *r.MaxLiveRuns
			if own.MaxLiveRuns == 0 {
				own.MaxLiveRuns = -1
			}
		}
		own.LowBalance = r.LowBalance
		own.Budgets, _ = r.Budgets() // what is wrong was refused before
		rules[name] = own
	}
	return rules
}

// ruleOf returns what applies to an account; rules are those of the configuration.
func ruleOf(rules map[string]engine.AccountRules, name string) engine.AccountRules {
	r, ok := rules[name]
	if !ok {
		r = terms.Default(name)
	}
	r.MaxCredits = cmp.Or(r.MaxCredits, engine.DefaultMaxCredits)
	return r
}

// accountNames returns all accounts, sorted: the default one, those of the
// configuration, and those that were ever granted credits.
func (a *app) accountNames(ctx context.Context, r remote.Reader) ([]string, error) {
	names := []string{config.Account}
	if r != nil {
		metered, err := r.MeteredAccounts(ctx)
		if err != nil {
			return nil, err
		}
		names = append(names, metered...)
	}
	names = slices.AppendSeq(names, maps.Keys(a.config.Accounts()))
	slices.Sort(names)
	return slices.Compact(names), nil
}

// checkAccount is mustExist for a command that reads nothing else before it begins.
func (a *app) checkAccount(ctx context.Context) error {
	if a.account == config.Account || a.target != nil {
		return nil // the data directory need not be opened, and a server checks by itself
	}
	return a.readingBooks(ctx, a.mustExist)
}

// mustExist refuses an account that does not exist, so that a misspelt name does not
// start a run that nobody finds, or shows a balance of nothing.
func (a *app) mustExist(ctx context.Context, r remote.Reader) error {
	if a.account == config.Account || a.target != nil {
		return nil
	}
	names, err := a.accountNames(ctx, r)
	switch {
	case err != nil:
		return err
	case slices.Contains(names, a.account):
		return nil
	}
	near := ""
	if n := spell.Nearest(a.account, names); n != "" {
		near = fmt.Sprintf("; did you mean %s?", n)
	}
	return fault.New(fault.AccountNotFound, "there is no account %s%s", a.account, near)
}
