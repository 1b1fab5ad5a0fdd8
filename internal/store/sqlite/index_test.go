// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// A shadow is the expected state of a run, from the transitions that the test made.
type shadow struct {
	last, chunked    uint64
	ends             []uint64 // of the transitions after chunked
	at               []int    // in which commit each was made
	turn             int      // the commit that put the run into the queue of runs to compact
	suspended, ended bool
}

// uncompacted reports whether the run has events only in the journal.
func (r *shadow) uncompacted() bool { return len(r.ends) > 0 }

// TestIndexAddsUp: after any transitions the index has the events that are only in the
// journal, their size and their rows, the runs with such events in the order in which
// they got them, and the rows that are no longer needed. So has an index that is
// rebuilt after the store is opened again.
func TestIndexAddsUp(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			dir := t.TempDir()
			s := open(t, dir)
			epoch := own(t, s)
			runs := map[store.Key]*shadow{}
			commits, transitions := 0, 0
			for step := range 150 {
				batch, after := draw(r, epoch, runs, step)
				if len(batch) == 0 {
					continue
				}
				mustCommit(t, s, batch...)
				commits, transitions = commits+1, transitions+len(batch)
				runs = after
				if r.IntN(10) == 0 {
					s.trim()
				}
				addsUp(t, s, runs)
				if st, err := s.Stats(ctx); err != nil || st.Commits != int64(commits) || st.Transitions != int64(transitions) {
					t.Errorf("step %d: %+v, %v; there were %d commits of %d transitions", step, st, err, commits, transitions)
				}
				if t.Failed() {
					t.Fatalf("at step %d", step)
				}
				if r.IntN(40) == 0 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, dir)
					commits, transitions, epoch = 0, 0, own(t, s)
					for _, run := range runs {
						if run.uncompacted() {
							run.turn = run.at[0]
						}
					}
					addsUp(t, s, runs)
				}
			}
		})
	}
}

// draw draws some transitions, at most one of each run, and returns the state of these
// runs after them.
func draw(r *rand.Rand, epoch uint64, runs map[store.Key]*shadow, step int) (batch []store.Transition, after map[store.Key]*shadow) {
	after = map[store.Key]*shadow{}
	for key, run := range runs {
		is := *run
		is.ends, is.at = slices.Clone(run.ends), slices.Clone(run.at)
		after[key] = &is
	}
	for range 1 + r.IntN(6) {
		key := runKey(r.IntN(30))
		if slices.ContainsFunc(batch, func(t store.Transition) bool { return t.Key == key }) {
			continue
		}
		run := after[key]
		if run == nil {
			run = &shadow{}
			after[key] = run
		}
		tr := store.Transition{Key: key, Epoch: epoch}
		if run.last == 0 || r.IntN(4) > 0 {
			tr.First, tr.Last = run.last+1, run.last+1+r.Uint64N(3)
			tr.Frames = []byte(strings.Repeat("f", 1+r.IntN(300)))
			if !run.uncompacted() {
				run.turn = step
			}
			run.ends, run.at, run.last, run.suspended = append(run.ends, tr.Last), append(run.at, step), tr.Last, false
		}
		if run.last == tr.Last && (tr.First == 1 || r.IntN(4) == 0) {
			tr.Head = &store.Head{Key: key, Recipe: "r", Status: "running", Created: 1, Updated: 1}
			if run.ended = r.IntN(4) == 0; run.ended {
				tr.Head.Ended = 2
			}
		}
		if run.uncompacted() && r.IntN(3) == 0 {
			n := 1 + r.IntN(len(run.ends))
			tr.Compaction = &store.Compaction{First: run.chunked + 1, Last: run.ends[n-1], Chunk: []byte("chunk"), Format: 1, State: []byte("state")}
			run.chunked, run.ends, run.at = tr.Compaction.Last, run.ends[n:], run.at[n:]
			run.turn = step // what a compaction leaves is younger
		}
		if !run.uncompacted() && r.IntN(2) == 0 {
			tr.Suspension = &store.Suspension{WakeAt: int64(step)}
			run.suspended = true
		}
		if tr.First != 0 || tr.Compaction != nil || tr.Suspension != nil {
			batch = append(batch, tr)
		}
	}
	return batch, after
}

// addsUp compares the index with the expected state of the runs.
func addsUp(t *testing.T, s *Store, runs map[store.Key]*shadow) {
	t.Helper()
	size, events, oldest := s.Uncompacted()
	s.w.Lock()
	defer s.w.Unlock()
	x := &s.x
	live, came := map[int64]int{}, map[store.Key]int{}
	wantSize, wantEvents := int64(0), int64(0)
	for key, run := range runs {
		e := x.runs[key]
		if run.uncompacted() {
			came[key] = run.turn
		}
		// A live run without uncompacted events may be in the index or not.
		if held := e != nil; run.uncompacted() && !held || held && !run.uncompacted() && (run.suspended || run.ended) {
			t.Errorf("run %s is in the index: %v, while it is %+v", key.Run, held, run)
		}
		if e == nil {
			continue
		}
		if e.last != run.last || e.chunked != run.chunked || len(e.refs) != len(run.ends) || e.committing || len(e.added) != 0 {
			t.Errorf("run %s is %+v, want %+v", key.Run, e, run)
			continue
		}
		first := e.chunked + 1
		for i, ref := range e.refs {
			if ref.first != first || ref.last != run.ends[i] {
				t.Errorf("run %s: record %d has the events from %d to %d", key.Run, i, ref.first, ref.last)
			}
			first = ref.last + 1
			live[ref.row]++
			wantSize += int64(ref.n)
			wantEvents += int64(ref.last - ref.first + 1)
			if data := x.recentRecord(ref); data != nil {
				var stored []byte
				if err := s.q.record.QueryRow(ref.row, int64(ref.off)+1, int64(ref.n)).Scan(&stored); err != nil || !bytes.Equal(stored, data) {
					t.Errorf("run %s: record %d is remembered otherwise than it is stored: %v", key.Run, i, err)
				}
			}
		}
	}
	if size != wantSize || events != wantEvents {
		t.Errorf("%d uncompacted events of %d bytes, want %d of %d", events, size, wantEvents, wantSize)
	}
	inOrder(t, x, oldest, came)
	rowsAddUp(t, s, live)
}

