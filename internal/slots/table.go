// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"cmp"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// An ID identifies an attempt that was handed out.
type ID struct {
	Key   store.Key
	Ref   journal.Ref
	Fence journal.Fence
}

// A Table tracks the attempts in flight and the slots that they hold, while their runs come into
// memory and leave it. Where a method wants the set of a run, nil says that the run is not in
// memory.
type Table[H any] struct {
	Arbiter *Arbiter[H]
	// Unloaded is told of a request that is kept while its run leaves memory.
	Unloaded func(*Request[H])
	// orphans are the requests of attempts in flight, or that go on as external jobs, whose run
	// is not in memory. They keep their slots, and after a reload their attempts are not handed
	// out again.
	orphans map[ID]*Request[H]
	// overdue are the requests of attempts that have ended for their run (timed out, cancelled)
	// but whose action has not returned, and of external jobs whose end is not durable yet.
	overdue map[ID]*Request[H]
	// counted has how many external jobs of runs that are not in memory have no request, by the
	// limits of which they hold slots.
	counted map[held[H]]int
}

// NewTable returns a table of an engine that runs at most n attempts at once.
func NewTable[H any](n int, unloaded func(*Request[H])) Table[H] {
	return Table[H]{New[H](n), unloaded, map[ID]*Request[H]{}, map[ID]*Request[H]{}, map[held[H]]int{}}
}

// Request requests a slot for a step, unless the step has a request already, as after recovery.
func (t *Table[H]) Request(set *Set[H], key store.Key, ref journal.Ref, holder H, route *Route[H], demand *Demand) {
	if set.Get(ref) == nil {
		t.Arbiter.Request(set, &Request[H]{Key: key, Ref: ref, Holder: holder, Demand: demand}, route)
	}
}

// Hold counts an attempt that has already been handed out, past every limit, and returns its
// request, or nil if it is counted. One that is still in flight in this process has kept its
// slots. With job it goes on as an external job, and with counted that may be one of those of which only
// the number is known.
func (t *Table[H]) Hold(set *Set[H], id ID, route *Route[H], job, counted bool) *Request[H] {
	if set.Get(id.Ref) != nil {
		return nil
	}
	req := t.orphans[id]
	if late := t.overdue[id]; req == nil && late != nil && late.Parted() { // its end was taken back
		req = late
		delete(t.overdue, id)
	}
	delete(t.orphans, id)
	if req == nil && counted {
		req = t.resume(id, route)
	}
	if req == nil {
		req = &Request[H]{Key: id.Key, Ref: id.Ref, Fence: id.Fence}
	}
	t.Arbiter.Hold(set, req, route, job)
	return req
}

// Count counts an external job of a run that is not in memory, unless it is counted already.
func (t *Table[H]) Count(id ID, route *Route[H]) {
	if t.orphans[id] != nil {
		return
	}
	req := &Request[H]{Key: id.Key, Ref: id.Ref, Fence: id.Fence}
	t.Arbiter.Count(req, route, true)
	t.orphans[id] = req
}

// Launch returns the request of an attempt that is handed out, or nil when the attempt is in
// flight already, as after a reload.
func (t *Table[H]) Launch(set *Set[H], id ID) *Request[H] {
	req := set.Get(id.Ref)
	if req != nil && req.Fence != id.Fence {
		req = nil
	}
	late := t.overdue[id]
	if req != nil && req.InFlight || late != nil && late.InFlight || t.orphans[id] != nil {
		return nil
	}
	if req == nil {
		req = &Request[H]{Key: id.Key, Ref: id.Ref, Fence: id.Fence}
		t.orphans[id] = req
	}
	req.InFlight = true
	return req
}

// Find returns the request of an attempt, or nil.
func (t *Table[H]) Find(set *Set[H], id ID) *Request[H] {
	if set != nil {
		if req := set.Get(id.Ref); req != nil && req.Fence == id.Fence {
			return req
		}
	}
	if req := t.overdue[id]; req != nil {
		return req
	}
	return t.orphans[id]
}

// Finish records that an attempt is no longer in flight and returns its request, or nil if it was
// not in flight.
func (t *Table[H]) Finish(set *Set[H], id ID) *Request[H] {
	if set != nil {
		if req := set.Get(id.Ref); req != nil && req.Fence == id.Fence && req.InFlight {
			req.InFlight = false
			return req
		}
	}
	if req := t.overdue[id]; req != nil && req.InFlight {
		req.InFlight = false
		return req
	}
	if req := t.orphans[id]; req != nil && !req.Parted() {
		delete(t.orphans, id)
		t.Arbiter.Withdraw(req)
		if req.InFlight {
			req.InFlight = false
			return req
		}
	}
	return nil
}

// Stop is Finish for an attempt whose action is told to stop. If its step settles later, because
// a child run beside it has not ended, the slot no longer waits for that.
func (t *Table[H]) Stop(set *Set[H], id ID) *Request[H] {
	if req := t.orphans[id]; req != nil && !req.Parted() { // its action has not returned
		delete(t.orphans, id)
		t.overdue[id] = req
	}
	attempt := t.Finish(set, id)
	if set == nil {
		return attempt
	}
	if req := set.Get(id.Ref); req != nil && req.Fence == id.Fence && !req.Parted() { // it may go on as a job by now
		if set.Remove(req); attempt == nil { // it was not handed out, or has returned
			t.Arbiter.Withdraw(req)
			return nil
		}
		t.overdue[id] = req
	}
	return attempt
}

