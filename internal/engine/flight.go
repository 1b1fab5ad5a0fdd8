// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
)

// A flight is an attempt in the hands of whoever carries it out: what they need
// in one piece, so that an attempt costs one allocation and no lookup.
type flight struct {
	id   taskID
	task machine.Task
	prog *program
	live *live // for the loop; it may be gone by the time of the report

	// For whoever carries it out.
	e         *Engine
	hash      []byte      // of the rendered input
	own       bool        // by the loop's own goroutine, which looks for the report
	cancelled atomic.Bool // it was told to stop, and nobody waits for its result
	report    input       // its result
}

// asks are those of one run: what its steps wish and hold. Most runs have a few;
// those of wide plans are found by their step, or by an index in inner scopes.
type asks struct {
	few []*ask
	// Instead of few, past fewAsks and until none is left:
	wide  bool
	n     int
	root  []*ask // of the run's own scope, by step
	inner map[journal.Ref]*ask
}

const fewAsks = 8

func (a *asks) len() int { return len(a.few) + a.n }

// get returns the ask of a step instance, nil when there is none.
func (a *asks) get(ref journal.Ref) *ask {
	if a.wide {
		if ref.Path != "" {
			return a.inner[ref]
		}
		if int(ref.Step) < len(a.root) {
			return a.root[ref.Step]
		}
		return nil
	}
	for _, k := range a.few {
		if k.ref == ref {
			return k
		}
	}
	return nil
}

// add takes up the ask of a step instance that has none.
func (a *asks) add(k *ask) {
	if !a.wide && len(a.few) < fewAsks {
		a.few = append(a.few, k)
		return
	}
	few := a.few
	a.wide, a.few = true, nil
	for _, k := range few {
		a.add(k)
	}
	a.n++
	if k.ref.Path != "" {
		if a.inner == nil {
			a.inner = make(map[journal.Ref]*ask, 2*fewAsks)
		}
		a.inner[k.ref] = k
		return
	}
	if short := int(k.ref.Step) + 1 - len(a.root); short > 0 {
		a.root = append(a.root, make([]*ask, short)...)
	}
	a.root[k.ref.Step] = k
}

func (a *asks) remove(k *ask) {
	if a.wide {
		if a.get(k.ref) != k {
			return
		}
		if k.ref.Path != "" {
			delete(a.inner, k.ref)
		} else {
			a.root[k.ref.Step] = nil
		}
		if a.n--; a.n == 0 {
			*a = asks{} // wide runs that wait hold nothing
		}
		return
	}
	for i, have := range a.few {
		if have == k {
			last := len(a.few) - 1
			a.few[i], a.few[last] = a.few[last], nil
			a.few = a.few[:last]
			return
		}
	}
}

// all calls fn for every ask, in no particular order.
func (a *asks) all(fn func(*ask)) {
	for _, k := range a.few {
		fn(k)
	}
	for _, k := range a.root {
		if k != nil {
			fn(k)
		}
	}
	for _, k := range a.inner {
		fn(k)
	}
}

// launch notes that an attempt is handed out; nil when it is out already, as
// after a reload.
func (c *core) launch(l *live, id taskID) *flight {
	k := l.asks.get(id.ref)
	if k != nil && k.fence != id.fence {
		k = nil
	}
	if k != nil && k.fl != nil || c.strays[id] != nil {
		return nil
	}
	if k := c.linger[id]; k != nil && k.fl != nil {
		return nil
	}
	fl := &flight{id: id, prog: l.prog, live: l}
	if k != nil {
		k.fl = fl
	} else {
		c.strays[id] = fl
	}
	return fl
}

// land notes that an attempt is not out any more, and returns it; nil when it
// was not.
func (c *core) land(l *live, id taskID) (fl *flight) {
	if l != nil && !l.gone {
		if k := l.asks.get(id.ref); k != nil && k.fence == id.fence && k.fl != nil {
			fl, k.fl = k.fl, nil
			return fl
		}
	}
	if len(c.linger) > 0 {
		if k := c.linger[id]; k != nil && k.fl != nil {
			fl, k.fl = k.fl, nil
			return fl
		}
	}
	if len(c.strays) > 0 {
		if fl = c.strays[id]; fl != nil {
			delete(c.strays, id)
		}
	}
	return fl
}

// stray keeps sight of an attempt whose run leaves memory.
func (c *core) stray(k *ask) {
	if k.fl != nil {
		c.strays[k.fl.id] = k.fl
		k.fl = nil
	}
}
