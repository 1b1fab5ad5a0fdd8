// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// TestListsEndThoughDamaged reads a list one run at a time. The time of creation of one
// run is damaged in the table, in the index that List uses, or in both, to an earlier
// or a later time. Each run is listed once.
func TestListsEndThoughDamaged(t *testing.T) {
	for _, damaged := range []string{"table", "index", "both"} {
		for _, created := range []int64{0, 25, 1 << 40} {
			dir := t.TempDir()
			s := open(t, dir)
			epoch := own(t, s)
			for i := range 5 {
				start := startOf(epoch, runKey(i), "1")
				start.Head.Created = int64(10 * i)
				mustCommit(t, s, start)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			setCreated(t, dir, damaged == "table", created)
			if damaged == "index" {
				setCreated(t, dir, true, 20) // as it was
			}
			s = open(t, dir)
			var got []string
			q := store.Query{Account: "acme", Limit: 1}
			for range 10 {
				heads, err := s.List(ctx, q)
				if err != nil {
					t.Fatalf("%s %d after %q: %v", damaged, created, q.After, err)
				}
				if len(heads) == 0 {
					break
				}
				q.After = heads[0].Run
				got = append(got, heads[0].Run)
			}
			slices.Sort(got)
			if len(got) != 5 || len(slices.Compact(got)) != 5 {
				t.Errorf("%s %d: %q are listed", damaged, created, got)
			}
		}
	}
}

// setCreated changes the time at which the third run was created, in the table alone
// or also in the index.
func setCreated(t *testing.T, dir string, tableOnly bool, created int64) {
	t.Helper()
	set := [][]any{{`UPDATE runs SET created = ?1 WHERE run = ?2`, created, runKey(2).Run}}
	if tableOnly {
		// SQLite does not update an index that has no row in sqlite_schema.
		set = [][]any{
			{`CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE name = 'runs_newest'`},
			{`PRAGMA writable_schema = ON`},
			{`DELETE FROM sqlite_schema WHERE name = 'runs_newest'`},
			nil, set[0],
			{`PRAGMA writable_schema = ON`},
			{`INSERT INTO sqlite_schema SELECT * FROM kept`},
			nil, {`DROP TABLE kept`},
		}
	}
	db := rawDB(t, dir)
	db.SetMaxOpenConns(1)
	for _, q := range set {
		if q == nil { // the schema is read again
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = rawDB(t, dir)
			db.SetMaxOpenConns(1)
			continue
		}
		if _, err := db.Exec(q[0].(string), q[1:]...); err != nil {
			t.Fatalf("%s: %v", q[0], err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
