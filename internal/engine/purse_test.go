// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// paying are the rules of accounts that pay.
func paying(string) AccountRules { return AccountRules{} }

// costing returns the action "paid", which costs n credits.
func costing(n int64, run action.Func) *action.Action {
	if run == nil {
		run = func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }
	}
	return &action.Action{Name: "paid", Version: "1.0.0", Cost: n, Run: run}
}

// grant gives the account n credits.
func grant(t testing.TB, e *Engine, key string, n int64, terms ledger.Terms) {
	t.Helper()
	if terms.Source == "" {
		terms.Source = ledger.Paid
	}
	if _, err := e.Grant(t.Context(), GrantRequest{Account: acc, Key: key, Amount: n, Terms: terms}); err != nil {
		t.Fatal(err)
	}
}

// balance returns the balance as stored, and checks that it adds up (I11).
func balance(t testing.TB, st store.Store) ledger.Balance {
	t.Helper()
	a, err := st.Account(context.Background(), acc, maxTime)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Balance(a.At())
	if b.Granted != b.Pending+b.Available+b.Held+b.Spent+b.Expired+b.Voided {
		t.Fatalf("I11: the account does not add up: %+v", b)
	}
	return b
}

func wantBalance(t testing.TB, st store.Store, available, held, spent int64) {
	t.Helper()
	if b := balance(t, st); b.Available != available || b.Held != held || b.Spent != spent {
		t.Errorf("the account has %d available, %d held, %d spent; want %d, %d, %d", b.Available, b.Held, b.Spent, available, held, spent)
	}
}

const once = "name: once\nsteps: [{id: a, action: {name: paid}}]\n"

