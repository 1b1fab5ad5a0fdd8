// SPDX-License-Identifier: Apache-2.0

package view

import "github.com/roux-engine/roux/internal/journal"

// EachStreamed calls fn with the pieces of text that actions have streamed, in order, of the events
// in frames. Damage ends it: whoever reads the run reports it.
func EachStreamed(frames []byte, fn func(ref journal.Ref, index int64, text string)) {
	_ = journal.EachEvent(frames, func(ev *journal.Event) error {
		if ev.Kind == journal.EvNodeDelta {
			fn(ev.Ref(), ev.DeltaIndex(), ev.Text)
		}
		return nil
	})
}