// Return records that an attempt has its result while its action still runs: its slot stays
// taken until Free.
func (t *Table[H]) Return(set *Set[H], id ID) {
	if req := set.Get(id.Ref); req != nil && req.Fence == id.Fence && !req.Parted() {
		set.Remove(req)
		t.overdue[id] = req
	}
}

// Park frees the slot of the engine that an attempt held which goes on as an external job. The
// others stay taken until it ends, also if its action was told to stop before it has submitted the
// job.
func (t *Table[H]) Park(set *Set[H], id ID) {
	req := set.Get(id.Ref)
	if stopped := t.overdue[id]; req == nil && stopped != nil {
		delete(t.overdue, id)
		set.add(stopped)
		req = stopped
	}
	if req != nil && !t.Arbiter.Part(req) {
		set.Remove(req)
		t.Arbiter.Withdraw(req)
	}
}

// Unload ends the requests of a run that leaves memory. Attempts that are in flight or go on as
// external jobs keep their slots.
func (t *Table[H]) Unload(set *Set[H]) { t.Arbiter.WithdrawAll(set, t.keepOrphan) }

// UnloadOverdue does what Unload does for what has ended in runs that have left memory: their
// ends may not be durable.
func (t *Table[H]) UnloadOverdue() {
	maps.DeleteFunc(t.overdue, func(_ ID, req *Request[H]) bool { return t.keepOrphan(req) })
}

// keepOrphan keeps the request of an attempt whose run leaves memory while it is in flight or
// goes on as an external job, and reports whether it is one.
func (t *Table[H]) keepOrphan(req *Request[H]) bool {
	if !req.InFlight && !req.Parted() {
		return false
	}
	t.orphans[req.ID()] = req
	t.Unloaded(req)
	return true
}

// End ends an attempt's request for a slot. If the run has ended the attempt itself (a timeout, a
// cancel) while its action still runs, the slot stays taken until the action returns or its grace
// period ends (X115).
//
// The slots of an external job are freed when its end is durable (Free): until then its step may
// be found to wait for it still. End reports whether it is one.
func (t *Table[H]) End(set *Set[H], req *Request[H]) (job bool) {
	set.Remove(req)
	if req.Parted() {
		t.overdue[req.ID()] = req
		return true
	}
	if req.InFlight {
		if id := req.ID(); t.overdue[id] == nil {
			t.overdue[id] = req
			return false
		}
	}
	t.Arbiter.Withdraw(req)
	return false
}

// TakeBack takes back the ends of a run's attempts that are not written, and of which no action
// has been told: as long as the run is not in memory they are attempts in flight.
func (t *Table[H]) TakeBack(key store.Key) {
	for _, id := range idsOf(t.overdue, key) {
		if t.keepOrphan(t.overdue[id]) {
			delete(t.overdue, id)
		}
	}
}

// EndOrphans ends the requests of a run that has come into memory and has not found them again:
// those of jobs that have ended, or whose submission was not written.
func (t *Table[H]) EndOrphans(key store.Key) {
	for _, id := range idsOf(t.orphans, key) {
		t.Arbiter.Withdraw(t.orphans[id])
		delete(t.orphans, id)
	}
}

// Running returns the attempts of a run that is not in memory which are in flight, in their
// order; external jobs are not among them.
func (t *Table[H]) Running(key store.Key) (ids []ID) {
	return slices.DeleteFunc(idsOf(t.orphans, key), func(id ID) bool { return t.orphans[id].Parted() })
}

// Orphaned reports whether an attempt is in flight, or goes on as an external job, whose run was
// not in memory when it was last asked for.
func (t *Table[H]) Orphaned(id ID) bool { return t.orphans[id] != nil }

// EachAway calls fn for the requests of attempts whose run is not in memory, or for which they
// have ended, in no particular order.
func (t *Table[H]) EachAway(fn func(*Request[H])) {
	for _, of := range []map[ID]*Request[H]{t.orphans, t.overdue} {
		for _, req := range of {
			fn(req)
		}
	}
}

// Away is how many attempts are in flight or go on as external jobs whose run is not in memory, and
// how many have ended for their run and still hold slots.
func (t *Table[H]) Away() (orphans, overdue int) {
	orphans = len(t.orphans)
	for _, n := range t.counted {
		orphans += n
	}
	return orphans, len(t.overdue)
}

// Free frees the slot of an action that has returned late or was abandoned, or with job those of
// an external job. What workers report later of its attempt frees nothing.
func (t *Table[H]) Free(id ID, job bool) {
	of := t.overdue
	if job && of[id] == nil {
		of = t.orphans // its run has left memory meanwhile
	}
	if req := of[id]; req != nil && req.Parted() == job {
		delete(of, id)
		t.Arbiter.Withdraw(req)
	}
}

// idsOf returns the attempts of a run among those of a map, sorted: one seed must give one order.
func idsOf[T any](of map[ID]T, key store.Key) (ids []ID) {
	for id := range of {
		if id.Key == key {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ID) int {
		return cmp.Or(a.Ref.Compare(b.Ref), cmp.Compare(a.Fence.Gen, b.Fence.Gen), cmp.Compare(a.Fence.Attempt, b.Fence.Attempt))
	})
	return ids
}
