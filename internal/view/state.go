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

// A State is the state of a run as the engine holds it, folded from the journal
// alone: what a run waits for, and what its head and its snapshots must agree
// with. It can be read and not be acted upon.
type State struct{ run *machine.Run }

// NewState returns the state of a run of p that has no journal yet.
func NewState(p *plan.Plan) *State { return &State{machine.NewRun(machine.Prepare(p))} }

// Apply folds the next event, as it is and not masked. One that fits no state is
// fault.StoreCorrupt, and the state is useless after it.
func (s *State) Apply(ev *journal.Event) error { return s.run.Apply(ev) }

// Last is the number of the last event.
func (s *State) Last() uint64 { return s.run.Last() }

// Start is what the run was given; nil before run.started.
func (s *State) Start() *journal.Start { return s.run.Start() }

// Status is the status of the run.
func (s *State) Status() journal.RunStatus { return s.run.Status() }

// Generation is the generation of the run.
func (s *State) Generation() uint32 { return s.run.Generation() }

// WaitState is what the run waits for, in one word (R3).
func (s *State) WaitState() string { return s.run.WaitState() }

// ResumeToken names the state of the run for a request that changes it (X84).
func (s *State) ResumeToken() string { return s.run.ResumeToken() }

// Used is the credits that the run has used.
func (s *State) Used() int64 { return s.run.Used() }

// HasFailures says that steps of the run failed, whatever its status.
func (s *State) HasFailures() bool { return s.run.HasFailures() }

// Failure is why the run ended as it did; the code is empty when it completed.
func (s *State) Failure() (code fault.Code, message string) { return s.run.Failure() }

// Snapshot appends the state in the form that stores keep.
func (s *State) Snapshot(buf []byte) []byte { return s.run.Snapshot(buf) }