// Of 1,000 concurrent starts of 10 credits on a balance of 100, 10 run (A26, X152). The
// others are refused, and pay nothing.
func TestA26_StartsRaceForTheLastCredits(t *testing.T) {
	st := memory.New(memory.Options{})
	release := make(chan struct{})
	a := costing(8, func(context.Context, *action.Task) (action.Result, error) { <-release; return action.Result{}, nil })
	e := openEngine(t, st, Config{Accounts: paying}, a)
	grant(t, e, "first", 100, ledger.Terms{})
	p := planOf(t, once, a)
	var ran, refused atomic.Int64
	var runs sync.Map
	var all sync.WaitGroup
	for range 1_000 {
		all.Go(func() {
			s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "once"})
			switch {
			case err == nil:
				ran.Add(1)
				runs.Store(s.Run, true)
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
	wantBalance(t, st, 0, 100, 0)
	close(release)
	runs.Range(func(run, _ any) bool { waitForEnd(t, e, run.(string)); return true })
	wantBalance(t, st, 20, 0, 80)
}

// Starts that are made again and again are answered with their run, even when the account
// could not pay another one and a commit is always in flight: what the store has refused of
// an account makes it be read again before the next commit.
func TestX155_RepeatedStartsRefuseNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := costing(8, nil)
		e := openEngine(t, &slowDisk{Store: memory.New(memory.Options{}), takes: time.Millisecond}, Config{Accounts: paying}, a)
		p := planOf(t, once, a)
		var all sync.WaitGroup
		for client := range 32 {
			account := fmt.Sprint("account ", client)
			if _, err := e.Grant(t.Context(), GrantRequest{Account: account, Key: "first", Amount: 10, Terms: ledger.Terms{Source: ledger.Paid}}); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for n := range 50 {
					time.Sleep(time.Duration(client) * 13 * time.Microsecond) // at any moment of a commit
					s, err := e.Start(t.Context(), StartRequest{Account: account, Plan: p, Recipe: "once", IdempotencyKey: "key"})
					if err != nil || s.Existing != (n > 0) {
						t.Errorf("%s, start %d: %+v, %v", account, n, s, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// A start that was made before is answered with its run, even when the account could
// not pay another one (X155, I13).
func TestX155_RepeatedStartNeedsNoCredits(t *testing.T) {
	st := memory.New(memory.Options{})
	a := costing(8, nil)
	e := openEngine(t, st, Config{Accounts: paying}, a)
	grant(t, e, "first", 10, ledger.Terms{})
	req := StartRequest{Account: acc, Plan: planOf(t, once, a), Recipe: "once", IdempotencyKey: "k"}
	first, err := e.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	waitForEnd(t, e, first.Run)
	wantBalance(t, st, 2, 0, 8)
	again, err := e.Start(t.Context(), req)
	if err != nil || again.Run != first.Run || !again.Existing {
		t.Fatalf("the repeated start is answered with %+v, %v", again, err)
	}
	req.Parameters = map[string]any{"other": true}
	_, err = e.Start(t.Context(), req)
	wantCode(t, err, fault.IdempotencyMismatch)
	req.IdempotencyKey = "l"
	_, err = e.Start(t.Context(), req)
	wantCode(t, err, fault.InsufficientCredits)
	if !strings.Contains(fmt.Sprint(err), "lacks 8 of them (limitSource account)") {
		t.Errorf("the refusal says %v", err)
	}
	wantBalance(t, st, 2, 0, 8)
}

// Of 64 branches that each cost 10 in a run capped at 100, at most ten are paid; the
// others fail, none is lost, and the run ends as its policy says.
func TestX157_CapOfARun(t *testing.T) {
	for policy, spent := range map[string]int64{"refund_unused": 100, "refund_all": 0, "no_refund": 100} {
		t.Run(policy, func(t *testing.T) {
			st := memory.New(memory.Options{})
			a := costing(10, nil)
			e := openEngine(t, st, Config{Accounts: paying}, a)
			grant(t, e, "first", 1_000, ledger.Terms{})
			var b strings.Builder
			fmt.Fprintf(&b, "name: wide\norder: none\nfailure_policy: drain\ncredit_policy: %s\nsteps:\n", policy)
			for i := range 64 {
				fmt.Fprintf(&b, "  - {id: s%d, action: {name: paid}}\n", i)
			}
			p := planOf(t, b.String(), a)
			s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "wide", MaxCredits: 100})
			if err != nil {
				t.Fatal(err)
			}
			if head := waitForEnd(t, e, s.Run); head.Status != "failed" || head.Used != 100 || head.Code != fault.InsufficientCredits {
				t.Errorf("the run is %s, used %d, %s", head.Status, head.Used, head.Code)
			}
			lines := trace(t, st, p, acc, s.Run)
			if n, f := countPrefix(lines, "node.completed"), countPrefix(lines, "node.failed"); n != 10 || f != 54 {
				t.Errorf("%d steps completed and %d failed, want 10 and 54", n, f)
			}
			wantBalance(t, st, 1_000-spent, 0, spent)
		})
	}
}

// fourItems is a recipe whose estimate counts one of its four steps.
const fourItems = `
name: four
steps:
  - {id: t, transform: {expression: "[1, 2, 3, 4]"}, outputBinding: xs}
  - {id: l, loop: {over: xs, steps: [{id: a, action: {name: paid}}]}}
`

// A step that the account cannot pay waits, and goes on when there are credits: by a
// grant, by what another run releases, or by a lot that takes effect.
func TestX144_BlockedUntilCredits(t *testing.T) {
	for name, more := range map[string]func(*testing.T, *Engine){
		"a grant": func(t *testing.T, e *Engine) { grant(t, e, "second", 4, ledger.Terms{}) },
		"a lot that takes effect": func(t *testing.T, e *Engine) {
			grant(t, e, "second", 4, ledger.Terms{Effective: time.Now().Add(time.Hour).UnixMicro()})
			time.Sleep(time.Hour)
		},
		"another run ends": func(_ *testing.T, _ *Engine) { time.Sleep(2 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memory.New(memory.Options{})
				a := costing(4, nil)
				e := openEngine(t, st, Config{Accounts: paying}, a)
				grant(t, e, "first", 17, ledger.Terms{})
				waits := planOf(t, "name: waits\ncreditEstimation: {strategy: fixed, fixedCredits: 5}\nsteps: [{id: w, wait: {duration: 2h}}]\n", a)
				if _, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: waits, Recipe: "waits"}); err != nil {
					t.Fatal(err)
				}
				p := planOf(t, fourItems, a)
				run := start(t, e, p, nil)
				synctest.Wait()
				wantBalance(t, st, 0, 17, 0)
				if n := countPrefix(trace(t, st, p, acc, run), "node.blocked l[3].a"); n != 1 {
					t.Fatalf("the last step is blocked %d times", n)
				}
				more(t, e)
				if head := waitForEnd(t, e, run); head.Status != "completed" || head.Used != 16 {
					t.Errorf("the run is %s and used %d", head.Status, head.Used)
				}
				if b := balance(t, st); b.Spent != 16 {
					t.Errorf("%d are spent, want 16", b.Spent)
				}
			})
		})
	}
}

