// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// childOf is the start of a child run of runKey(0).
func childOf(epoch uint64, i int) store.Transition {
	tr := startOf(epoch, childKey(i), "start")
	tr.Head.Root, tr.Head.Parent = runKey(0).Run, runKey(0).Run
	return tr
}

// endedChild ends a child run that has n events, with its compaction.
func endedChild(epoch uint64, i int, n uint64, before string) store.Transition {
	tr := childOf(epoch, i)
	tr.First, tr.Last, tr.Frames = n+1, n+1, []byte("end")
	tr.Head.Status, tr.Head.Ended, tr.Head.Updated = "completed", 9, 9
	tr.Compaction = &store.Compaction{First: 1, Last: n + 1, Chunk: []byte(before + "end")}
	return tr
}

// wantRows asserts how many runs have a row.
func wantRows(t *testing.T, s *Store, n int) {
	t.Helper()
	var got int
	if err := s.read.QueryRow(`SELECT count(*) FROM runs`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != n {
		t.Errorf("%d runs have a row, want %d", got, n)
	}
}

// The row of a child run is written when it ended and there are many, when rows are
// listed, or when the store is closed; each read gives the run as if it were there.
func TestDeferredRows(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), childOf(epoch, 1), childOf(epoch, 2))
	mustCommit(t, s, endedChild(epoch, 1, 1, "start"))
	wantRows(t, s, 1)
	reads := func(s *Store) {
		t.Helper()
		for i, want := range []string{"completed", "running"} {
			head, err := s.Head(ctx, childKey(i+1))
			if err != nil || head.Status != want || head.Parent != runKey(0).Run || head.Ended != int64(9*(1-i)) {
				t.Errorf("the head of child %d is %+v, %v", i+1, head, err)
			}
			saved, err := s.Load(ctx, childKey(i+1))
			if err != nil || saved.Head != head || saved.Last != uint64(2-i) || saved.Chunked != uint64(2*(1-i)) || string(saved.Tail) != []string{"startend", "start"}[i] {
				t.Errorf("child %d is %+v, %v", i+1, saved, err)
			}
			page, err := s.Events(ctx, childKey(i+1), 0, 1000)
			if err != nil || page.Last != uint64(2-i) || !bytes.Equal(page.Frames, saved.Tail) {
				t.Errorf("the events of child %d are %+v, %v", i+1, page, err)
			}
		}
	}
	reads(s)
	crashed := open(t, copyOf(t, dir))
	if _, err := crashed.Head(ctx, childKey(1)); err != nil { // before anything else has read the journal
		t.Error(err)
	}
	reads(crashed)
	wantRows(t, crashed, 1)
	if complaints := checkOf(t, crashed); len(complaints) > 0 {
		t.Errorf("after a crash: %q", complaints)
	}
	wantRows(t, crashed, 3)
	reads(crashed)

	heads, err := s.List(ctx, store.Query{Account: runKey(0).Account})
	if err != nil || len(heads) != 1 {
		t.Errorf("the roots are %v, %v", heads, err)
	}
	wantRows(t, s, 1) // a list of roots needs no row of a child run
	heads, err = s.List(ctx, store.Query{Account: runKey(0).Account, Parent: runKey(0).Run})
	if err != nil || len(heads) != 2 {
		t.Errorf("the children are %v, %v", heads, err)
	}
	wantRows(t, s, 3)
	wantPacks(t, s, 1)
	reads(s)

	mustCommit(t, s, childOf(epoch, 3))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	wantRows(t, s, 4)
	if complaints := checkOf(t, s); len(complaints) > 0 {
		t.Errorf("after a stop: %q", complaints)
	}
}

