// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
)

// StateFormat is the format of the snapshots that [State.Snapshot] writes.
const StateFormat = machine.SnapshotFormat

// A State is the state of a run as the engine holds it, built from the journal alone.
// The run's head and snapshots must agree with it. It is read-only.
type State struct{ run *machine.Run }

// NewState returns the state of a run of p, without events.
func NewState(p *plan.Plan) *State { return &State{machine.NewRun(machine.Prepare(p))} }

// Apply applies the next event, which must not be masked. An event that is impossible
// in this state is fault.StoreCorrupt, and the state must not be used after it.
func (s *State) Apply(ev *journal.Event) error { return s.run.Apply(ev) }

// Last is the number of the last event.
func (s *State) Last() uint64 { return s.run.Last() }

// Start is the start of the run; nil before run.started.
func (s *State) Start() *journal.Start { return s.run.Start() }

// Status is the status of the run.
func (s *State) Status() journal.RunStatus { return s.run.Status() }

// Generation is the generation of the run.
func (s *State) Generation() uint32 { return s.run.Generation() }

// WaitState is what the run waits for, as one word (R3).
func (s *State) WaitState() string { return s.run.WaitState() }

// ResumeToken identifies the state of the run in a request that changes it (X84).
func (s *State) ResumeToken() string { return s.run.ResumeToken() }

// Used is the credits that the run has used.
func (s *State) Used() int64 { return s.run.Used() }

// Key is the name of the key that the run was started with; "" = none.
func (s *State) Key() string {
	if start := s.run.Start(); start != nil && start.Credits != nil {
		return start.Credits.Key
	}
	return ""
}

// CreditsMissing returns the blocked step that lacks the most credits to begin, and how
// many; nil = no step waits for credits.
func (s *State) CreditsMissing(v *Run) (step *Step, n int64) {
	for _, blocked := range v.Order {
		if !blocked.Unfunded || v.ByPath[blocked.Path] != blocked {
			continue
		}
		if m := s.run.CreditsMissing(blocked.Ref); m > n {
			step, n = blocked, m
		}
	}
	return step, n
}

// HasFailures reports whether steps of the run failed, whatever its status.
func (s *State) HasFailures() bool { return s.run.HasFailures() }

// Failure is why the run did not complete; the code is empty when it completed.
func (s *State) Failure() (code fault.Code, message string) { return s.run.Failure() }

// Snapshot appends the state in the stored form.
func (s *State) Snapshot(buf []byte) []byte { return s.run.Snapshot(buf) }
