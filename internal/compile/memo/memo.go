// SPDX-License-Identifier: Apache-2.0

// Package memo keeps what compilations have found out about expressions.
//
// It decides which compiled expressions and results of checks are kept: those of texts and types that are the
// same, up to a size. What it returns is always what package expr would return. A text that changes with each
// key that is pressed is then compiled in the time that its changed expressions take.
package memo

import (
	"encoding/json"

	"github.com/roux-engine/roux/internal/expr"
)

type kind byte

const (
	program kind = iota
	template
	tree
	parameters
	check
	checkTemplate
	checkTree
)

// Compile is [expr.Compile], or [expr.CompileTemplate].
func (m *Memo) Compile(src string, isTemplate bool) (*expr.Program, error) {
	k, compile := program, expr.Compile
	if isTemplate {
		k, compile = template, expr.CompileTemplate
	}
	return find(m, func() key { return hash(k, []byte(src), nil, "") }, len(src), func() (*expr.Program, error) { return compile(src) })
}

// Tree is [expr.CompileTree], or [expr.CompileParameters] where references to secrets are allowed.
func (m *Memo) Tree(raw json.RawMessage, secrets bool) (*expr.Tree, error) {
	k, compile := tree, expr.CompileTreeWithin
	if secrets {
		k, compile = parameters, expr.CompileParameters
	}
	return find(m, func() key { return hash(k, raw, nil, "") }, len(raw), func() (*expr.Tree, error) { return compile(raw, expr.CostLimit) })
}

// Check checks an expression for one wanted type as [expr.Check] does. A file is given by its hash, which
// is a string, or by an object that has one, such as an entry of `files`.
func (m *Memo) Check(src string, isTemplate bool, env *expr.Env, want string) []expr.Problem {
	k := check
	if isTemplate {
		k = checkTemplate
	}
	ps, _ := find(m, func() key { return hash(k, []byte(src), env, want) }, len(src), func() ([]expr.Problem, error) {
		if want != "file" {
			return expr.Check(src, isTemplate, env, want), nil
		}
		ps := expr.Check(src, isTemplate, env, "string")
		if len(ps) == 0 || isTemplate {
			return ps, nil
		}
		for _, field := range [...]string{"hash", "file"} {
			if len(expr.Check("("+src+")."+field, false, env, "string")) == 0 {
				return nil, nil
			}
		}
		return ps, nil
	})
	return ps
}

// CheckTree is [expr.CheckTree].
func (m *Memo) CheckTree(raw json.RawMessage, env *expr.Env) []expr.Problem {
	ps, _ := find(m, func() key { return hash(checkTree, raw, env, "") }, len(raw), func() ([]expr.Problem, error) { return expr.CheckTree(raw, env), nil })
	return ps
}
