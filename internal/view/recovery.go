// SPDX-License-Identifier: Apache-2.0

package view

import "github.com/roux-engine/roux/internal/journal"

// A Recovery counts, from a run's events, what crashes did to the run.
type Recovery struct {
	Interrupted int64 // interrupted attempts
	Repeated    int   // completions of a step after its first; more than 0 only if it ran again

	done map[journal.Ref]bool
}

// Apply adds the run's next event.
func (r *Recovery) Apply(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunRecovered:
		r.Interrupted += ev.Interrupted()
	case journal.EvNodeCompleted:
		if r.done == nil {
			r.done = map[journal.Ref]bool{}
		}
		if r.done[ev.Ref()] {
			r.Repeated++
		}
		r.done[ev.Ref()] = true
	}
	return nil
}
