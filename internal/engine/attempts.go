// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/slots"
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

// A holder is what the engine keeps with a request for a slot.
type holder struct {
	l  *loadedRun
	fl *inFlight // its attempt, while that is handed out
}

type (
	slotRequest = slots.Request[holder]
	requestSet  = slots.Set[holder]
	limit       = slots.Limit[holder]
)

// attempts keeps account of the attempts that are handed out and of the slots that
// they hold.
type attempts struct {
	arbiter *slots.Arbiter[holder]
	// orphans are the attempts handed out in this process whose run has left
	// memory since: after a reload they are not handed out again.
	orphans map[taskID]*inFlight
	// overdue are the slots of attempts that have ended for their run (timed out,
	// cancelled) while their action has not returned.
	overdue map[taskID]*slotRequest
	ignored int64 // reports that came too late to change anything
}

func newAttempts(concurrency int) attempts {
	return attempts{
		arbiter: newArbiter(concurrency),
		orphans: map[taskID]*inFlight{},
		overdue: map[taskID]*slotRequest{},
	}
}

func newArbiter(concurrency int) *slots.Arbiter[holder] { return slots.New[holder](concurrency) }

// request asks for a slot for a step, unless it has asked already, as recovery does.
func (a *attempts) request(l *loadedRun, ref journal.Ref, limits []*limit) {
	if l.requests.Get(ref) == nil {
		a.arbiter.Request(&l.requests, &slotRequest{Account: l.key.Account, Ref: ref, Holder: holder{l: l}}, limits)
	}
}

// hold counts an attempt that is already handed out, past every limit.
func (a *attempts) hold(l *loadedRun, ref journal.Ref, fence journal.Fence, limits []*limit) {
	if l.requests.Get(ref) == nil {
		a.arbiter.Hold(&l.requests, &slotRequest{Account: l.key.Account, Ref: ref, Fence: fence, Holder: holder{l: l}}, limits)
	}
}

// launch notes that an attempt is handed out; nil when it is out already, as
// after a reload.
func (a *attempts) launch(l *loadedRun, id taskID) *inFlight {
	k := l.requests.Get(id.ref)
	if k != nil && k.Fence != id.fence {
		k = nil
	}
	if k != nil && k.Holder.fl != nil || a.orphans[id] != nil {
		return nil
	}
	if k := a.overdue[id]; k != nil && k.Holder.fl != nil {
		return nil
	}
	fl := &inFlight{id: id, prog: l.prog, live: l}
	if k != nil {
		k.Holder.fl = fl
	} else {
		a.orphans[id] = fl
	}
	return fl
}

// land notes that an attempt is not out any more, and returns it; nil when it
// was not.
func (a *attempts) land(l *loadedRun, id taskID) (fl *inFlight) {
	if l != nil && !l.gone {
		if k := l.requests.Get(id.ref); k != nil && k.Fence == id.fence && k.Holder.fl != nil {
			fl, k.Holder.fl = k.Holder.fl, nil
			return fl
		}
	}
	if len(a.overdue) > 0 {
		if k := a.overdue[id]; k != nil && k.Holder.fl != nil {
			fl, k.Holder.fl = k.Holder.fl, nil
			return fl
		}
	}
	if len(a.orphans) > 0 {
		if fl = a.orphans[id]; fl != nil {
			delete(a.orphans, id)
		}
	}
	return fl
}

// orphan keeps sight of an attempt whose run leaves memory.
func (a *attempts) orphan(k *slotRequest) {
	if k.Holder.fl != nil {
		a.orphans[k.Holder.fl.id] = k.Holder.fl
		k.Holder.fl = nil
	}
}

// yield ends the holding of an attempt. One that the run has ended by itself (a
// timeout, a cancel) while its action still runs keeps its slot until that has
// returned or its grace is over (X115).
func (a *attempts) yield(k *slotRequest) {
	if k.Holder.fl != nil && a.overdue[k.Holder.fl.id] == nil {
		a.overdue[k.Holder.fl.id] = k
		return
	}
	a.arbiter.Withdraw(k)
}

// free gives back the slot of an action that has returned late or was given up.
func (a *attempts) free(id taskID) {
	if len(a.overdue) == 0 {
		return
	}
	if k := a.overdue[id]; k != nil {
		delete(a.overdue, id)
		a.arbiter.Withdraw(k)
	}
}