// A run that waits for credits can be paused, cancelled and can expire meanwhile. A
// grant to a paused run changes nothing until it goes on.
func TestX144_EndsWhileBlocked(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*testing.T, *Engine, string)
		status string
		spent  int64
	}{
		"cancelled": {func(t *testing.T, e *Engine, run string) {
			if err := e.Cancel(t.Context(), acc, run, "too expensive"); err != nil {
				t.Fatal(err)
			}
		}, "cancelled", 12},
		"expires": {func(*testing.T, *Engine, string) { time.Sleep(49 * time.Hour) }, "expired", 12},
		"paused": {func(t *testing.T, e *Engine, run string) {
			if err := e.Pause(t.Context(), acc, run, ""); err != nil {
				t.Fatal(err)
			}
			grant(t, e, "second", 10, ledger.Terms{})
			synctest.Wait()
			wantBalance(t, e.cfg.Store, 10, 12, 0)
			if err := e.Unpause(t.Context(), acc, run); err != nil {
				t.Fatal(err)
			}
		}, "completed", 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memory.New(memory.Options{})
				a := costing(4, nil)
				e := openEngine(t, st, Config{Accounts: paying}, a)
				grant(t, e, "first", 12, ledger.Terms{})
				run := start(t, e, planOf(t, fourItems, a), nil)
				synctest.Wait()
				wantBalance(t, st, 0, 12, 0)
				c.end(t, e, run)
				if head := waitForEnd(t, e, run); head.Status != c.status {
					t.Errorf("the run is %s, want %s", head.Status, c.status)
				}
				if b := balance(t, st); b.Spent != c.spent || b.Held != 0 {
					t.Errorf("%d are spent and %d held, want %d and none", b.Spent, b.Held, c.spent)
				}
			})
		})
	}
}

// What a lot holds for a run stays with the run when the lot ends while it waits; what
// the run releases expires (F39).
func TestF39_HeldLotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		a := costing(4, nil)
		e := openEngine(t, st, Config{Accounts: paying}, a)
		grant(t, e, "short", 10, ledger.Terms{Source: ledger.Promotional, Expires: time.Now().Add(time.Hour).UnixMicro()})
		grant(t, e, "long", 2, ledger.Terms{})
		p := planOf(t, "name: late\ncreditEstimation: {strategy: fixed, fixedCredits: 6}\nttl: 200h\nsteps: [{id: w, wait: {duration: 72h}}, {id: a, action: {name: paid}}]\n", a)
		run := start(t, e, p, nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if b := balance(t, st); b.Held != 6 || b.Expired != 4 || b.Available != 2 {
			t.Errorf("after the lot has ended: %+v", b)
		}
		waitForEnd(t, e, run)
		if b := balance(t, st); b.Spent != 4 || b.Held != 0 || b.Expired != 6 || b.Available != 2 {
			t.Errorf("after the run has ended: %+v", b)
		}
	})
}

