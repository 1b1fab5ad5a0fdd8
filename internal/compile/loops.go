// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/plan"
)

func (c *compiler) loopStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	loop, at := n.src.Loop, n.ptr+"/loop"
	st.As, st.Index = loop.As, loop.Index
	if st.As == "" && loop.Over != "" {
		st.As = "item"
	}
	if st.Index == "" {
		st.Index = "index"
	}
	for _, v := range []struct{ name, field string }{{st.As, "as"}, {st.Index, "index"}} {
		where := c.valueAt(at + "/" + v.field)
		if v.name == "" {
			continue
		}
		if !expressions.IsName(v.name) {
			c.fail(fault.RecipeInvalid, "bad-name", where, fmt.Sprintf("%q cannot be used as a name in expressions", v.name),
				"want letters, digits and underscores, not starting with a digit, and no keyword or type of CEL")
		} else if isReserved(v.name) && v.name != "item" {
			c.fail(fault.RecipeInvalid, "reserved-name", where, fmt.Sprintf("%q is a reserved name and cannot be a loop variable", v.name), "")
		}
	}
	if st.As == st.Index {
		c.fail(fault.RecipeInvalid, "bad-name", c.valueAt(at), fmt.Sprintf("item and index of the loop are both called %q", st.As), "")
	}
	switch {
	case loop.MaxConcurrency < 0 || loop.MaxConcurrency > math.MaxInt32:
		c.fail(fault.RecipeInvalid, "bad-concurrency", c.valueAt(at+"/maxConcurrency"),
			fmt.Sprintf("maxConcurrency is %d; want at least 1", loop.MaxConcurrency), "")
	default:
		st.Concurrency = int32(max(1, loop.MaxConcurrency))
	}
	st.Strategy = c.strategy(loop.FailureStrategy, at)
	c.rounds(i)
	if len(loop.Steps) == 0 {
		c.fail(fault.RecipeInvalid, "no-steps", c.valueAt(at), "the loop has no steps", `give "steps" at least one step`)
	}
}

// rounds compiles what a loop decides between its iterations.
func (c *compiler) rounds(i int32) {
	st, loop, at := &c.p.Steps[i], c.nodes[i].src.Loop, c.nodes[i].ptr+"/loop"
	bad := func(where location, msg, hint string) { c.fail(fault.RecipeInvalid, "bad-loop", where, msg, hint) }
	conditional := loop.While != "" || loop.Until != ""
	switch {
	case loop.Over == "" && !conditional:
		c.fail(fault.RecipeInvalid, "missing-field", c.valueAt(at), `a loop needs one of the fields "over", "while" or "until"`, "")
	case loop.Over == "" && loop.As != "":
		bad(c.keyAt(at+"/as"), `"as" names an item, and a loop without "over" has none`, `name what it carries on in "accumulate", or remove this`)
	case loop.Over == "" && loop.MaxIterations == 0:
		c.fail(fault.RecipeInvalid, "missing-field", c.valueAt(at), `a loop without "over" needs the field "maxIterations"`, "it fails with ITERATION_LIMIT when it has run so many and its condition asks for another")
	case loop.Over != "" && loop.While != "":
		bad(c.keyAt(at+"/while"), `a loop has either "over" or "while"`, `to stop before the last item use "until"`)
	case loop.Over != "" && loop.MaxIterations != 0:
		bad(c.keyAt(at+"/maxIterations"), `a loop with "over" runs at most once for each item`, `remove "maxIterations"`)
	}
	if most := c.p.Limits.LoopItems; loop.MaxIterations < 0 || loop.MaxIterations > most {
		bad(c.valueAt(at+"/maxIterations"), fmt.Sprintf("maxIterations is %d; want 1 to %d", loop.MaxIterations, most), "limits.max_loop_items sets how many iterations a loop may have")
	}
	if !conditional && loop.Accumulate == nil {
		return
	}
	st.Rounds = &plan.Rounds{Max: loop.MaxIterations}
	if loop.MaxConcurrency > 1 {
		bad(c.valueAt(at+"/maxConcurrency"), fmt.Sprintf("the loop decides something after each iteration, so they run one at a time; maxConcurrency is %d", loop.MaxConcurrency), `remove "maxConcurrency"`)
	}
	if acc := loop.Accumulate; acc != nil {
		st.Rounds.As = acc.As
		c.accumulator(i, acc.As, at+"/accumulate/as")
		st.Rounds.Initial = c.canonical(acc.Initial, at+"/accumulate/initial")
		if len(acc.Initial) == 0 {
			st.Rounds.Initial = json.RawMessage("null")
		}
	}
}

// accumulator checks the name of what a loop accumulates.
func (c *compiler) accumulator(i int32, name, at string) {
	st, where := &c.p.Steps[i], c.valueAt(at)
	switch {
	case !expressions.IsName(name):
		c.fail(fault.RecipeInvalid, "bad-name", where, fmt.Sprintf("%q cannot be used as a name in expressions", name),
			"want letters, digits and underscores, not starting with a digit, and no keyword or type of CEL")
	case isReserved(name):
		c.fail(fault.RecipeInvalid, "reserved-name", where, fmt.Sprintf("%q is a reserved name and cannot be accumulated", name), "choose another name")
	case name == st.As || name == st.Index:
		c.fail(fault.RecipeInvalid, "bad-name", where, fmt.Sprintf("%q is also the item or the index of the loop", name), "choose another name")
	}
}

// lintAccumulator warns of an accumulated value whose name hides another one.
func (c *compiler) lintAccumulator(i int32) {
	st := &c.p.Steps[i]
	if !st.Rounds.Accumulates() {
		return
	}
	name, around := st.Rounds.As, site{step: i, graph: st.Graph}
	if name != st.Bind && slices.Contains(c.visibleBindings(around), name) {
		c.warn("hides-name", c.valueAt(c.nodes[i].ptr+"/loop/accumulate/as"), fmt.Sprintf("inside the loop %q is what it accumulates, and hides what has that name around it", name), "choose another name")
	}
}

// resolveLoop compiles the expressions of a loop. What is evaluated after an iteration sees its steps.
func (c *compiler) resolveLoop(i int32, here func(ptr, want string) site) {
	st, loop := &c.p.Steps[i], c.nodes[i].src.Loop
	if loop.Over != "" {
		st.Expr = c.cel(here("/loop/over", "list|file"), loop.Over)
	}
	r := st.Rounds
	if r == nil {
		return
	}
	inside := func(ptr, want string) site {
		at := here(ptr, want)
		at.graph = st.Body
		return at
	}
	if loop.While != "" {
		at := inside("/loop/while", "bool")
		at.ahead = true
		r.While = c.cel(at, loop.While)
	}
	if loop.Until != "" {
		r.Until = c.cel(inside("/loop/until", "bool"), loop.Until)
	}
	if loop.Accumulate != nil {
		if r.Initial != nil {
			r.InitialRef = c.tree(here("/loop/accumulate/initial", ""), r.Initial)
		}
		r.Next = c.cel(inside("/loop/accumulate/expression", ""), loop.Accumulate.Expression)
	}
}
