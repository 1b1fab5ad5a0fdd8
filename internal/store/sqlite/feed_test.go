// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// fed makes a feed of five rows of two changes each, and one of another account. They are in
// the table.
func fed(t *testing.T, s *Store) (epoch uint64) {
	t.Helper()
	epoch = own(t, s)
	for i := range 5 {
		a, b := startOf(epoch, runKey(2*i), "1"), startOf(epoch, runKey(2*i+1), "1")
		a.Head.Updated, b.Head.Updated = int64(10*i+1), int64(10*i+2)
		mustCommit(t, s, a, b)
		flushed(t, s)
	}
	other := startOf(epoch, runKey(0), "1")
	other.Account = "other"
	mustCommit(t, s, other)
	flushed(t, s)
	return epoch
}

func flushed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.flushChanges(ctx); err != nil {
		t.Fatal(err)
	}
}

// read returns the numbers of the changes after a number, and how it ends.
func read(s *Store, after uint64) string {
	text := ""
	for {
		changes, err := s.Changes(ctx, "acme", after, 3)
		if err != nil {
			return text + string(fault.CodeOf(err))
		}
		if len(changes) == 0 {
			return strings.TrimSpace(text)
		}
		for _, c := range changes {
			text += fmt.Sprint(c.N, " ")
			after = c.N
		}
	}
}

// Rows of a feed that were changed by hand: Check says what is wrong. A reader gets every
// change before the damage, then an error, and can go on after it. Commits go on with
// numbers that were never used.
func TestFeedsThatWereChanged(t *testing.T) {
	sealed := `, sum = roux_sum(account, first, last, at, data)` // as it will be in the next statement
	for _, tt := range []struct {
		name, change string
		says         string
		reads        string // from 0
		after, rest  string // what comes after the damage
	}{
		{"a missing row", `DELETE FROM feed WHERE last = 4`, `changes 3 to 4 of account "acme" are missing`, "1 2 STORE_CORRUPT", "4", "5 6 7 8 9 10 11"},
		{"a missing first row", `DELETE FROM feed WHERE last = 2`, "", "CURSOR_EXPIRED", "2", "3 4 5 6 7 8 9 10 11"},
		{"a row that fails its checksum", `UPDATE feed SET at = 7 WHERE last = 4`, `changes of account "acme 4": its row fails the checksum`, "1 2 STORE_CORRUPT", "4", "5 6 7 8 9 10 11"},
		{"a time that goes back", `UPDATE feed SET data = (SELECT data FROM feed WHERE last = 2 AND account = 'acme'), at = 2 WHERE last = 4`, `change 3 of account "acme" was recorded at 1, the one before it at 2`, "1 2 3 4 5 6 7 8 9 10 11", "4", "5 6 7 8 9 10 11"},
		{"another time in the row", `UPDATE feed SET at = 15 WHERE last = 4`, `change 4 of account "acme" was recorded at 12, its row says 15`, "1 2 3 4 5 6 7 8 9 10 11", "4", "5 6 7 8 9 10 11"},
		{"bytes that are no changes", `UPDATE feed SET data = x'02' WHERE last = 4`, `changes 3 to 4 of account "acme" cannot be read`, "1 2 STORE_CORRUPT", "4", "5 6 7 8 9 10 11"},
		{"the newest row", `UPDATE feed SET at = 7 WHERE last = 10`, `changes of account "acme 10": its row fails the checksum`, "1 2 3 4 5 6 7 8 STORE_CORRUPT", "100000010", "100000011"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			epoch := fed(t, s)
			if c := checkOf(t, s); len(c) > 0 {
				t.Fatalf("a sound store: %q", c)
			}
			db := rawDB(t, dir)
			defer db.Close()
			if _, err := db.Exec(tt.change + ` AND account = 'acme'`); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(tt.says, "checksum") && strings.HasPrefix(tt.change, "UPDATE") {
				if _, err := db.Exec(`UPDATE feed SET first = first` + sealed); err != nil {
					t.Fatal(err)
				}
			}
			c := checkOf(t, s)
			if tt.says == "" && len(c) > 0 || !strings.Contains(strings.Join(c, "\n"), tt.says) {
				t.Errorf("the check says %q, want %q", c, tt.says)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir) // what a process has in memory must not help it
			mustCommit(t, s, startOf(epoch, runKey(99), "1"))
			if got := read(s, 0); got != tt.reads {
				t.Errorf("from 0 a reader has %s, want %s", got, tt.reads)
			}
			var after uint64
			if _, err := fmt.Sscan(tt.after, &after); err != nil {
				t.Fatal(err)
			}
			if got := read(s, after); got != tt.rest {
				t.Errorf("after the damage a reader has %s, want %s", got, tt.rest)
			}
			if changes, err := s.Changes(ctx, "other", 0, 10); err != nil || len(changes) != 1 {
				t.Errorf("another account has %+v, %v", changes, err)
			}
		})
	}
}

