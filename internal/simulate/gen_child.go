// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/json"
	"math/rand/v2"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/sample"
)

// nests reports whether the steps of recipe n run other recipes.
func nests(n uint64) bool { return n%7 == 2 } // none of the seeds kept from before is among them

// A childGenerator replaces some steps of a recipe by steps that run another one, inline or, where
// recipes are registered, by its name. It has random numbers of its own, so that other
// recipes stay as they were.
type childGenerator struct {
	dice       *rand.Rand
	registered library
	inherits   bool // child runs may inherit the context of the recipe, which has workflow.v
	names      bool // expressions give the names of registered recipes
}

func nest(n uint64, r *recipe.Recipe, registered library) {
	if !nests(n) && registered == nil {
		return
	}
	g := &childGenerator{dice: rand.New(rand.NewPCG(n, 0x6368696c64)), registered: registered, inherits: inherits(n), names: names(n)}
	if g.steps(r.Steps, 1+int(n/7%2)); g.inherits {
		r.Providers = map[string]map[string]json.RawMessage{"work": {"tone": json.RawMessage(`"kind"`)}}
		r.FailurePolicy = "drain" // so that the later steps begin whatever happens to the others
		r.Steps = append(r.Steps, g.later()...)
	}
}

// inherits reports whether child runs of recipe n inherit the context of their parents. None of the seeds kept
// from before is among them.
func inherits(n uint64) bool { return n%14 == 11 }

// names reports whether expressions say which recipes steps of recipe n run. None of the seeds kept from before
// is among them.
func names(n uint64) bool { return n%28 == 27 }

func (g *childGenerator) steps(list []*recipe.Step, levels int) {
	for _, st := range list {
		g.step(st, levels)
	}
}

func (g *childGenerator) step(st *recipe.Step, levels int) {
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
func (g *childGenerator) replace(st *recipe.Step, levels int) {
	child := &recipe.Child{Inputs: map[string]json.RawMessage{
		"zero": json.RawMessage("0"), "list": json.RawMessage(`[1,"two"]`), "when": json.RawMessage(`"` + drawnWhen + `"`),
	}}
	if g.registered != nil && g.dice.IntN(3) > 0 {
		if child.Ref = pick(g.dice, g.registered.references()...); g.names {
			name, version, versioned := strings.Cut(child.Ref, "@")
			// Users may edit the input, and then it is another one.
			child.Ref = "{{ input.zero == 0 ? '" + name + "' : 'part' }}"
			if versioned {
				child.Ref += "@" + version
			}
		}
	} else {
		child.Inline = smallRecipe(g.dice)
		g.inline(child, levels)
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

// inline draws what a recipe within another one inherits, and the recipes within it.
func (g *childGenerator) inline(child *recipe.Child, levels int) {
	below := &childGenerator{dice: g.dice, registered: g.registered, inherits: g.inherits && g.dice.IntN(2) == 0, names: g.names}
	if levels > 1 {
		below.steps(child.Inline.Steps, levels-1)
	}
	if !below.inherits {
		return
	}
	child.Inherit = pick(g.dice, []string{recipe.InheritContext}, []string{recipe.InheritContext, recipe.InheritProviders})
	child.Inline.Steps = append(child.Inline.Steps, &recipe.Step{
		ID: "reads", Transform: &recipe.Transform{Expression: pick(g.dice, "[workflow.v, input.file]", "[workflow.v]", "[has(input.file), workflow.v]")},
	})
}

// later draws steps that run recipes some time after their run has begun, so that the process has restarted or
// newer versions are registered by then. What they inherit is of every context.
func (g *childGenerator) later() []*recipe.Step {
	after := func(ids ...string) *[]string { ids = append([]string{}, ids...); return &ids }
	reads := func(of ...string) *recipe.Child {
		in := smallRecipe(g.dice)
		in.Steps = append(in.Steps, &recipe.Step{
			ID: "reads", DependsOn: after(), Action: &recipe.Action{Name: "work"},
			Common: recipe.Common{InputBindings: map[string]recipe.Binding{"q": {Expression: "[" + strings.Join(of, ", ") + "]"}}},
		})
		return &recipe.Child{Inline: in, Inherit: []string{recipe.InheritContext}}
	}
	registered := func() *recipe.Child { return &recipe.Child{Ref: pick(g.dice, "part", "part@1", "part@2", "outer")} }
	deep := reads("workflow.v", "early.a", "input.list")
	deep.Inline.Steps = append(deep.Inline.Steps, &recipe.Step{ID: "below", DependsOn: after(), Recipe: reads("early", "input.zero", "steps.first.output")})
	tolerant := recipe.Common{ContinueOnError: true}
	return []*recipe.Step{
		{ID: "first", DependsOn: after(), Transform: &recipe.Transform{Expression: "{'a': [1, 2]}"}, Common: recipe.Common{OutputBinding: "early"}},
		{ID: "pause", DependsOn: after("first"), Wait: &recipe.Wait{Duration: pick[recipe.Duration](g.dice, "1s", "5s", "PT3M")}},
		{ID: "late1", DependsOn: after("pause"), Common: tolerant, Recipe: registered()},
		{ID: "late2", DependsOn: after("pause"), Common: tolerant, Recipe: deep},
		{ID: "late3", DependsOn: after("pause"), Common: tolerant, Loop: &recipe.Loop{
			Over: "early.a", As: "turn", MaxConcurrency: int64(1 + g.dice.IntN(2)),
			Steps: []*recipe.Step{{ID: "each", Recipe: reads("turn", "steps.first.status")}, {ID: "more", Recipe: registered()}},
		}},
		{ID: "last", DependsOn: after("late1", "late2", "late3"), Action: &recipe.Action{Name: "work", Lens: &recipe.Lens{ID: "ask", Version: pick(g.dice, "", "1")}}, Common: recipe.Common{
			InputBindings: map[string]recipe.Binding{"q": {Expression: "[early, workflow.v, steps.first.result]"}, "list": {Expression: "input.list"}},
		}},
	}
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
