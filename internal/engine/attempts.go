// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/slots"
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
	loaded  *loadedRun // nil = it is not in memory
	attempt *inFlight  // its attempt, while it is in flight
}

type (
	slotRequest  = slots.Request[holder]
	requestSet   = slots.Set[holder]
	route        = slots.Route[holder]
	attemptTable = slots.Table[holder]
)

// attempts are the attempts in flight, with the slots that they hold.
type attempts struct {
	attemptTable
	tasks   machine.Tasks
	ignored int64 // reports that arrived too late to change anything
}

// set is the run's set of requests; nil = it is not in memory. l may be nil.
func (l *loadedRun) set() *requestSet {
	if l == nil || l.dropped {
		return nil
	}
	return &l.requests
}

// launch records that an attempt is handed out. It returns nil when the attempt is in
// flight already, as after a reload.
func (a *attempts) launch(l *loadedRun, id taskID) *inFlight {
	req := a.Launch(&l.requests, id)
	if req == nil {
		return nil
	}
	attempt := &inFlight{task: a.tasks.Take(), prog: l.prog}
	in := &attempt.report
	in.kind, in.key, in.loaded, in.m.Kind, in.m.Source, in.m.Ref, in.m.Fence = inRun, id.Key, l, machine.InResult, journal.FromWorker, id.Ref, id.Fence
	req.Holder.attempt = attempt
	return attempt
}

// finish is Finish and returns the attempt, or nil.
func (a *attempts) finish(l *loadedRun, id taskID) *inFlight { return taken(a.Finish(l.set(), id)) }

// stop is Stop and returns the attempt, or nil.
func (a *attempts) stop(l *loadedRun, id taskID) *inFlight { return taken(a.Stop(l.set(), id)) }

func taken(req *slotRequest) (attempt *inFlight) {
	if req != nil {
		attempt, req.Holder.attempt = req.Holder.attempt, nil
	}
	return attempt
}

// hold is Hold for an attempt of a run in memory.
func (a *attempts) hold(l *loadedRun, id taskID, r *route, demand *slots.Demand, job, counted bool) {
	if req := a.Hold(&l.requests, id, r, job, counted); req != nil {
		req.Holder.loaded, req.Demand = l, demand
	}
}
