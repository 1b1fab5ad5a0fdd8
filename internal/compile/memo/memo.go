// SPDX-License-Identifier: Apache-2.0

// Package memo keeps what compilations have found out about expressions.
//
// It decides which compiled expressions and results of checks are kept: those of texts and types that are the
// same, up to a size. What it returns is always what package expr would return. A text that changes with each
// key that is pressed is then compiled in the time that its changed expressions take.
package memo

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/roux-engine/roux/internal/expr"
)

const (
	// maxEntries and maxBytes bound what is kept: entries, and the bytes of their sources.
	maxEntries = 50_000
	maxBytes   = 16 << 20
)

// A Memo keeps compiled expressions and results of checks. It is safe for concurrent use. A nil Memo keeps
// nothing.
type Memo struct {
	mu    sync.Mutex
	known map[key]entry
	bytes int
}

// New returns an empty Memo.
func New() *Memo { return &Memo{known: map[key]entry{}} }

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

// A key is a hash of all that a result depends on.
type key [sha256.Size]byte

type entry struct {
	value any
	err   error
}

// find returns the result for a key, which is computed if it is not known. What it takes is size bytes of a source.
func find[T any](m *Memo, k func() key, size int, compute func() (T, error)) (T, error) {
	if m == nil {
		return compute()
	}
	at := k()
	m.mu.Lock()
	e, ok := m.known[at]
	m.mu.Unlock()
	if !ok {
		v, err := compute()
		e = entry{v, err}
		m.mu.Lock()
		if m.bytes += size; len(m.known) >= maxEntries || m.bytes > maxBytes {
			clear(m.known)
			m.bytes = size
		}
		m.known[at] = e
		m.mu.Unlock()
	}
	v, _ := e.value.(T)
	return v, e.err
}

// hash returns the key of a result. Each part has its length before it, so that no two lists of parts are alike.
func hash(k kind, src []byte, env *expr.Env, want string) key {
	b := append(make([]byte, 0, 4096), byte(k))
	add := func(part []byte) {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	add(src)
	add([]byte(want))
	if env != nil {
		b = binary.AppendVarint(b, env.Cost)
		if b = append(b, 0); env.Secrets {
			b[len(b)-1] = 1
		}
		for _, name := range slices.Sorted(maps.Keys(env.Vars)) {
			add([]byte(name))
			add(env.Vars[name])
		}
	}
	return sha256.Sum256(b)
}

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
