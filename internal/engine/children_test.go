// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// echo is an action that returns its input.
func repeater() *action.Action {
	return &action.Action{Name: "echo", Version: "1.0.0", Input: []byte(`{"type":"object"}`),
		Run: func(_ context.Context, t *action.Task) (action.Result, error) {
			return action.Result{Output: t.Input}, nil
		}}
}

// A family holds the journals of a tree of runs, checked.
type family struct {
	t     testing.TB
	st    store.Store
	plans map[string]*plan.Plan
	heads map[string]store.Head
}

// checkTree checks the journals of a run and of all runs below it: every child run ends
// before its step does, and is as its parent says (X62, F44).
func checkTree(t testing.TB, st store.Store, account, run string) *family {
	t.Helper()
	f := &family{t: t, st: st, plans: map[string]*plan.Plan{}, heads: map[string]store.Head{}}
	f.check(account, run, 0)
	return f
}

func (f *family) check(account, run string, depth int64) {
	f.t.Helper()
	key := store.Key{Account: account, Run: run}
	head, err := f.st.Head(context.Background(), key)
	if err != nil {
		f.t.Fatalf("run %s at depth %d: %v", run, depth, err)
	}
	f.heads[run] = head
	data, err := f.st.Plan(context.Background(), head.PlanHash)
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := plan.Decode(data)
	if err != nil {
		f.t.Fatal(err)
	}
	f.plans[run] = p
	checker := journal.NewChecker(p)
	var children []string
	err = store.EachEvent(context.Background(), f.st, key, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvChildStarted {
			children = append(children, ev.Text)
		}
		return checker.Check(ev)
	})
	if err != nil {
		f.t.Fatalf("run %s at depth %d: %v", run, depth, err)
	}
	if !checker.Status().Terminal() || head.Owes {
		f.t.Errorf("run %s at depth %d is %s (owes %v)", run, depth, checker.Status(), head.Owes)
	}
	for _, child := range children {
		f.check(account, child, depth+1)
	}
}

const childRecipe = `
name: outer
steps:
  - {id: first, action: {name: echo, parameters: {n: 20}}}
  - id: inner
    recipe:
      inline:
        name: double
        steps:
          - {id: twice, transform: {expression: input.n * 2}, outputBinding: result}
          - {id: say, action: {name: echo}, inputBindings: {said: result}}
        outputs: {value: result, said: say.output.said}
      outputs: [value, {path: said, as: words}]
    inputBindings: {n: first.output.n + 1}
    outputBinding: doubled
outputs: {answer: doubled.value, words: doubled.words}
`

// A step runs a recipe as a run of its own and has its result (X16, X17, X60, X62).
func TestX60_X62_ChildRun(t *testing.T) {
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{}, repeater())
	p := planOf(t, childRecipe, repeater())
	run := start(t, e, p, nil)
	head := waitForEnd(t, e, run)
	if head.Status != "completed" {
		t.Fatalf("the run is %s: %s", head.Status, head.Message)
	}
	f := checkTree(t, st, acc, run)
	if len(f.heads) != 2 {
		t.Errorf("the tree has %d runs, want 2", len(f.heads))
	}
	h, err := e.History(t.Context(), acc, run, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(h.Outputs); got != `{"answer":42,"words":42}` {
		t.Errorf("the outputs are %s", got)
	}
	got := strings.Join(trace(t, st, p, acc, run), "\n")
	for _, want := range []string{"node.queued inner\nrun.child_started inner attempt=1", "run.child_ended inner attempt=1\nnode.completed inner attempt=1\nrun.completed"} {
		if !strings.Contains(got, want) {
			t.Errorf("the journal lacks\n%s\nit is\n%s", want, got)
		}
	}
	// The child's end, what its parent makes of it, and the end of the parent are one commit.
	for id, head := range f.heads {
		if id != run && (head.Parent != run || head.Root != run || head.Recipe != "double") {
			t.Errorf("the child's head is %+v", head)
		}
		if head.Ended != f.heads[run].Ended {
			t.Errorf("run %s ended at %d, its parent at %d", id, head.Ended, f.heads[run].Ended)
		}
	}
}