// A damaged row goes with the next one that is old, and a commit writes one row for each
// account, whatever happens in it.
func TestRowsOfFeeds(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := fed(t, s)
	db := rawDB(t, dir)
	defer db.Close()
	rows := func() (n int) {
		if err := db.QueryRow(`SELECT count(*) FROM feed WHERE account = 'acme'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := rows(); n != 5 {
		t.Fatalf("five commits wrote %d rows", n)
	}
	if _, err := db.Exec(`UPDATE feed SET at = 1000000 WHERE last = 4 AND account = 'acme'`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		before int64
		rows   int
	}{{13, 4}, {22, 4}, {23, 2}} {
		if _, err := s.ForgetChanges(ctx, epoch, c.before, "", 100); err != nil {
			t.Fatal(err)
		}
		if n := rows(); n != c.rows {
			t.Errorf("%d rows are left without those before %d, want %d", n, c.before, c.rows)
		}
	}
	if got := read(s, 6); got != "7 8 9 10" {
		t.Errorf("a reader has %s", got)
	}
}

// failing makes a commit that fails after it has collected its changes, because the row of
// the journal is there already.
func failing(t *testing.T, s *Store, batch ...store.Transition) {
	t.Helper()
	if err := s.ready(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.st.insertRow.Exec(s.x.nextRow, []byte("in the way")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, batch); err == nil {
		t.Fatal("the commit succeeds")
	}
	if _, err := s.st.deleteRows.Exec(s.x.nextRow, s.x.nextRow); err != nil {
		t.Fatal(err)
	}
}

// A commit that fails leaves no gap: the next one has its numbers.
func TestFailedCommitsUseNoNumbers(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := fed(t, s)
	failing(t, s, startOf(epoch, runKey(50), "1"))
	mustCommit(t, s, startOf(epoch, runKey(51), "1"))
	changes, err := s.Changes(ctx, "acme", 10, 10)
	if err != nil || len(changes) != 1 || changes[0].N != 11 || changes[0].Run != runKey(51).Run {
		t.Errorf("then the feed has %+v, %v", changes, err)
	}
	if c := checkOf(t, s); len(c) > 0 {
		t.Errorf("the check says %q", c)
	}
}

// An account whose end is no longer in memory is read again; that the memory is bounded is a
// test of package changes.
func TestManyFeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short: 20,000 commits")
	}
	s := open(t, t.TempDir())
	epoch := own(t, s)
	const accounts = maxCached + 10
	for n := range 2 {
		var batch []store.Transition
		for i := range accounts {
			batch = append(batch, startOf(epoch, store.Key{Account: fmt.Sprint("a", i), Run: fmt.Sprint("r", n)}, "1"))
		}
		mustCommit(t, s, batch...)
	}
	mustCommit(t, s, startOf(epoch, runKey(0), "1"))
	for _, i := range []int{0, accounts / 2, accounts - 1} {
		if last, _, err := s.Newest(ctx, fmt.Sprint("a", i)); err != nil || last != 2 {
			t.Errorf("account %d has %d changes, %v", i, last, err)
		}
	}
	next := ""
	for again := true; again; again = next != "" {
		var err error
		if next, err = s.ForgetChanges(ctx, epoch, 1<<50, next, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if last, expired, err := s.Newest(ctx, "a5000"); err != nil || last != 2 || expired != 2 {
		t.Errorf("after all changes were removed an account has those from %d to %d, %v", expired+1, last, err)
	}
}

// A closed store reads no changes.
func TestFeedOfAClosedStore(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Changes(ctx, "acme", 0, 1)
	_, _, nerr := s.Newest(ctx, "acme")
	_, ferr := s.ForgetChanges(ctx, 0, 0, "", 1)
	for _, err := range []error{err, nerr, ferr} {
		if !errors.Is(err, fault.StoreFailed) {
			t.Errorf("a closed store says %v", err)
		}
	}
}
