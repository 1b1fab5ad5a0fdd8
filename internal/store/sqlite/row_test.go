// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// spoiled is a store with a journal of three rows, of which the test replaces the
// second. Runs 0 to 3 have event 1 in row 1 and event 2 in row 2. Runs 3 and 4 have
// their last event in row 3. Run 5 ended in row 1, and run 6 is suspended.
type spoiled struct {
	*testing.T
	s   *Store
	row []byte
	rec []format.Record
}

func newSpoiled(t *testing.T) *spoiled {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	var first, second []store.Transition
	for i := range 4 {
		first = append(first, startOf(epoch, runKey(i), "1"))
		second = append(second, store.Transition{Key: runKey(i), Epoch: epoch, First: 2, Last: 2, Frames: []byte("2")})
	}
	over := startOf(epoch, runKey(5), "1")
	over.Head.Ended = 9
	suspended := startOf(epoch, runKey(6), "1")
	suspended.Compaction, suspended.Suspension = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1"), State: []byte("s")}, &store.Suspension{WakeAt: 1}
	mustCommit(t, s, append(first, startOf(epoch, runKey(4), "1"), over, suspended)...)
	mustCommit(t, s, second...)
	mustCommit(t, s,
		store.Transition{Key: runKey(3), Epoch: epoch, First: 3, Last: 3, Frames: []byte("3")},
		store.Transition{Key: runKey(4), Epoch: epoch, First: 2, Last: 2, Frames: []byte("2")})
	sp := &spoiled{T: t, s: s}
	if err := s.read.QueryRow(`SELECT data FROM journal WHERE id = 2`).Scan(&sp.row); err != nil {
		t.Fatal(err)
	}
	format.ParseRow(sp.row, nil, func(r format.Record) { sp.rec = append(sp.rec, r) })
	return sp
}

// replace puts data into row 2 and makes the store read its journal again.
func (sp *spoiled) replace(data []byte) {
	sp.Helper()
	st, err := sp.s.db.Prepare(`UPDATE journal SET data = ?1 WHERE id = 2`)
	if err == nil {
		_, err = st.Exec(data)
	}
	if err != nil {
		sp.Fatal(err)
	}
	sp.s.scanned.Store(false)
}

// hurt loads every run and returns those that are refused. One that loads must
// have all its events, also by Recover.
func (sp *spoiled) hurt(what string) (runs map[int]bool) {
	sp.Helper()
	runs = map[int]bool{}
	refused := map[string]bool{}
	if err := sp.s.Recover(ctx, func(s *store.Saved) error {
		refused[s.Head.Run] = s.Err != nil
		return nil
	}); err != nil {
		sp.Fatalf("%s: %v", what, err)
	}
	for i, want := range []string{"12", "12", "12", "123", "12", "1", ""} {
		saved, err := sp.s.Load(ctx, runKey(i))
		switch {
		case errors.Is(err, fault.StoreCorrupt):
			runs[i] = true
		case err != nil:
			sp.Fatalf("%s: run %d: %v", what, i, err)
		case string(saved.Tail) != want:
			sp.Fatalf("%s: run %d has the events %q, want %q or a refusal", what, i, saved.Tail, want)
		}
		if recovered, ok := refused[runKey(i).Run]; ok != (i < 5) || recovered != runs[i] {
			sp.Fatalf("%s: run %d: Recover says damaged=%v (%v), Load says %v", what, i, recovered, ok, runs[i])
		}
	}
	return runs
}

func TestF20_FlipEachByteOfAStoredRow(t *testing.T) {
	sp := newSpoiled(t)
	for at := range sp.row {
		data := bytes.Clone(sp.row)
		data[at] ^= 0x55
		sp.replace(data)
		what := fmt.Sprintf("byte %d of %d flipped", at, len(data))
		hurt := sp.hurt(what)
		want := map[int]bool{}
		for i, r := range sp.rec {
			if at >= int(r.Off) && at < int(r.Off+r.N) {
				want[i] = true
			}
		}
		if fmt.Sprint(hurt) != fmt.Sprint(want) {
			t.Fatalf("%s: refused %v, want %v", what, hurt, want)
		}
	}
}

func TestF20_CutAStoredRowAtEachLength(t *testing.T) {
	sp := newSpoiled(t)
	for n := range sp.row {
		sp.replace(sp.row[:n:n])
		what := fmt.Sprintf("cut at %d of %d", n, len(sp.row))
		hurt := sp.hurt(what)
		for i, r := range sp.rec {
			whole := n >= int(r.Off+r.N)
			if hurt[i] == whole {
				t.Fatalf("%s: run %d refused = %v, its record is whole = %v", what, i, hurt[i], whole)
			}
		}
		// Runs whose later events or end show that they had nothing in that row are whole.
		if hurt[4] || hurt[5] || hurt[6] {
			t.Fatalf("%s: refused %v", what, hurt)
		}
	}
}

