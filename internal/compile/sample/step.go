// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/json"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

// step generates a step of any kind, with the fields that all kinds share.
func (g *generator) step(depth int) *recipe.Step {
	st := &recipe.Step{ID: g.id()}
	if g.chance(g.odds.when) {
		st.When = g.truth()
	}
	st.ContinueOnError = g.chance(g.odds.tolerant)
	if g.chance(g.odds.tolerant) {
		st.OnParentFailure = g.pick("propagate", "skip", "substitute_default")
	}
	if g.chance(g.odds.total) {
		st.TotalTimeout = recipe.Duration(g.pick("31s", "45s", "2m", "PT10M"))
	}
	switch {
	case depth < g.shape.Depth && g.left > 0 && g.chance(g.odds.nest):
		g.owner(st, depth)
	case g.chance(g.odds.fail):
		st.Fail = &recipe.Fail{Code: g.pick("MINE", "", "TOO_SOON"), Message: g.pick("on purpose", "no, {{ input.zero }}")}
		return st
	case g.chance(g.odds.wait):
		g.wait(st)
	case g.chance(g.odds.shortTimeout):
		g.shortTimeout(st, depth)
		return st
	case g.chance(g.shape.Recipes):
		g.recipe(st)
	case g.chance(25):
		st.Transform = &recipe.Transform{Expression: g.value()}
		if g.n%4 == 2 { // no die; see cache
			st.Transform = &recipe.Transform{Value: json.RawMessage(`["{{ ` + st.Transform.Expression + ` }}", 1]`)}
		}
	default:
		g.action(st)
	}
	if st.OnError == nil && g.chance(g.odds.handled) {
		g.handle(st, depth)
	}
	if g.shape.Undo != "" && g.chance(g.odds.undo) {
		g.compensate(st)
		st.Cache = nil // a step has one or the other
	}
	return st
}

// owner generates a step that owns other steps.
func (g *generator) owner(st *recipe.Step, depth int) {
	switch g.dice.IntN(3) {
	case 0:
		st.Condition = &recipe.Condition{Expression: g.truth(), Then: g.scopeInside(depth)}
		if g.chance(50) {
			st.Condition.Else = g.scopeInside(depth)
		}
	case 1:
		st.Parallel = &recipe.Parallel{
			WaitFor:         g.pick("all", "any", "first_success"),
			FailureStrategy: g.pick("fail_fast", "continue", "ignore"),
		}
		for n := 1 + g.dice.IntN(g.odd(3, 3, 6)); n > 0; n-- {
			st.Parallel.Branches = append(st.Parallel.Branches, g.scopeInside(depth))
		}
	default:
		as := "it" + st.ID[1:]
		st.Loop = &recipe.Loop{
			As: as, Index: "ix" + as,
			Over:            g.list(),
			MaxConcurrency:  int64(1 + g.dice.IntN(4)),
			FailureStrategy: g.pick("fail_fast", "continue", "ignore"),
		}
		g.rounds(st.Loop, "ac"+st.ID[1:])
		st.Loop.Steps = g.scopeInside(depth, st.Loop.Names()...)
	}
}

// rounds gives some loops a condition, or a value that they accumulate. It draws nothing: other recipes stay as
// they were.
func (g *generator) rounds(l *recipe.Loop, name string) {
	kind := g.n % 8
	if kind > 4 {
		return
	}
	l.MaxConcurrency = 0
	if kind == 0 || kind == 2 || kind == 4 {
		l.Accumulate = &recipe.Accumulate{As: name, Initial: json.RawMessage(`["{{ input.zero }}"]`), Expression: name + " + [" + l.Index + "]"}
	}
	switch kind {
	case 1:
		l.Until = l.Index + " >= 1"
	case 2:
		l.Over, l.As, l.While, l.MaxIterations = "", "", "size("+name+") < 3", 3
	case 3:
		l.Over, l.As, l.Until, l.MaxIterations = "", "", l.Index+" >= "+string(rune('0'+g.n/8%3)), 2
	case 4:
		if g.n%24 == 4 {
			l.Accumulate.Expression = name + " + [input.gone]"
		}
	}
}

