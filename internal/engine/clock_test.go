// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A wallClock is time.Now on a machine whose wall clock is set while the process runs:
// the wall reading jumps, the monotonic one does not.
type wallClock struct{ jump atomic.Int64 } // seconds

func (c *wallClock) Now() time.Time {
	t := time.Now()
	// The first word of a Time that has a monotonic reading holds the seconds of
	// the wall above 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(c.jump.Load()) << 30
	return t
}

// A jump of the wall clock while the process runs, forward or back, neither fires nor
// delays a timer, and the times of a journal advance evenly (I10).
func TestI10_WallClockJumps(t *testing.T) {
	const hours = 48 * 3600
	for name, jump := range map[string]int64{"forward": hours, "back": -hours} {
		t.Run(name, func(t *testing.T) {
			clock := new(wallClock)
			before := clock.Now()
			clock.jump.Store(jump)
			if after := clock.Now(); after.Sub(before) > time.Minute || after.Sub(before) < 0 ||
				after.Unix()-before.Unix() < jump-60 || after.Unix()-before.Unix() > jump+60 {
				t.Fatal("this release of Go has another layout of time.Time: fix wallClock")
			}
			clock.jump.Store(0)
			st := memory.New(memory.Options{})
			e := openEngine(t, st, Config{Now: clock.Now}, noop())
			long := start(t, e, planOf(t, "name: long\nsteps:\n  - {id: w, wait: {duration: 24h}}\n"), nil)
			short := start(t, e, planOf(t, "name: short\nsteps:\n  - {id: w, wait: {duration: 100ms}}\n"), nil)
			began := e.now()
			clock.jump.Store(jump)
			if d := time.Duration(e.now()-began) * time.Microsecond; d < 0 || d > time.Hour {
				t.Fatalf("the engine's time jumps by %s with the wall clock", d)
			}

			// The short wait ends when it is due by the monotonic clock. By the wall
			// clock it would last two days, or the long one would end with it.
			head := waitForEnd(t, e, short)
			if took := time.Duration(head.Ended-head.Created) * time.Microsecond; head.Status != "completed" || took < 100*time.Millisecond || took > time.Hour {
				t.Errorf("the short run is %s after %s by its journal", head.Status, took)
			}
			after := waitForEnd(t, e, start(t, e, planOf(t, chain(2), noop()), nil))
			if took := time.Duration(after.Ended-began) * time.Microsecond; took < 0 || took > time.Hour {
				t.Errorf("a run after the jump ends %s after it", took)
			}
			if err := e.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if head, err := st.Head(t.Context(), store.Key{Account: acc, Run: long}); err != nil || head.Ended != 0 {
				t.Errorf("the run that waits for a day is %s (%v)", head.Status, err)
			}
		})
	}
}

// A file that was uploaded after the wall clock was set back counts as new (I10):
// retention keeps it, in the process that saw the jump and in one whose journal is
// ahead of the wall clock.
func TestI10_RetentionAfterAJump(t *testing.T) {
	const twoDays = 48 * 3600
	clock := new(wallClock)
	dir := t.TempDir()
	files := func() *blob.Store {
		b, err := blob.Open(blob.Config{Dir: filepath.Join(dir, "files"), Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	kept := func(when string, e *Engine, b *blob.Store, f journal.File) {
		t.Helper()
		if got, err := e.Clean(t.Context(), false); err != nil || !hasFile(t, b, f) {
			t.Errorf("%s: what was uploaded just now was removed: %+v, %v", when, got, err)
		}
	}
	st, b := memory.New(memory.Options{}), files()
	e := openEngine(t, st, Config{Now: clock.Now, Blobs: b}, noop())
	clock.jump.Store(-twoDays)
	kept("while it is back", e, b, upload(t, b, "back"))
	again := upload(t, b, "again")
	clock.jump.Store(0)
	kept("once it is right again", e, b, again)
	clock.jump.Store(twoDays)
	kept("while it is ahead", e, b, upload(t, b, "ahead"))
	e.crash()

	// A process with a clock that is two days ahead, then one with the right clock.
	e = openEngine(t, st.Reopen(), Config{Now: clock.Now, Blobs: files()}, noop())
	waitForEnd(t, e, start(t, e, planOf(t, chain(1), noop()), nil))
	e.crash()
	clock.jump.Store(0)
	b = files()
	e = openEngine(t, st.Reopen(), Config{Now: clock.Now, Blobs: b}, noop())
	if err := e.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ahead := e.now() - clock.Now().UnixMicro(); ahead < 40*3600*1_000_000 {
		t.Fatalf("the engine is %d µs ahead of the wall clock, want two days", ahead)
	}
	kept("behind the journal", e, b, upload(t, b, "behind"))
}
