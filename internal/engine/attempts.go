// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/slots"
	"github.com/roux-engine/roux/internal/store"
)

// An inFlight is an attempt that has been handed out. It holds everything that is
// needed to carry it out, so that an attempt costs one allocation and no lookup.
type inFlight struct {
	task      *machine.Task // until its report is handled, which returns it to attempts.tasks
	prog      *program.Program
	e         *Engine     // and what follows: for the goroutine that carries it out
	settle    *settlement // what it makes a result of; nil = its action is called
	inline    bool        // by the loop's own goroutine, which then takes the report from the inbox
	cancelled atomic.Bool // it was told to stop, and its result is not needed
	// report is its result. The run, the step and the fence name the attempt from the
	// beginning; the run may have left memory when the report arrives.
	report input
}

func (a *inFlight) id() taskID { return a.report.task() }

// A holder is what the engine stores with a request for a slot.
type holder struct {
	loaded  *loadedRun
	attempt *inFlight // its attempt, while it is in flight
}

type (
	slotRequest = slots.Request[holder]
	requestSet  = slots.Set[holder]
	limit       = slots.Limit[holder]
)

// attempts tracks the attempts in flight and the slots that they hold.
type attempts struct {
	arbiter *slots.Arbiter[holder]
	tasks   machine.Tasks
	// orphans are the slot requests of attempts in flight, or that go on as external jobs,
	// whose run is not in memory. They keep their slots, and after a reload their attempts are
	// not handed out again.
	orphans map[taskID]*slotRequest
	// overdue are the slot requests of attempts that have ended for their run (timed out,
	// cancelled) but whose action has not returned, and of external jobs whose end is not
	// durable yet.
	overdue map[taskID]*slotRequest
	ignored int64 // reports that arrived too late to change anything
}

// requestSlot requests a slot for a step, unless the step has a request already, as
// after recovery.
func (a *attempts) requestSlot(l *loadedRun, ref journal.Ref, limits []*limit) {
	if l.requests.Get(ref) == nil {
		a.arbiter.Request(&l.requests, &slotRequest{Account: l.key.Account, Ref: ref, Holder: holder{loaded: l}}, limits)
	}
}

// holdSlot counts an attempt that has already been handed out, past every limit. One that is
// still in flight in this process has kept its slots.
func (a *attempts) holdSlot(l *loadedRun, id taskID, limits []*limit) {
	if l.requests.Get(id.ref) != nil {
		return
	}
	req := a.orphans[id]
	if late := a.overdue[id]; req == nil && late != nil && late.Parted() { // its end was taken back
		req = late
		delete(a.overdue, id)
	}
	if delete(a.orphans, id); req == nil {
		req = &slotRequest{Account: l.key.Account, Ref: id.ref, Fence: id.fence}
	}
	req.Holder.loaded = l
	a.arbiter.Hold(&l.requests, req, limits)
}

// launch records that an attempt is handed out. It returns nil when the attempt is in
// flight already, as after a reload.
func (a *attempts) launch(l *loadedRun, id taskID) *inFlight {
	req := l.requests.Get(id.ref)
	if req != nil && req.Fence != id.fence {
		req = nil
	}
	late := a.overdue[id]
	if req != nil && req.Holder.attempt != nil || late != nil && late.Holder.attempt != nil || a.orphans[id] != nil {
		return nil
	}
	if req == nil {
		req = &slotRequest{Account: id.key.Account, Ref: id.ref, Fence: id.fence}
		a.orphans[id] = req
	}
	attempt := &inFlight{task: a.tasks.Take(), prog: l.prog}
	in := &attempt.report
	in.kind, in.key, in.loaded, in.m.Kind, in.m.Source, in.m.Ref, in.m.Fence = inRun, id.key, l, machine.InResult, journal.FromWorker, id.ref, id.fence
	req.Holder.attempt = attempt
	return attempt
}

