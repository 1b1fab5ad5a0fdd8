// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// goesOn is a recipe whose child run fails after a step that costs, and goes on.
const goesOn = `
name: outer
ttl: 1h
steps:
  - id: a
    recipe:
      resume: true
      inline:
        name: inner
        steps:
          - {id: one, action: {name: paid}}
          - {id: two, action: {name: flaky}}
          - id: deep
            recipe: {inline: {name: deep, steps: [{id: three, action: {name: paid}}, {id: four, action: {name: flaky}}]}, resume: true}
    retryPolicy: {maxAttempts: 9, initialDelay: 1ms, jitter: 0}
`

// A callCounter counts the calls of steps.
type callCounter struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *callCounter) add(step string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[step]++
	return c.calls[step]
}

// failing are actions: paid costs 10 credits, and flaky fails in its first calls of each step.
func failing(c *callCounter, fails int) []*action.Action {
	object := []byte(`{"type":"object"}`)
	return []*action.Action{
		{Name: "paid", Version: "1.0.0", Input: object, Cost: 10, Run: func(_ context.Context, t *action.Task) (action.Result, error) {
			c.add(t.Step)
			return action.Result{}, nil
		}},
		{Name: "flaky", Version: "1.0.0", Input: object, Run: func(_ context.Context, t *action.Task) (action.Result, error) {
			if c.add(t.Step) <= fails {
				return action.Result{}, fault.New(fault.ProviderError, "not now")
			}
			return action.Result{}, nil
		}},
	}
}

// The next try of a step goes on in its child run (X104): what has completed there is neither
// done nor paid for again, at any depth, and the run keeps its id.
func TestX104_ChildGoesOn(t *testing.T) {
	for policy, spent := range map[string]int64{"refund_unused": 20, "refund_all": 10, "no_refund": 20} {
		t.Run(policy, func(t *testing.T) {
			st, calls := memory.New(memory.Options{}), &callCounter{}
			actions := failing(calls, 2)
			e := openEngine(t, st, Config{Accounts: paying}, actions...)
			grant(t, e, "first", 1000, ledger.Terms{})
			recipe := strings.Replace(goesOn, "        name: inner\n", "        name: inner\n        credit_policy: "+policy+"\n", 1)
			s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, recipe, actions...), Recipe: "outer"})
			if err != nil {
				t.Fatal(err)
			}
			if head := waitForEnd(t, e, s.Run); head.Status != "completed" {
				t.Fatalf("the run is %s: %s", head.Status, head.Message)
			}
			for step, n := range map[string]int{"one": 1, "two": 3, "three": 1, "four": 3} {
				if calls.calls[step] != n {
					t.Errorf("step %s was called %d times, want %d", step, calls.calls[step], n)
				}
			}
			ids := childrenOf(t, st, s.Run)
			if len(ids) != 5 || len(slices.Compact(slices.Clone(ids))) != 1 {
				t.Errorf("the tries of the step are the runs %v", ids)
			}
			if f := checkTree(t, st, acc, s.Run); len(f.heads) != 3 {
				t.Errorf("the tree has %d runs, want 3", len(f.heads))
			}
			if policy != "refund_all" { // what a failed try gave back is not charged later
				wantBalance(t, st, 1000-spent, 0, spent)
			}
		})
	}
}

