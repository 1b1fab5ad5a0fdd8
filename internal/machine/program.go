// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"sync/atomic"

	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A Program is a plan ready to run. Its expressions are compiled when a run first
// needs them and are shared by all runs of the plan. It is safe for concurrent use.
type Program struct {
	plan    *plan.Plan
	cost    int64 // the most that evaluating an expression may cost
	steps   []atomic.Pointer[stepCode]
	briefs  []stepBrief
	outputs atomic.Pointer[outputCode]
	waves   [][][]int32 // graph → wave → local step indices; only with plan.Waves
}

// stepBrief is what each turn needs of a step. A plan.Step takes several lines of the
// processor's cache, and in a large plan none of them is in it.
type stepBrief struct {
	timeoutMS, totalTimeoutMS int64
	action                    int32
	kind                      plan.Kind
	keep                      bool // see plan.Step.Keep
	compensated               bool // it has a compensation
	plain                     bool // it has no contracts, gate, cache or prompt, and its input names nothing
	noInput                   bool // it is plain, and its input is {}
}

func briefsOf(p *plan.Plan) []stepBrief {
	all := make([]stepBrief, len(p.Steps))
	for i := range p.Steps {
		st := &p.Steps[i]
		plain := len(st.InputC)+len(st.OutputC)+len(st.ParamRef)+len(st.Bindings) == 0 && st.Gate == nil && st.Cache == nil && st.Prompt == nil
		all[i] = stepBrief{st.TimeoutMS, st.TotalTimeoutMS, st.Action, st.Kind, st.Keep, st.Compensate != plan.None, plain,
			plain && len(st.Params)+len(st.Required) == 0 && st.FileInput == ""}
	}
	return all
}

// stepCode is the compiled code of a step. Two goroutines may compile the same step;
// the results are equal, and either may be kept.
type stepCode struct {
	when, expr   *expr.Program
	ref          *expr.Program // of a recipe step, see plan.Child.RefExpr
	cacheKey     *expr.Program
	params       *expr.Tree
	prompt       *promptCode // nil = it has no prompt
	bindings     []bindingCode
	order        []int    // indices of bindings, sorted by name as in canonical JSON
	names        [][]byte // names of bindings as in canonical JSON, with the colon
	stepsPerItem int64    // of a loop: how many steps one item begins
	rounds       roundsCode
	err          error
}

// programs returns the expressions of the step, without those of its parameters and its cache; some may be
// nil.
func (c *stepCode) programs() []*expr.Program {
	list := append(bindingCode{c.when, c.expr, c.ref, c.rounds.while, c.rounds.until, c.rounds.next}, slices.Concat(c.bindings...)...)
	if c.prompt != nil {
		list = slices.Concat(list, slices.Concat(c.prompt.values...))
	}
	return list
}

type outputCode struct {
	fields []*expr.Program
	schema *jsonschema.Schema
	err    error
}

// Prepare returns the program of a sealed plan.
func Prepare(p *plan.Plan) *Program {
	g := &Program{plan: p, cost: journal.ExpressionCost(p.Limits), steps: make([]atomic.Pointer[stepCode], len(p.Steps)), briefs: briefsOf(p)}
	if p.Waves {
		g.waves = make([][][]int32, len(p.Graphs))
		for k := range p.Graphs {
			gr := &p.Graphs[k]
			g.waves[k] = make([][]int32, gr.Waves)
			for i := range gr.N {
				w := p.Steps[gr.First+i].Wave
				g.waves[k][w] = append(g.waves[k][w], i)
			}
		}
	}
	return g
}

// Plan is the plan that the program was made from.
func (g *Program) Plan() *plan.Plan { return g.plan }

// withLimits returns the program under limits that a retry has raised. That program
// belongs to the one run. Few runs raise their limits, so compiling their expressions
// again is acceptable.
func (g *Program) withLimits(l plan.Limits) *Program {
	if journal.ExpressionCost(l) == g.cost {
		return g
	}
	return &Program{plan: g.plan, cost: journal.ExpressionCost(l), steps: make([]atomic.Pointer[stepCode], len(g.steps)), briefs: g.briefs, waves: g.waves}
}

func (g *Program) compile(e *plan.Expr) (*expr.Program, error) {
	if e == nil {
		return nil, nil
	}
	if e.Template {
		return expr.CompileTemplateWithin(e.Src, g.cost)
	}
	return expr.CompileWithin(e.Src, g.cost)
}

// code returns the compiled code of a step.
func (g *Program) code(step int32) *stepCode {
	if c := g.steps[step].Load(); c != nil {
		return c
	}
	c := g.compileStep(&g.plan.Steps[step])
	g.steps[step].Store(c)
	return c
}

func (g *Program) compileStep(st *plan.Step) *stepCode {
	c := new(stepCode)
	if st.Kind == plan.Loop {
		c.stepsPerItem = scopeSteps(g.plan, st.Body)
	}
	if c.when, c.err = g.compile(st.When); c.err != nil {
		return c
	}
	if c.expr, c.err = g.compile(st.Expr); c.err != nil {
		return c
	}
	if st.Child != nil {
		if c.ref, c.err = g.compile(st.Child.RefExpr); c.err != nil {
			return c
		}
	}
	if c.rounds, c.err = g.compileRounds(st.Rounds); c.err != nil {
		return c
	}
	if st.Cache != nil {
		if c.cacheKey, c.err = g.compile(st.Cache.Key); c.err != nil {
			return c
		}
	}
	if len(st.Params) > 0 {
		params := expr.CompileTreeWithin
		if st.Kind == plan.Action {
			params = expr.CompileParameters
		}
		if c.params, c.err = params(st.Params, g.cost); c.err != nil {
			return c
		}
	}
	if st.Prompt != nil {
		if c.prompt, c.err = g.compilePrompt(st); c.err != nil {
			return c
		}
	}
	for i := range st.Bindings {
		p, err := g.compileBinding(&st.Bindings[i])
		if err != nil {
			c.err = err
			return c
		}
		c.bindings = append(c.bindings, p)
		c.order = append(c.order, i)
		name, err := jsonx.Canonical(st.Bindings[i].Name)
		if err != nil {
			c.err = err
			return c
		}
		c.names = append(c.names, append(name, ':'))
	}
	slices.SortFunc(c.order, func(a, b int) int { return jsonx.CompareNames(st.Bindings[a].Name, st.Bindings[b].Name) })
	return c
}

func (g *Program) outputCode() *outputCode {
	if c := g.outputs.Load(); c != nil {
		return c
	}
	c := new(outputCode)
	for i := range g.plan.Outputs {
		p, err := g.compile(&g.plan.Outputs[i].Expr)
		if err != nil {
			c.err = err
			break
		}
		c.fields = append(c.fields, p)
	}
	if len(g.plan.OutputSchema) > 0 && c.err == nil {
		c.schema, c.err = jsonschema.Compile(g.plan.OutputSchema)
	}
	g.outputs.Store(c)
	return c
}
