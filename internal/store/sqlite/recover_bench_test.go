// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// BenchmarkRecover opens a store after a crash and recovers 20,000 live runs
// with a chunk, a snapshot of 100 bytes and five events in the journal each;
// beside them are 20,000 suspended ones.
func BenchmarkRecover(b *testing.B) {
	const runs = 20_000
	s := open(b, b.TempDir())
	epoch := own(b, s)
	var batch []store.Transition
	for n := uint64(1); n <= 7; n++ {
		for r := range 2 * runs {
			t := store.Transition{Key: runKey(r), Epoch: epoch, First: n, Last: n, Frames: eventOf(r, n)}
			switch {
			case n == 1:
				t = startOf(epoch, runKey(r), string(eventOf(r, 1)))
			case n == 2:
				t.Compaction = &store.Compaction{First: 1, Last: 2, Chunk: append(eventOf(r, 1), eventOf(r, 2)...), State: make([]byte, 100)}
				if r >= runs {
					t.Suspension = &store.Suspension{WakeAt: 1}
				}
			case r >= runs:
				continue
			}
			if batch = append(batch, t); len(batch) == 1000 {
				mustCommit(b, s, batch...)
				batch = batch[:0]
			}
		}
	}
	mustCommit(b, s, batch...)
	for b.Loop() {
		b.StopTimer()
		dir := copyOf(b, filepath.Dir(s.path))
		b.StartTimer()
		again := open(b, dir)
		found := 0
		if err := again.Recover(ctx, func(*store.Saved) error { found++; return nil }); err != nil {
			b.Fatal(err)
		}
		if found != runs {
			b.Fatalf("%d runs, want %d", found, runs)
		}
	}
}
