// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
)

const (
	// maxEntries and maxBytes bound what a cache for several compilations holds: results, and the bytes of their
	// sources.
	maxEntries = 50_000
	maxBytes   = 16 << 20
)

// A Cache holds what was found out about expressions. What it returns is always what package expr would return. It is
// safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	known map[key]any
	bytes int // of the sources

	// kept looks up a check. It is nil in a cache for one compilation: package compile knows its checks. A small binary
	// has no cache that lasts, and so none of its code.
	kept func(k kind, src []byte, env *expr.Env, want string, compute func() []expr.Problem) []expr.Problem
}

type key struct {
	kind kind
	text string // the source, or for a check a hash of all that its result depends on
}

type kind uint8

const (
	compiledExpression kind = iota
	compiledTemplate
	compiledValue
	compiledParameters // a value that may have references to secrets
	checkedExpression
	checkedTemplate
	checkedValue
	compiledSchema
)

// NewCache returns an empty cache for one compilation.
func NewCache() *Cache { return &Cache{known: map[key]any{}} }

// NewLasting returns an empty cache for several compilations. With it, a text that changes with each key that is
// pressed is compiled in the time that its changed expressions take.
func NewLasting() *Cache {
	c := NewCache()
	c.kept = func(k kind, src []byte, env *expr.Env, want string, compute func() []expr.Problem) []expr.Problem {
		return c.find(key{k, hash(src, env, want)}, len(src), func() any { return compute() }).([]expr.Problem)
	}
	return c
}

// find returns the result for a key, which is computed if it is not known. What it takes is size bytes of a source.
func (c *Cache) find(k key, size int, compute func() any) any {
	c.mu.Lock()
	v, ok := c.known[k]
	c.mu.Unlock()
	if ok {
		return v
	}
	v = compute()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += size
	if c.kept != nil && (len(c.known) >= maxEntries || c.bytes > maxBytes) {
		clear(c.known)
		c.bytes = size
	}
	c.known[k] = v
	return v
}

// hash returns a hash of all that a check depends on, but for its kind. Each part has its length before it, so that no
// two lists of parts are alike.
func hash(src []byte, env *expr.Env, want string) string {
	b := make([]byte, 0, 4096)
	add := func(part []byte) {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	add(src)
	add([]byte(want))
	b = binary.AppendVarint(b, env.Cost)
	if b = append(b, 0); env.Secrets {
		b[len(b)-1] = 1
	}
	for _, name := range slices.Sorted(maps.Keys(env.Vars)) {
		add([]byte(name))
		add(env.Vars[name])
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// Schema is [jsonschema.Compile]: most expressions are checked against schemas, which are compiled once, too.
func (c *Cache) Schema(raw json.RawMessage) (*jsonschema.Schema, error) {
	s := c.find(key{compiledSchema, string(raw)}, len(raw), func() any {
		s, err := jsonschema.Compile(raw)
		return schema{s, err}
	}).(schema)
	return s.schema, s.err
}

type schema struct {
	schema *jsonschema.Schema
	err    error
}

// check returns the problems that compute finds.
func (c *Cache) check(k kind, src []byte, env *expr.Env, want string, compute func() []expr.Problem) []expr.Problem {
	if c.kept == nil {
		return compute()
	}
	return c.kept(k, src, env, want, compute)
}

// Check checks an expression for one wanted type as [expr.Check] does. A file is given by its hash, which
// is a string, or by an object that has one, such as an entry of `files`.
func (c *Cache) Check(src string, template bool, env *expr.Env, want string) []expr.Problem {
	k := checkedExpression
	if template {
		k = checkedTemplate
	}
	return c.check(k, []byte(src), env, want, func() []expr.Problem {
		if want != "file" {
			return expr.Check(src, template, env, want)
		}
		ps := expr.Check(src, template, env, "string")
		if len(ps) == 0 || template {
			return ps
		}
		for _, field := range [...]string{"hash", "file"} {
			if len(expr.Check("("+src+")."+field, false, env, "string")) == 0 {
				return nil
			}
		}
		return ps
	})
}

// CheckTree is [expr.CheckTree].
func (c *Cache) CheckTree(raw json.RawMessage, env *expr.Env) []expr.Problem {
	return c.check(checkedValue, raw, env, "", func() []expr.Problem { return expr.CheckTree(raw, env) })
}
