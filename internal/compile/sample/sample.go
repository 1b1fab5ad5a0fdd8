// SPDX-License-Identifier: Apache-2.0

// Package sample generates random recipes for tests: every kind of step and every policy,
// nested, named and joined at random.
//
// It decides only what a recipe looks like. The recipes compile; many of them fail at run
// time on purpose, so that tests can observe failures. The package never compiles or runs
// a recipe, and it has no randomness of its own: the same Dice give the same recipe, so a
// seed identifies it.
package sample

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

// Dice is a source of randomness, such as a *rand.Rand of math/rand/v2. IntN returns a
// number from 0 to n-1.
type Dice interface{ IntN(n int) int }

// A Shape bounds what is generated.
//
// The recipes read input.zero (the number 0), input.list (a list), input.file
// (a file of a list), input.when (a time, RFC 3339) and input.gone (always absent).
type Shape struct {
	Steps int // at least 1; scopes may exceed it by a few
	Depth int // of nested scopes; 0 = no step owns others
	Width int // maximum number of steps of a scope; 0 = 5; a value above 5 applies only to the root
	// Actions are the names that action steps call; a name that is listed twice is
	// chosen twice as often. Undo is the action that compensations call. Sleep is an
	// action that waits: its Waits field (see action.Action) is "duration". "" = none.
	Actions     []string
	Undo, Sleep string
	// Lens is the id of a lens with the version "1", whose template has the placeholders q and list. "" = none.
	Lens string
	// Signals are the names of the signals that steps wait for.
	Signals []string
	// Approvals lets steps wait for approvals, which needs the action for that.
	Approvals bool
	// Rebind is how often, in percent, a step binds the same name as the step before
	// it. With 0 no random number is used for it.
	Rebind int
	// Recipes is how often, in percent, a step that could be an action runs a recipe of
	// its own. With 0 no random number is used for it.
	Recipes int
	// Written lets an expression say which recipe such a step runs, as a text.
	Written bool
}

// A generator generates one recipe.
type generator struct {
	dice  Dice
	shape Shape
	odds  odds
	order string // of the recipe
	n     int    // ids given
	left  int    // steps still to generate
	// inScope are the names that expressions may use here: bindings of steps above,
	// loop variables, other steps. Some have no value at run time.
	inScope []string
}

// odds are probabilities in percent, chosen once per recipe: what is rare in one recipe
// is common in another, so that combinations occur that fixed odds would make rare.
type odds struct {
	broken                                         int // expressions that fail, failing contracts
	fail                                           int // fail steps
	bind, seen, depends                            int
	when, tolerant, handled                        int
	total, timeout, retry, undo, contracts, params int
	gate                                           int
	nest                                           int // steps that own others
	wait, shortTimeout                             int
}

// Recipe generates a recipe.
func Recipe(dice Dice, shape Shape) *recipe.Recipe {
	if shape.Width == 0 {
		shape.Width = 5
	}
	g := &generator{dice: dice, shape: shape, left: max(shape.Steps, 1)}
	g.odds = odds{
		broken: g.odd(0, 0, 0, 2, 10), fail: g.odd(0, 0, 1, 6),
		bind: g.odd(20, 60, 90), seen: g.odd(0, 20, 60), depends: g.odd(10, 50, 90),
		when: g.odd(0, 10, 30), tolerant: g.odd(0, 15, 50), handled: g.odd(0, 15, 50),
		total: g.odd(0, 10, 25), timeout: g.odd(0, 40, 80), retry: g.odd(0, 40, 80, 80), undo: g.odd(0, 20, 50),
		contracts: g.odd(0, 10), gate: g.odd(0, 0, 0, 40), params: g.odd(20, 50), nest: g.odd(10, 35, 60), wait: g.odd(0, 12, 30), shortTimeout: g.odd(0, 0, 8),
	}
	r := &recipe.Recipe{
		Head: recipe.Head{
			Name: "drawn",
		},
		Settings: recipe.Settings{
			TTL:               recipe.Duration(g.pick("10h", "10h", "10h", "PT1H", "10m")),
			Order:             g.pick("sequence", "none", "none"),
			FailurePolicy:     g.pick("fail_fast", "drain"),
			OnUpstreamFailure: g.pick("skip", "fail"),
			ResultRule:        g.pick("strict", "leaves"),
			Scheduling:        g.pick("eager", "eager", "waves"),
		},
	}
	g.order = r.Order
	r.Steps = g.scope(0)
	g.results(r)
	if g.shape.Recipes > 0 { // for those that inherit it
		r.Values = map[string]json.RawMessage{"v": json.RawMessage(strconv.Itoa(g.n))}
	}
	if g.chance(10) { // tight: some runs exceed it inside a loop
		r.Limits = &recipe.Limits{MaxTotalSteps: int64(3*g.n + g.dice.IntN(20) + 5), MaxLoopItems: 3}
	}
	return r
}

