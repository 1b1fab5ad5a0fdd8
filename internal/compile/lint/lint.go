// SPDX-License-Identifier: Apache-2.0

// Package lint advises on recipes that compile, and says whether a recipe can take the place of another.
//
// It decides what is worth a remark although it is allowed: what fails late, costs more than it must, or is
// hard to read. Each remark has a rule with a stable name, and a comment in the text may ignore it. It never
// decides whether a recipe compiles (package compile does), runs nothing and changes no text.
package lint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/plan"
)

// A Text is a recipe that was compiled, with what compile has said about it.
type Text struct {
	Bytes  []byte
	Recipe *recipe.Recipe // nil = it is malformed, or no recipe
	Plan   *plan.Plan     // nil = it does not compile
	Source *recipe.Source
	Diags  []fault.Diagnostic
}

// Options are what a recipe is judged against.
type Options struct {
	Actions catalogue.Actions
	Lenses  catalogue.Lenses // nil = lenses are not looked at
	// Ignore are the rules that are ignored in every text.
	Ignore []string
}

// Check returns the diagnostics of a text: those of compile and the advice, in the order of the text, without
// those that are ignored. Advice is given only on a recipe that compiles. Errors are never ignored.
func Check(t Text, opt Options) []fault.Diagnostic {
	diags := slices.Clone(t.Diags)
	if t.Recipe != nil && t.Plan != nil {
		c := &checker{t: t, opt: opt}
		c.recipe(t.Recipe, true)
		diags = append(diags, c.diags...)
	}
	diags = ignore(t, diags, opt.Ignore)
	slices.SortStableFunc(diags, func(a, b fault.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
	return diags
}

// A checker gives advice on one text.
type checker struct {
	t     Text
	opt   Options
	diags []fault.Diagnostic
	seen  map[string]int // diagnostics by rule

	// Of the recipe that is looked at, which may be one within the text:
	r      *recipe.Recipe
	root   bool
	reads  map[string]map[string]bool // fields that are read of steps, by id; "" is the whole
	steps  map[string]*plan.Step      // of the root only
	inputs []texts.Use                // that read the input of the run
}

// perRule is how many diagnostics of one rule a text gets.
const perRule = 20

// advise reports a place in the text.
func (c *checker) advise(rule, pointer, msg, hint string) { c.report(rule, pointer, false, msg, hint) }

// adviseKey reports the name of a field.
func (c *checker) adviseKey(rule, pointer, msg, hint string) {
	c.report(rule, pointer, true, msg, hint)
}

func (c *checker) report(rule, pointer string, key bool, msg, hint string) {
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	if c.seen[rule]++; c.seen[rule] > perRule || len(c.diags) >= form.MaxDiagnostics {
		return
	}
	pos := c.t.Source.Pos(pointer)
	if key {
		pos = c.t.Source.KeyPos(pointer)
	}
	c.diags = append(c.diags, advice(rule, pos, c.t.Source.Pointer(pointer), msg, hint))
}

func advice(rule string, pos fault.Pos, pointer, msg, hint string) fault.Diagnostic {
	return fault.Diagnostic{Severity: fault.SeverityWarning, Code: fault.RecipeInvalid, Rule: rule, Msg: msg, Hint: hint, Pos: pos, Pointer: pointer}
}

// recipe looks at a recipe and at those within it.
func (c *checker) recipe(r *recipe.Recipe, root bool) {
	c.r, c.root, c.steps, c.reads, c.inputs = r, root, nil, map[string]map[string]bool{}, nil
	if root {
		c.steps = map[string]*plan.Step{}
		for i := range c.t.Plan.Steps {
			c.steps[c.t.Plan.Steps[i].ID] = &c.t.Plan.Steps[i]
		}
	}
	all := texts.Uses(r)
	for _, e := range all {
		c.note(e)
	}
	if root {
		c.head()
	}
	c.size()
	c.literals()
	c.scope(r.Steps, scope{depth: 1})
	for _, e := range all {
		c.expression(e)
	}
	r.EachInline(func(_ *recipe.Step, inner *recipe.Recipe) { c.recipe(inner, false) })
}

// note records what an expression reads.
func (c *checker) note(e texts.Use) {
	for _, ref := range e.Refs {
		id, path := ref.Name, ref.Path
		if id == "steps" && len(path) > 0 {
			id, path = path[0], path[1:]
		}
		field := ""
		if len(path) > 0 {
			field = path[0]
		}
		if c.reads[id] == nil {
			c.reads[id] = map[string]bool{}
		}
		c.reads[id][field] = true
		if ref.Name == "input" || ref.Name == "inputs" || ref.Name == "parameters" {
			c.inputs = append(c.inputs, e)
		}
	}
}

// readsOf reports whether an expression reads one of the fields of a step, or the step as a whole.
func (c *checker) readsOf(id string, fields ...string) bool {
	got := c.reads[id]
	return got[""] || slices.ContainsFunc(fields, func(f string) bool { return got[f] })
}

// A scope is where steps are.
type scope struct {
	depth  int
	raced  bool // another branch may make up for the failure of a step
	looped bool
}

// scope looks at a list of steps and at those within them.
func (c *checker) scope(steps []*recipe.Step, in scope) {
	for i, s := range steps {
		if s == nil {
			continue
		}
		c.step(s, in, i == len(steps)-1)
		inner := in
		inner.depth++
		if s.Parallel != nil {
			inner.raced = in.raced || s.Parallel.WaitFor == "any" || s.Parallel.WaitFor == "first_success" || s.Parallel.FailureStrategy == "ignore"
		}
		for _, list := range s.Scopes() {
			c.scope(list, inner)
		}
		if s.Loop != nil {
			inner.looped = true
			inner.raced = in.raced || s.Loop.FailureStrategy == "ignore"
			c.scope(s.Loop.Steps, inner)
		}
	}
}

// declared returns the declaration of the action that a step calls, or nil.
func (c *checker) declared(s *recipe.Step) *action.Action {
	if s.Action == nil || c.opt.Actions == nil {
		return nil
	}
	return c.opt.Actions.Find(s.Action.Name, s.Action.Version)
}

// named is how a message calls a step.
func named(s *recipe.Step) string {
	if s.ID != "" {
		return fmt.Sprintf("the step %q", s.ID)
	}
	return "this step"
}
