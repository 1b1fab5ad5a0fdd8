// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// I15: what a burst of runs took is given back when they are parked, however long
// nothing follows: no entry, pack, row or transition of it is held.
func TestI15_BurstLeavesNothing(t *testing.T) {
	for _, runs := range []int{5 * keptRuns, keptRuns / 2} {
		burst(t, runs)
	}
}

func burst(t *testing.T, runs int) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	var starts, parks []store.Transition
	for n := range runs {
		starts = append(starts, startOf(epoch, runKey(n), "1"))
		parks = append(parks, store.Transition{
			Key: runKey(n), Epoch: epoch, Park: &store.Park{},
			Fold: &store.Fold{First: 1, Last: 1, Chunk: make([]byte, 100), Format: 1, State: make([]byte, 100)},
		})
	}
	mustCommit(t, s, starts...)
	mustCommit(t, s, parks...)

	s.w.Lock()
	defer s.w.Unlock()
	c := &s.c
	if len(c.fresh) != 0 || c.packing.full != nil || cap(c.buf) > keptBytes {
		t.Errorf("the commit keeps %d entries, %d packs and room for %d bytes", len(c.fresh), len(c.packing.full), cap(c.buf))
	}
	if most := max(cap(c.touched), cap(c.accepted), cap(c.places)); most > 2*keptRuns {
		t.Errorf("the commit keeps room for %d runs", most)
	}
	for _, e := range c.touched[:cap(c.touched)] {
		if e != nil {
			t.Fatalf("the commit holds run %s", e.key.Run)
		}
	}
	if len(s.x.runs) != 0 || len(s.x.queue) > keptRuns {
		t.Errorf("the index keeps %d runs and %d places", len(s.x.runs), len(s.x.queue))
	}
}
