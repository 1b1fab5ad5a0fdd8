// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A Reset is what the first events of a generation say about it: the steps that run again and
// what the run holds for them.
type Reset struct {
	Plan     *plan.Plan
	Steps    []string // paths, at most MaxSteps
	More     int      // other steps
	Expected int64    // what they are expected to cost; 0 for a run that does not pay
	Reserved int64    // what is held for them
}

// Apply adds an event of the generation.
func (r *Reset) Apply(ev *journal.Event) {
	switch {
	case ev.Kind == journal.EvCreditsReserved:
		r.Reserved, r.Expected = ev.Credits(), ev.Expected()
	case ev.Kind != journal.EvNodeInvalidated:
	case len(r.Steps) < MaxSteps:
		r.Steps = append(r.Steps, journal.StepPath(r.Plan, ev.Ref()))
	default:
		r.More++
	}
}
