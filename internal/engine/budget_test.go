// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store/memory"
)

// withBudgets are the rules of an account with budgets.
func withBudgets(b ledger.Budgets) func(string) AccountRules {
	return func(string) AccountRules { return AccountRules{Budgets: b} }
}

// keyed starts a run with a key.
func keyed(t testing.TB, e *Engine, recipe, key string) (Started, error) {
	t.Helper()
	return e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, recipe, costing(4, nil)), Recipe: "r", Key: key})
}

// Of 1,000 concurrent starts of 10 credits with a key that may spend 100, or in an
// account that may spend 100 a day, exactly 10 run (A26, X157): there is one loop that
// decides, ahead of the disk.
func TestX157_A26_StartsRaceForABudget(t *testing.T) {
	for source, b := range map[string]ledger.Budgets{
		"key:ci": {Keys: map[string]ledger.Budget{"ci": {Limit: 100, Reset: ledger.Never}}},
		"day":    {Day: ledger.Budget{Limit: 100}, Keys: map[string]ledger.Budget{"ci": {Limit: 10_000, Reset: ledger.Monthly}}},
	} {
		t.Run(source, func(t *testing.T) {
			st := memory.New(memory.Options{})
			a := costing(4, nil)
			e := openEngine(t, st, Config{Accounts: withBudgets(b)}, a)
			grant(t, e, "first", 1_000_000, ledger.Terms{})
			p := planOf(t, "name: r\ncreditEstimation: {strategy: fixed, fixedCredits: 10}\nsteps: [{id: w, wait: {signal: go}}]\n", a)
			var ran, refused atomic.Int64
			var all sync.WaitGroup
			for range 1_000 {
				all.Go(func() {
					_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "r", Key: "ci"})
					switch {
					case err == nil:
						ran.Add(1)
					case errors.Is(err, fault.InsufficientCredits):
						refused.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			all.Wait()
			if ran.Load() != 10 || refused.Load() != 990 {
				t.Fatalf("%d run and %d were refused, want 10 and 990", ran.Load(), refused.Load())
			}
			wantBalance(t, st, 1_000_000-100, 100, 0)
		})
	}
}

// A step whose extension does not fit into a budget is blocked until the budget begins
// anew, and its run goes on by itself then. A restart in between changes nothing.
func TestX157_BlockedUntilTheReset(t *testing.T) {
	for name, b := range map[string]ledger.Budgets{
		"key": {Keys: map[string]ledger.Budget{"ci": {Limit: 13, Reset: ledger.Daily}}},
		"day": {Day: ledger.Budget{Limit: 13}, Keys: map[string]ledger.Budget{"ci": {}}},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := memory.New(memory.Options{})
					a := costing(4, nil)
					e := openEngine(t, st, Config{Accounts: withBudgets(b)}, a)
					grant(t, e, "first", 1_000, ledger.Terms{})
					s, err := keyed(t, e, fourItems, "ci")
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					p := planOf(t, fourItems, a)
					if n := countPrefix(trace(t, st, p, acc, s.Run), "node.blocked l[3].a"); n != 1 {
						t.Fatalf("the last step is blocked %d times", n)
					}
					if _, err = keyed(t, e, once, "ci"); !errors.Is(err, fault.InsufficientCredits) {
						t.Errorf("another start is answered with %v", err)
					}
					if crash {
						e.crash()
						st = st.Crash(0)
						e = openEngine(t, st, Config{Accounts: withBudgets(b)}, a)
					}
					time.Sleep(23 * time.Hour) // synctest begins at midnight
					synctest.Wait()
					if head, err := e.Head(t.Context(), acc, s.Run); err != nil || head.Ended != 0 {
						t.Fatalf("the run has ended before the day: %+v, %v", head, err)
					}
					if head := waitForEnd(t, e, s.Run); head.Status != "completed" || head.Used != 16 {
						t.Errorf("the run is %s and used %d", head.Status, head.Used)
					}
					wantBalance(t, st, 1_000-16, 0, 16)
				})
			})
		}
	}
}

