// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"testing"
)

// The tables of accounts and prices are read whole or not at all.
func TestAccountsAndPrices(t *testing.T) {
	env := map[string]string{
		"ROUX_ACCOUNTS": `{"acme": {"max_credits": 500}, "free": {"unmetered": true}, "local": {"unmetered": false}}`,
		"ROUX_PRICES":   `{"hash": 0.25, "http@1.0.0": "3"}`,
	}
	c := New(func(name string) string { return env[name] }, new(string))
	accounts := c.Accounts()
	for name, want := range map[string]*bool{"acme": nil, "free": new(true), "local": new(false), "anybody": nil} {
		if got := accounts[name].Unmetered; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s is unmetered: %v, want %v", name, got, want)
		}
	}
	if *accounts["acme"].MaxCredits != 500 {
		t.Errorf("the accounts are %+v", accounts)
	}
	if got := c.Prices(); !maps.Equal(got, map[string]string{"hash": "0.25", "http@1.0.0": "3"}) {
		t.Errorf("the prices are %v", got)
	}
	for _, text := range []string{`{"a": {"max_credits": -1}}`, `{"a": {"max_credits": 0}}`, `{"a b": {}}`, `{"a": {"max": 1}}`, `{"a": 1}`, `[]`, `{} {}`, `{"a": {"max_credits": 0.5}}`,
		`{"a": {"max_live_runs": -1}}`, `{"a": {"max_live_runs": 1e9}}`, `{"a": {"max_live_runs": "many"}}`,
		`{"a": {"time_zone": "Local"}}`, `{"a": {"time_zone": "Europe/Atlantis"}}`, `{"a": {"day": {}}}`, `{"a": {"day": {"limit": 0}}}`,
		`{"a": {"day": {"limit": 1, "reset": "daily"}}}`, `{"a": {"day": {"limit": 1, "mode": "warn"}}}`, `{"a": {"keys": {"": {"limit": 1}}}}`,
		`{"a": {"keys": {"ci": {"limit": -1}}}}`, `{"a": {"keys": {"ci": {"limit": 1, "reset": "yearly"}}}}`, `{"a": {"keys": {"ci": {}}}}`, `{"a": {"low_balance": [0]}}`, `{"a": {"low_balance": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21]}}`} {
		if checkAccounts(text) == nil {
			t.Errorf("accounts %s are accepted", text)
		}
	}
	for _, text := range []string{`{"a": "x"}`, `{"a": -1}`, `{"a": 1e3}`, `{"a": "0.0000001"}`, `{"a": null}`, `{"a": true}`, `["a"]`} {
		if checkPrices(text) == nil {
			t.Errorf("prices %s are accepted", text)
		}
	}
}