// A child run that fails fails its step, with the way to the step that failed; the parent
// may handle that (X122, X123). Each run of the tree has a journal of its own (X104).
func TestX122_X123_ChildFails(t *testing.T) {
	st := memory.New(memory.Options{})
	boom := &action.Action{Name: "boom", Version: "1.0.0", Input: []byte(`{"type":"object"}`),
		Run: func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New(fault.InputInvalid, "no such page")
		}}
	e := openEngine(t, st, Config{}, repeater(), boom)
	inner := "{name: middle, steps: [{id: deep, recipe: {inline: {name: innermost, steps: [{id: bad, action: {name: boom}}]}}}]}"
	run := start(t, e, planOf(t, "name: outer\nsteps:\n  - {id: a, recipe: {inline: "+inner+"}}\n", repeater(), boom), nil)
	head := waitForEnd(t, e, run)
	want := `recipe "middle" failed in step "deep": recipe "innermost" failed in step "bad": no such page`
	if head.Status != "failed" || head.Code != fault.InputInvalid || head.Message != want {
		t.Errorf("the run is %s: %s: %s", head.Status, head.Code, head.Message)
	}
	checkTree(t, st, acc, run)

	run = start(t, e, planOf(t, `
name: outer
steps:
  - {id: primary, recipe: {inline: `+inner+`}, continue_on_error: true}
  - {id: spare, action: {name: echo}, when: steps.primary.error != null, inputBindings: {why: steps.primary.error.message, n: input.n}}
outputs: {why: spare.output.why, n: spare.output.n}
`, repeater(), boom), map[string]any{"n": int64(7)})
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Errorf("the run is %s: %s", head.Status, head.Message)
	}
	if h, err := e.History(t.Context(), acc, run, 0); err != nil || !strings.Contains(string(h.Outputs), `"n":7`) || !strings.Contains(string(h.Outputs), "no such page") {
		t.Errorf("the outputs are %s, %v", h.Outputs, err)
	}
	checkTree(t, st, acc, run)
}

// A retry of the step starts another child run (R18).
func TestChildIsRetried(t *testing.T) {
	st := memory.New(memory.Options{})
	var calls atomic.Int64
	flaky := &action.Action{Name: "flaky", Version: "1.0.0", Input: []byte(`{"type":"object"}`),
		Run: func(context.Context, *action.Task) (action.Result, error) {
			if calls.Add(1) < 3 {
				return action.Result{}, fault.New(fault.ProviderError, "not now")
			}
			return action.Result{Output: map[string]any{"ok": true}}, nil
		}}
	e := openEngine(t, st, Config{}, flaky)
	run := start(t, e, planOf(t, `
name: outer
steps:
  - id: a
    recipe: {inline: {name: inner, steps: [{id: f, action: {name: flaky}}]}}
    retryPolicy: {maxAttempts: 5, initialDelay: 1ms, jitter: 0}
`, flaky), nil)
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Fatalf("the run is %s: %s", head.Status, head.Message)
	}
	if f := checkTree(t, st, acc, run); len(f.heads) != 4 {
		t.Errorf("the tree has %d runs, want 4", len(f.heads))
	}
}

const waitsInside = `
name: outer
steps:
  - id: all
    parallel:
      branches:
        - [{id: a, recipe: {inline: {name: approval, steps: [{id: w, wait: {signal: approved}}]}}}]
        - [{id: b, recipe: {inline: {name: approval, steps: [{id: w, wait: {signal: approved}}]}}}]
`

