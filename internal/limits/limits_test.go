// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/slots"
)

func setOf(t *testing.T, text string) *Set {
	t.Helper()
	specs, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(specs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A wrong table is refused with its place and with what would be right.
func TestWrongTables(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": {"key": "provder", "rate": "1/s"}}`:                                             `a: key: "provder" is no variable: there are account, action, provider, model, queue, label`,
		`{"a": {"key": "account +", "rate": "1/s"}}`:                                           "a: key: column 10: ",
		`{"a": {"key": "account", "rate": "1/s", "priority": "secret('x')"}}`:                  "a: priority: ",
		`{"a": {"key": "account", "rate": "10/d"}}`:                                            `a: rate: "10/d": want a number a second, a minute or an hour, such as 10/s`,
		`{"a": {"key": "account", "rate": "0/s"}}`:                                             "want a number from 1 to",
		`{"a": {"key": "account", "rate": "9999999/s"}}`:                                       "want a number from 1 to",
		`{"a": {"key": "account", "rate": "-1/s"}}`:                                            "want a number a second",
		`{"a": {"key": "account", "burst": 2}}`:                                                "burst goes with rate",
		`{"a": {"key": "account", "rate": "1/s", "burst": -2}}`:                                "burst is -2: want 1 to",
		`{"a": {"key": "account"}}`:                                                            "it limits nothing: want concurrency, rate",
		`{"a": {"key": "account", "concurrency": -1}}`:                                         "concurrency is -1: want 1 to",
		`{"a": {"key": "account", "tokens_per_minute": -1}}`:                                   "tokens_per_minute is -1: want 1 to",
		`{"a": {"key": "account", "credits_per_day": 0.0000001}}`:                              "credits_per_day is ",
		`{"a": {"key": "account", "credits_per_day": -5}}`:                                     "credits_per_day is ",
		`{"a": {"concurrency": 1}}`:                                                            "want `key`, an expression such as account, or `provider`",
		`{"a": {"key": "account", "concurrency": 1, "breaker": false}}`:                        "`key` goes without `provider`",
		`{"a": {"provider": "x"}}`:                                                             "`provider` goes with `breaker` or `retries`",
		`{"a": {"provider": "x", "breaker": false, "rate": "1/s"}}`:                            "a limit of a provider has `key`",
		`{"a": {"provider": "x", "breaker": {"share": 2}}}`:                                    "breaker: share is 2",
		`{"a": {"provider": "x", "breaker": {"window": "1ms"}}}`:                               "breaker: window is \"1ms\": want a duration from 1s to 1h",
		`{"a": {"provider": "x", "breaker": {"open": "2h"}}}`:                                  "breaker: open is",
		`{"a": {"provider": "x", "breaker": {"mim": 3}}}`:                                      `unknown field "mim"`,
		`{"a": {"provider": "x", "breaker": {"share": 0}}}`:                                    "breaker: share is 0: want more than 0",
		`{"a": {"provider": "x", "breaker": {"min": 0}}}`:                                      "breaker: min is 0: want 1 to",
		`{"a": {"provider": "x", "retries": {"share": -1}}}`:                                   "retries: share is -1",
		`{"a": {"provider": "x", "retries": {"floor": "x"}}}`:                                  "retries: floor: ",
		`{"a": {"provider": "x", "breaker": false}, "b": {"provider": "x", "retries": false}}`: "b: provider \"x\" has another limit",
		`{"A": {"key": "account", "concurrency": 1}}`:                                          `"A": want a name`,
		`{"a": {"key": "account", "concurency": 1}}`:                                           `unknown field "concurency"`,
		`[]`: "cannot unmarshal",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Which limits apply, with which keys and priorities.
func TestKeysAndPriorities(t *testing.T) {
	s := setOf(t, `{
		"b-model": {"key": "provider + '/' + model", "rate": "300/m", "priority": "label.team == 'red' ? 2.5 : 1.0"},
		"a-team": {"key": "label.team", "concurrency": 2},
		"c-null": {"key": "model == 'm' ? null : account", "tokens_per_minute": 10},
		"d-none": {"key": "''", "concurrency": 1},
		"e-list": {"key": "[account]", "credits_per_day": "0.5"},
		"f-long": {"key": "queue", "concurrency": 1, "priority": "'high'"}
	}`)
	named := func(keys []slots.Key) string {
		var parts []string
		for _, k := range keys {
			parts = append(parts, k.Rule.Name+"="+k.Text)
		}
		return strings.Join(parts, " ")
	}
	f := &Facts{Account: "acme", Provider: "p", Model: "m", Labels: map[string]string{"team": "red"}, Queue: strings.Repeat("q", 201)}
	keys, ranks := s.Of(f)
	if got, want := named(keys), "a-team=red b-model=p/m e-list=? f-long=?"; got != want || !reflect.DeepEqual(ranks, []float64{0, 2.5, 0, 0}) {
		t.Errorf("%q with %v, want %q", got, ranks, want)
	}
	keys, ranks = s.Of(&Facts{Account: "acme", Queue: "a\nb"})
	if got, want := named(keys), "a-team=? b-model=/ c-null=acme e-list=? f-long=?"; got != want || !reflect.DeepEqual(ranks, []float64{0, 0, 0, 0, 0}) {
		t.Errorf("%q with %v, want %q", got, ranks, want)
	}
	if got := named(s.Stored(map[string]string{"b-model": "x", "gone": "y", "a-team": "z"}, "p")); got != "a-team=z b-model=x" {
		t.Errorf("stored: %q", got)
	}
	if m := Named(keys); len(m) != 5 || m["c-null"] != "acme" {
		t.Errorf("named: %v", m)
	}
	rules := map[string]slots.Rule{}
	for _, l := range s.limits {
		rules[l.Name] = l.Rule
	}
	want := map[string]slots.Rule{
		"a-team":  {Name: "a-team", Concurrency: 2},
		"b-model": {Name: "b-model", Rate: slots.Rate{N: 300, Period: time.Minute.Microseconds(), Burst: 1}, Pauses: true},
		"c-null":  {Name: "c-null", Tokens: 10, Pauses: true},
		"d-none":  {Name: "d-none", Concurrency: 1},
		"e-list":  {Name: "e-list", Credits: 500_000},
		"f-long":  {Name: "f-long", Concurrency: 1},
	}
	if !reflect.DeepEqual(rules, want) {
		t.Errorf("%+v", rules)
	}
	if !s.Called() || !s.Concurrent() {
		t.Error("it depends on what is called, and bounds concurrency")
	}
	var none *Set
	if keys, ranks := none.Of(f); keys != nil || ranks != nil || none.Called() || none.Policy("x") != slots.DefaultPolicy {
		t.Error("no limits are limits")
	}
}

// A provider that asks to wait has those attempts of a limit wait whose key has its name or the
// model's in it: others of the key may call other providers.
func TestWhichKeysPause(t *testing.T) {
	s := setOf(t, `{
		"a": {"key": "provider + '/' + model", "rate": "1/s"},
		"b": {"key": "provider == '' ? '' : account", "rate": "1/s"},
		"c": {"key": "model", "rate": "1/s"},
		"d": {"key": "account", "rate": "1/s"},
		"e": {"key": "provider == 'main' ? provider : ''", "rate": "1/s"}
	}`)
	pausing := func(keys []slots.Key) (list string) {
		for _, k := range keys {
			if k.Pauses {
				list += k.Rule.Name
			}
		}
		return list
	}
	keys, _ := s.Of(&Facts{Account: "acme", Provider: "main", Model: "m-1"})
	if got := pausing(keys); got != "ace" {
		t.Errorf("those of %q pause, want a, c and e", got)
	}
	if got := pausing(s.Stored(Named(keys), "main")); got != "ae" {
		t.Errorf("stored: those of %q pause, want a and e", got)
	}
	keys, _ = s.Of(&Facts{Account: "acme"})
	if got := pausing(keys); got != "" {
		t.Errorf("without a provider those of %q pause", got)
	}
}

// What a provider's failures lead to: its own policy, that of all others, or the default.
func TestPolicies(t *testing.T) {
	s := setOf(t, `{"a": {"provider": "main", "breaker": {"min": 3, "open": "5s"}, "retries": {"share": 0.5, "floor": "30/m"}}, "b": {"provider": "*", "breaker": false, "retries": false}}`)
	main := slots.DefaultPolicy
	main.Min, main.Open, main.Retries = 3, 5_000_000, 0.5
	main.Floor = slots.Rate{N: 30, Period: 60_000_000, Burst: 10}
	if got := s.Policy("main"); got != main {
		t.Errorf("%+v, want %+v", got, main)
	}
	if got := s.Policy("other"); got.Min != 0 || got.Floor.N != 0 {
		t.Errorf("it is off: %+v", got)
	}
	if got := setOf(t, `{"a": {"provider": "main", "retries": {"share": 0}}}`).Policy("main"); got.Retries != 0 || got.Floor.N == 0 {
		t.Errorf("no retries beyond the floor: %+v", got)
	}
}

// What the failures of attempts mean.
func TestOutcomes(t *testing.T) {
	for code, want := range map[fault.Code]slots.Outcome{
		fault.RateLimited:        {Unused: true, Pause: 2_000_000, Tokens: 7},
		fault.ServiceUnavailable: {Unused: true, Failed: true, Pause: 2_000_000, Tokens: 7},
		fault.ProviderError:      {Failed: true, Tokens: 7},
		fault.StepTimeout:        {Failed: true, Tokens: 7},
		fault.InputInvalid:       {Tokens: 7},
		fault.QuotaExceeded:      {Tokens: 7}, // of the account, not of the provider

		fault.ModerationUnavailable: {Failed: true, Uncounted: true, Tokens: 7},
	} {
		if got := OutcomeOf(code, 2_000, 7); got != want {
			t.Errorf("%s: %+v, want %+v", code, got, want)
		}
	}
}
