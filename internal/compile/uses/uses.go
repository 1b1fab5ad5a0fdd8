// SPDX-License-Identifier: Apache-2.0

// Package uses lists the expressions of a recipe, with the names that each of them reads.
//
// It decides where a recipe has expressions and templates. It never decides what a name means, which
// depends on the scope (package compile), and it skips an expression that cannot be compiled, which
// compile reports.
package uses

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// An Expression is one expression or template of a recipe.
type Expression struct {
	Step     *recipe.Step // nil outside of steps
	Pointer  string       // in the model
	Source   string
	Template bool
	Formula  bool // of the estimation of credits, whose names have rules of their own
	Undo     bool // in a compensation
	Refs     []expr.Ref
}

// Of returns the expressions of a recipe in the order of its steps, without those of recipes within it.
func Of(r *recipe.Recipe) []Expression {
	var c collector
	r.Each(c.step)
	c.cur = nil
	for _, name := range slices.Sorted(maps.Keys(r.Outputs)) {
		c.cel(r.Ptr+"/outputs/"+jsonx.EscapeToken(name), r.Outputs[name])
	}
	if e := r.CreditEstimation; e != nil && e.Formula != "" {
		c.add(r.Ptr+"/creditEstimation/formula", e.Formula, false, true)
	}
	return c.list
}

// A collector lists the expressions of a step after the other.
type collector struct {
	list []Expression
	cur  *recipe.Step
	undo bool
}

func (c *collector) add(pointer, src string, template, formula bool) {
	if src == "" || template && !expr.IsTemplate(src) {
		return
	}
	refs, err := refsOf(src, template, formula)
	if err != nil {
		return
	}
	c.list = append(c.list, Expression{Step: c.cur, Pointer: pointer, Source: src, Template: template, Formula: formula, Undo: c.undo, Refs: refs})
}

// refsOf returns what a source reads.
func refsOf(src string, template, formula bool) ([]expr.Ref, error) {
	if template {
		raw, err := jsonx.Canonical(src)
		if err != nil {
			return nil, err
		}
		t, err := expr.CompileParameters(raw, expr.MaxCost) // which may contain references to secrets
		if err != nil {
			return nil, err
		}
		return t.Refs(), nil
	}
	compile := expr.Compile
	if formula {
		compile = expr.CompileFormula
	}
	p, err := compile(src)
	if err != nil {
		return nil, err
	}
	return p.Refs(), nil
}

func (c *collector) cel(pointer, src string)      { c.add(pointer, src, false, false) }
func (c *collector) template(pointer, src string) { c.add(pointer, src, true, false) }

// step adds the expressions of a step.
func (c *collector) step(s *recipe.Step) {
	c.cur = s
	c.cel(s.Ptr+"/when", s.When)
	c.bindings(s.Ptr, s.InputBindings)
	if s.Action != nil {
		c.values(s.Ptr+"/action/parameters", s.Action.Parameters)
	}
	if s.Cache != nil {
		c.cel(s.Ptr+"/cache/key", s.Cache.Key)
	}
	if k := s.Compensate; k != nil {
		c.undo = true
		c.bindings(s.Ptr+"/compensate", k.InputBindings)
		if k.Action != nil {
			c.values(s.Ptr+"/compensate/action/parameters", k.Action.Parameters)
		}
		c.undo = false
	}
	c.kind(s)
}

// kind adds the expressions of what the step is.
func (c *collector) kind(s *recipe.Step) {
	if s.Condition != nil {
		c.cel(s.Ptr+"/condition/expression", s.Condition.Expression)
	}
	if s.Transform != nil {
		c.cel(s.Ptr+"/transform/expression", s.Transform.Expression)
		c.tree(s.Ptr+"/transform/value", s.Transform.Value)
	}
	if s.Loop != nil {
		c.cel(s.Ptr+"/loop/over", s.Loop.Over)
	}
	if w := s.Wait; w != nil {
		c.cel(s.Ptr+"/wait/until", w.Until)
		if a := w.Approval; a != nil {
			at := s.Ptr + "/wait/approval"
			c.template(at+"/title", a.Title)
			c.template(at+"/text", a.Text)
			c.tree(at+"/form", a.Form)
			c.tree(at+"/value", a.Value)
		}
	}
	if s.Fail != nil {
		c.template(s.Ptr+"/fail/message", s.Fail.Message)
	}
	if k := s.Recipe; k != nil {
		c.values(s.Ptr+"/recipe/inputs", k.Inputs)
		c.cel(s.Ptr+"/recipe/files", k.Files)
	}
}

func (c *collector) bindings(at string, all map[string]recipe.Binding) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		ptr := at + "/inputBindings/" + jsonx.EscapeToken(name)
		c.cel(ptr+"/expression", all[name].Expression)
		for i, part := range all[name].From {
			if part != nil {
				c.cel(ptr+"/from/"+strconv.Itoa(i)+"/expression", part.Expression)
			}
		}
	}
}

func (c *collector) values(at string, all map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.tree(at+"/"+jsonx.EscapeToken(name), all[name])
	}
}

// tree adds the templates in a JSON value.
func (c *collector) tree(at string, raw json.RawMessage) {
	Texts(raw, at, c.template)
}

// Texts calls f with every text in a JSON value and its pointer.
func Texts(raw json.RawMessage, at string, f func(pointer, text string)) {
	if len(raw) == 0 {
		return
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return
	}
	texts(v, at, f)
}

func texts(v any, at string, f func(pointer, text string)) {
	switch v := v.(type) {
	case string:
		f(at, v)
	case []any:
		for i, item := range v {
			texts(item, at+"/"+strconv.Itoa(i), f)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			texts(v[name], at+"/"+jsonx.EscapeToken(name), f)
		}
	}
}