// childrenOf returns the child runs of a run, in the order in which they were started.
func childrenOf(t testing.TB, st store.Store, run string) (ids []string) {
	t.Helper()
	if err := store.EachEvent(context.Background(), st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvChildStarted {
			ids = append(ids, ev.Text)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ids
}

// Two approvals in parallel child runs resume both; in between the tree leaves memory
// and the process restarts.
func TestX62_ApprovalsInChildren(t *testing.T) {
	st := told(memory.New(memory.Options{}))
	e := openEngine(t, st, Config{SuspendAfter: time.Millisecond})
	run := start(t, e, planOf(t, waitsInside), nil)
	children := childrenOf(t, st, run)
	if len(children) != 2 {
		t.Fatalf("%d child runs, want 2", len(children))
	}
	st.awaitSuspended(t, run, children[0], children[1])
	if err := e.Signal(t.Context(), acc, children[0], "approved", map[string]any{"by": "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, st, Config{})
	if err := e.Signal(t.Context(), acc, children[1], "approved", nil); err != nil {
		t.Fatal(err)
	}
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Errorf("the run is %s: %s", head.Status, head.Message)
	}
	checkTree(t, st, acc, run)
}

// A toldStore says after each commit that there was one.
type toldStore struct {
	store.Store
	committed chan struct{} // 1 slot
}

func told(st store.Store) *toldStore { return &toldStore{st, make(chan struct{}, 1)} }

func (s *toldStore) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	verdicts, err := s.Store.Commit(ctx, batch)
	select {
	case s.committed <- struct{}{}:
	default:
	}
	return verdicts, err
}

// awaitSuspended waits until the store says that runs have left memory.
func (s *toldStore) awaitSuspended(t testing.TB, runs ...string) {
	t.Helper()
	for _, run := range runs {
		for {
			saved, err := s.Load(t.Context(), store.Key{Account: acc, Run: run})
			if err != nil {
				t.Fatal(err)
			}
			if saved.Suspension != nil {
				break
			}
			<-s.committed
		}
	}
}

// A cancel, a timeout and the ttl of a run end its child runs first, also those that are
// not in memory (F44, I8).
func TestF44_ChildrenEndFirst(t *testing.T) {
	for name, test := range map[string]struct {
		recipe string
		end    func(e *Engine, run string) error
		status string
		code   fault.Code
	}{
		"cancel":  {waitsInside, func(e *Engine, run string) error { return e.Cancel(context.Background(), acc, run, "enough") }, "cancelled", fault.ExecutionCancelled},
		"timeout": {strings.Replace(waitsInside, "[{id: a,", "[{id: a, timeout: 50ms,", 1), nil, "failed", fault.StepTimeout},
		"ttl":     {waitsInside + "ttl: 60ms\n", nil, "expired", fault.ExecutionExpired},
	} {
		t.Run(name, func(t *testing.T) {
			st := told(memory.New(memory.Options{}))
			e := openEngine(t, st, Config{SuspendAfter: time.Millisecond})
			run := start(t, e, planOf(t, test.recipe), nil)
			children := childrenOf(t, st, run)
			if test.end != nil {
				st.awaitSuspended(t, run, children[0], children[1])
				if err := test.end(e, run); err != nil {
					t.Fatal(err)
				}
			}
			head := waitForEnd(t, e, run)
			if head.Status != test.status || head.Code != test.code {
				t.Errorf("the run is %s: %s: %s", head.Status, head.Code, head.Message)
			}
			for id, h := range checkTree(t, st, acc, run).heads {
				if id != run && (h.Status != "cancelled" || h.Ended > head.Ended) {
					t.Errorf("child run %s is %s, ended %d; the run ended %d", id, h.Status, h.Ended, head.Ended)
				}
			}
		})
	}
}

// A loop starts a child run for each of 10,000 items (X63).
func TestX63_TenThousandChildren(t *testing.T) {
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{}, repeater())
	n := 10_000
	if testing.Short() {
		n = 1_000
	}
	run := start(t, e, planOf(t, `
name: outer
limits: {max_total_steps: 100000}
steps:
  - id: each
    loop:
      over: input.items
      as: item
      maxConcurrency: 1000
      steps: [{id: one, recipe: {inline: {name: inner, steps: [{id: s, action: {name: echo}, inputBindings: {n: input.n}}], outputs: {n: s.output.n}}}, inputBindings: {n: item}}]
outputs: {n: size(steps.each.output)}
`, repeater()), map[string]any{"items": numbers(n)})
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Fatalf("the run is %s: %s", head.Status, head.Message)
	}
	if f := checkTree(t, st, acc, run); len(f.heads) != n+1 {
		t.Errorf("the tree has %d runs, want %d", len(f.heads), n+1)
	}
}

func numbers(n int) (list []any) {
	for i := range n {
		list = append(list, int64(i))
	}
	return list
}