func (g *generator) wait(st *recipe.Step) {
	switch k := g.dice.IntN(5); {
	case g.shape.Approvals && g.chance(20):
		g.approval(st)
	case k < 2 && len(g.shape.Signals) > 0:
		st.Wait = &recipe.Wait{Signal: g.pick(g.shape.Signals...), Timeout: recipe.Duration(g.pick("", "5s", "1m"))}
		if st.Wait.Timeout == "5s" && g.chance(50) {
			st.OnError = &recipe.OnError{Strategy: "skip"}
		}
	case k == 2:
		st.Wait = &recipe.Wait{Until: g.pick("input.when", "timestamp(input.when) + duration('30s')", "timestamp('2020-01-01T00:00:00Z')")}
	case k == 3 && g.shape.Sleep != "":
		st.Action = &recipe.Action{Name: g.shape.Sleep, Parameters: map[string]json.RawMessage{"duration": text(g.pick("2s", "1m", "{{ '3s' }}"))}}
	default:
		st.Wait = &recipe.Wait{Duration: recipe.Duration(g.pick("1ms", "5s", "PT3M"))}
	}
}

func (g *generator) approval(st *recipe.Step) {
	a := &recipe.Approval{Title: g.pick("Go on?", "{{ input.when }}"), Reject: g.pick("", "continue", "fail")}
	st.Wait = &recipe.Wait{Approval: a, Timeout: recipe.Duration(g.pick("", "5s", "2h"))}
	if g.chance(50) {
		a.Text, a.Value = "at {{ input.when }}", text("{{ input.list }}")
		a.Approvers, a.Remind = []string{"ana", "role:owner"}, "1m"
	}
	if g.chance(50) {
		a.Form = []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	}
	if st.Wait.Timeout != "" && g.chance(50) {
		st.Wait.Default = []byte(`{"decision":"approved"}`)
	}
}

func (g *generator) action(st *recipe.Step) {
	st.Action = &recipe.Action{Name: g.pick(g.shape.Actions...)}
	if g.chance(g.odds.params) {
		st.Action.Parameters = map[string]json.RawMessage{"p": text(g.template())}
	}
	if g.chance(g.odds.params) {
		st.InputBindings = map[string]recipe.Binding{"q": g.binding()}
	}
	if g.shape.Lens != "" && g.n%4 == 1 && st.InputBindings != nil { // no die; see cache
		st.Action.Lens = &recipe.Lens{ID: g.shape.Lens, Version: [...]string{"", "1"}[g.n%3%2]}
	}
	if g.chance(g.odds.retry) {
		st.RetryPolicy = g.retry()
	}
	if g.chance(g.odds.timeout) {
		st.Timeout = recipe.Duration(g.pick("5s", "30s"))
	}
	if g.chance(g.odds.contracts) {
		st.Contracts = &recipe.Contracts{Input: []byte(`{"type":"object"}`), Output: []byte(g.pick(`{"type":"object"}`, `{}`))}
	}
	if g.chance(g.odds.gate) {
		st.Moderation = &recipe.Moderation{Phase: g.pick("input", "output", "both", "both"), Stream: g.pick("", "hold")}
		if g.chance(30) {
			st.Moderation.By = []string{"words"}
		}
		if g.chance(40) {
			st.Moderation.Review = &recipe.Review{By: []string{"ann"}, Timeout: recipe.Duration(g.pick("", "5s", "1h")), Remind: recipe.Duration(g.pick("", "1m"))}
		}
	}
	g.cache(st)
}

// binding generates the value of an input, which some steps merge of several.
func (g *generator) binding() recipe.Binding {
	b := recipe.Binding{Expression: g.value()}
	last := len(g.inScope) - 1
	if g.n%3 != 0 || last < 0 { // no die; see cache
		return b
	}
	b.From, b.Expression = []*recipe.Part{{Expression: b.Expression}, {Expression: "[" + g.inScope[last] + "]"}, {Expression: "input.list", Label: "list"}}, ""
	b.Merge = append(recipe.Merges, "")[g.n/3%5]
	return b
}

// cache lets some steps use earlier results. It draws nothing, so that recipes are otherwise as
// they were before there was a cache.
func (g *generator) cache(st *recipe.Step) {
	if g.odds.timeout == 0 || g.n%3 == 0 {
		return
	}
	st.Cache = &recipe.Cache{TTL: [...]recipe.Duration{"", "1m", "PT2H"}[g.n%7%3]}
	if g.n%2 == 0 {
		st.Cache.Price = [...]json.RawMessage{text("0.1"), json.RawMessage("1")}[g.n%5%2]
	}
	switch last := len(g.inScope) - 1; {
	case g.n%11 == 1:
		st.Cache.Key = "input.list"
	case g.n%11 == 2 && last >= 0:
		st.Cache.Key = "[" + g.inScope[last] + "]"
	}
}

