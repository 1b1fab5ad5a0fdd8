// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"

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
	cancelled atomic.Bool // it was told to stop, and nobody waits for its result
	report    input       // its result
}

// asks are those of one run: what its steps wish and hold. Most runs have a few;
// for those of wide plans there is an index.
type asks struct {
	few  []*ask
	many map[machine.Ref]*ask // instead of few, past fewAsks
}

const fewAsks = 8

func (a *asks) len() int { return len(a.few) + len(a.many) }

// get returns the ask of a step instance, nil when there is none.
func (a *asks) get(ref machine.Ref) *ask {
	if a.many != nil {
		return a.many[ref]
	}
	for _, k := range a.few {
		if k.ref == ref {
			return k
		}
	}
	return nil
}

func (a *asks) add(k *ask) {
	if a.many == nil && len(a.few) < fewAsks {
		a.few = append(a.few, k)
		return
	}
	if a.many == nil {
		a.many = make(map[machine.Ref]*ask, 2*fewAsks)
		for _, k := range a.few {
			a.many[k.ref] = k
		}
		a.few = nil
	}
	a.many[k.ref] = k
}

func (a *asks) remove(k *ask) {
	if a.many != nil {
		if a.many[k.ref] == k {
			delete(a.many, k.ref)
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
	for _, k := range a.many {
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
