// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/json"
	"math/rand/v2"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/sample"
)

// nests reports whether the steps of recipe n run other recipes.
func nests(n uint64) bool { return n%7 == 2 } // none of the seeds kept from before is among them

// A nester replaces some steps of a recipe by steps that run another one, inline or, where
// recipes are registered, by its name. It has random numbers of its own, so that other
// recipes stay as they were.
type nester struct {
	dice       *rand.Rand
	registered library
}

func nest(n uint64, r *recipe.Recipe, registered library) {
	if nests(n) || registered != nil {
		(&nester{rand.New(rand.NewPCG(n, 0x6368696c64)), registered}).steps(r.Steps, 1+int(n/7%2))
	}
}

func (g *nester) steps(list []*recipe.Step, levels int) {
	for _, st := range list {
		g.step(st, levels)
	}
}

func (g *nester) step(st *recipe.Step, levels int) {
	if st.Condition != nil {
		g.steps(st.Condition.Then, levels)
		g.steps(st.Condition.Else, levels)
	}
	if st.Parallel != nil {
		for _, branch := range st.Parallel.Branches {
			g.steps(branch, levels)
		}
	}
	if st.Loop != nil {
		g.steps(st.Loop.Steps, levels)
	}
	if st.OnError != nil && st.OnError.FallbackStep != nil {
		g.step(st.OnError.FallbackStep, levels)
	}
	if st.Action != nil && st.Action.Name != "sleep" && g.dice.IntN(3) == 0 {
		g.replace(st, levels)
	}
}

// replace makes an action step run a recipe.
func (g *nester) replace(st *recipe.Step, levels int) {
	child := &recipe.Child{Inputs: map[string]json.RawMessage{
		"zero": json.RawMessage("0"), "list": json.RawMessage(`[1,"two"]`), "when": json.RawMessage(`"` + drawnWhen + `"`),
	}}
	if g.registered != nil && g.dice.IntN(3) > 0 {
		child.Ref = pick(g.dice, g.registered.references()...)
	} else {
		child.Inline = smallRecipe(g.dice)
		if levels > 1 {
			g.steps(child.Inline.Steps, levels-1)
		}
	}
	if g.dice.IntN(6) == 0 {
		child.Limits = &recipe.ChildLimits{MaxTotalSteps: int64(1 + g.dice.IntN(20))}
	}
	if g.dice.IntN(6) == 0 {
		child.MaxCredits = int64(1 + g.dice.IntN(12))
	}
	if child.Resume = g.dice.IntN(2) == 0; child.Resume && st.RetryPolicy == nil {
		st.RetryPolicy = &recipe.RetryPolicy{MaxAttempts: 3, InitialDelay: "1s"}
	}
	st.Action, st.Recipe, st.Contracts, st.Moderation, st.Cache = nil, child, nil, nil, nil
}

// smallRecipe draws a recipe for a child run.
func smallRecipe(dice *rand.Rand) *recipe.Recipe {
	r := sample.Recipe(dice, sample.Shape{
		Steps: 1 + dice.IntN(6), Depth: dice.IntN(2), Width: 1 + dice.IntN(3),
		Actions: []string{"work", "work", "once", "slotted", "provided"}, Undo: "undo", Sleep: "sleep", Lens: "ask", Signals: drawnSignals,
	})
	r.CreditPolicy = pick(dice, "refund_unused", "refund_unused", "refund_all", "no_refund")
	return r
}
