// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// resumedTree has a child run, and one inside it, that fail and go on: twice in the first generation
// of the root, which fails then, and in the second, in which only LAST is paid for, if it is there.
const resumedTree = `
name: resumed
creditEstimation: {strategy: fixed, fixedCredits: 10, maxCredits: 300}
steps:
  - id: a
    retryPolicy: {maxAttempts: 3, initialDelay: 1ms, jitter: 0}
    recipe:
      resume: true
      inline:
        name: middle
        credit_policy: POLICY
        creditEstimation: {strategy: fixed, fixedCredits: 7, maxCredits: 100}
        steps:
          - {id: p, action: {name: paid}}
          - {id: f, action: {name: twice}, dependsOn: [p]}
          - {id: q, action: {name: paid}, dependsOn: [f]}
          - id: deep
            dependsOn: [q]
            recipe:
              resume: true
              inline:
                name: deepest
                credit_policy: POLICY
                creditEstimation: {strategy: fixed, fixedCredits: 6, maxCredits: 100}
                steps:
                  - {id: x, action: {name: paid}}
                  - {id: g, action: {name: once}, dependsOn: [x]}
          LAST
`

// resumed runs the tree in a new store, and copies its books.
func resumed(t *testing.T, policy, last, account string) *copied {
	t.Helper()
	var mu sync.Mutex
	calls := map[string]int{}
	failing := func(name string, fails int) *action.Action {
		return &action.Action{Name: name, Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			if calls[name]++; calls[name] <= fails {
				return action.Result{}, fault.New(fault.ProviderError, "not yet")
			}
			return action.Result{}, nil
		}}
	}
	paid := &action.Action{Name: "paid", Version: "1.0.0", Cost: 5, Run: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }}
	st := memory.New(memory.Options{})
	f := openEngine(t, st, catalogue.New(paid, failing("twice", 2), failing("once", 1)))
	f.retry(account, strings.NewReplacer("POLICY", policy, "LAST", last).Replace(resumedTree))
	_, err := f.engine.Stop(t.Context())
	must(t, err)
	return copyOf(t, st, account)
}

// What the attempts of child runs that went on have cost agrees with what their parents were
// charged, whatever the policy, and a difference is found in each of them (X104).
func TestI11_ReconcileOfResumedTrees(t *testing.T) {
	const last = "- {id: z, action: {name: paid}, dependsOn: [deep]}"
	for name, tt := range map[string]struct {
		policy, last, account string
		runs, spent           int64
	}{
		"refund_unused":          {"refund_unused", "", "acme", 1, 15},
		"refund_all":             {"refund_all", "", "acme", 1, 0},
		"no_refund":              {"no_refund", "", "acme", 1, 15},
		"free":                   {"refund_unused", "", "free", 0, 0},
		"refund_unused paid for": {"refund_unused", last, "acme", 2, 20},
		"refund_all paid for":    {"refund_all", last, "acme", 2, 5},
		"no_refund paid for":     {"no_refund", last, "acme", 2, 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := resumed(t, tt.policy, tt.last, tt.account)
			heads := map[string]*store.Head{}
			for _, h := range c.heads {
				heads[h.Recipe] = h
			}
			if len(c.heads) != 3 || len(heads) != 3 {
				t.Fatalf("the runs are of %v, want three", heads)
			}
			if r := c.prove(); len(r.Findings) > 0 || r.Runs != tt.runs || r.Children != 2 || r.Spent != tt.spent {
				t.Errorf("%+v", r)
			}
			// Four attempts in two generations, and once more as the parent of the other one.
			if n, _ := c.reads.Load(heads["middle"].Run); n.(*atomic.Int64).Load() > 3 {
				t.Errorf("the journal of a child run was read %d times", n.(*atomic.Int64).Load())
			}
			tries, events := 0, c.events[heads["tree"].Run]
			for i := range events {
				ev := &events[i]
				if ev.Kind != journal.EvChildEnded {
					continue
				}
				tries++
				ev.N++
				if got := c.prove().Findings; !slices.ContainsFunc(got, func(f reconcile.Finding) bool {
					// Where the account pays, the journal of the root contradicts itself already.
					return f.Run == heads["middle"].Run && strings.Contains(f.Found, "is charged") || tt.account != "free" && strings.Contains(f.Found, "I11")
				}) {
					t.Errorf("another cost of try %d is not found: %+v", tries, got)
				}
				ev.N--
			}
			if tries != 4 {
				t.Errorf("the step had %d tries, want 4", tries)
			}
			for _, recipe := range []string{"middle", "deepest"} {
				h := heads[recipe]
				h.Used++
				if got := c.prove().Findings; len(got) != 1 || got[0].Run != h.Run || !strings.Contains(got[0].Found, "the list of runs says") {
					t.Errorf("what the list says that the run of %s used is not compared: %+v", recipe, got)
				}
				h.Used--
			}
		})
	}
}