// A crash loses no hold and pays nothing twice: the next process goes on with it (F40).
func TestF40_CrashBetweenChargeAndSettlement(t *testing.T) {
	st := memory.New(memory.Options{})
	release, second := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	a := costing(4, func(context.Context, *action.Task) (action.Result, error) {
		if calls.Add(1) == 2 {
			close(second)
			<-release
		}
		return action.Result{}, nil
	})
	e := openEngine(t, st, Config{Accounts: paying}, a)
	grant(t, e, "first", 20, ledger.Terms{})
	p := planOf(t, fourItems, a)
	run := start(t, e, p, nil)
	<-second
	e.crash()
	close(release)
	wantBalance(t, st, 12, 8, 0)
	e = openEngine(t, st.Crash(0), Config{Accounts: paying}, a)
	if head := waitForEnd(t, e, run); head.Used != 16 {
		t.Errorf("the run used %d", head.Used)
	}
	wantBalance(t, e.cfg.Store, 4, 0, 16)
}

// When the answer to a commit is lost, the engine reads the account again, whether the
// commit was written or not (F16, F32).
func TestF16_AccountAfterALostAnswer(t *testing.T) {
	for name, outcome := range map[string]memory.Outcome{"written": memory.ReplyLost, "not written": memory.Refused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fail atomic.Bool
				st := memory.New(memory.Options{OnCommit: func(_ int, batch []store.Transition) memory.Outcome {
					for i := range batch {
						if len(batch[i].Entries) > 0 && fail.CompareAndSwap(true, false) {
							return outcome
						}
					}
					return memory.OK
				}})
				a := costing(4, nil)
				e := openEngine(t, st, Config{Accounts: paying}, a)
				fail.Store(true)
				_, err := e.Grant(t.Context(), GrantRequest{Account: acc, Key: "first", Amount: 20, Terms: ledger.Terms{Source: ledger.Paid}})
				if outcome == memory.Refused {
					wantCode(t, err, fault.StoreFull)
				} else if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				grant(t, e, "first", 20, ledger.Terms{})
				wantBalance(t, st, 20, 0, 0)
				fail.Store(true)
				s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, once, a), Recipe: "once", IdempotencyKey: "k"})
				time.Sleep(2 * time.Second)
				if err != nil {
					s, err = e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, once, a), Recipe: "once", IdempotencyKey: "k"})
				}
				if err != nil {
					t.Fatal(err)
				}
				waitForEnd(t, e, s.Run)
				wantBalance(t, st, 16, 0, 4)
			})
		})
	}
}

