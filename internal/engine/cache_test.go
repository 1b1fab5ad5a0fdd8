// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
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
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A counter is the action "count", which returns how often it was called, and fails while it is
// told to.
type counter struct {
	calls atomic.Int64
	fail  atomic.Int64 // so many calls fail
	cost  int64
	price string
}

func (c *counter) action() *action.Action {
	return &action.Action{Name: "count", Version: "1.0.0", Cost: c.cost, Price: c.price, Input: []byte(`{"type":"object"}`),
		Run: func(context.Context, *action.Task) (action.Result, error) {
			n := c.calls.Add(1)
			if c.fail.Add(-1) >= 0 {
				return action.Result{}, fault.New(fault.ServiceUnavailable, "down")
			}
			return action.Result{Output: map[string]any{"n": n}}, nil
		}}
}

func (c *counter) want(t testing.TB, n int64) {
	t.Helper()
	if got := c.calls.Load(); got != n {
		t.Errorf("the action was called %d times, want %d", got, n)
	}
}

// cachedOf lists the steps of a run that have an earlier result, each with the attempt, and checks
// the journal.
func cachedOf(t testing.TB, st store.Store, p *plan.Plan, account, run string) string {
	t.Helper()
	checker := journal.NewChecker(p)
	var list []string
	err := store.EachEvent(context.Background(), st, store.Key{Account: account, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvNodeCached {
			list = append(list, fmt.Sprintf("%s#%d", journal.StepPath(p, ev.Ref()), ev.Attempt))
		}
		return checker.Check(ev)
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

func wantCached(t testing.TB, st store.Store, p *plan.Plan, run, want string) {
	t.Helper()
	if got := cachedOf(t, st, p, acc, run); got != want {
		t.Errorf("the steps with an earlier result are %q, want %q", got, want)
	}
}

func resultOf(t testing.TB, e *Engine, run string) string {
	t.Helper()
	h, err := e.History(t.Context(), acc, run, 9)
	if err != nil {
		t.Fatal(err)
	}
	return string(h.Outputs)
}

func completes(t testing.TB, e *Engine, run string) {
	t.Helper()
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Fatalf("the run is %s: %s", head.Status, head.Message)
	}
}

const cachedOnce = `
name: cached
outputs: {n: steps.a.output.n}
steps: [{id: a, action: {name: count, parameters: {text: "{{ input.text }}"}}, cache: {ttl: 1h}}]
`

// A second run has the result of the first one, until that is too old; another input, account or run
// that wants none calls the action. A run that wants none leaves its result to others.
func TestCache_HitAndMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		st := memory.New(memory.Options{})
		a := c.action()
		e := openEngine(t, st, Config{}, a)
		p := planOf(t, cachedOnce, a)
		run := func(account, text string, fresh bool) string {
			t.Helper()
			s, err := e.Start(t.Context(), StartRequest{Account: account, Plan: p, Recipe: "cached", Parameters: map[string]any{"text": text}, NoCache: fresh})
			if err != nil {
				t.Fatal(err)
			}
			if head, err := e.Wait(t.Context(), account, s.Run); err != nil || head.Status != "completed" {
				t.Fatal(head.Status, head.Message, err)
			}
			return s.Run
		}
		first := run(acc, "x", false)
		wantCached(t, st, p, first, "")
		second := run(acc, "x", false)
		wantCached(t, st, p, second, "a#1")
		if out := resultOf(t, e, second); out != `{"n":1}` {
			t.Errorf("the output is %s, want that of the first run", out)
		}
		wantCached(t, st, p, run(acc, "y", false), "")
		c.want(t, 2)
		if other := run("other", "x", false); cachedOf(t, st, p, "other", other) != "" {
			t.Error("I17: a run has the result of another account")
		}
		c.want(t, 3)
		wantCached(t, st, p, run(acc, "x", true), "")
		c.want(t, 4)
		if third := run(acc, "x", false); resultOf(t, e, third) != `{"n":4}` {
			t.Errorf("the output is %s, want that of the run that wanted no earlier one", resultOf(t, e, third))
		}
		time.Sleep(time.Hour)
		wantCached(t, st, p, run(acc, "x", false), "")
		c.want(t, 5)
	})
}