// A refusal names the run and the offset, and the damaged row is not trimmed.
func TestF20_DamageIsNamedAndKept(t *testing.T) {
	sp := newSpoiled(t)
	data := bytes.Clone(sp.row)
	data[sp.rec[1].Off+sp.rec[1].N-1] ^= 1
	sp.replace(data)
	_, err := sp.s.Load(ctx, runKey(1))
	want := fmt.Sprintf("STORE_CORRUPT: run %s: journal row 2 at byte %d: a record of %d bytes fails its checksum", runKey(1).Run, sp.rec[1].Off, sp.rec[1].N)
	if err == nil || err.Error() != want {
		t.Fatalf("Load = %v, want %s", err, want)
	}
	page, err := sp.s.Events(ctx, runKey(1), 0, 100)
	if err != nil || string(page.Frames) != "1" {
		t.Fatalf("events before the damage = %q, %v", page.Frames, err)
	}
	epoch := sp.s.epoch
	for i, last := range map[int]uint64{0: 2, 2: 2, 3: 3} {
		mustCommit(t, sp.s, store.Transition{Key: runKey(i), Epoch: epoch, Compaction: &store.Compaction{First: 1, Last: last, Chunk: []byte("c")}})
	}
	for sp.s.trim() {
	}
	var rows int
	if err := sp.s.read.QueryRow(`SELECT count(*) FROM journal WHERE id = 2`).Scan(&rows); err != nil || rows != 1 {
		t.Fatalf("the damaged row is gone (%d, %v)", rows, err)
	}
}

// A damaged record that a chunk covers does no harm, because it is never read.
func TestF20_DamageUnderAChunkIsHarmless(t *testing.T) {
	sp := newSpoiled(t)
	mustCommit(t, sp.s, store.Transition{Key: runKey(1), Epoch: sp.s.epoch, Compaction: &store.Compaction{First: 1, Last: 2, Chunk: []byte("12")}})
	data := bytes.Clone(sp.row)
	data[sp.rec[1].Off+sp.rec[1].N-1] ^= 1
	sp.replace(data)
	if hurt := sp.hurt("covered"); len(hurt) != 0 {
		t.Fatalf("refused %v", hurt)
	}
}

func TestF20_DamagedChunkAndSnapshot(t *testing.T) {
	sp := newSpoiled(t)
	events := strings.Repeat("12", format.MaxPiece) // too many for a pack
	compaction := func(i int) store.Transition {
		return store.Transition{Key: runKey(i), Epoch: sp.s.epoch, Compaction: &store.Compaction{First: 1, Last: 2, Chunk: []byte(events), Format: 1, State: []byte("state")}}
	}
	mustCommit(t, sp.s, compaction(0), compaction(1))
	spoil := func(query string) {
		st, err := sp.s.db.Prepare(query)
		if err == nil {
			_, err = st.Exec(runKey(0).Run)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Without its snapshot a run is read from its events.
	spoil(`UPDATE snapshots SET state = substr(state, 1, length(state) - 1) || x'00' WHERE run = ?1`)
	saved, err := sp.s.Load(ctx, runKey(0))
	if err != nil || saved.State != nil || string(saved.Tail) != events {
		t.Fatalf("Load = %+v, %v, want all events and no state", saved, err)
	}
	spoil(`UPDATE chunks SET data = substr(data, 1, length(data) - 1) || x'00' WHERE run = ?1`)
	if _, err := sp.s.Load(ctx, runKey(0)); !errors.Is(err, fault.StoreCorrupt) {
		t.Fatalf("Load = %v, want STORE_CORRUPT", err)
	}
	if _, err := sp.s.Load(ctx, runKey(1)); err != nil {
		t.Fatal(err)
	}
	// A chunk that is missing altogether is noticed too.
	spoil(`DELETE FROM chunks WHERE run = ?1`)
	if _, err := sp.s.Load(ctx, runKey(0)); !errors.Is(err, fault.StoreCorrupt) {
		t.Fatalf("Load = %v, want STORE_CORRUPT", err)
	}
}

// A row that is gone is noticed by what comes after it in a run, and by the
// head of a run that ended in it.
func TestF20_MissingRow(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	next := func(i int, n uint64) store.Transition {
		return store.Transition{Key: runKey(i), Epoch: epoch, First: n, Last: n, Frames: fmt.Append(nil, n)}
	}
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), startOf(epoch, runKey(1), "1"), startOf(epoch, runKey(2), "1"))
	ends := next(1, 2)
	ends.Head = &store.Head{Status: "completed", Ended: 5}
	mustCommit(t, s, next(0, 2), ends)
	mustCommit(t, s, next(0, 3), next(2, 2))
	st, err := s.db.Prepare(`DELETE FROM journal WHERE id = 2`)
	if err == nil {
		_, err = st.Exec()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.scanned.Store(false)
	for i, last := range []uint64{3, 2, 2} {
		_, err := s.Load(ctx, runKey(i))
		verdicts, cerr := s.Commit(ctx, []store.Transition{next(i, last+1)})
		if cerr != nil {
			t.Fatal(cerr)
		}
		if hurt := i < 2; errors.Is(err, fault.StoreCorrupt) != hurt || errors.Is(verdicts[0].Err, fault.StoreCorrupt) != hurt {
			t.Errorf("run %d: Load = %v, verdict = %v, want corrupt = %v", i, err, verdicts[0].Err, hurt)
		}
	}
	// Writing a head with a quarantine reason does not make the run readable.
	mustCommit(t, s, store.Transition{Key: runKey(1), Epoch: epoch, Head: &store.Head{Status: "completed", Ended: 5, Quarantine: "damaged"}})
	s.scanned.Store(false)
	if _, err := s.Load(ctx, runKey(1)); !errors.Is(err, fault.StoreCorrupt) {
		t.Errorf("Load after a new head = %v, want STORE_CORRUPT", err)
	}
	page, err := s.Events(ctx, runKey(0), 0, 100)
	if err != nil || string(page.Frames) != "1" {
		t.Errorf("events before the gap = %q, %v", page.Frames, err)
	}
	if _, err := s.Events(ctx, runKey(0), 1, 100); !errors.Is(err, fault.StoreCorrupt) {
		t.Errorf("events after the gap: %v, want STORE_CORRUPT", err)
	}
}
