// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/simulate/timetable"
)

// numKinds is more than the number of any kind of event.
const numKinds = 64

// Stats are counts over schedules.
type Stats struct {
	// Transitions are turns of runs that emitted events: one Decide that changed a
	// state, whether or not it was committed. An input that changes nothing is not
	// counted, and a turn of a thousand events counts once.
	Transitions int64
	Events      int64 // that became durable
	Commits     int64
	Runs        int64 // that became durable
	Ended       int64
	Requests    int64 // of users
	Effects     int64 // let out by the engine
	Crashes     int64 // of any kind
	Suspended   int64 // runs that were suspended
	Quarantined int64
	Reads       int64 // events that readers saw
	Removed     int64 // runs removed

	// Of remote workers: leases that were granted, answers with a task that were lost, tasks that
	// were taken from a silent worker, that ended because they were lost too often, that a process
	// found at its start, and results that did not count.
	TasksGranted, TaskAnswersLost, TasksLost, TasksInterrupted, TasksAdopted, LateResults, TasksHandedOn, TasksUnstored int64

	Scheduled timetable.Counts

	// Webhooks that the keeper of jobs has acted upon, and those that came before their job was known.
	Webhooks, EarlyWebhooks int64

	Trees Trees

	Faults [numFaults]int64
	Kinds  [numKinds]int64   // events by machine.EventKind
	Inputs [32]int64         // turns by machine.InputKind
	Steps  [plan.Kinds]int64 // that completed or failed, by kind
}

// Add adds the counts of o.
func (s *Stats) Add(o *Stats) {
	for _, f := range []struct {
		to   *int64
		from int64
	}{
		{&s.Transitions, o.Transitions}, {&s.Events, o.Events}, {&s.Commits, o.Commits}, {&s.Runs, o.Runs}, {&s.Ended, o.Ended},
		{&s.Requests, o.Requests}, {&s.Effects, o.Effects}, {&s.Crashes, o.Crashes}, {&s.Suspended, o.Suspended},
		{&s.Quarantined, o.Quarantined}, {&s.Reads, o.Reads}, {&s.Removed, o.Removed},
		{&s.TasksGranted, o.TasksGranted}, {&s.TaskAnswersLost, o.TaskAnswersLost}, {&s.TasksLost, o.TasksLost},
		{&s.TasksInterrupted, o.TasksInterrupted}, {&s.TasksAdopted, o.TasksAdopted}, {&s.LateResults, o.LateResults}, {&s.TasksHandedOn, o.TasksHandedOn}, {&s.TasksUnstored, o.TasksUnstored},
		{&s.Webhooks, o.Webhooks}, {&s.EarlyWebhooks, o.EarlyWebhooks},
	} {
		*f.to += f.from
	}
	s.Scheduled.Add(&o.Scheduled)
	s.Trees.Add(&o.Trees)
	for i := range s.Faults {
		s.Faults[i] += o.Faults[i]
	}
	for i := range s.Kinds {
		s.Kinds[i] += o.Kinds[i]
	}
	for i := range s.Inputs {
		s.Inputs[i] += o.Inputs[i]
	}
	for i := range s.Steps {
		s.Steps[i] += o.Steps[i]
	}
}

// FaultCount is how many faults of all kinds occurred.
func (s *Stats) FaultCount() (n int64) {
	for _, f := range s.Faults {
		n += f
	}
	return n
}

// EachFault calls fn for every kind of fault with its count.
func (s *Stats) EachFault(fn func(name string, n int64)) {
	for f, n := range s.Faults {
		fn(Fault(f).String(), n)
	}
}

// EachStep calls fn for every kind of step with how many steps of it settled.
func (s *Stats) EachStep(fn func(kind plan.Kind, n int64)) {
	for k, n := range s.Steps {
		fn(plan.Kind(k), n)
	}
}

// EachKind calls fn for every kind of event that occurred.
func (s *Stats) EachKind(fn func(kind journal.EventKind, n int64)) {
	for k, n := range s.Kinds {
		if n > 0 {
			fn(journal.EventKind(k), n)
		}
	}
}
