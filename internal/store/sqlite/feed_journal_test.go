// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"
	"slices"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/changes"
)

// all returns the numbers of an account's changes, in pages of 7, and fails if one is
// missing.
func all(t *testing.T, s *Store, account string) (numbers []uint64) {
	t.Helper()
	for after := uint64(0); ; {
		some, err := s.Changes(ctx, account, after, 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return numbers
		}
		for _, c := range some {
			if c.N != after+1 {
				t.Fatalf("change %d comes after %d", c.N, after)
			}
			numbers, after = append(numbers, c.N), c.N
		}
	}
}

func tableRows(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.read.QueryRow(`SELECT count(*) FROM feed`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Commits write no row of the feed, and now and then one for many of them. A reader has every
// change at any time, and after a crash.
func TestChangesAreInTheJournalFirst(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	const commits = 150
	most := 0
	for i := range commits {
		mustCommit(t, s, startOf(epoch, runKey(i), "1"))
		if n := len(all(t, s, "acme")); n != i+1 {
			t.Fatalf("%d commits made %d changes", i+1, n)
		}
		most = max(most, tableRows(t, s))
	}
	if most != 2 {
		t.Errorf("%d commits wrote %d rows of the feed, want 2", commits, most)
	}
	if complaints := checkOf(t, open(t, copyOf(t, dir))); len(complaints) > 0 {
		t.Errorf("after a crash: %q", complaints)
	}
	crashed := open(t, copyOf(t, dir))
	if n := len(all(t, crashed, "acme")); n != commits {
		t.Errorf("after a crash there are %d changes", n)
	}
	mustCommit(t, crashed, startOf(own(t, crashed), runKey(commits), "1"))
	if n := len(all(t, crashed, "acme")); n != commits+1 {
		t.Errorf("then a commit makes it %d", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if err := s.ready(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(all(t, s, "acme")); n != commits || s.feed.Pending() {
		t.Errorf("after a stop there are %d changes, in the journal only: %v", n, s.feed.Pending())
	}
}

// The changes of many accounts in one commit are rows of the table at once, also behind
// changes that are in the journal.
func TestChangesOfManyAccounts(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	for i := range 3 {
		mustCommit(t, s, startOf(epoch, store.Key{Account: "a1", Run: fmt.Sprint("r", i)}, "1"))
	}
	var batch []store.Transition
	for i := range 40 {
		batch = append(batch, startOf(epoch, store.Key{Account: fmt.Sprint("a", i), Run: "r"}, "1"))
	}
	mustCommit(t, s, batch...)
	if n := tableRows(t, s); n != 43 || s.feed.Pending() {
		t.Errorf("the table has %d rows, and the journal more: %v", n, s.feed.Pending())
	}
	for i, want := range map[int]int{0: 1, 1: 4, 39: 1} {
		if n := len(all(t, s, fmt.Sprint("a", i))); n != want {
			t.Errorf("account a%d has %d changes, want %d", i, n, want)
		}
	}
}

// A journal row goes only when its changes are in the table, and the rows that are kept for
// changes are few and small.
func TestRowsAreKeptForChanges(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	for i := range 300 {
		mustCommit(t, s, startOf(epoch, runKey(i), "1"))
		end := store.Transition{Key: runKey(i), Epoch: epoch, Suspension: &store.Suspension{},
			Compaction: &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, 10), Format: 1, State: make([]byte, 10)}}
		mustCommit(t, s, end)
		st, err := s.Stats(ctx)
		if err != nil || st.JournalRows > 200 {
			t.Fatalf("the journal has %d rows, %v", st.JournalRows, err)
		}
	}
	if n := len(all(t, s, "acme")); n != 300 {
		t.Errorf("%d changes", n)
	}
	for i := range 10 {
		mustCommit(t, s, startOf(epoch, runKey(1000+i), string(make([]byte, 1<<20))))
	}
	if n := tableRows(t, s); n < 7 {
		t.Errorf("behind large rows of the journal the table has %d rows", n)
	}
}

// A journal row that has the changes of two accounts, because they were committed together,
// is deleted once.
func TestRowsAreKeptForChangesOfTwoAccounts(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	for i := range 300 {
		var starts, ends []store.Transition
		for _, account := range []string{"acme", "other"} {
			key := store.Key{Account: account, Run: runKey(i).Run}
			starts = append(starts, startOf(epoch, key, "1"))
			ends = append(ends, store.Transition{Key: key, Epoch: epoch, Suspension: &store.Suspension{},
				Compaction: &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, 10), Format: 1, State: make([]byte, 10)}})
		}
		mustCommit(t, s, starts...)
		mustCommit(t, s, ends...)
		if st, err := s.Stats(ctx); err != nil || st.JournalRows > 200 || st.JournalRows < 0 {
			t.Fatalf("the journal has %d rows, %v", st.JournalRows, err)
		}
	}
	for _, account := range []string{"acme", "other"} {
		if n := len(all(t, s, account)); n != 300 {
			t.Errorf("%s has %d changes", account, n)
		}
	}
}

// Damaged records of changes: what they had is lost, and no number is used twice.
func TestDamagedChangesInTheJournal(t *testing.T) {
	for name, damage := range map[string]func(row []byte) []byte{
		"a record": func(row []byte) []byte { row[len(row)-1] ^= 1; return row },
		"a row":    func(row []byte) []byte { return slices.Repeat([]byte{7}, len(row)) },
	} {
		for _, last := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " the newest ", last), func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir)
				epoch := own(t, s)
				for i := range 3 {
					mustCommit(t, s, startOf(epoch, runKey(i), "1"))
				}
				dead := copyOf(t, dir)
				db := rawDB(t, dead)
				var id int64
				var row []byte
				if err := db.QueryRow(`SELECT id, data FROM journal ORDER BY id DESC LIMIT 1 OFFSET ?`, map[bool]int{false: 1, true: 0}[last]).Scan(&id, &row); err != nil {
					t.Fatal(err)
				}
				if !format.IntactDirectory(row) {
					t.Fatal("no journal row")
				}
				if _, err := db.Exec(`UPDATE journal SET data = ? WHERE id = ?`, damage(row), id); err != nil {
					t.Fatal(err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				for again := range uint64(2) {
					s = open(t, dead)
					next := startOf(own(t, s), runKey(int(10+again)), "1")
					failing(t, s, next)
					mustCommit(t, s, next)
					newest, _, err := s.Newest(ctx, "acme")
					if err != nil {
						t.Fatal(err)
					}
					if moved := newest > changes.Skipped; moved != (last || name == "a row") {
						t.Errorf("the next change is %d", newest)
					}
					some, err := s.Changes(ctx, "acme", 0, 10)
					if err != nil || len(some) == 0 || some[0].N != 1 {
						t.Errorf("from 0 a reader has %+v, %v", some, err)
					}
					lost := some[len(some)-1].N
					if _, err := s.Changes(ctx, "acme", lost, 10); fault.CodeOf(err) != fault.StoreCorrupt {
						t.Errorf("after %d: %v", lost, err)
					}
					if some, err := s.Changes(ctx, "acme", newest-1, 10); err != nil || len(some) != 1 || some[0].Run != runKey(int(10+again)).Run {
						t.Errorf("the newest is %+v, %v", some, err)
					}
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}