// inOrder checks that Uncompacted returned each run with uncompacted events once, in the
// order of their turns, and that index.oldest returns no more than its limit.
func inOrder(t *testing.T, x *sharedIndex, oldest []store.Key, came map[store.Key]int) {
	t.Helper()
	if len(oldest) != len(came) {
		t.Errorf("%d runs have uncompacted events, %d are named", len(came), len(oldest))
	}
	seen := map[store.Key]bool{}
	before := -1
	for _, key := range oldest {
		at, is := came[key]
		if !is || seen[key] || at < before {
			t.Errorf("run %s is named in its turn: has some %v, named before %v, commit %d after %d", key.Run, is, seen[key], at, before)
		}
		seen[key], before = true, at
	}
	for _, limit := range []int{0, 1, len(oldest)} {
		if some := x.oldest(limit); !slices.Equal(some, oldest[:min(limit, len(oldest))]) {
			t.Errorf("the oldest %d are %v of %v", limit, some, oldest)
		}
	}
	stale := 0
	for _, q := range x.queue {
		if !q.holds() {
			stale++
		}
	}
	if stale > x.stale || len(x.queue) != len(came)+stale {
		t.Errorf("a queue of %d with %d stale places, of which %d are known", len(x.queue), stale, x.stale)
	}
}

// rowsAddUp compares the rows that the index knows with those of the table, and with
// how many uncompacted records each has.
func rowsAddUp(t *testing.T, s *Store, live map[int64]int) {
	t.Helper()
	x := &s.x
	stored := map[int64]int64{}
	kept := map[int64]bool{} // for changes that the table does not have
	var fed uint64
	err := s.read.QueryRow(`SELECT coalesce(max(last), 0) FROM feed`).Scan(&fed)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.read.Query(`SELECT id, data FROM journal`)
	if err == nil {
		err = conn.EachRow(rows, func() error {
			var id int64
			var data []byte
			err := rows.Scan(&id, &data)
			stored[id] = int64(len(data))
			format.ParseRow(data, nil, func(r format.Record) { kept[id] = kept[id] || r.Key.Run == "" && r.Last > fed })
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	dead, deadBytes, bytes := map[int64]bool{}, int64(0), int64(0)
	for _, id := range x.dead {
		if dead[id] || live[id] != 0 {
			t.Errorf("row %d counts as dead: twice %v, with %d records", id, dead[id], live[id])
		}
		dead[id] = true
		deadBytes += stored[id]
	}
	for id, size := range stored {
		bytes += size
		info := x.rows[id]
		if info == nil || info.size != size || info.live != live[id] || info.kept != kept[id] || dead[id] != (live[id] == 0 && !kept[id]) || id >= x.nextRow {
			t.Errorf("row %d of %d bytes with %d records is known as %+v, dead %v; the next one is %d", id, size, live[id], info, dead[id], x.nextRow)
		}
	}
	if x.rowCount != int64(len(stored)) || len(x.rows) != len(stored) || x.rowBytes != bytes || x.deadBytes != deadBytes {
		t.Errorf("%d rows of %d bytes, %d of them dead, are known as %d (%d) of %d, %d", len(stored), bytes, deadBytes, x.rowCount, len(x.rows), x.rowBytes, x.deadBytes)
	}
}

// TestTrimmable: trimmable takes dead rows in the order in which they became dead,
// within the limits of rows and bytes but always at least one, and returns them as the
// smallest number of spans.
func TestTrimmable(t *testing.T) {
	var x index
	x.init()
	for id := range int64(10) {
		x.addRow(id+1, 100)
	}
	for _, id := range []int64{7, 2, 3, 9, 1, 5} {
		x.markDead(id, x.rows[id])
	}
	for _, c := range []struct {
		rows  int
		bytes int64
		spans string
		ids   string
	}{
		{10, 1000, "[{1 3} {5 5} {7 7} {9 9}]", "[7 2 3 9 1 5]"},
		{3, 1000, "[{2 3} {7 7}]", "[7 2 3]"},
		{10, 1, "[{7 7}]", "[7]"}, {10, 0, "[{7 7}]", "[7]"}, {10, 100, "[{7 7}]", "[7]"}, {10, 101, "[{2 2} {7 7}]", "[7 2]"},
		{0, 1000, "[]", "[]"},
	} {
		spans, ids := x.trimmable(c.rows, c.bytes)
		if fmt.Sprint(spans) != c.spans || fmt.Sprint(ids) != c.ids {
			t.Errorf("of %d rows, %d bytes: %v, %v; want %s, %s", c.rows, c.bytes, spans, ids, c.spans, c.ids)
		}
	}
	_, ids := x.trimmable(3, 1000)
	x.trimmed(ids)
	if fmt.Sprint(x.dead) != "[9 1 5]" || x.rowCount != 7 || x.rowBytes != 700 || x.deadBytes != 300 || len(x.rows) != 7 {
		t.Errorf("three rows later: dead %v of %d bytes, %d rows of %d", x.dead, x.deadBytes, x.rowCount, x.rowBytes)
	}
}