// finish records that an attempt is no longer in flight and returns it, or nil if it
// was not in flight.
func (a *attempts) finish(l *loadedRun, id taskID) (attempt *inFlight) {
	if l != nil && !l.dropped {
		if req := l.requests.Get(id.ref); req != nil && req.Fence == id.fence && req.Holder.attempt != nil {
			attempt, req.Holder.attempt = req.Holder.attempt, nil
			return attempt
		}
	}
	if req := a.overdue[id]; req != nil && req.Holder.attempt != nil {
		attempt, req.Holder.attempt = req.Holder.attempt, nil
		return attempt
	}
	if req := a.orphans[id]; req != nil && !req.Parted() {
		delete(a.orphans, id)
		attempt, req.Holder.attempt = req.Holder.attempt, nil
		a.arbiter.Withdraw(req)
	}
	return attempt
}

// stop is finish for an attempt whose action is told to stop. If its step settles later,
// because a child run beside it has not ended, the slot no longer waits for that. l may be
// nil: the run is not in memory.
func (a *attempts) stop(l *loadedRun, id taskID) *inFlight {
	if req := a.orphans[id]; req != nil && !req.Parted() { // its action has not returned
		delete(a.orphans, id)
		a.overdue[id] = req
	}
	attempt := a.finish(l, id)
	if l == nil || l.dropped {
		return attempt
	}
	if req := l.requests.Get(id.ref); req != nil && req.Fence == id.fence {
		if l.requests.Remove(req); attempt == nil { // it was not handed out, or has returned
			a.arbiter.Withdraw(req)
			return nil
		}
		a.overdue[id] = req
	}
	return attempt
}

// keepOrphan keeps the request of an attempt whose run leaves memory while it is in flight or
// goes on as an external job, and reports whether it is one.
func (a *attempts) keepOrphan(req *slotRequest) bool {
	if req.Holder.attempt == nil && !req.Parted() {
		return false
	}
	a.orphans[taskID{req.Holder.loaded.key, req.Ref, req.Fence}] = req
	req.Holder.loaded = nil
	return true
}

// endRequest ends an attempt's request for a slot. If the run has ended the attempt
// itself (a timeout, a cancel) while its action still runs, the slot stays taken until
// the action returns or its grace period ends (X115).
//
// The slots of an external job are freed when its end is durable (freeSlot): until then its
// step may be found to wait for it still.
func (a *attempts) endRequest(req *slotRequest) (job bool) {
	if req.Parted() {
		a.overdue[taskID{req.Holder.loaded.key, req.Ref, req.Fence}] = req
		return true
	}
	if attempt := req.Holder.attempt; attempt != nil && a.overdue[attempt.id()] == nil {
		a.overdue[attempt.id()] = req
		return false
	}
	a.arbiter.Withdraw(req)
	return false
}

// takeBack takes back the ends of a run's attempts that are not written, and of which no
// action has been told: as long as the run is not in memory they are attempts in flight.
func (a *attempts) takeBack(key store.Key) {
	for _, id := range idsOf(a.overdue, key) {
		if a.keepOrphan(a.overdue[id]) {
			delete(a.overdue, id)
		}
	}
}

// endOrphans ends the requests of a run that adoptJobs has not found again: those of jobs that
// have ended, or whose submission was not written.
func (a *attempts) endOrphans(key store.Key) {
	for _, id := range idsOf(a.orphans, key) {
		a.arbiter.Withdraw(a.orphans[id])
		delete(a.orphans, id)
	}
}

// idsOf returns the attempts of a run among those of a map, sorted: one seed must give one
// order.
func idsOf[T any](of map[taskID]T, key store.Key) (ids []taskID) {
	for id := range of {
		if id.key == key {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b taskID) int {
		return cmp.Or(a.ref.Compare(b.ref), cmp.Compare(a.fence.Gen, b.fence.Gen), cmp.Compare(a.fence.Attempt, b.fence.Attempt))
	})
	return ids
}

// freeSlot frees the slot of an action that has returned late or was abandoned, or with job
// those of an external job. What workers report later of its attempt frees nothing.
func (a *attempts) freeSlot(id taskID, job bool) {
	of := a.overdue
	if job && of[id] == nil {
		of = a.orphans // its run has left memory meanwhile
	}
	if req := of[id]; req != nil && req.Parted() == job {
		delete(of, id)
		a.arbiter.Withdraw(req)
	}
}
