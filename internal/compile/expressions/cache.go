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
	lasting bool // it is for several compilations

	mu       sync.Mutex
	programs map[exprKey]*Program
	trees    map[treeKey]tree
	checks   map[checkKey][]expr.Problem // if it is lasting; package compile knows those of one compilation
	bytes    int                         // of the sources
}

// NewCache returns an empty cache for one compilation.
func NewCache() *Cache {
	return &Cache{programs: map[exprKey]*Program{}, trees: map[treeKey]tree{}, checks: map[checkKey][]expr.Problem{}}
}

// NewLasting returns an empty cache for several compilations. With it, a text that changes with each key that is
// pressed is compiled in the time that its changed expressions take.
func NewLasting() *Cache {
	c := NewCache()
	c.lasting = true
	return c
}

// find returns the result for a key, which is computed if it is not known. What it takes is size bytes of a source.
func find[K comparable, V any](c *Cache, known map[K]V, key K, size int, compute func() V) V {
	c.mu.Lock()
	v, ok := known[key]
	c.mu.Unlock()
	if ok {
		return v
	}
	v = compute()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += size
	if n := len(c.programs) + len(c.trees) + len(c.checks); c.lasting && (n >= maxEntries || c.bytes > maxBytes) {
		clear(c.programs)
		clear(c.trees)
		clear(c.checks)
		c.bytes = size
	}
	known[key] = v
	return v
}

// A checkKey is a hash of all that the result of a check depends on.
type checkKey [sha256.Size]byte

// keyOf returns the key of a check. Each part has its length before it, so that no two lists of parts are alike.
func keyOf(how string, src []byte, env *expr.Env, want string) checkKey {
	b := make([]byte, 0, 4096)
	add := func(part []byte) {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	add([]byte(how))
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
	return sha256.Sum256(b)
}

// check returns the problems that compute finds.
func (c *Cache) check(how string, src []byte, env *expr.Env, want string, compute func() []expr.Problem) []expr.Problem {
	if !c.lasting {
		return compute()
	}
	return find(c, c.checks, keyOf(how, src, env, want), len(src), compute)
}

// Check checks an expression for one wanted type as [expr.Check] does. A file is given by its hash, which
// is a string, or by an object that has one, such as an entry of `files`.
func (c *Cache) Check(src string, template bool, env *expr.Env, want string) []expr.Problem {
	how := "expression"
	if template {
		how = "template"
	}
	return c.check(how, []byte(src), env, want, func() []expr.Problem {
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
	return c.check("tree", raw, env, "", func() []expr.Problem { return expr.CheckTree(raw, env) })
}
