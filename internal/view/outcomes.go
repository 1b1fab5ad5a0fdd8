// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

// An Outcome is how a step instance ended, or one try of it that is followed by another.
type Outcome struct {
	Ref     journal.Ref
	Attempt uint32 // 0 = no attempt was made
	// Status is completed, failed, timed_out, skipped or cancelled; of a try that is
	// followed by another, retrying or lost.
	Status  string
	At      int64 // UTC µs
	Micros  int64 // how long the step instance took, waiting included; 0 = not known
	Credits ledger.Amount
	Code    fault.Code
	// Ran reports that the step ran a recipe, and that its run has ended in this commit.
	Ran bool
}

// An OutcomeReader finds the outcomes in the events of commits. It is for one goroutine,
// and allocates nothing for most commits, because there are many.
type OutcomeReader struct {
	fn    func(*Outcome)
	event func(*journal.Event) error // its method, bound once
	ev    journal.Event
	out   Outcome
	costs []stepCost // of steps whose end has not come yet
}

// A stepCost is what a step has cost, or that the run which it is has ended.
type stepCost struct {
	ref    journal.Ref
	amount ledger.Amount
	ran    bool
}

// NewOutcomeReader returns a reader that calls fn for each outcome. The argument is reused.
func NewOutcomeReader(fn func(*Outcome)) *OutcomeReader {
	r := &OutcomeReader{fn: fn}
	r.event = r.apply
	return r
}

// Read reads the events of one commit. The credits of a step, and the end of the run that a
// step waited for, are in the commit of the step's end.
func (r *OutcomeReader) Read(frames []byte) error {
	r.costs = r.costs[:0]
	return journal.EachEventInto(&r.ev, frames, r.event)
}

func (r *OutcomeReader) apply(ev *journal.Event) error {
	out := &r.out
	switch ev.Kind {
	case journal.EvNodeCharged:
		if ev.Charged() {
			r.costs = append(r.costs, stepCost{ref: ev.Ref(), amount: ev.Amount()})
		}
		return nil
	case journal.EvChildEnded:
		r.costs = append(r.costs, stepCost{ref: ev.Ref(), amount: ev.ChildUsed(), ran: true})
		return nil
	case journal.EvNodeCompleted:
		*out = Outcome{Status: "completed", Micros: ev.Micros(), Credits: ledger.Whole(ev.Cost())}
	case journal.EvNodeFailed:
		*out = Outcome{Status: failedStatus(ev.Code), Micros: ev.Micros()}
	case journal.EvNodeCancelled:
		*out = Outcome{Status: "cancelled", Micros: ev.Micros()}
	case journal.EvNodeSkipped:
		if ev.NotTaken() {
			return nil // there is no instance
		}
		*out = Outcome{Status: "skipped"}
	case journal.EvNodeRetried, journal.EvNodeFallback:
		*out = Outcome{Status: "retrying"}
	case journal.EvNodeLost:
		*out = Outcome{Status: "lost"}
	default:
		return nil
	}
	out.Ref, out.Attempt, out.At, out.Code = ev.Ref(), ev.Attempt, ev.At, ev.Code
	if len(r.costs) > 0 {
		r.costs = slices.DeleteFunc(r.costs, func(c stepCost) bool {
			if c.ref != out.Ref {
				return false
			}
			out.Credits, out.Ran = out.Credits.Plus(c.amount), out.Ran || c.ran
			return true
		})
	}
	r.fn(out)
	return nil
}