// Upkeep writes the rows of many runs that have ended, and trims the journal then.
func TestUpkeepWritesDeferredRows(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"))
	var starts, ends []store.Transition
	for i := range flushAfter {
		starts, ends = append(starts, childOf(epoch, i)), append(ends, endedChild(epoch, i, 1, "start"))
	}
	mustCommit(t, s, starts...)
	mustCommit(t, s, ends[1:]...)
	wantRows(t, s, 1)
	mustCommit(t, s, ends[0])
	for n := 0; n < flushAfter+1-flushRows; { // upkeep has been woken
		if err := s.read.QueryRow(`SELECT count(*) FROM runs`).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flushDeferred(ctx); err != nil {
		t.Fatal(err)
	}
	wantRows(t, s, flushAfter+1)
	flushed(t, s)
	for s.trim() {
	}
	if st, err := s.Stats(ctx); err != nil || st.JournalRows != 1 {
		t.Errorf("the journal has %d rows, %v, want that of the root", st.JournalRows, err)
	}
	if complaints := checkOf(t, s); len(complaints) > 0 {
		t.Error(complaints)
	}
}

// A run that exists, with a row or without, does not begin again.
func TestDeferredRunBeginsOnce(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), childOf(epoch, 1), childOf(epoch, 2))
	mustCommit(t, s, endedChild(epoch, 1, 1, "start"))
	for _, when := range []string{"without a row", "with a row"} {
		verdicts, err := s.Commit(ctx, []store.Transition{childOf(epoch, 0), childOf(epoch, 2), childOf(epoch, 1), childOf(epoch, 9)})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []fault.Code{"", fault.Conflict, fault.Conflict, ""} {
			if when == "with a row" { // they are those of before, too
				want = fault.Conflict
			}
			if got := fault.CodeOf(verdicts[i].Err); got != want {
				t.Errorf("%s: start %d gives %v, want %q", when, i, verdicts[i].Err, want)
			}
		}
		if err := s.flushDeferred(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wantRows(t, s, 5)
}

// What a child run's first head has fixed stays, whichever commit writes the row.
func TestDeferredRowKeepsItsStart(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), startOf(epoch, runKey(1), "1"), childOf(epoch, 1), childOf(epoch, 2))
	later := endedChild(epoch, 1, 1, "start")
	later.Head.Recipe, later.Head.Root, later.Head.Parent = "other", runKey(1).Run, runKey(1).Run
	changed := childOf(epoch, 2)
	changed.First, changed.Last, changed.Head.Recipe, changed.Head.Status = 2, 2, "other", "waiting"
	mustCommit(t, s, later, changed)
	for i, want := range []string{"completed", "waiting"} {
		head, err := s.Head(ctx, childKey(i+1))
		if err != nil || head.Recipe != "r" || head.Root != runKey(0).Run || head.Status != want {
			t.Errorf("the head is %+v, %v", head, err)
		}
	}
}

// TestF20_DamagedDeferredRun: a damaged record of a run without a row is named with the run
// if the first one is whole; other runs are not affected.
func TestF20_DamagedDeferredRun(t *testing.T) {
	for _, last := range []bool{true, false} {
		dir := t.TempDir()
		s := open(t, dir)
		epoch := own(t, s)
		mustCommit(t, s, startOf(epoch, runKey(0), "1"))
		mustCommit(t, s, childOf(epoch, 1), childOf(epoch, 2))
		if last {
			mustCommit(t, s, endedChild(epoch, 1, 1, "start"))
		}
		dir = copyOf(t, dir)
		damage(t, dir, childKey(1))
		s = open(t, dir)
		_, err := s.Load(ctx, childKey(1))
		if want := map[bool]fault.Code{true: fault.StoreCorrupt, false: fault.RunNotFound}[last]; fault.CodeOf(err) != want {
			t.Errorf("last record: %v: the damaged run gives %v, want %s", last, err, want)
		}
		if saved, err := s.Load(ctx, childKey(2)); err != nil || string(saved.Tail) != "start" {
			t.Errorf("the other run is %+v, %v", saved, err)
		}
		if complaints := checkOf(t, s); len(complaints) == 0 {
			t.Errorf("last record: %v: a check finds nothing", last)
		}
	}
}

// TestF20_DeferredRunIsDamagedLater: a record that is damaged while the store is open costs
// its run, and no list, recovery or check of the others.
func TestF20_DeferredRunIsDamagedLater(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"))
	mustCommit(t, s, childOf(epoch, 1), childOf(epoch, 2))
	damage(t, dir, childKey(1))
	mustCommit(t, s, childOf(epoch, 3))
	mustCommit(t, s, childOf(epoch, 4)) // the damaged row is read from the disk from here on
	for range 2 {
		heads, err := s.List(ctx, store.Query{Account: runKey(0).Account, Parent: runKey(0).Run})
		if err != nil || len(heads) != 3 {
			t.Errorf("the children are %v, %v", heads, err)
		}
	}
	live := 0
	if err := s.Recover(ctx, func(*store.Saved) error { live++; return nil }); err != nil || live != 4 {
		t.Errorf("%d runs are recovered, %v", live, err)
	}
	if _, err := s.Head(ctx, childKey(1)); fault.CodeOf(err) != fault.StoreCorrupt {
		t.Errorf("the head of the damaged run: %v", err)
	}
	if complaints := checkOf(t, s); len(complaints) == 0 {
		t.Error("a check finds nothing")
	}
}