// A budget in audit mode refuses nothing.
func TestX157_AuditRefusesNothing(t *testing.T) {
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{Accounts: withBudgets(ledger.Budgets{
		Day: ledger.Budget{Limit: 1, Audit: true}, Keys: map[string]ledger.Budget{"ci": {Limit: 1, Reset: ledger.Never, Audit: true}}})}, costing(4, nil))
	grant(t, e, "first", 100, ledger.Terms{})
	s, err := keyed(t, e, fourItems, "ci")
	if err != nil {
		t.Fatal(err)
	}
	if head := waitForEnd(t, e, s.Run); head.Status != "completed" {
		t.Errorf("the run is %s", head.Status)
	}
}

// A run with a key pins its name, and so do its entries; a key that the account does not
// have is refused, because the run would escape the budget of the one that was meant.
func TestX157_KeyOfARun(t *testing.T) {
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{Accounts: withBudgets(ledger.Budgets{Keys: map[string]ledger.Budget{"nightly": {Limit: 50, Reset: ledger.Never}}})}, costing(4, nil))
	grant(t, e, "first", 100, ledger.Terms{})
	_, err := keyed(t, e, once, "nihgtly")
	wantCode(t, err, fault.InputInvalid)
	if want := `account acme has no key "nihgtly"; did you mean nightly?`; err == nil || fault.Message(err) != want {
		t.Errorf("the refusal says %q, want %q", fault.Message(err), want)
	}
	s, err := keyed(t, e, once, "nightly")
	if err != nil {
		t.Fatal(err)
	}
	waitForEnd(t, e, s.Run)
	run, err := e.State(t.Context(), acc, s.Run, 0)
	if err != nil || run.Start().Credits.Key != "nightly" {
		t.Errorf("the terms are %+v, %v", run.Start().Credits, err)
	}
	account, err := e.Account(t.Context(), acc, maxTime)
	if err != nil || account.Used("nightly", 0) != 4 || account.Used("", 0) != 4 {
		t.Errorf("the key has used %d, the account %d, %v", account.Used("nightly", 0), account.Used("", 0), err)
	}
}

// What a refusal says: which limit, how much is missing, and whether waiting helps.
func TestX157_RefusalSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			b    ledger.Budgets
			want string
		}{
			"day": {ledger.Budgets{Day: ledger.Budget{Limit: 7}, Keys: map[string]ledger.Budget{"ci": {}}},
				"the run needs 5 credits, which is 2 more than the account may still spend today (limitSource day); the budget begins anew at 2000-01-02T00:00:00Z"},
			"key": {ledger.Budgets{Keys: map[string]ledger.Budget{"ci": {Limit: 6, Reset: ledger.Monthly}}},
				"the run needs 5 credits, which is 3 more than may still be spent with key ci (limitSource key:ci); the budget begins anew at 2000-02-01T00:00:00Z"},
			"ever": {ledger.Budgets{Keys: map[string]ledger.Budget{"ci": {Limit: 6, Reset: ledger.Never}}},
				"the run needs 5 credits, which is 3 more than may still be spent with key ci (limitSource key:ci); waiting does not help"},
		} {
			e := openEngine(t, memory.New(memory.Options{}), Config{Accounts: withBudgets(tt.b)}, costing(4, nil))
			grant(t, e, "first", 100, ledger.Terms{})
			s, err := keyed(t, e, once, "ci")
			if err != nil {
				t.Fatal(err)
			}
			waitForEnd(t, e, s.Run)
			_, err = keyed(t, e, once, "ci")
			var refusal *fault.Error
			if !errors.As(err, &refusal) || refusal.Limit == nil || refusal.Limit.Missing < 1 || refusal.Limit.Until.IsZero() != (name == "ever") ||
				!strings.Contains(tt.want, "limitSource "+refusal.Limit.Source) {
				t.Errorf("%s: the limit is %+v", name, refusal)
			}
			if fault.Message(err) != tt.want {
				t.Errorf("%s: the refusal says\n%s, want\n%s", name, fault.Message(err), tt.want)
			}
		}
	})
}