// recipe generates a step that runs a small recipe, whose result has the fields "made" and
// "more".
func (g *generator) recipe(st *recipe.Step) {
	below := &recipe.Recipe{Head: recipe.Head{Name: "below"}, Steps: []*recipe.Step{
		{ID: "k1", Action: &recipe.Action{Name: g.pick(g.shape.Actions...)}, Common: recipe.Common{OutputBinding: "made"}},
		{ID: "k2", Transform: &recipe.Transform{Expression: "[made]"}, Common: recipe.Common{OutputBinding: "more"}},
	}}
	st.Recipe = &recipe.Child{Inline: below}
	if g.chance(g.odds.params) {
		st.Recipe.Inputs = map[string]json.RawMessage{"p": text(g.template())}
	}
	if g.chance(g.odds.params) {
		st.InputBindings = map[string]recipe.Binding{"q": {Expression: g.value()}}
	}
	switch g.dice.IntN(6) {
	case 0:
		st.Recipe.Files = g.pick("[input.file]", "[]", "[input.gone]")
	case 1:
		st.Recipe.Outputs = []*recipe.Output{{Path: "made", As: "m"}, {Path: "more"}}
	case 2:
		st.Recipe.Limits = &recipe.ChildLimits{MaxDepth: 3, MaxTotalSteps: int64(1 + g.dice.IntN(20)), MemoryLimitMB: 1}
	case 3:
		st.Recipe.MaxCredits = int64(1 + g.dice.IntN(9))
	case 4:
		st.Recipe.Workspace = "./nested/${step.name}"
	}
	if g.chance(g.odds.retry) {
		st.RetryPolicy = g.retry()
	}
	if g.chance(g.odds.timeout) {
		st.Timeout = recipe.Duration(g.pick("5s", "30s"))
	}
	g.inherit(st)
}

// inherit lets some child runs read what their parents have, give the output of their last step, or go on after a
// failure. It draws nothing; see cache.
func (g *generator) inherit(st *recipe.Step) {
	k := st.Recipe
	k.Resume = g.n%4 < 2
	if last := len(g.inScope) - 1; g.n%3 == 1 {
		k.Inherit = []string{recipe.InheritContext}
		read := []string{"workflow.v", "input.list"}
		if last >= 0 {
			read = append(read, g.inScope[last])
		}
		k.Inline.Steps = append(k.Inline.Steps, &recipe.Step{ID: "k3", Transform: &recipe.Transform{Expression: "[" + strings.Join(read, ", ") + "]"}})
	}
	if k.Outputs == nil && g.n%5 == 2 {
		k.Inline.Result, k.Result = "steps", "last"
	}
	if g.shape.Written && len(k.Inherit) == 0 && g.n%7 == 4 {
		k.Definition, k.Inline = written(k.Inline), nil
	}
}

// written returns an expression for the text of a recipe.
func written(r *recipe.Recipe) string {
	text, err := json.Marshal(r)
	if err == nil {
		text, err = json.Marshal(string(text)) // a text of JSON is one of CEL
	}
	if err != nil {
		panic(err) // a drawn recipe has nothing else than JSON
	}
	return string(text)
}

// shortTimeout generates an action whose total timeout may end before its attempts.
func (g *generator) shortTimeout(st *recipe.Step, depth int) {
	st.Action = &recipe.Action{Name: g.pick(g.shape.Actions...)}
	st.TotalTimeout = "31s"
	st.Timeout = recipe.Duration(g.pick("5s", "30s"))
	st.RetryPolicy = &recipe.RetryPolicy{MaxAttempts: 3, InitialDelay: "20s", MaxDelay: "1m"}
	switch g.dice.IntN(3) {
	case 0:
		st.OnError = &recipe.OnError{Strategy: "skip"}
	case 1:
		st.OnError = &recipe.OnError{Strategy: "fallback", FallbackStep: g.fallback(depth)}
	}
}

func (g *generator) retry() *recipe.RetryPolicy {
	p := &recipe.RetryPolicy{MaxAttempts: int64(1 + g.dice.IntN(4))}
	if g.chance(40) {
		p.InitialDelay, p.MaxDelay = recipe.Duration(g.pick("10ms", "1s", "PT5S", "40s")), ""
		if p.InitialDelay != "40s" {
			p.MaxDelay = recipe.Duration(g.pick("", "20s"))
		}
		p.BackoffMultiplier = float64(g.odd(0, 1, 3))
	}
	if g.chance(30) {
		jitter := float64(g.odd(0, 1, 2)) / 2
		p.Jitter = &jitter
	}
	if g.chance(25) {
		p.RetryableErrors = []string{g.pick("timeout", "provider", "lost", "SERVICE_UNAVAILABLE", "STEP_TIMEOUT")}
	}
	return p
}