// A process that dies at any commit loses no try of a child run that goes on, and does nothing
// again that has completed (X104, F01).
func TestX104_ChildGoesOnAfterCrashes(t *testing.T) {
	req := StartRequest{Account: acc, Plan: planOf(t, goesOn, failing(&callCounter{}, 1)...), Recipe: "outer", IdempotencyKey: "k"}
	crashAtEachCommit(t, 6, req, func() (Config, []*action.Action) { return Config{}, failing(&callCounter{}, 1) }, func(crash int, st *memory.Store, _ *Engine, head store.Head) {
		f := checkTree(t, st, acc, head.Run)
		if len(f.heads) != 3 {
			t.Fatalf("crash at commit %d: the tree has %d runs", crash, len(f.heads))
		}
		for run := range f.heads {
			completed := map[string]int{}
			if err := store.EachEvent(t.Context(), st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
				if ev.Kind == journal.EvNodeCompleted {
					completed[journal.StepPath(f.plans[run], ev.Ref())]++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for step, n := range completed {
				if n != 1 {
					t.Errorf("crash at commit %d: step %s of run %s completed %d times", crash, step, run, n)
				}
			}
		}
	})
}

// A harness step by step: the end of an earlier try is ignored; a child run that cannot be read
// any more is replaced; one that was cancelled goes on when the root is retried, and one that
// would get another input does not.
func TestX104_WhatDoesNotGoOn(t *testing.T) {
	recipe := `
name: outer
inputSchema: {type: object, properties: {n: {type: integer}}}
steps:
  - id: a
    recipe: {resume: true, inputs: {n: "{{ input.n }}"}, inline: {name: inner, steps: [{id: x, action: {name: noop}}, {id: y, action: {name: noop}}]}}
    retryPolicy: {maxAttempts: 5, initialDelay: 1s, jitter: 0, retryableErrors: [provider_error]}
`
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, recipe, noop())
	root := h.run(acc, p, map[string]any{"n": int64(1)})
	first := h.children(root)[0]
	fail := func() {
		t.Helper()
		h.runUntilIdle(success(h.takeTask(), `{}`))
		h.runUntilIdle(failure(h.takeTask(), fault.ProviderError))
	}
	last := func(want int) store.Key {
		t.Helper()
		keys := h.children(root)
		if len(keys) != want {
			t.Fatalf("the step has had %d tries, want %d", len(keys), want)
		}
		return keys[want-1]
	}
	fail()
	h.advanceClock(2_000_000)
	if last(2) != first {
		t.Fatal("the second try is another run")
	}
	// What the first try would have said of its end, late: its fence is not that of the second.
	late := &input{kind: inRun, key: root, m: machine.Input{Kind: machine.InChildEnded, Fence: journal.Fence{Gen: 1, Attempt: 1}, End: &machine.ChildEnd{Status: journal.RunCompleted}}}
	h.runUntilIdle(late)
	h.wantStatus(root, "running")

	// It fails again, and is damaged before it is tried once more.
	h.runUntilIdle(failure(h.takeTask(), fault.ProviderError))
	h = h.reopen(st.Crash(0))
	h.c.recovery.quarantined[first] = "damaged"
	h.advanceClock(9_000_000)
	second := last(3)
	if second == first {
		t.Fatal("a child run that cannot be read goes on")
	}

	h.runUntilIdle(request(root, machine.Input{Kind: machine.InCancel}))
	h.finishTasks()
	h.wantStatus(root, "cancelled")
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InRetry}))
	if last(4) != second {
		t.Error("a child run that was cancelled does not go on")
	}
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InCancel}))
	h.finishTasks()
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InEdit, Data: []byte(`{"n":2}`)}))
	if last(5) == second {
		t.Error("a child run goes on with another input")
	}
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, h.st, acc, root.Run)
}

// Texts that the journal writes in another way than the context was captured are the same context:
// the child run goes on after a restart, too.
func TestX104_GoesOnWithTheSameContext(t *testing.T) {
	recipe := `
name: outer
inputSchema: {type: object, properties: {text: {type: string}}}
steps:
  - id: a
    recipe: {resume: true, inherit: [context], inline: {name: inner, steps: [{id: x, action: {name: noop, parameters: {text: "{{ input.text }}"}}}, {id: y, dependsOn: [x], action: {name: noop}}]}}
    retryPolicy: {maxAttempts: 3, initialDelay: 1s, jitter: 0, retryableErrors: [provider_error]}
`
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	root := h.run(acc, planOf(t, recipe, noop()), map[string]any{"text": "a < b & c"})
	h.runUntilIdle(success(h.takeTask(), `{}`))
	h.runUntilIdle(failure(h.takeTask(), fault.ProviderError))
	h = h.reopen(st.Crash(0))
	h.advanceClock(2_000_000)
	h.finishTasks()
	h.wantStatus(root, "completed")
	if tries := h.children(root); len(tries) != 2 || tries[0] != tries[1] {
		t.Errorf("the tries of the step are the runs %v", tries)
	}
}
