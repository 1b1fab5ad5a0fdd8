// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
)

// An inFlight is an attempt in the hands of whoever carries it out: what they need
// in one piece, so that an attempt costs one allocation and no lookup.
type inFlight struct {
	id   taskID
	task machine.Task
	prog *program
	live *loadedRun // for the loop; it may be gone by the time of the report

	// For whoever carries it out.
	e         *Engine
	hash      []byte      // of the rendered input
	own       bool        // by the loop's own goroutine, which looks for the report
	cancelled atomic.Bool // it was told to stop, and nobody waits for its result
	report    input       // its result
}

// A requestSet is what the steps of one run want and hold. Most runs have a few;
// those of wide plans are found by their step, or by an index in inner scopes.
type requestSet struct {
	few []*slotRequest
	// Instead of few, past fewRequests and until none is left:
	wide  bool
	n     int
	root  []*slotRequest // of the run's own scope, by step
	inner map[journal.Ref]*slotRequest
}

const fewRequests = 8

func (a *requestSet) len() int { return len(a.few) + a.n }

// get returns the request of a step instance, nil when there is none.
func (a *requestSet) get(ref journal.Ref) *slotRequest {
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
func (a *requestSet) add(k *slotRequest) {
	if !a.wide && len(a.few) < fewRequests {
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
			a.inner = make(map[journal.Ref]*slotRequest, 2*fewRequests)
		}
		a.inner[k.ref] = k
		return
	}
	if short := int(k.ref.Step) + 1 - len(a.root); short > 0 {
		a.root = append(a.root, make([]*slotRequest, short)...)
	}
	a.root[k.ref.Step] = k
}

func (a *requestSet) remove(k *slotRequest) {
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
			*a = requestSet{} // wide runs that wait hold nothing
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
func (a *requestSet) all(fn func(*slotRequest)) {
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
func (c *core) launch(l *loadedRun, id taskID) *inFlight {
	k := l.requests.get(id.ref)
	if k != nil && k.fence != id.fence {
		k = nil
	}
	if k != nil && k.fl != nil || c.orphans[id] != nil {
		return nil
	}
	if k := c.overdue[id]; k != nil && k.fl != nil {
		return nil
	}
	fl := &inFlight{id: id, prog: l.prog, live: l}
	if k != nil {
		k.fl = fl
	} else {
		c.orphans[id] = fl
	}
	return fl
}

// land notes that an attempt is not out any more, and returns it; nil when it
// was not.
func (c *core) land(l *loadedRun, id taskID) (fl *inFlight) {
	if l != nil && !l.gone {
		if k := l.requests.get(id.ref); k != nil && k.fence == id.fence && k.fl != nil {
			fl, k.fl = k.fl, nil
			return fl
		}
	}
	if len(c.overdue) > 0 {
		if k := c.overdue[id]; k != nil && k.fl != nil {
			fl, k.fl = k.fl, nil
			return fl
		}
	}
	if len(c.orphans) > 0 {
		if fl = c.orphans[id]; fl != nil {
			delete(c.orphans, id)
		}
	}
	return fl
}

// orphan keeps sight of an attempt whose run leaves memory.
func (c *core) orphan(k *slotRequest) {
	if k.fl != nil {
		c.orphans[k.fl.id] = k.fl
		k.fl = nil
	}
}
