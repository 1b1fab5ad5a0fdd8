// SPDX-License-Identifier: Apache-2.0

package view

import "github.com/roux-engine/roux/internal/journal"

// A Recovery tells from a run's events what crashes did to it.
type Recovery struct {
	Interrupted int64 // attempts that were under way
	Repeated    int   // completions of a step beyond its first: 0, unless it ran anew

	done map[journal.Ref]bool
}

// Apply folds the run's next event.
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