func (g *generator) chance(percent int) bool { return percent > 0 && g.dice.IntN(100) < percent }

func (g *generator) pick(of ...string) string { return of[g.dice.IntN(len(of))] }

func (g *generator) odd(of ...int) int { return of[g.dice.IntN(len(of))] }

// results generates the outputs.
func (g *generator) results(r *recipe.Recipe) {
	if !g.chance(50) {
		if g.n%3 == 0 { // no die, so that seeds draw what they have always drawn
			r.Result = "steps"
		}
		return
	}
	r.Outputs = map[string]string{"r": g.value()}
	switch {
	case g.chance(g.odds.broken):
		r.OutputSchema = []byte(`{"type":"object","required":["more"],"properties":{"more":{"type":"string"}}}`)
	case g.chance(g.odds.contracts):
		r.OutputSchema = []byte(`{"type":"object","required":["r"]}`)
	}
}

// scope generates the steps of one scope.
func (g *generator) scope(depth int) []*recipe.Step {
	n := 1 + g.dice.IntN(min(g.shape.Width, 5))
	if depth == 0 && g.shape.Width > 5 {
		n = g.shape.Width // only the root, so that the width is reached
	}
	var steps []*recipe.Step
	for ; n > 0 && (g.left > 0 || len(steps) == 0); n-- {
		st := g.step(depth)
		if g.chance(g.odds.bind) && st.Fail == nil {
			st.OutputBinding = "b" + st.ID[1:]
			if st.Recipe == nil { // its output is an object of known fields, which not every drawn expression may hold
				g.inScope = append(g.inScope, st.OutputBinding)
			}
		}
		if st.Recipe == nil && g.chance(g.odds.seen) {
			g.inScope = append(g.inScope, "steps."+st.ID+".status", "steps."+st.ID+".output")
		}
		if len(steps) > 0 && g.chance(g.odds.depends) {
			st.DependsOn = g.dependencies(steps)
		}
		if len(steps) > 0 {
			g.rebind(st, steps[len(steps)-1])
		}
		steps = append(steps, st)
	}
	return steps
}

// rebind decides whether a step binds the same name as the one before it. Two steps may
// share a name when one certainly runs after the other.
func (g *generator) rebind(st, before *recipe.Step) {
	after := st.DependsOn == nil && g.order == "sequence" || st.DependsOn != nil && slices.Contains(*st.DependsOn, before.ID)
	if st.Recipe != nil || before.Recipe != nil || st.OutputBinding == "" || before.OutputBinding == "" || !after || !g.chance(g.shape.Rebind) {
		return
	}
	st.OutputBinding = before.OutputBinding
	g.inScope = slices.DeleteFunc(slices.Clone(g.inScope), func(name string) bool { return name == "b"+st.ID[1:] })
}

// dependencies chooses which of the preceding steps a step waits for: few, none, or all
// of them, which is the join of a wide scope.
func (g *generator) dependencies(before []*recipe.Step) *[]string {
	deps := []string{}
	percent := g.odd(0, 10, 40, 100)
	for _, st := range before[max(0, len(before)-g.odd(6, 6, 250)):] {
		if g.chance(percent) {
			deps = append(deps, st.ID)
		}
	}
	return &deps
}

// scopeInside generates a scope that can use the names in scope here, and whose own
// names are not visible outside it.
func (g *generator) scopeInside(depth int, names ...string) []*recipe.Step {
	outside := g.inScope[:len(g.inScope):len(g.inScope)]
	g.inScope = append(g.inScope, names...)
	steps := g.scope(depth + 1)
	g.inScope = outside
	return steps
}

// id returns the id of the next step.
func (g *generator) id() string {
	g.n++
	g.left--
	return "s" + strconv.Itoa(g.n)
}