// A grant, the end of a lot and an adjustment that are requested twice at once are answered
// alike, although only the first of them makes entries: when their commit fails, and when
// the store refuses the first while the second is in the next batch (I1, F16).
func TestI1_RepeatedChangeOfALostBatch(t *testing.T) {
	var lose atomic.Bool
	st := &refusingStore{Store: memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
		if lose.CompareAndSwap(true, false) {
			return memory.Refused
		}
		return memory.OK
	}})}
	h := newHarness(t, st, Config{Accounts: paying}, costing(4, nil))
	paid := ledger.Terms{Source: ledger.Paid}
	change := func(ch purse.Change) *input {
		in := creditsInput(acc, &ch)
		in.reply = make(chan answer, 1)
		return in
	}
	var back *purse.Adjustment
	for _, next := range []func() *input{
		func() *input { return change(purse.Change{Lot: "first", Amount: 20, Terms: paid}) },
		func() *input { return change(purse.Change{Adjust: back, Amount: 3}) },
		func() *input { return change(purse.Change{Void: true, Lot: "first"}) },
	} {
		if head, err := st.Account(t.Context(), acc, maxTime); err == nil && head.Seq() == 1 {
			run := h.startInput(acc, planOf(t, once, costing(4, nil)), nil)
			run.m.Start.Credits = &journal.Credits{Estimated: 4, Most: 4, Reserved: 4}
			h.runUntilIdle(run)
			paid := success(h.takeTask(), `{"ok":true}`)
			paid.m.Cost = 4
			h.runUntilIdle(paid)
			h.wantStatus(run.key, "completed")
			if back, err = purse.ReadAdjustment(t.Context(), st, acc, run.key.Run, "k", 0); err != nil {
				t.Fatal(err)
			}
		}
		both := []*input{next(), next()}
		lose.Store(true)
		h.handle(both...)
		h.commit()
		h.now += 2 * maxBackoff
		h.runUntilIdle()
		for i, in := range both {
			if err := h.answer(in).err; fault.CodeOf(err) != fault.StoreFull {
				t.Errorf("%s: request %d of a lost batch is answered %v", in.credits.Key(), i, err)
			}
		}
		both = []*input{next(), next()}
		refused := 0
		st.refuse = func(tr *store.Transition) bool {
			refused++
			return refused <= 2
		}
		h.handle(both[0])
		h.commitWhile(func() { h.handle(both[1]) })
		h.handle()
		h.commit()
		if both[0].reply == nil || both[1].reply == nil {
			t.Errorf("%s: a refused change was answered", both[0].credits.Key())
		}
		st.refuse = nil
		h.runUntilIdle()
		for i, in := range both {
			if err := h.answer(in).err; err != nil {
				t.Errorf("%s: request %d is answered %v", in.credits.Key(), i, err)
			}
		}
		if e, _, err := st.Entry(t.Context(), acc, both[1].credits.Key()); e == nil {
			t.Errorf("%s is not stored: %v", both[1].credits.Key(), err)
		}
	}
	wantBalance(t, st, 0, 0, 1)
}

// Grants of bad amounts and terms, unknown lots and accounts that do not pay are refused
// before anything moves, and a repeated grant changes nothing.
func TestA26_BadGrants(t *testing.T) {
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{}) // its accounts do not pay
	_, err := e.Grant(t.Context(), GrantRequest{Account: acc, Key: "k", Amount: 1, Terms: ledger.Terms{Source: ledger.Paid}})
	wantCode(t, err, fault.InputInvalid)
	e = openEngine(t, memory.New(memory.Options{}), Config{Accounts: paying})
	for _, req := range []GrantRequest{
		{Account: acc, Key: "k", Amount: 0, Terms: ledger.Terms{Source: ledger.Paid}}, {Account: acc, Key: "k", Amount: -1, Terms: ledger.Terms{Source: ledger.Paid}},
		{Account: acc, Key: "k", Amount: ledger.MaxAmount + 1, Terms: ledger.Terms{Source: ledger.Paid}}, {Account: acc, Key: "", Amount: 1, Terms: ledger.Terms{Source: ledger.Paid}},
		{Account: acc, Key: "k", Amount: 1, Terms: ledger.Terms{}}, {Account: acc, Key: "k", Amount: 1, Terms: ledger.Terms{Source: ledger.Paid, Expires: 1}},
	} {
		_, err := e.Grant(t.Context(), req)
		wantCode(t, err, fault.InputInvalid)
	}
	_, err = e.Grant(t.Context(), GrantRequest{Amount: 1, Key: "k"})
	wantCode(t, err, fault.Usage)
	_, err = e.VoidLot(t.Context(), acc, "none", "")
	wantCode(t, err, fault.InputInvalid)
	grant(t, e, "k", 5, ledger.Terms{})
	grant(t, e, "k", 5, ledger.Terms{})
	_, err = e.Grant(t.Context(), GrantRequest{Account: acc, Key: "k", Amount: 6, Terms: ledger.Terms{Source: ledger.Paid}})
	wantCode(t, err, fault.IdempotencyMismatch)
	for range 2 {
		if lot, err := e.VoidLot(t.Context(), acc, "k", "returned"); err != nil || lot.Voided != 5 {
			t.Errorf("the voided lot is %+v, %v", lot, err)
		}
	}
	if b := balance(t, e.cfg.Store); b.Granted != 5 || b.Voided != 5 {
		t.Errorf("the account has %+v", b)
	}
}
