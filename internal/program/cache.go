// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A Cache keeps programs. It is bounded; a run in memory holds its program whether it is
// still cached or not.
type Cache struct {
	limit int
	mu    sync.RWMutex
	byKey map[string]*Program
	order []string // keys, oldest first
}

// NewCache returns a cache of at most limit programs.
func NewCache(limit int) *Cache {
	return &Cache{limit: limit, byKey: map[string]*Program{}}
}

func (c *Cache) find(key string) *Program {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byKey[key]
}

// add caches a program and returns the one that is cached under its key. One without the
// family that a caller has given is replaced.
func (c *Cache) add(p *Program) *Program {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byKey[p.key]; old != nil {
		if p.family.Load() != nil && !old.registers(p.Plan()) {
			c.byKey[p.key] = p
			return p
		}
		return old
	}
	if len(c.order) >= c.limit {
		delete(c.byKey, c.order[0])
		c.order = append(c.order[:0], c.order[1:]...)
	}
	c.byKey[p.key] = p
	c.order = append(c.order, p.key)
	return p
}

// Of returns the program of a plan given by a caller. The plan's key does not say what its
// references to registered recipes stand for, which may have changed since the last call.
func (c *Cache) Of(p *plan.Plan) (*Program, error) {
	if prog := c.find(p.Key()); prog != nil && prog.registers(p) {
		return prog, nil
	}
	made, err := New(p)
	if err != nil {
		return nil, err
	}
	return c.add(made), nil
}

// Checked is Of for a run that is to begin, and returns what it begins with.
func (c *Cache) Checked(p *plan.Plan, params map[string]any, files []journal.File) (*Program, Input, error) {
	prog, err := c.Of(p)
	if err != nil {
		return nil, Input{}, err
	}
	in, err := prog.Input(params, files, "")
	return prog, in, err
}

// Plan returns a stored plan.
func (c *Cache) Plan(ctx context.Context, st store.Reader, key string) (*plan.Plan, error) {
	prog, err := c.Load(ctx, st, key)
	if err != nil {
		return nil, err
	}
	return prog.Plan(), nil
}

// Load returns the program of a stored plan.
func (c *Cache) Load(ctx context.Context, st store.Reader, key string) (*Program, error) {
	if prog := c.find(key); prog != nil {
		return prog, nil
	}
	data, err := st.Plan(ctx, key)
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode(data)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "the stored plan %s cannot be read", key)
	}
	// The stored key identifies the plan even if a later release encodes it
	// differently: a run executes the plan it was started with.
	return c.add(assemble(p, key, data)), nil
}