// A retry has a result that another run made meanwhile. A result that failed, or that does not
// fit its contract, is none.
func TestCache_InsideRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		st := memory.New(memory.Options{})
		a := c.action()
		e := openEngine(t, st, Config{}, a)
		p := planOf(t, `
name: retried
outputs: {n: steps.a.output.n}
steps: [{id: a, action: {name: count}, retryPolicy: {maxAttempts: 3, initialDelay: 10s}, cache: true}]
`, a)
		c.fail.Store(1)
		run := start(t, e, p, nil)
		synctest.Wait()
		c.want(t, 1)
		other := start(t, e, p, nil)
		completes(t, e, other)
		wantCached(t, st, p, other, "") // the failed attempt left nothing
		completes(t, e, run)
		wantCached(t, st, p, run, "a#2")
		c.want(t, 2)
		if resultOf(t, e, run) != `{"n":2}` {
			t.Errorf("the output is %s", resultOf(t, e, run))
		}
		bad := planOf(t, `
name: bad
steps: [{id: a, action: {name: count}, contracts: {output: {required: [other]}}, cache: true}]
`, a)
		for range 2 {
			if head := waitForEnd(t, e, start(t, e, bad, nil)); head.Status != "failed" {
				t.Errorf("a result that does not fit: the run is %s", head.Status)
			}
		}
		c.want(t, 4)
	})
}

// Ten equal items of a loop are one call, one after the other and in a later run at once; a loop in a
// child run and a fallback have the same results.
func TestCache_InsideLoopChildAndFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		st := memory.New(memory.Options{})
		a := c.action()
		fails := newAction("fails", func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New(fault.FileInvalid, "no")
		})
		e := openEngine(t, st, Config{}, a, fails)
		const loop = `{id: each, loop: {over: "[1, 1, 1, 1, 1, 1, 1, 1, 1, 2]", maxConcurrency: %d, steps: [{id: x, action: {name: count, parameters: {i: "{{ item }}"}}, cache: {key: "'k'"}}]}}`
		one := planOf(t, "name: loop\nsteps: ["+fmt.Sprintf(loop, 1)+"]\n", a)
		run := start(t, e, one, nil)
		completes(t, e, run)
		c.want(t, 2)
		if got := strings.Count(cachedOf(t, st, one, acc, run), "each["); got != 8 {
			t.Errorf("%d of ten items have an earlier result, want 8", got)
		}
		atOnce := planOf(t, "name: loop\nsteps: ["+fmt.Sprintf(loop, 10)+"]\n", a)
		completes(t, e, start(t, e, atOnce, nil))
		c.want(t, 2)

		parent := planOf(t, "name: parent\nsteps: [{id: sub, recipe: {inline: {name: child, steps: ["+fmt.Sprintf(loop, 1)+"]}}}]\n", a)
		run = start(t, e, parent, nil)
		completes(t, e, run)
		checkTree(t, st, acc, run)
		c.want(t, 2)

		fallback := planOf(t, `
name: fallback
steps: [{id: a, action: {name: fails}, onError: {strategy: fallback, fallbackStep: {id: f, action: {name: count, parameters: {i: "{{ 1 }}"}}, cache: {key: "'k'"}}}}]
`, a, fails)
		run = start(t, e, fallback, nil)
		completes(t, e, run)
		wantCached(t, st, fallback, run, "a.fallback.f#1")
		c.want(t, 2)

		s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: parent, Recipe: "parent", NoCache: true})
		if err != nil {
			t.Fatal(err)
		}
		completes(t, e, s.Run)
		c.want(t, 12) // the child run wants no earlier results either
	})
}

// A generation that a retry opens has results of earlier ones.
func TestCache_LaterGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		st := memory.New(memory.Options{})
		a := c.action()
		e := openEngine(t, st, Config{}, a)
		p := planOf(t, cachedOnce, a)
		run := start(t, e, p, map[string]any{"text": "x"})
		completes(t, e, run)
		if err := e.Retry(t.Context(), acc, run, RetryRequest{From: "a"}); err != nil {
			t.Fatal(err)
		}
		completes(t, e, run)
		wantCached(t, st, p, run, "a#2")
		c.want(t, 1)
		if n, err := e.Cache().Clear(t.Context(), acc, "count"); n != 1 || err != nil {
			t.Errorf("Clear = %d, %v", n, err)
		}
		if err := e.Retry(t.Context(), acc, run, RetryRequest{From: "a"}); err != nil {
			t.Fatal(err)
		}
		completes(t, e, run)
		c.want(t, 2)
	})
}

