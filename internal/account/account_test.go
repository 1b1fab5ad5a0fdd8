// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// records are those of a store that this test owns.
type records struct {
	*memory.Store
	epoch uint64
	fails error
}

func (r *records) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	if r.fails != nil {
		return nil, r.fails
	}
	return r.Store.PutRecords(ctx, r.epoch, 1, changes)
}

func open(t *testing.T, r *records) *Accounts {
	t.Helper()
	all := catalogue.New(
		&action.Action{Name: "http", Version: "1.0.0", Aliases: []string{"call"}}, &action.Action{Name: "file-inspect", Version: "1.0.0"},
		&action.Action{Name: "file-move", Version: "2.0.0-rc.1"})
	a, err := Open(t.Context(), Config{
		Store: r, Actions: all, Named: []string{"acme"}, Retention: retention.Policy{Runs: time.Hour, Files: -1},
		Configured: func(string) engine.AccountRules { return engine.AccountRules{MaxLiveRuns: 7, LowBalance: []int64{5}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newRecords(t *testing.T) *records {
	t.Helper()
	st := memory.New(memory.Options{})
	epoch, err := st.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &records{Store: st, epoch: epoch}
}

func set(t *testing.T, a *Accounts, name string, s Settings) Record {
	t.Helper()
	r, err := a.Change(t.Context(), name, store.AnyRevision, func(Settings) (Settings, error) { return s, nil })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The record comes before the configuration, field by field, also after a restart.
func TestRulesAreResolved(t *testing.T) {
	r := newRecords(t)
	a := open(t, r)
	configured := engine.AccountRules{MaxLiveRuns: 7, MaxCredits: 3, LowBalance: []int64{5}, Budgets: ledger.Budgets{Day: ledger.Budget{Limit: 4}}}
	if got := a.Rules("acme", configured); got.MaxLiveRuns != 7 || got.MaxCredits != 3 {
		t.Errorf("nothing is set, and the rules are %+v", got)
	}
	set(t, a, "acme", Settings{MaxCredits: new(int64(9)), Day: &DayBudget{Credits: 8, Mode: "audit"}, TimeZone: new("Asia/Tokyo"), LiveRuns: new(0), Metered: new(false)})
	for range 2 {
		got := a.Rules("acme", configured)
		if !got.Unmetered || got.MaxCredits != 9 || got.Budgets.Day != (ledger.Budget{Limit: 8, Audit: true}) || got.Budgets.Zone.String() != "Asia/Tokyo" || !slices.Equal(got.LowBalance, []int64{5}) {
			t.Errorf("the rules are %+v", got)
		}
		// Runs without a limit are counted, so that there can be one later.
		if got.LiveLimit() == 0 || LiveLimit(got) != 0 {
			t.Errorf("the limit is %d for the engine and %d for people", got.LiveLimit(), LiveLimit(got))
		}
		if a.Metered("acme", Settings{}) != true || a.Metered("acme", Settings{Metered: new(false)}) {
			t.Error("who pays is not what the settings say")
		}
		a = open(t, r)
	}
	if names := a.Names(); !slices.Equal(names, []string{"acme"}) {
		t.Errorf("the accounts are %v", names)
	}
}

// A change that is refused or not written changes nothing, and those who watch are told of
// one that is.
func TestChange(t *testing.T) {
	r := newRecords(t)
	a := open(t, r)
	told := 0
	a.Watch(func(_ context.Context, account string) error {
		if account != "acme" || a.Rules("acme", engine.AccountRules{}).MaxCredits == 0 {
			t.Error("it is told before the change applies")
		}
		told++
		return nil
	})
	first := set(t, a, "acme", Settings{MaxCredits: new(int64(9))})
	more := func(had Settings) (Settings, error) { had.MaxCredits = new(int64(10)); return had, nil }
	if _, err := a.Change(t.Context(), "acme", first.Revision, more); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Change(t.Context(), "acme", first.Revision, more); !errors.Is(err, fault.PreconditionFailed) {
		t.Errorf("a change of what has changed since: %v", err)
	}
	if _, err := a.Change(t.Context(), "a/b", store.AnyRevision, more); !errors.Is(err, fault.RequestInvalid) {
		t.Errorf("an account of that name: %v", err)
	}
	if _, err := a.Change(t.Context(), "acme", store.AnyRevision, func(Settings) (Settings, error) { return Settings{RetainRuns: new("soon")}, nil }); !errors.Is(err, fault.RequestInvalid) {
		t.Errorf("settings that make no sense: %v", err)
	}
	r.fails = fault.New(fault.StoreFailed, "no disk")
	if _, err := a.Change(t.Context(), "acme", store.AnyRevision, func(Settings) (Settings, error) { return Settings{}, nil }); !errors.Is(err, fault.StoreFailed) {
		t.Errorf("without a disk: %v", err)
	}
	if got := a.Rules("acme", engine.AccountRules{}); got.MaxCredits != 10 || told != 2 {
		t.Errorf("%+v, told %d times", got, told)
	}
}

// X205: only what the patterns name is found, by its own name or an alias, in any way of
// looking.
func TestX205_Allowed(t *testing.T) {
	a := open(t, newRecords(t))
	for _, tt := range []struct {
		patterns []string
		names    string
		http     bool
	}{
		{nil, "[file-inspect file-move http]", true},
		{[]string{}, "[]", false},
		{[]string{"*"}, "[file-inspect file-move http]", true},
		{[]string{"file-*"}, "[file-inspect file-move]", false},
		{[]string{"*-inspect", "http"}, "[file-inspect http]", true},
		{[]string{"call"}, "[]", false}, // an alias names nothing of its own
		{[]string{"f*e-m*e"}, "[file-move]", false},
	} {
		set(t, a, "acme", Settings{Actions: tt.patterns})
		got := a.Actions("acme")
		if text := fmt.Sprint(got.Names()); text != tt.names {
			t.Errorf("%v: names %v, want %s", tt.patterns, text, tt.names)
		}
		for _, name := range []string{"http", "call"} {
			if (got.Find(name, "") != nil) != tt.http || (len(got.Versions(name)) > 0) != tt.http {
				t.Errorf("%v: %s is found: %t, versions %v", tt.patterns, name, got.Find(name, "") != nil, got.Versions(name))
			}
		}
		if a.Actions("rival").Find("http", "") == nil {
			t.Error("another account is limited")
		}
	}
	for pattern, fits := range map[string]bool{"a*a": false, "*a*": true, "a**": true, "": false, "b": false, "a": true} {
		if (&resolved{Settings: Settings{Actions: []string{pattern}}}).allows("a") != fits {
			t.Errorf("%q fits a: %t", pattern, !fits)
		}
	}
}

// A record that cannot be read disables its account and no other, until it is set anew.
func TestDamagedAccount(t *testing.T) {
	r := newRecords(t)
	if _, err := r.PutRecords(t.Context(), store.RecordChange{Record: store.Record{RecordKey: store.RecordKey{Kind: Kind, ID: "acme"}, Data: []byte("{")}}); err != nil {
		t.Fatal(err)
	}
	a := open(t, r)
	if err := a.Admit("acme"); !errors.Is(err, fault.AccountDisabled) || a.Admit("rival") != nil || a.Actions("acme").Find("http", "") != nil {
		t.Errorf("%v", err)
	}
	set(t, a, "acme", Settings{})
	if err := a.Admit("acme"); err != nil || a.Actions("acme").Find("http", "") == nil {
		t.Errorf("after it was set anew: %v", err)
	}
}

// What is kept for how long: of an account, and the shortest of all.
func TestRetentionOfAccounts(t *testing.T) {
	a := open(t, newRecords(t))
	set(t, a, "long", Settings{RetainRuns: new("forever"), RetainFiles: new("2d")})
	set(t, a, "short", Settings{RetainUploads: new("2h")})
	if p := a.Retention("long"); p.Runs >= 0 || p.Files != 48*time.Hour || p.Uploads != retention.DefaultUploads {
		t.Errorf("long: %+v", p)
	}
	if p := a.Shortest(); p.Runs != time.Hour || p.Files != 48*time.Hour || p.Uploads != 2*time.Hour {
		t.Errorf("the shortest: %+v", p)
	}
}
