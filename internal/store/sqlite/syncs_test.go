// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// A commit, small or large, with a head or without, syncs the log once and the database
// never, and Stats counts the syncs that reached the disk.
func TestOneSyncPerCommit(t *testing.T) {
	var log, other atomic.Int64
	s := openOn(t, &disk{sync: func(wal bool) int32 {
		if wal {
			log.Add(1)
		} else {
			other.Add(1)
		}
		return 0
	}})
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "warm"))
	log.Store(0)
	other.Store(0)
	before, err := s.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var many []store.Transition
	for r := 1; r <= 100; r++ {
		many = append(many, startOf(epoch, runKey(r), "start"))
	}
	mustCommit(t, s, many...)
	for n := uint64(2); n <= 50; n++ {
		mustCommit(t, s, store.Transition{Key: runKey(0), Epoch: epoch, First: n, Last: n, Frames: eventOf(0, n)})
	}
	after, err := s.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Syncs - before.Syncs; got != 50 || log.Load() != 50 || other.Load() != 0 {
		t.Errorf("50 commits: Stats counts %d syncs, the log had %d, other files %d; want 50, 50, 0", got, log.Load(), other.Load())
	}
}