// I11, I12: a run is charged the price of an earlier result, at most what a call costs, and what is
// held for the step is as for a call. Runs of accounts that do not pay record it.
func TestI12_CachedResultIsCharged(t *testing.T) {
	for name, tt := range map[string]struct {
		c         *counter
		cache     string
		call, hit int64 // what the runs spend
		used      ledger.Amount
		held      int64
	}{
		"nothing":           {&counter{cost: 5}, "true", 5, 0, 0, 7},
		"a part":            {&counter{price: "4.5"}, `{price: "1.5"}`, 5, 2, 1_500_000, 7},
		"whole of whole":    {&counter{cost: 5}, `{price: 2}`, 5, 2, 2_000_000, 7},
		"a part of whole":   {&counter{cost: 5}, `{price: "0.25"}`, 5, 1, 250_000, 7},
		"more than a call":  {&counter{cost: 5}, `{price: 9}`, 5, 5, 5_000_000, 7},
		"more than a price": {&counter{price: "0.3"}, `{price: 9}`, 1, 1, 300_000, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memory.New(memory.Options{})
				a := tt.c.action()
				e := openEngine(t, st, Config{Accounts: paying}, a)
				grant(t, e, "first", 100, ledger.Terms{})
				p := planOf(t, "name: paid\nsteps: [{id: a, action: {name: count}, cache: "+tt.cache+"}, {id: w, wait: {duration: 1s}}]\n", a)
				completes(t, e, start(t, e, p, nil))
				wantBalance(t, st, 100-tt.call, 0, tt.call)
				run := start(t, e, p, nil)
				synctest.Wait()
				wantBalance(t, st, 100-tt.call-tt.held, tt.held, tt.call)
				completes(t, e, run)
				wantCached(t, st, p, run, "a#1")
				wantBalance(t, st, 100-tt.call-tt.hit, 0, tt.call+tt.hit)
				tt.c.want(t, 1)
				used := ledger.Amount(0)
				err := store.EachEvent(t.Context(), st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
					used = used.Plus(ev.Spent(p))
					return nil
				})
				if err != nil || used != tt.used {
					t.Errorf("the run has used %s, want %s (%v)", used, tt.used, err)
				}
			})
		})
	}
}

// The result of an external job is kept when it is there, and an earlier result submits no job.
func TestCache_ExternalJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), Config{})
		const recipe = "name: job\noutputs: {text: steps.a.output.text}\nsteps: [{id: a, action: {name: submit}, cache: true}]\n"
		p := planOf(t, recipe, o.svc.submits())
		run := o.begin(recipe)
		synctest.Wait()
		o.deliver(o.svc.list()[0], "d1", "hello")
		completes(t, o.Engine, run)
		wantCached(t, o.st, p, run, "")
		run = o.begin(recipe)
		completes(t, o.Engine, run)
		wantCached(t, o.st, p, run, "a#1")
		if n := len(o.svc.list()); n != 1 || resultOf(t, o.Engine, run) != `{"text":"hello"}` {
			t.Errorf("%d jobs, outputs %s", n, resultOf(t, o.Engine, run))
		}
		o.svc.submitted = nil
		failing := "name: job\nsteps: [{id: a, action: {name: submit}, cache: {key: \"1\"}}]\n"
		run = o.begin(failing)
		synctest.Wait()
		o.deliver(o.svc.list()[1], "d2", "failed")
		if head := waitForEnd(t, o.Engine, run); head.Status != "failed" {
			t.Errorf("the run is %s", head.Status)
		}
		o.begin(failing)
		synctest.Wait()
		if n := len(o.svc.list()); n != 3 {
			t.Errorf("%d jobs: a job that failed has left a result", n)
		}
	})
}

// An expression for the key that has no value fails the attempt, as an input does. A value of it
// that differs is another key.
func TestCache_Key(t *testing.T) {
	var c counter
	st := memory.New(memory.Options{})
	a := c.action()
	e := openEngine(t, st, Config{}, a)
	p := planOf(t, "name: keyed\nsteps: [{id: a, action: {name: count}, cache: {key: 'input.edition'}}]\n", a)
	for i, edition := range []any{1, "1", []any{1}, 1, "1", []any{1}} {
		run := start(t, e, p, map[string]any{"edition": edition})
		completes(t, e, run)
		c.want(t, int64(min(i+1, 3)))
	}
	if head := waitForEnd(t, e, start(t, e, p, nil)); head.Status != "failed" || head.Code != fault.TemplateError {
		t.Errorf("without a value: the run is %s (%s)", head.Status, head.Code)
	}
}

// Many runs at once and a restart in between: each has the output of a call with its own input.
func TestCache_ManyRuns(t *testing.T) {
	st := memory.New(memory.Options{})
	a := repeater()
	p := planOf(t, "name: many\noutputs: {t: steps.a.output.t}\nsteps: [{id: a, action: {name: echo, parameters: {t: \"{{ input.t }}\"}}, cache: true}]\n", a)
	for range 2 {
		e := openEngine(t, st, Config{}, a)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				text := fmt.Sprint("t", i%7)
				s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "many", Parameters: map[string]any{"t": text}})
				if err != nil {
					t.Error(err)
					return
				}
				if head, err := e.Wait(t.Context(), acc, s.Run); err != nil || head.Status != "completed" || resultOf(t, e, s.Run) != `{"t":"`+text+`"}` {
					t.Errorf("the run with %s is %s (%v)", text, head.Status, err)
				}
			})
		}
		wg.Wait()
		e.crash()
		st = st.Reopen()
	}
	if use, err := st.Stats(t.Context()); err != nil {
		t.Error(use, err)
	}
}