// A run whose head is deferred is suspended in the commit that changes its head.
func TestHeadAndSuspensionInOneCommit(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	child := childOf(epoch, 1)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), child)
	waits := *child.Head
	waits.Status, waits.Updated = "waiting", 7
	mustCommit(t, s,
		store.Transition{Key: child.Key, Epoch: epoch, First: 2, Last: 2, Frames: []byte("event"), Head: &waits},
		store.Transition{Key: child.Key, Epoch: epoch, Suspension: &store.Suspension{WakeAt: 9},
			Compaction: &store.Compaction{First: 1, Last: 2, Chunk: []byte("both"), Format: 1, State: []byte("state")}})
	for range 2 {
		if head, err := s.Head(ctx, child.Key); err != nil || head.Status != "waiting" || head.Updated != 7 {
			t.Errorf("the head is %+v, %v", head, err)
		}
		if err := s.flushDeferred(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A store with deferred rows and the one in memory are the same for every reader, whatever
// happens in which order: events, heads, compactions, marks, ends, lists, crashes, stops.
func TestDeferredRowsAreInvisible(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		s, err := Open(ctx, Options{Dir: dir, cold: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				rt.Error(err)
			}
		}()
		want := memory.New(memory.Options{})
		m := &deferredModel{t: rt, want: want, runs: map[int]*modelRun{}}
		m.own(s)
		m.commit(s, startOf(m.epoch, runKey(0), "1"))
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 11).Draw(rt, "step") {
			case 0, 1, 2, 3, 4, 5:
				var batch []store.Transition
				for range rapid.IntRange(1, 3).Draw(rt, "transitions") {
					batch = append(batch, m.transition())
				}
				m.commit(s, batch...)
			case 6:
				if err := s.flushDeferred(ctx); err != nil {
					rt.Fatal(err)
				}
			case 7:
				s.w.Lock()
				err := s.flush(&s.x.endedRuns)
				s.w.Unlock()
				if err != nil {
					rt.Fatal(err)
				}
			case 8:
				m.compare(s)
			case 9:
				for s.trim() {
				}
			case 10: // a crash
				dir = copyOf(t, filepath.Dir(s.path))
				if err := s.Close(); err != nil { // it goes on in the copy
					rt.Fatal(err)
				}
				if s, err = Open(ctx, Options{Dir: dir, cold: true}); err != nil {
					rt.Fatal(err)
				}
				m.own(s)
			case 11: // a stop
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				if s, err = Open(ctx, Options{Dir: dir, cold: true}); err != nil {
					rt.Fatal(err)
				}
				m.own(s)
			}
		}
		m.compare(s)
		if _, complaints, err := s.Check(ctx); err != nil || len(complaints) > 0 {
			rt.Fatalf("%q, %v", complaints, err)
		}
	})
}

// A modelRun is what TestDeferredRowsAreInvisible knows of a run.
type modelRun struct {
	head    store.Head
	last    uint64
	chunked uint64
	frames  []byte // after chunked
}

type deferredModel struct {
	t     *rapid.T
	want  *memory.Store
	epoch uint64
	runs  map[int]*modelRun
}

