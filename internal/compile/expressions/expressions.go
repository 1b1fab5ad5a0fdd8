// SPDX-License-Identifier: Apache-2.0

// Package expressions compiles the expressions of recipes, each distinct text once, and answers
// questions about their text.
//
// It decides which names an expression reads and what is wrong with it alone. It never decides
// what the names mean (package compile does).
package expressions

import (
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/memo"
	"github.com/roux-engine/roux/internal/expr"
)

// A Cache holds what was compiled.
type Cache struct {
	memo     *memo.Memo
	programs map[exprKey]*Program
	trees    map[treeKey]*expr.Tree
}

// NewCache returns an empty cache. m, which may be nil, knows expressions of other compilations.
func NewCache(m *memo.Memo) *Cache {
	return &Cache{memo: m, programs: map[exprKey]*Program{}, trees: map[treeKey]*expr.Tree{}}
}

type exprKey struct {
	src      string
	template bool
}

// A treeKey is a JSON value with templates.
type treeKey struct {
	raw     string
	secrets bool
}

// A Program is one distinct source text.
type Program struct {
	Refs     []expr.Ref
	Problems []expr.Problem
	// Constant is the value of an expression without names, if IsConstant.
	Constant   any
	IsConstant bool
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
	key := exprKey{src, template}
	if p, ok := c.programs[key]; ok {
		return p
	}
	if path := Selection(src); path != nil && !template {
		// Most expressions of large recipes are of this form, and are different ones.
		p := &Program{Refs: []expr.Ref{{Name: "steps", Path: path, Len: len("steps")}}, Selects: true}
		c.programs[key] = p
		return p
	}
	p := new(Program)
	c.programs[key] = p
	prog, err := c.memo.Compile(src, template)
	if err != nil {
		p.Problems = problemsOf(src, err)
		return p
	}
	p.Refs = prog.Refs()
	if len(p.Refs) == 0 && !template {
		if v, err := prog.Eval(expr.MapVars{}); err == nil {
			p.Constant, p.IsConstant = v, true
		}
	}
	return p
}

// Constant returns the value of an expression that was compiled and has no names.
func (c *Cache) Constant(src string) (value any, ok bool) {
	p := c.programs[exprKey{src, false}]
	if p == nil {
		return nil, false
	}
	return p.Constant, p.IsConstant
}

// Tree compiles a JSON value with templates, in which references to secrets are allowed or not.
func (c *Cache) Tree(raw json.RawMessage, secrets bool) (*expr.Tree, []expr.Problem) {
	key := treeKey{string(raw), secrets}
	if t := c.trees[key]; t != nil {
		return t, nil
	}
	t, err := c.memo.Tree(raw, secrets)
	if err != nil {
		return nil, treeProblems(raw, err, secrets)
	}
	c.trees[key] = t
	return t, nil
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
