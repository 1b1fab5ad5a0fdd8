// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// Accounts share an engine, have rules of their own, and do not see each other's runs
// and credits.
func TestAccounts(t *testing.T) {
	ctx := t.Context()
	priced := action.Action{Name: "priced", Version: "1.0.0", Cost: 4, Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, nil
	}}
	e, err := roux.Open(ctx, roux.Options{Dir: t.TempDir(), Actions: []action.Action{priced}, Accounts: map[string]roux.AccountRules{
		"small": {MaxCredits: 3}, "free": {Unmetered: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	req := roux.Request{Recipe: []byte("name: one\nsteps: [{id: a, action: {name: priced}}]")}
	for _, tt := range []struct {
		account string
		grant   int64
		most    int64
		status  string
		code    fault.Code
		spent   int64
	}{
		{"local", 0, 0, "completed", "", 0},
		{"free", 0, 0, "completed", "", 0},
		{"acme", 100, 0, "completed", "", 4},
		{"capped", 100, 3, "failed", fault.InsufficientCredits, 0}, // by the request
		{"small", 100, 0, "failed", fault.InsufficientCredits, 0},  // by its rules
	} {
		t.Run(tt.account, func(t *testing.T) {
			a := e.For(tt.account)
			if tt.grant > 0 {
				if _, err := a.Grant(ctx, roux.Grant{Key: "g", Amount: tt.grant}); err != nil {
					t.Fatal(err)
				}
			}
			req := req
			req.MaxCredits = tt.most
			run, err := a.Start(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			res, err := a.Wait(ctx, run)
			if err != nil || res.Status != tt.status || res.Err != nil && res.Err.Code != tt.code || (res.Err == nil) != (tt.code == "") {
				t.Errorf("the run is %s, %v, %v; want %s %s", res.Status, res.Err, err, tt.status, tt.code)
			}
			b, err := a.Balance(ctx, time.Time{})
			if err != nil || b.Spent != tt.spent || b.Granted != tt.grant || b.Available != tt.grant-tt.spent || b.Held != 0 {
				t.Errorf("the balance is %+v, %v", b, err)
			}
			if _, err := e.For("stranger").Get(ctx, run); !errors.Is(err, fault.RunNotFound) {
				t.Errorf("another account reads the run: %v", err)
			}
		})
	}
	if _, err := e.Grant(ctx, roux.Grant{Key: "g", Amount: 1}); !errors.Is(err, fault.InputInvalid) {
		t.Errorf("a grant to an account that does not pay: %v", err)
	}
}

// The terms of a lot are kept, a repeated grant changes nothing, a voided lot gives
// nothing more, and an earlier balance does not change.
func TestLots(t *testing.T) {
	ctx := t.Context()
	e, err := roux.Open(ctx, roux.Options{Dir: t.TempDir(), Account: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	before := time.Now().Add(-time.Hour)
	g := roux.Grant{Key: "gift", Amount: 7, Promotional: true, Priority: -2, Effective: before.Truncate(time.Microsecond).UTC(), Expires: before.AddDate(1, 0, 0).Truncate(time.Microsecond).UTC()}
	want := roux.Lot{Key: "gift", Amount: 7, Promotional: true, Priority: -2, Effective: g.Effective, Expires: g.Expires, Free: 7}
	for range 2 {
		if l, err := e.Grant(ctx, g); err != nil || l != want {
			t.Errorf("Grant = %+v, %v; want %+v", l, err, want)
		}
	}
	if _, err := e.Grant(ctx, roux.Grant{Key: "gift", Amount: 8}); !errors.Is(err, fault.IdempotencyMismatch) {
		t.Errorf("another grant with that key: %v", err)
	}
	if _, err := e.Grant(ctx, roux.Grant{Key: "later", Amount: 5, Effective: time.Now().AddDate(1, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	if l, err := e.VoidLot(ctx, "gift", "granted twice"); err != nil || l.Voided != 7 || l.Free != 0 {
		t.Errorf("VoidLot = %+v, %v", l, err)
	}
	for _, tt := range []struct {
		at   time.Time
		want roux.Balance
	}{
		{time.Time{}, roux.Balance{Granted: 12, Pending: 5, Voided: 7}},
		{before, roux.Balance{}},
	} {
		if b, err := e.Balance(ctx, tt.at); err != nil || b != tt.want {
			t.Errorf("the balance at %v is %+v, %v; want %+v", tt.at, b, err, tt.want)
		}
	}
	var kinds []string
	for entry, err := range e.Entries(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, entry.Kind+" "+entry.Note)
	}
	if len(kinds) != 2 || kinds[0] != "grant " || kinds[1] != "void granted twice" {
		t.Errorf("the entries after the first are %q", kinds)
	}
}

// What a run has paid can be given back, once per key, and not more than it has paid.
func TestAdjust(t *testing.T) {
	ctx := t.Context()
	priced := action.Action{Name: "priced", Version: "1.0.0", Cost: 4, Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, nil
	}}
	e, err := roux.Open(ctx, roux.Options{Dir: t.TempDir(), Account: "acme", Actions: []action.Action{priced}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Grant(ctx, roux.Grant{Key: "lot", Amount: 10}); err != nil {
		t.Fatal(err)
	}
	run, err := e.Start(ctx, roux.Request{Recipe: []byte("name: one\nsteps: [{id: a, action: {name: priced}}]")})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(ctx, run); err != nil || res.Status != "completed" {
		t.Fatal(res, err)
	}
	for range 2 {
		back, err := e.Adjust(ctx, roux.Adjustment{Key: "ticket", Run: run, Amount: 3, Note: "blank"})
		if err != nil || len(back) != 1 || back[0] != (roux.LotAmount{Lot: "lot", Amount: 3}) {
			t.Errorf("Adjust = %+v, %v", back, err)
		}
	}
	if b, err := e.Balance(ctx, time.Time{}); err != nil || b.Available != 9 || b.Spent != 1 {
		t.Errorf("the balance is %+v, %v", b, err)
	}
	for _, tt := range []struct {
		a    roux.Adjustment
		want fault.Code
	}{
		{roux.Adjustment{Key: "ticket", Run: run, Amount: 1}, fault.IdempotencyMismatch},
		{roux.Adjustment{Key: "more", Run: run, Amount: 2}, fault.InputInvalid},
		{roux.Adjustment{Key: "more", Run: run, Amount: -1}, fault.InputInvalid},
		{roux.Adjustment{Key: "more", Run: "run_none", Amount: 1}, fault.InputInvalid},
		{roux.Adjustment{Run: run, Amount: 1}, fault.InputInvalid},
	} {
		if _, err := e.Adjust(ctx, tt.a); !errors.Is(err, tt.want) {
			t.Errorf("Adjust(%+v): %v, want %s", tt.a, err, tt.want)
		}
	}
}