func (m *deferredModel) own(s *Store) {
	got, err := s.Own(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	for m.epoch < got {
		if m.epoch, err = m.want.Own(ctx); err != nil {
			m.t.Fatal(err)
		}
	}
}

// transition draws one of a child run; some of them are refused.
func (m *deferredModel) transition() store.Transition {
	i := rapid.IntRange(1, 4).Draw(m.t, "child")
	r := m.runs[i]
	if r == nil || rapid.IntRange(0, 9).Draw(m.t, "begins again") == 0 {
		tr := childOf(m.epoch, i)
		if r == nil {
			m.runs[i] = &modelRun{head: *tr.Head, last: 1, frames: bytes.Clone(tr.Frames)}
		}
		return tr
	}
	tr := store.Transition{Key: childKey(i), Epoch: m.epoch}
	kind := rapid.IntRange(0, 7).Draw(m.t, "kind")
	if kind < 6 {
		tr.First, tr.Last, tr.Frames = r.last+1, r.last+2, fmt.Appendf(nil, "-%d", r.last)
		r.last, r.frames = tr.Last, append(bytes.Clone(r.frames), tr.Frames...)
	}
	newHead := func(change func(h *store.Head)) {
		change(&r.head)
		h := r.head
		tr.Head = &h
	}
	compact := func() {
		tr.Compaction = &store.Compaction{First: r.chunked + 1, Last: r.last, Chunk: bytes.Clone(r.frames)}
		r.chunked, r.frames = r.last, nil
	}
	switch kind {
	case 0: // events alone
	case 1:
		newHead(func(h *store.Head) { h.Status, h.Updated, h.Ended = "waiting", int64(r.last), 0 })
	case 2, 3:
		newHead(func(h *store.Head) { h.Status, h.Ended, h.Used = "completed", int64(r.last), 3 })
		compact()
	case 4:
		newHead(func(h *store.Head) {
			h.Status, h.Ended, h.Code, h.Message, h.Failures = "failed", int64(r.last), fault.StoreFull, "m", true
		})
		if rapid.Bool().Draw(m.t, "compacted") {
			compact()
		}
	case 5:
		compact()
		if rapid.Bool().Draw(m.t, "suspended") {
			tr.Suspension = &store.Suspension{WakeAt: 77}
		}
	case 6:
		newHead(func(h *store.Head) { h.Quarantine = rapid.SampledFrom([]string{"", "broken"}).Draw(m.t, "quarantine") })
	case 7:
		newHead(func(h *store.Head) { h.Recipe, h.Owes = "other", !h.Owes })
		r.head.Recipe = "r"
	}
	return tr
}

func (m *deferredModel) commit(s *Store, batch ...store.Transition) {
	got, err := s.Commit(ctx, batch)
	if err != nil {
		m.t.Fatal(err)
	}
	want, err := m.want.Commit(ctx, batch)
	if err != nil {
		m.t.Fatal(err)
	}
	for i := range want {
		if fault.CodeOf(got[i].Err) != fault.CodeOf(want[i].Err) {
			m.t.Fatalf("transition %+v gives %v, want %v", batch[i], got[i].Err, want[i].Err)
		}
	}
}

// compare reads everything from both stores.
func (m *deferredModel) compare(s *Store) {
	for i := 0; i <= 5; i++ {
		key := childKey(i)
		head, err := s.Head(ctx, key)
		want, wantErr := m.want.Head(ctx, key)
		if head != want || fault.CodeOf(err) != fault.CodeOf(wantErr) {
			m.t.Fatalf("the head of child %d is %+v, %v, want %+v, %v", i, head, err, want, wantErr)
		}
		got, err := s.Load(ctx, key)
		saved, wantErr := m.want.Load(ctx, key)
		if fault.CodeOf(err) != fault.CodeOf(wantErr) {
			m.t.Fatalf("child %d gives %v, want %v", i, err, wantErr)
		}
		if err == nil && (got.Head != saved.Head || got.Last != saved.Last || got.Chunked != saved.Chunked || !bytes.Equal(got.Tail, saved.Tail) ||
			(got.Suspension == nil) != (saved.Suspension == nil)) {
			m.t.Fatalf("child %d is %+v, want %+v", i, got, saved)
		}
	}
	for _, q := range []store.Query{{}, {All: true}, {Parent: runKey(0).Run}, {Root: runKey(0).Run, Status: "completed"}} {
		if rapid.Bool().Draw(m.t, "list") {
			q.Account = runKey(0).Account
			got, err := s.List(ctx, q)
			want, wantErr := m.want.List(ctx, q)
			if err != nil || wantErr != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				m.t.Fatalf("%+v gives %v, %v, want %v, %v", q, got, err, want, wantErr)
			}
		}
	}
	live := map[store.Key]bool{}
	err := s.Recover(ctx, func(saved *store.Saved) error { live[saved.Head.Key] = true; return saved.Err })
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.want.Recover(ctx, func(saved *store.Saved) error {
		if !live[saved.Head.Key] {
			m.t.Fatalf("run %s was not recovered", saved.Head.Run)
		}
		delete(live, saved.Head.Key)
		return nil
	}); err != nil || len(live) > 0 {
		m.t.Fatalf("%v were recovered, too, %v", live, err)
	}
}
