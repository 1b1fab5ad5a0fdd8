// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A caller stands for an engine: it records the last event and the last event in a
// chunk of each run, and compacts when Uncompacted exceeds its limits.
type caller struct {
	*testing.T
	s               *Store
	epoch           uint64
	last, compacted []uint64
	batch           []store.Transition
	compactions     int
}

func (c *caller) add(r int) *store.Transition {
	c.last[r]++
	n := c.last[r]
	t := store.Transition{Key: runKey(r), Epoch: c.epoch, First: n, Last: n, Frames: eventOf(r, n)}
	if n == 1 {
		t = startOf(c.epoch, runKey(r), string(eventOf(r, 1)))
	}
	c.batch = append(c.batch, t)
	return &c.batch[len(c.batch)-1]
}

// eventOf is an event of about 70 bytes that only this run has.
func eventOf(r int, n uint64) []byte {
	return fmt.Appendf(nil, "%08d %012d ................................................\n", r, n)
}

func (c *caller) compaction(r int) *store.Compaction {
	var chunk []byte
	for n := c.compacted[r] + 1; n <= c.last[r]; n++ {
		chunk = append(chunk, eventOf(r, n)...)
	}
	f := &store.Compaction{First: c.compacted[r] + 1, Last: c.last[r], Chunk: chunk, Format: 1, State: make([]byte, 100)}
	c.compacted[r] = c.last[r]
	return f
}

func (c *caller) flush() {
	c.Helper()
	mustCommit(c.T, c.s, c.batch...)
	c.batch = c.batch[:0]
}

// relieve compacts the runs that hold the oldest events until half is left.
func (c *caller) relieve() {
	c.Helper()
	size, events, _ := c.s.uncompacted()
	if size <= store.CompactBytes && events <= store.CompactEvents {
		return
	}
	for size > store.CompactBytes/2 || events > store.CompactEvents/2 {
		var oldest []store.Key
		size, events, oldest = c.s.Uncompacted()
		for _, k := range oldest {
			var r int
			if _, err := fmt.Sscanf(k.Run, "run_%d", &r); err != nil {
				c.Fatal(err)
			}
			c.compactions++
			c.batch = append(c.batch, store.Transition{Key: k, Epoch: c.epoch, Compaction: c.compaction(r)})
		}
		c.flush()
	}
}

func (c *caller) journalBytes() (stated, counted int64) {
	c.Helper()
	st, err := c.s.Stats(ctx)
	if err == nil {
		err = c.s.read.QueryRow(`SELECT ifnull(sum(length(data)), 0) FROM journal`).Scan(&counted)
	}
	if err != nil {
		c.Fatal(err)
	}
	return st.JournalBytes, counted
}

// After a million transitions the journal has at most 64 MiB, and every run can be read
// from its first event. Runs are compacted into packs when Uncompacted exceeds its
// limits. Half of the runs stop early and never get another event; one run is long.
func TestAMillionTransitionsLeaveAShortJournal(t *testing.T) {
	if testing.Short() {
		t.Skip("a million transitions are long")
	}
	const total, runs = 1_000_000, 20_000
	c := &caller{T: t, s: openWith(t, Options{Dir: t.TempDir()}), last: make([]uint64, runs), compacted: make([]uint64, runs)}
	c.epoch = own(t, c.s)
	most := int64(0)
	next := 0
	for done := 0; done < total; done++ {
		r := next % runs
		if done > total/3 {
			r = next % (runs / 2) // half of the runs never move again
		}
		if done%16 == 0 {
			r = 0 // and one is long
		}
		next += 7919
		c.add(r)
		if len(c.batch) == 512 {
			c.flush()
			c.relieve()
		}
		if done%100_000 == 0 {
			stated, _ := c.journalBytes()
			most = max(most, stated)
		}
	}
	c.flush()
	for c.s.trim() {
	}
	stated, counted := c.journalBytes()
	most = max(most, stated)
	size, events, live := c.s.uncompacted()
	t.Logf("%d transitions, %d compactions: journal %.1f MiB, at most %.1f MiB; uncompacted %.1f MiB, %d events, %d runs in the index",
		total, c.compactions, float64(stated)/(1<<20), float64(most)/(1<<20), float64(size)/(1<<20), events, live)
	if stated != counted {
		t.Errorf("Stats says %d bytes, the table has %d", stated, counted)
	}
	if most > 64<<20 {
		t.Errorf("the journal had %d bytes, want at most 64 MiB", most)
	}
	if c.compactions == 0 {
		t.Error("the rule was never applied")
	}
	check := func(s *Store) {
		t.Helper()
		for _, r := range []int{0, 1, 7919, runs/2 + 1, runs - 1} {
			var n uint64
			for after := uint64(0); ; {
				page, err := s.Events(ctx, runKey(r), after, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				for f := page.Frames; len(f) > 0; {
					n++
					want := eventOf(r, n)
					if len(f) < len(want) || string(f[:len(want)]) != string(want) {
						t.Fatalf("run %d: event %d is not there", r, n)
					}
					f = f[len(want):]
				}
				if page.Next == after {
					break
				}
				after = page.Next
			}
			if n != c.last[r] {
				t.Fatalf("run %d ends at event %d, want %d", r, n, c.last[r])
			}
		}
	}
	check(c.s)
	dir := copyOf(t, c.s.path[:len(c.s.path)-len("/roux.db")])
	began := time.Now()
	s := open(t, dir)
	found, started := 0, 0
	for _, n := range c.last {
		started += int(min(n, 1))
	}
	if err := s.Recover(ctx, func(saved *store.Saved) error {
		found++
		var r int
		if _, err := fmt.Sscanf(saved.Head.Run, "run_%d", &r); err != nil {
			return err
		}
		if saved.Err != nil || saved.Last != c.last[r] || saved.Chunked != c.compacted[r] {
			return errors.Join(saved.Err, fault.New(fault.InternalError, "run %d: last %d, chunked %d, want %d, %d", r, saved.Last, saved.Chunked, c.last[r], c.compacted[r]))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("opened and recovered %d runs in %v", found, time.Since(began))
	check(s)
	if found != started || found < runs/2 {
		t.Fatalf("%d runs recovered, want %d", found, started)
	}
}
