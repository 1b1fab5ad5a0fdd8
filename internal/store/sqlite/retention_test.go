// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// toFirstSchema changes a store without packs to the schema of the first release.
func toFirstSchema(t *testing.T, dir string) {
	t.Helper()
	db := rawDB(t, dir)
	for _, q := range []string{
		`DROP TABLE file_refs`, `DROP TABLE file_released`, `DROP TABLE deleted`,
		`DROP INDEX runs_ended`, `DROP INDEX idempotency_until`,
		`DROP TABLE packs`, `DROP TABLE pieces`, `ALTER TABLE runs DROP COLUMN pack`, `ALTER TABLE runs DROP COLUMN packed`,
		`ALTER TABLE runs DROP COLUMN start_sum`, `ALTER TABLE runs DROP COLUMN head_sum`, `ALTER TABLE runs DROP COLUMN park_sum`,
		`ALTER TABLE runs DROP COLUMN reach_sum`, `ALTER TABLE runs DROP COLUMN place_sum`, `ALTER TABLE chunks DROP COLUMN sum`, `ALTER TABLE owner DROP COLUMN sum`,
		`ALTER TABLE idempotency DROP COLUMN sum`, `ALTER TABLE plans DROP COLUMN sum`, `ALTER TABLE notes DROP COLUMN sum`, `ALTER TABLE snapshots DROP COLUMN sum`,
		`DROP TABLE ledger`, `DROP TABLE ledger_keys`, `DROP TABLE ledger_states`, `DROP TABLE feed`, `DROP TABLE records`, `DROP TABLE record_revisions`,
		`DROP TABLE run_marks`, `DROP TABLE run_labels`, `DROP TABLE hidden_runs`, `DROP TABLE recipe_spans`, `DROP INDEX runs_failed`,
		`DROP INDEX runs_tree`, `DROP INDEX runs_newest`, `ALTER TABLE runs DROP COLUMN root`, `ALTER TABLE runs DROP COLUMN parent`,
		`CREATE INDEX runs_newest ON runs (account, created, run)`,
		`DROP INDEX runs_queued`, `DROP INDEX runs_live`, `CREATE INDEX runs_live ON runs (account, run) WHERE parked = 0 AND (ended = 0 OR owes = 1)`,
		`DELETE FROM goose_db_version WHERE version_id >= 2`,
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// I23: a store with the first schema is migrated with its runs. It is not known which
// files these runs name, so each counts as naming all files of its account.
func TestI23_RunsOfOldStoresKeepEveryFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	old := startOf(epoch, runKey(0), "1")
	old.Head.Ended = 5
	old.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, format.MaxPiece+1)} // packs came later
	mustCommit(t, s, old)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	toFirstSchema(t, dir)
	s = open(t, dir)
	epoch = own(t, s)
	naming := func(want store.References) {
		t.Helper()
		got, err := s.References(ctx, runKey(0).Account, "sha256_any", 10)
		if err != nil || len(got.Runs) != len(want.Runs) || got.Released != want.Released {
			t.Fatalf("Naming = %+v, %v, want %+v", got, err, want)
		}
	}
	naming(store.References{Runs: []string{runKey(0).Run}})
	next := startOf(epoch, runKey(1), "1")
	next.Files = []string{"sha256_one"}
	mustCommit(t, s, next)
	naming(store.References{Runs: []string{runKey(0).Run}})
	verdicts, err := s.Delete(ctx, epoch, 0, []store.Key{runKey(0)})
	if err != nil || verdicts[0].Err != nil {
		t.Fatal(err, verdicts)
	}
	naming(store.References{Released: 5})
}

// The next Delete finishes a deletion that a crash interrupted after the head and
// before the compactions. The mark is removed when nothing of the run is left.
func TestHalfRemovedRunsAreFinished(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	for i, size := range []int{1, format.MaxPiece + 1} { // one in a pack, one in a chunk
		tr := startOf(epoch, runKey(i), "1")
		tr.Head.Ended = 5
		tr.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, size)}
		mustCommit(t, s, tr)
	}
	d := deletion{s: s}
	if _, err := d.deleteAll(epoch, 0, []store.Key{runKey(0), runKey(1)}); err != nil { // and the process dies here
		t.Fatal(err)
	}
	wantRows := func(when string, n int, tables ...string) {
		t.Helper()
		for _, table := range tables {
			var got int
			if err := s.read.QueryRow(`SELECT count(*) FROM ` + table).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != n {
				t.Errorf("%d %s %s, want %d", got, table, when, n)
			}
		}
	}
	wantRows("after the heads went", 1, "chunks", "pieces", "packs")
	wantRows("after the heads went", 2, "deleted")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	epoch = own(t, s)
	for s.trim() { // the rows of the journal that had the changes
	}
	for range 2 {
		if _, err := s.Delete(ctx, epoch, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantRows("are left", 0, "chunks", "pieces", "packs", "deleted")
}

// soonOver is a context that is done at its second check.
type soonOver struct {
	context.Context
	asked bool
}

func (c *soonOver) Err() error {
	if c.asked {
		return context.Canceled
	}
	c.asked = true
	return nil
}

// The mark of a deleted run stays exactly as long as the journal has a row from before
// the deletion. The next Delete finishes a removal that was interrupted.
func TestMarksOfDeletedRunsGo(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	marks := func(when string, want int) {
		t.Helper()
		if _, err := s.Delete(ctx, epoch, 0, nil); err != nil {
			t.Fatal(err)
		}
		var got int
		if err := s.read.QueryRow(`SELECT count(*) FROM deleted`).Scan(&got); err != nil || got != want {
			t.Errorf("%d marks %s, %v, want %d", got, when, err, want)
		}
	}
	over := func(i int) store.Transition {
		tr := startOf(epoch, runKey(i), "1")
		tr.Head.Ended = 5
		tr.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: tr.Frames}
		return tr
	}
	mustCommit(t, s, startOf(epoch, runKey(9), "1")) // it is in the journal
	mustCommit(t, s, over(0), over(1))
	marks("before any run was deleted", 0)
	if _, err := s.Delete(ctx, epoch, 0, []store.Key{runKey(0)}); err != nil {
		t.Fatal(err)
	}
	marks("while the journal has a row from before", 1)
	if _, err := s.Delete(&soonOver{Context: ctx}, epoch, 0, []store.Key{runKey(1)}); err != nil {
		t.Fatal(err)
	}
	wantPacks(t, s, 1) // it was told to stop before it removed the compactions
	mustCommit(t, s, store.Transition{Key: runKey(9), Epoch: epoch, Compaction: &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}})
	for s.trim() {
	}
	marks("when its compactions are yet to go", 1)
	marks("when nothing is left", 0)
	wantPacks(t, s, 1)
}
