// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/terms"
)

// budget.used and budget.remaining are what the run has used, and what it may still spend
// (design 12), in conditions, in templates of actions, and in outputs.
func TestX157_BudgetInExpressions(t *testing.T) {
	const recipe = `
name: r
creditEstimation: {strategy: fixed, fixedCredits: 5, maxCredits: 20}
steps:
  - {id: before, transform: {expression: budget}, outputBinding: first}
  - {id: a, action: {name: paid}}
  - {id: over, when: budget.remaining > 100, transform: {expression: "true"}}
  - {id: b, action: {name: paid, parameters: {note: "{{ budget.used }} of {{ budget.used + budget.remaining }}"}}}
outputs: {first: first, used: budget.used, left: budget.remaining}
`
	for account, want := range map[string]string{
		acc:          `{"first":{"remaining":20,"used":0},"left":12,"used":8}`,
		LocalAccount: `{"first":{"remaining":1000000000000000,"used":0},"left":1000000000000000,"used":8}`,
	} {
		st := memory.New(memory.Options{})
		a := costing(4, nil)
		e := openEngine(t, st, Config{Accounts: terms.Default}, a)
		if account == acc {
			grant(t, e, "first", 100, ledger.Terms{})
		}
		s, err := e.Start(t.Context(), StartRequest{Account: account, Plan: planOf(t, recipe, a), Recipe: "r"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Wait(t.Context(), account, s.Run); err != nil {
			t.Fatal(err)
		}
		got := ""
		for ev, err := range e.Feed().Events(t.Context(), store.Key{Account: account, Run: s.Run}, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == journal.EvRunCompleted {
				got = string(ev.Data)
			}
		}
		if got != want {
			t.Errorf("account %s: the outputs are %s, want %s", account, got, want)
		}
		ran := countPrefix(trace(t, st, planOf(t, recipe, a), account, s.Run), "node.completed over")
		if unlimited := account == LocalAccount; (ran == 1) != unlimited {
			t.Errorf("account %s: the step with a condition ran %d times", account, ran)
		}
	}
}
