// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// Given is what a run got from outside, beside the results of its calls.
type Given struct {
	Start   *journal.Start
	Input   map[string]any // with the edits of later generations
	Retried bool           // a person has retried it
	Signals []GivenSignal
	// Cancelled is when the end of the last generation was decided by a cancel, UTC µs; 0 = it was
	// not.
	Cancelled int64
}

// A GivenSignal is a signal that a run got.
type GivenSignal struct {
	Name string
	Data any
	At   int64 // UTC µs
}

// Apply adds the run's next event.
func (g *Given) Apply(ev *journal.Event) (err error) {
	switch ev.Kind {
	case journal.EvRunStarted:
		if g.Start, err = journal.DecodeStart(ev.Data); err != nil {
			return err
		}
		g.Input = maps.Clone(g.Start.Parameters)
	case journal.EvRunRetried:
		g.Retried, g.Cancelled = true, 0
		if edits, ok := Decoded(ev.Data).(map[string]any); ok {
			if g.Input == nil {
				g.Input = map[string]any{}
			}
			maps.Copy(g.Input, edits)
		}
	case journal.EvRunSignalled:
		g.Signals = append(g.Signals, GivenSignal{strings.Clone(ev.Text), Decoded(ev.Data), ev.At})
	case journal.EvRunEnding:
		if ev.Verdict() == journal.RunCancelled {
			g.Cancelled = ev.At
		}
	}
	return nil
}

// Sequence is the order in which the steps of a run began and ended.
type Sequence struct {
	Began, Ended map[string]uint64 // by path: the number of the event
	plan         *plan.Plan
}

// NewSequence returns the sequence of a run of p, without events.
func NewSequence(p *plan.Plan) *Sequence {
	return &Sequence{Began: map[string]uint64{}, Ended: map[string]uint64{}, plan: p}
}

// Apply adds the run's next event. Of a step that runs again in a later generation the first
// beginning counts, and the last end.
func (s *Sequence) Apply(ev *journal.Event) {
	switch ev.Kind {
	case journal.EvNodeStarted, journal.EvChildStarted, journal.EvNodeOpened, journal.EvNodeWaiting, journal.EvNodeCompleted, journal.EvNodeFailed:
		if path := journal.StepPath(s.plan, ev.Ref()); s.Began[path] == 0 {
			s.Began[path] = ev.Seq
		}
	}
	switch ev.Kind {
	case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled:
		s.Ended[journal.StepPath(s.plan, ev.Ref())] = ev.Seq
	}
}

// AwaitedSignal returns the signal that a step of a run of p begins to wait for with an event.
func AwaitedSignal(p *plan.Plan, ev *journal.Event) (path, signal string, ok bool) {
	if ev.Kind != journal.EvNodeWaiting || ev.Text == "" {
		return "", "", false
	}
	return journal.StepPath(p, ev.Ref()), strings.Clone(ev.Text), true
}

// Value returns a value, as JSON, as the run may show it.
func (m *Mask) Value(raw []byte) []byte {
	return m.Event(&journal.Event{Kind: journal.EvNodeLog, Data: raw}).Data
}
