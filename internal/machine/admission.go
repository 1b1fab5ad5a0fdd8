// SPDX-License-Identifier: Apache-2.0

package machine

import "github.com/roux-engine/roux/internal/journal"

// A run is queued if its account has as many live runs as it may have (X206). The caller
// says so when it starts or retries the run (Input.Queued), and sends InAdmit when it is
// the run's turn. Until then the worklist stands still: no step begins, no loop is
// served, and of the timers only the ttl fires. A queued run takes signals, pauses and a
// cancel like any other.

// queued reports whether the run waits to be admitted.
func (r *Run) queued() bool { return r.status == journal.RunQueued }

// enqueue queues a run that its account may not begin yet. It comes before the first
// event about a step of the generation.
func (r *Run) enqueue(in *Input) {
	if in.Queued {
		r.emitStatus(journal.RunQueued)
	}
}

// handleAdmit lets a queued run begin.
func (r *Run) handleAdmit() {
	if r.queued() {
		r.emitStatus(journal.RunDispatching)
	}
}

// emitStatus changes the status of a run that has not ended.
func (r *Run) emitStatus(to journal.RunStatus) {
	r.emitRun(journal.Event{Kind: journal.EvRunStatus, Flag: uint8(to), N: int64(r.status)})
}

// applyAdmitted begins the time of the loops and other composites that a retry has
// reopened: what they waited in the queue does not count for their total_timeout.
func (r *Run) applyAdmitted() {
	for _, s := range r.sortedScopes() {
		for k := range s.steps {
			if s.steps[k].status.Begun() {
				s.steps[k].at = r.now
				r.armTotal(s, int32(k))
			}
		}
	}
}

// issueAllOwed issues the commands that loops owe: while the run was queued they got
// none.
func (r *Run) issueAllOwed() {
	for _, s := range r.sortedScopes() {
		for k := range s.steps {
			r.issueOwedCommand(s.comps[int32(k)])
		}
	}
}