// A tree of runs stays within the limits of its root, whoever begins the steps.
func TestTreeLimits(t *testing.T) {
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{}, repeater())
	loop := func(limit string) string {
		return `
name: outer
` + limit + `
steps:
  - id: each
    loop:
      over: '[1,2,3,4,5,6,7,8,9,10]'
      as: item
      maxConcurrency: 10
      failureStrategy: continue
      steps:
        - id: one
          recipe:
            inline:
              name: inner
              steps:
                - {id: each, loop: {over: '[1,2,3,4,5,6,7,8,9,10]', as: k, steps: [{id: s, transform: {expression: '{"text": "` + strings.Repeat("x", 100) + `" }'}}]}}
`
	}
	for name, test := range map[string]struct {
		limit  string
		status string
		code   fault.Code
	}{
		"enough":        {"limits: {max_total_steps: 121}", "completed", ""},
		"a step short":  {"limits: {max_total_steps: 120}", "failed", fault.StepLimit},
		"half":          {"limits: {max_total_steps: 60}", "failed", fault.StepLimit},
		"little memory": {"limits: {memory_limit_mb: 1}", "completed", ""},
	} {
		run := start(t, e, planOf(t, loop(test.limit), repeater()), nil)
		if head := waitForEnd(t, e, run); head.Status != test.status || head.Code != test.code {
			t.Errorf("%s: the run is %s: %s: %s", name, head.Status, head.Code, head.Message)
		}
		checkTree(t, st, acc, run)
	}
}

// Accounts pay for a tree as for one run: its root holds and settles, its child runs have
// shares of that, and cost what they used, by their policies (X144, X157, design 12).
func TestX144_TreePays(t *testing.T) {
	child := func(policy, last string) string {
		return "{name: inner, credit_policy: " + policy + ", steps: [{id: p, action: {name: paid}}" + last + "]}"
	}
	fail := ", {id: f, fail: {message: no}}"
	for name, test := range map[string]struct {
		recipe string
		most   int64
		status string
		spent  int64
	}{
		"two levels":     {"steps:\n  - {id: a, action: {name: paid}}\n  - {id: b, recipe: {inline: {name: mid, steps: [{id: c, recipe: {inline: " + child("refund_unused", "") + "}}, {id: d, action: {name: paid}}]}}}\n", 0, "completed", 30},
		"unused returns": {"steps:\n  - {id: b, continue_on_error: true, recipe: {inline: " + child("refund_unused", fail) + "}}\n", 0, "completed", 10},
		"all returns":    {"steps:\n  - {id: b, continue_on_error: true, recipe: {inline: " + child("refund_all", fail) + "}}\n", 0, "completed", 0},
		"a cap in all":   {"steps:\n  - {id: a, action: {name: paid}}\n  - {id: b, recipe: {inline: " + child("refund_unused", ", {id: q, action: {name: paid}}") + "}}\n", 25, "failed", 20},
	} {
		t.Run(name, func(t *testing.T) {
			st := memory.New(memory.Options{})
			a := costing(10, nil)
			e := openEngine(t, st, Config{Accounts: paying}, a)
			grant(t, e, "first", 1000, ledger.Terms{})
			s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, "name: outer\n"+test.recipe, a), Recipe: "outer", MaxCredits: test.most})
			if err != nil {
				t.Fatal(err)
			}
			head := waitForEnd(t, e, s.Run)
			if head.Status != test.status || head.Used != test.spent {
				t.Errorf("the run is %s, %d used: %s: %s", head.Status, head.Used, head.Code, head.Message)
			}
			checkTree(t, st, acc, s.Run)
			wantBalance(t, st, 1000-test.spent, 0, test.spent)
		})
	}
}

// A process that dies at any commit loses nothing of a tree, and starts no child run twice.
func TestF01_TreeSurvivesCrashes(t *testing.T) {
	p := planOf(t, strings.Replace(childRecipe, "name: outer", "name: outer\nttl: 1h", 1), repeater())
	req := StartRequest{Account: acc, Plan: p, Recipe: "outer", IdempotencyKey: "k"}
	crashAtEachCommit(t, 3, req, func() (Config, []*action.Action) { return Config{}, []*action.Action{repeater()} }, func(crash int, st *memory.Store, _ *Engine, head store.Head) {
		if f := checkTree(t, st, acc, head.Run); len(f.heads) != 2 {
			t.Fatalf("crash at commit %d: the tree has %d runs", crash, len(f.heads))
		}
	})
}

