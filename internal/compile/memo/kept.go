// SPDX-License-Identifier: Apache-2.0

//go:build !small

package memo

import (
	"crypto/sha256"
	"encoding/binary"
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
