// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/ledger"
)

// AccountRules are what the table `accounts` says of one account.
type AccountRules struct {
	// Unmetered accounts do not pay; nil = the engine's default.
	Unmetered *bool `json:"unmetered"`
	// MaxCredits is the most that one run may pay; nil = the engine's default.
	MaxCredits *int64 `json:"max_credits"`
	// MaxLiveRuns is how many runs may be live at once; 0 = no limit, nil = the engine's
	// default.
	MaxLiveRuns *int `json:"max_live_runs"`
	// Day is what the account may spend in a day, and Keys what it may spend with a key of
	// that name. Days begin at midnight in TimeZone; "" = UTC.
	Day      *Budget           `json:"day"`
	Keys     map[string]Budget `json:"keys"`
	TimeZone string            `json:"time_zone"`
	// LowBalance are levels of the available credits that are reported.
	LowBalance []int64 `json:"low_balance"`
}

// maxLiveRuns bounds a limit of live runs: ten times as many may wait in memory.
const maxLiveRuns = 100_000

// maxLevels bounds the levels of an account's low_balance.
const maxLevels = 20

// Accounts returns the table of accounts.
func (c *Config) Accounts() map[string]AccountRules {
	accounts, err := parseAccounts(c.table("accounts"))
	if err != nil {
		return nil // such a value was refused before
	}
	return accounts
}

// Prices returns the table of prices, by the name of an action.
func (c *Config) Prices() map[string]string {
	prices, err := parsePrices(c.table("prices"))
	if err != nil {
		return nil // such a value was refused before
	}
	return prices
}

// table returns a setting that is a table, as JSON; "" when nothing sets it.
func (c *Config) table(key string) string {
	if v := c.Get(key); v.Origin != "default" {
		return v.Value
	}
	return ""
}

func parseAccounts(text string) (map[string]AccountRules, error) {
	var accounts map[string]AccountRules
	if err := decodeTable(text, &accounts); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if err := access.CheckAccount(name); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if n := accounts[name].MaxCredits; n != nil && (*n < 1 || *n > ledger.MaxAmount) {
			return nil, fmt.Errorf("%s: max_credits is %d: want 1 to %d", name, *n, int64(ledger.MaxAmount))
		}
		if n := accounts[name].MaxLiveRuns; n != nil && (*n < 0 || *n > maxLiveRuns) {
			return nil, fmt.Errorf("%s: max_live_runs is %d: want 1 to %d, or 0 for no limit", name, *n, maxLiveRuns)
		}
		rules := accounts[name]
		for _, n := range rules.LowBalance {
			if n < 1 || n > ledger.MaxAmount {
				return nil, fmt.Errorf("%s: a level of low_balance is %d: want 1 to %d", name, n, int64(ledger.MaxAmount))
			}
		}
		if len(rules.LowBalance) > maxLevels {
			return nil, fmt.Errorf("%s: low_balance has %d levels: want at most %d", name, len(rules.LowBalance), maxLevels)
		}
		if _, err := rules.Budgets(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return accounts, nil
}

// parsePrices reads prices, which may be written as numbers or as text.
func parsePrices(text string) (map[string]string, error) {
	var values map[string]any
	if err := decodeTable(text, &values); err != nil {
		return nil, err
	}
	prices := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch v := values[name].(type) {
		case string:
			prices[name] = v
		case json.Number:
			prices[name] = v.String()
		default:
			return nil, fmt.Errorf("%s: want a price such as \"0.25\"", name)
		}
		if _, err := ledger.ParseAmount(prices[name]); err != nil {
			return nil, fmt.Errorf("%s: %s", name, fault.Message(err))
		}
	}
	return prices, nil
}

// decodeTable reads a table from JSON. No text is an empty table.
func decodeTable(text string, into any) error {
	if text == "" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	d.UseNumber()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("there is more after it")
	}
	if err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func checkAccounts(text string) error {
	_, err := parseAccounts(text)
	return err
}

func checkPrices(text string) error {
	_, err := parsePrices(text)
	return err
}