// handle generates the error handling of a step.
func (g *generator) handle(st *recipe.Step, depth int) {
	called := st.Recipe != nil || st.Action != nil && st.Action.Name != g.shape.Sleep // nothing else is ever retried
	switch k := g.dice.IntN(4); {
	case k == 0:
		st.OnError = &recipe.OnError{Strategy: "skip"}
	case k == 1 && called && st.RetryPolicy == nil:
		st.OnError = &recipe.OnError{Strategy: "retry", MaxRetries: int64(g.odd(0, 1, 3)), RetryDelay: recipe.Duration(g.pick("", "2s"))}
	case k == 2:
		st.OnError = &recipe.OnError{Strategy: "fail"}
		if called && st.RetryPolicy == nil && g.chance(50) {
			st.OnError.MaxRetries = 1
		}
	default:
		st.OnError = &recipe.OnError{Strategy: "fallback", FallbackStep: g.fallback(depth)}
	}
}

// fallback generates a fallback step, usually an action.
func (g *generator) fallback(depth int) *recipe.Step {
	if depth+1 < g.shape.Depth && g.left > 0 && g.chance(30) {
		return g.hidden(func() *recipe.Step { return g.step(depth + 1) })
	}
	st := &recipe.Step{ID: g.id()}
	g.action(st)
	return st
}

// hidden generates a step whose names are not visible outside it.
func (g *generator) hidden(draw func() *recipe.Step) *recipe.Step {
	outside := g.inScope[:len(g.inScope):len(g.inScope)]
	defer func() { g.inScope = outside }()
	return draw()
}

func (g *generator) compensate(st *recipe.Step) {
	st.Compensate = &recipe.Compensate{Action: &recipe.Action{Name: g.shape.Undo}}
	if g.chance(40) {
		st.Compensate.InputBindings = map[string]recipe.Binding{"of": {Expression: "steps." + st.ID + ".output"}}
	}
	if g.chance(40) {
		st.Compensate.RetryPolicy = g.retry()
	}
	if g.chance(30) {
		st.Compensate.Timeout = "20s"
	}
}

// failing is an expression whose evaluation fails.
const failing = "1 / input.zero"

// value generates an expression over the names in scope.
func (g *generator) value() string {
	if g.chance(g.odds.broken) {
		return g.pick(failing, "input.gone", "input.list[9]")
	}
	if len(g.inScope) == 0 || g.chance(30) {
		return g.pick("1 + 1", "'x'", "{'a': [1, 2]}", "input.list", "input.zero", "input.list[0]")
	}
	v := g.pick(g.inScope...)
	return strings.ReplaceAll(g.pick("[%]", "{'v': %, 'w': [%]}", "%", "size([%])", "[%] == [] ? 'none' : 'some'"), "%", v)
}

// truth generates a condition.
func (g *generator) truth() string {
	if g.chance(g.odds.broken) {
		return failing + " == 1"
	}
	return g.pick("true", "true", "false", "input.zero == 0", "has(input.gone)", "input.list[0] == 1", "["+g.value()+"] != []")
}

// list generates the list of a loop.
func (g *generator) list() string {
	if g.chance(g.odds.broken) {
		return g.pick("input.zero", "input.list[9]", "input.gone")
	}
	return g.pick("[]", "[1]", "[1, 2, 3]", "input.list", "input.file", "["+g.value()+"]", "[1, 2, 3, 4, 5, 6, 7]")
}

// template generates a text with expressions.
func (g *generator) template() string {
	return strings.ReplaceAll(g.pick("{{ § }}", "a {{ § | tojson }} b", "{% for x in [§] %}{{ x | tojson }};{% endfor %}",
		"{% if input.zero == 0 %}{{ § | tojson }}{% else %}no{% endif %}", "{% set x = § %}{{ [x] | length }}", "{{ input.gone | default('d') }}"),
		"§", g.value())
}

// text returns s as a JSON string.
func text(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic("sample: a text is not JSON: " + err.Error()) // no string fails
	}
	return raw
}
