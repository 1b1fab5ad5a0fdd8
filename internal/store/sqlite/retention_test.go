// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// toFirstSchema makes of a store what the first release would have left, as long as
// it holds no packs.
func toFirstSchema(t *testing.T, dir string) {
	t.Helper()
	db := rawDB(t, dir)
	for _, q := range []string{
		`DROP TABLE file_refs`, `DROP TABLE file_released`, `DROP TABLE deleted`,
		`DROP INDEX runs_ended`, `DROP INDEX idempotency_until`,
		`DROP TABLE packs`, `DROP TABLE pieces`, `ALTER TABLE runs DROP COLUMN pack`, `ALTER TABLE runs DROP COLUMN packed`,
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

// I23: a store of the first schema is taken over with its runs. Which files
// those name is not known, so each keeps all files of its account.
func TestI23_RunsOfOldStoresKeepEveryFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	old := startOf(epoch, runKey(0), "1")
	old.Head.Ended = 5
	old.Fold = &store.Fold{First: 1, Last: 1, Chunk: make([]byte, maxPiece+1)} // packs came later
	mustCommit(t, s, old)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	toFirstSchema(t, dir)
	s = open(t, dir)
	epoch = own(t, s)
	naming := func(want store.Naming) {
		t.Helper()
		got, err := s.Naming(ctx, runKey(0).Account, "sha256_any", 10)
		if err != nil || len(got.Runs) != len(want.Runs) || got.Released != want.Released {
			t.Fatalf("Naming = %+v, %v, want %+v", got, err, want)
		}
	}
	naming(store.Naming{Runs: []string{runKey(0).Run}})
	next := startOf(epoch, runKey(1), "1")
	next.Files = []string{"sha256_one"}
	mustCommit(t, s, next)
	naming(store.Naming{Runs: []string{runKey(0).Run}})
	verdicts, err := s.Delete(ctx, epoch, []store.Key{runKey(0)})
	if err != nil || verdicts[0].Err != nil {
		t.Fatal(err, verdicts)
	}
	naming(store.Naming{Released: 5})
}

// A deletion that a crash cut off between head and folds is finished by the
// next one, and the mark goes when nothing is left that it speaks of.
func TestHalfRemovedRunsAreFinished(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	for i, size := range []int{1, maxPiece + 1} { // one in a pack, one in a chunk
		tr := startOf(epoch, runKey(i), "1")
		tr.Head.Ended = 5
		tr.Fold = &store.Fold{First: 1, Last: 1, Chunk: make([]byte, size)}
		mustCommit(t, s, tr)
	}
	if _, err := s.deleteHeads(epoch, []store.Key{runKey(0), runKey(1)}); err != nil { // and the process dies here
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
	for range 2 {
		if _, err := s.Delete(ctx, epoch, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantRows("are left", 0, "chunks", "pieces", "packs", "deleted")
}
