// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/store"
)

// I15: after a burst of runs is suspended, the store releases the memory it took, even
// if no commit follows: no entry, pack, row or transition of these runs stays in
// memory.
func TestI15_BurstLeavesNothing(t *testing.T) {
	for _, runs := range []int{5 * keptRuns, keptRuns / 2} {
		burst(t, runs)
	}
}

func burst(t *testing.T, runs int) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	var starts, suspensions []store.Transition
	for n := range runs {
		starts = append(starts, startOf(epoch, runKey(n), "1"))
		suspensions = append(suspensions, store.Transition{
			Key: runKey(n), Epoch: epoch, Suspension: &store.Suspension{},
			Compaction: &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, 100), Format: 1, State: make([]byte, 100)},
		})
	}
	mustCommit(t, s, starts...)
	mustCommit(t, s, suspensions...)

	s.w.Lock()
	defer s.w.Unlock()
	c := &s.c
	if len(c.fresh) != 0 || cap(c.buf) > keptBytes {
		t.Errorf("the commit keeps %d entries and room for %d bytes", len(c.fresh), cap(c.buf))
	}
	if most := max(cap(c.touched), cap(c.accepted), cap(c.places)); most > 2*keptRuns {
		t.Errorf("the commit keeps room for %d runs", most)
	}
	for _, e := range c.touched[:cap(c.touched)] {
		if e != nil {
			t.Fatalf("the commit holds run %s", e.key.Run)
		}
	}
	if s.x.recent[0].data != nil || s.x.recent[1].data != nil {
		t.Errorf("rows that nobody needs any more are remembered")
	}
	if len(s.x.runs) != 0 || len(s.x.queue) > keptRuns {
		t.Errorf("the index keeps %d runs and %d places", len(s.x.runs), len(s.x.queue))
	}
}

// A journal of few, large rows is trimmed even if no commit follows, because the next
// start would read these rows.
func TestARestingJournalIsShort(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	var suspensions []store.Transition
	for n := range 12 {
		mustCommit(t, s, startOf(epoch, runKey(n), strings.Repeat("x", 1<<20)))
		suspensions = append(suspensions, store.Transition{Key: runKey(n), Epoch: epoch, Suspension: &store.Suspension{},
			Compaction: &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, 100), Format: 1, State: make([]byte, 100)}})
	}
	mustCommit(t, s, suspensions...)
	limit := time.Now().Add(10 * time.Second)
	for {
		st, err := s.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if st.JournalBytes <= maxDead {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d rows with %d bytes stay", st.JournalRows, st.JournalBytes)
		}
	}
}

// The newest rows are read from memory, with the same result as from the table. The
// buffers of large rows are released once small rows follow, and those of rows that a
// chunk covers are released too.
func TestNewestRowsAreRemembered(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), strings.Repeat("x", longestRecent)))
	mustCommit(t, s, startOf(epoch, runKey(1), strings.Repeat("y", longestRecent/2)))
	refs := func(n int) ref { return s.view(runKey(n)).refs[0] }
	if s.x.recentRecord(refs(0)) != nil || s.x.recentRecord(refs(1)) == nil {
		t.Error("a very long row is remembered, or a long one is not")
	}
	for n := 2; n < 10; n++ {
		mustCommit(t, s, startOf(epoch, runKey(n), fmt.Sprint("frames of ", n)))
		for i := n - 1; i <= n; i++ {
			r := refs(i)
			var stored []byte
			if err := s.q.record.QueryRow(r.row, int64(r.off)+1, int64(r.n)).Scan(&stored); err != nil {
				t.Fatal(err)
			}
			if got := s.x.recentRecord(r); !bytes.Equal(got, stored) || len(got) == 0 {
				t.Fatalf("run %d: %q is remembered, %q is stored", i, got, stored)
			}
		}
		if s.x.recentRecord(refs(n-2)) != nil {
			t.Errorf("the row before the last two is remembered")
		}
	}
	if got := cap(s.x.recent[0].data) + cap(s.x.recent[1].data) + cap(s.c.buf); got > keptBytes {
		t.Errorf("%d bytes of large rows are held", got)
	}
	kept := s.x.recent[0].id
	compaction := store.Transition{Key: runKey(9), Epoch: epoch, Suspension: &store.Suspension{},
		Compaction: &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, 100), Format: 1, State: make([]byte, 100)}}
	mustCommit(t, s, compaction)
	if s.x.recent[0].id == kept || s.x.recent[1].id == kept {
		t.Error("a row without events that are needed is remembered")
	}
}