// crashAtEachCommit starts a run in a process that dies at the first commit, then at the second, and so on until the run
// ends before that, which takes least commits. Each time another process goes on with the run to its completion, and
// check judges what there is then. anew makes what both processes of one crash are opened with.
func crashAtEachCommit(t *testing.T, least int, req StartRequest, anew func() (Config, []*action.Action), check func(crash int, st *memory.Store, e *Engine, head store.Head)) {
	t.Helper()
	for crash := 1; ; crash++ {
		died, second := make(chan struct{}), false
		st := memory.New(memory.Options{OnCommit: func(n int, _ []store.Transition) memory.Outcome {
			if n == crash && !second {
				close(died)
				return memory.SyncFailed
			}
			return memory.OK
		}})
		cfg, actions := anew()
		e := openEngine(t, st, cfg, actions...)
		if s, err := e.Start(t.Context(), req); err == nil {
			waitUntil(t, e, s.Run, died)
		}
		e.crash()
		second = true
		st = st.Crash(uint64(crash))
		e = openEngine(t, st, cfg, actions...)
		s, err := e.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		head := waitForEnd(t, e, s.Run)
		if head.Status != "completed" {
			t.Fatalf("crash at commit %d: the run is %s: %s", crash, head.Status, head.Message)
		}
		check(crash, st, e, head)
		select {
		case <-died:
		default:
			if crash < least {
				t.Fatalf("the tree took %d commits", crash)
			}
			return
		}
	}
}

// waitUntil waits for the end of a run, or until died is closed.
func waitUntil(t testing.TB, e *Engine, run string, died <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-died:
			cancel()
		case <-ctx.Done():
		}
	}()
	if _, err := e.Wait(ctx, acc, run); err != nil && ctx.Err() == nil {
		t.Log(err)
	}
}

// 64 child runs of 10 credits each in a run that may pay 100 spend at most 100, and the run
// ends as its policy says (X157).
func TestX157_CapOfATree(t *testing.T) {
	for _, policy := range []string{"refund_unused", "refund_all", "no_refund"} {
		t.Run(policy, func(t *testing.T) {
			st := memory.New(memory.Options{})
			a := costing(10, nil)
			e := openEngine(t, st, Config{Accounts: paying}, a)
			grant(t, e, "first", 1000, ledger.Terms{})
			p := planOf(t, `
name: outer
credit_policy: `+policy+`
steps:
  - id: each
    loop: {over: input.items, as: i, maxConcurrency: 64, failureStrategy: continue, steps: [{id: one, recipe: {inline: {name: inner, steps: [{id: p, action: {name: paid}}]}}}]}
`, a)
			s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "outer", MaxCredits: 100, Parameters: map[string]any{"items": numbers(64)}})
			if err != nil {
				t.Fatal(err)
			}
			head := waitForEnd(t, e, s.Run)
			if head.Status != "failed" || head.Code != fault.InsufficientCredits || head.Used != 100 {
				t.Errorf("the run is %s, %d used: %s: %s", head.Status, head.Used, head.Code, head.Message)
			}
			done := 0
			for id, h := range checkTree(t, st, acc, s.Run).heads {
				if id != s.Run && h.Status == "completed" {
					done++
				}
			}
			if done != 10 {
				t.Errorf("%d child runs completed, want 10", done)
			}
			spent := int64(100)
			if policy == "refund_all" {
				spent = 0
			}
			wantBalance(t, st, 1000-spent, 0, spent)
		})
	}
}

// A child run waits for credits as a root run does, and goes on after a grant (X157).
func TestTreeWaitsForCredits(t *testing.T) {
	st := memory.New(memory.Options{})
	a := costing(10, nil)
	e := openEngine(t, st, Config{Accounts: paying}, a)
	grant(t, e, "first", 25, ledger.Terms{})
	p := planOf(t, "name: outer\ncreditEstimation: {strategy: fixed, fixedCredits: 10, maxCredits: 100}\nsteps:\n  - {id: b, recipe: {inline: {name: inner, creditEstimation: {strategy: fixed, fixedCredits: 10, maxCredits: 100}, steps: [{id: p, action: {name: paid}}, {id: q, action: {name: paid}}, {id: r, action: {name: paid}}]}}}\n", a)
	s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "outer"})
	if err != nil {
		t.Fatal(err)
	}
	child := firstEvent(t, e, s.Run, func(ev *journal.Event) bool { return ev.Kind == journal.EvChildStarted })
	firstEvent(t, e, child, func(ev *journal.Event) bool { return ev.Kind == journal.EvNodeBlocked && ev.LacksCredits() })
	wantBalance(t, st, 5, 20, 0)
	grant(t, e, "second", 100, ledger.Terms{})
	if head := waitForEnd(t, e, s.Run); head.Status != "completed" || head.Used != 30 {
		t.Errorf("the run is %s, %d used: %s", head.Status, head.Used, head.Message)
	}
	checkTree(t, st, acc, s.Run)
	wantBalance(t, st, 95, 0, 30)
}
