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
	id     taskID
	task   machine.Task
	prog   *program
	loaded *loadedRun // for the loop; it may be gone by the time of the report

	// For whoever carries it out.
	e         *Engine
	hash      []byte      // of the rendered input
	inline    bool        // by the loop's own goroutine, which looks for the report
	cancelled atomic.Bool // it was told to stop, and nobody waits for its result
	report    input       // its result
}

// A holder is what the engine keeps with a request for a slot.
type holder struct {
	loaded  *loadedRun
	attempt *inFlight // its attempt, while that is handed out
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

// requestSlot asks for a slot for a step, unless it has asked already, as recovery does.
func (a *attempts) requestSlot(l *loadedRun, ref journal.Ref, limits []*limit) {
	if l.requests.Get(ref) == nil {
		a.arbiter.Request(&l.requests, &slotRequest{Account: l.key.Account, Ref: ref, Holder: holder{loaded: l}}, limits)
	}
}

// holdSlot counts an attempt that is already handed out, past every limit.
func (a *attempts) holdSlot(l *loadedRun, ref journal.Ref, fence journal.Fence, limits []*limit) {
	if l.requests.Get(ref) == nil {
		a.arbiter.Hold(&l.requests, &slotRequest{Account: l.key.Account, Ref: ref, Fence: fence, Holder: holder{loaded: l}}, limits)
	}
}

// launch notes that an attempt is handed out; nil when it is out already, as
// after a reload.
func (a *attempts) launch(l *loadedRun, id taskID) *inFlight {
	req := l.requests.Get(id.ref)
	if req != nil && req.Fence != id.fence {
		req = nil
	}
	if req != nil && req.Holder.attempt != nil || a.orphans[id] != nil {
		return nil
	}
	if req := a.overdue[id]; req != nil && req.Holder.attempt != nil {
		return nil
	}
	attempt := &inFlight{id: id, prog: l.prog, loaded: l}
	if req != nil {
		req.Holder.attempt = attempt
	} else {
		a.orphans[id] = attempt
	}
	return attempt
}

// finish notes that an attempt is not out any more, and returns it; nil when it
// was not.
func (a *attempts) finish(l *loadedRun, id taskID) (attempt *inFlight) {
	if l != nil && !l.dropped {
		if req := l.requests.Get(id.ref); req != nil && req.Fence == id.fence && req.Holder.attempt != nil {
			attempt, req.Holder.attempt = req.Holder.attempt, nil
			return attempt
		}
	}
	if len(a.overdue) > 0 {
		if req := a.overdue[id]; req != nil && req.Holder.attempt != nil {
			attempt, req.Holder.attempt = req.Holder.attempt, nil
			return attempt
		}
	}
	if len(a.orphans) > 0 {
		if attempt = a.orphans[id]; attempt != nil {
			delete(a.orphans, id)
		}
	}
	return attempt
}

// keepOrphan keeps sight of an attempt whose run leaves memory.
func (a *attempts) keepOrphan(req *slotRequest) {
	if req.Holder.attempt != nil {
		a.orphans[req.Holder.attempt.id] = req.Holder.attempt
		req.Holder.attempt = nil
	}
}

// endRequest ends the holding of an attempt. One that the run has ended by itself (a
// timeout, a cancel) while its action still runs keeps its slot until that has
// returned or its grace is over (X115).
func (a *attempts) endRequest(req *slotRequest) {
	if req.Holder.attempt != nil && a.overdue[req.Holder.attempt.id] == nil {
		a.overdue[req.Holder.attempt.id] = req
		return
	}
	a.arbiter.Withdraw(req)
}

// freeSlot gives back the slot of an action that has returned late or was given up.
func (a *attempts) freeSlot(id taskID) {
	if len(a.overdue) == 0 {
		return
	}
	if req := a.overdue[id]; req != nil {
		delete(a.overdue, id)
		a.arbiter.Withdraw(req)
	}
}
