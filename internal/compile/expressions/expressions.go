// SPDX-License-Identifier: Apache-2.0

// Package expressions compiles the expressions of recipes, and the schemas that they are checked against, each distinct
// text once, and answers questions about their text.
//
// It decides which names an expression reads, what is wrong with it alone, and what of that is kept for
// later compilations. It never decides what the names mean (package compile does).
package expressions

import (
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
)

type tree struct {
	tree     *expr.Tree
	problems []expr.Problem
}

// A Program is one distinct source text.
type Program struct {
	Refs     []expr.Ref
	Problems []expr.Problem
	// Constant is the value of an expression without names; nil = it has none.
	Constant any
	// Selects is set if it only selects a part of what a step has.
	Selects bool
}

// Broken reports whether the source does not parse. It tells a template from CEL: in a source that
// parses as CEL, a {{ is part of a string.
func (p *Program) Broken() bool {
	return slices.ContainsFunc(p.Problems, func(p expr.Problem) bool { return p.Rule == expr.RuleSyntax })
}

// Program compiles an expression, or a text with placeholders.
func (c *Cache) Program(src string, template bool) *Program {
	k := key{compiledExpression, src}
	if template {
		k.kind = compiledTemplate
	}
	return c.find(k, len(src), func() any { return compiled(src, template) }).(*Program)
}

func compiled(src string, template bool) *Program {
	if path := Selection(src); path != nil && !template {
		// Most expressions of large recipes are of this form, and are different ones.
		return &Program{Refs: []expr.Ref{{Name: "steps", Path: path, Len: len("steps")}}, Selects: true}
	}
	compile := expr.Compile
	if template {
		compile = expr.CompileTemplate
	}
	prog, err := compile(src)
	if err != nil {
		return &Program{Problems: problemsOf(src, err)}
	}
	p := &Program{Refs: prog.Refs()}
	if len(p.Refs) == 0 && !template {
		if v, err := prog.Eval(expr.MapVars{}); err == nil {
			p.Constant = v
		}
	}
	return p
}

// Tree compiles a JSON value with templates, in which references to secrets are allowed or not.
func (c *Cache) Tree(raw json.RawMessage, secrets bool) (*expr.Tree, []expr.Problem) {
	k, compile := key{compiledValue, string(raw)}, expr.CompileTreeWithin
	if secrets {
		k.kind, compile = compiledParameters, expr.CompileParameters
	}
	t := c.find(k, len(raw), func() any {
		t, err := compile(raw, expr.CostLimit)
		if err != nil {
			return &tree{nil, treeProblems(raw, err, secrets)}
		}
		return &tree{t, nil}
	}).(*tree)
	return t.tree, t.problems
}

// treeProblems returns the problems, with places, of a value that was refused.
func treeProblems(raw json.RawMessage, err error, secrets bool) []expr.Problem {
	ps := expr.CheckTree(raw, &expr.Env{Secrets: secrets})
	ps = slices.DeleteFunc(ps, func(p expr.Problem) bool { return p.Rule == expr.RuleUndefinedName })
	if len(ps) == 0 {
		ps = []expr.Problem{{Rule: expr.RuleSyntax, Msg: fault.Message(err)}}
	}
	return ps
}

// problemsOf converts the error of a compilation back into problems with offsets.
func problemsOf(src string, err error) []expr.Problem {
	var f *fault.Error
	if !errors.As(err, &f) || len(f.Diags) == 0 {
		return []expr.Problem{{Len: utf8.RuneCountInString(src), Rule: expr.RuleSyntax, Msg: fault.Message(err)}}
	}
	var ps []expr.Problem
	for _, d := range f.Diags {
		off, line := 0, 1
		for _, r := range src {
			if line >= d.Pos.Line {
				break
			}
			off++
			if r == '\n' {
				line++
			}
		}
		ps = append(ps, expr.Problem{Offset: off + max(0, d.Pos.Col-1), Len: max(1, d.Pos.Len), Rule: d.Rule, Msg: d.Msg, Hint: d.Hint})
	}
	return ps
}
