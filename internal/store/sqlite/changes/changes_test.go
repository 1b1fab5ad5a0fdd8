// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

var ctx = context.Background()

// newFeed returns the feeds of a database that has their table only.
func newFeed(t *testing.T) *Feed {
	t.Helper()
	table, err := os.ReadFile("../migrations/00007_feed.sql")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := catalog.Load(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	dsn := filepath.Join(t.TempDir(), "feed.db") + "?_pragma=journal_mode(WAL)"
	w, err := conn.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	read, err := sql.Open("sqlite", dsn)
	if err == nil {
		err = w.Once(string(table))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := read.Close(); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := Open(texts, w, read)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// commit is a commit of one change, whose record is in row n of the journal.
func commit(t *testing.T, f *Feed, account string, n int64) (keep, release []int64) {
	t.Helper()
	if err := f.Add(account, []store.Change{{At: n, Run: fmt.Sprint("run_", n), Recipe: "r", Status: "running"}}); err != nil {
		t.Fatal(err)
	}
	for i := range f.Records() {
		f.Place(i, n)
	}
	return f.Publish()
}

func table(t *testing.T, f *Feed) (rows string) {
	t.Helper()
	found, err := f.read.Query(`SELECT account, first, last FROM feed ORDER BY account, last`)
	if err == nil {
		err = conn.EachRow(found, func() error {
			var account string
			var first, last int
			err := found.Scan(&account, &first, &last)
			rows += fmt.Sprintf("%s %d-%d ", account, first, last)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(rows)
}

// Many pending rows become one for each account, few stay as they are, and a large one stays
// alone. The rows of the journal are released when the commit is published, not before.
func TestFlush(t *testing.T) {
	f := newFeed(t)
	for n := range int64(3) {
		if keep, release := commit(t, f, "a", n); fmt.Sprint(keep, release) != fmt.Sprintf("[%d] []", n) {
			t.Errorf("commit %d keeps %v and releases %v", n, keep, release)
		}
	}
	flush := func(released int, want string) {
		t.Helper()
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, release := f.Publish(); len(release) != released || f.Pending() {
			t.Errorf("%d rows of the journal are released, want %d; some are pending: %v", len(release), released, f.Pending())
		}
		if got := table(t, f); got != want {
			t.Errorf("the table has %s, want %s", got, want)
		}
	}
	flush(3, "a 1-1 a 2-2 a 3-3")
	for n := range int64(maxPending) {
		if f.Full() {
			t.Fatalf("%d pending rows are too many", n)
		}
		commit(t, f, string("ab"[n%2]), n)
	}
	if !f.Full() {
		t.Error("so many pending rows are not too many")
	}
	flush(maxPending, "a 1-1 a 2-2 a 3-3 a 4-35 b 1-32")
	large := make([]store.Change, 200)
	for i := range large {
		large[i] = store.Change{At: 99, Run: fmt.Sprintf("%040d", i*7919)}
	}
	commit(t, f, "a", 98)
	if err := f.Add("a", large); err != nil {
		t.Fatal(err)
	}
	f.Records()
	f.Place(0, 100)
	f.Publish()
	commit(t, f, "a", 99)
	f.Keep(maxJournal)
	flush(3, "a 1-1 a 2-2 a 3-3 a 4-35 a 36-36 a 37-236 a 237-237 b 1-32")
	changes, err := f.After(ctx, "a", 0, 1000)
	if err != nil || len(changes) != 237 {
		t.Fatalf("a reader has %d changes, %v", len(changes), err)
	}
	for i := range changes {
		if changes[i].N != uint64(i+1) || i > 0 && changes[i].At < changes[i-1].At {
			t.Fatalf("change %d is %+v", i+1, changes[i])
		}
	}
}

// What a commit has flushed and collected is as before when it is discarded.
func TestDiscard(t *testing.T) {
	f := newFeed(t)
	commit(t, f, "a", 1)
	if err := f.Flush(); err != nil { // in a transaction, which fails
		t.Fatal(err)
	}
	if err := f.Add("a", []store.Change{{At: 2, Run: "lost"}}); err != nil {
		t.Fatal(err)
	}
	f.Records()
	f.Discard()
	if _, err := f.st.drop.Exec("a", int64(1)); err != nil { // which is rolled back
		t.Fatal(err)
	}
	if keep, release := commit(t, f, "a", 3); fmt.Sprint(keep, release) != "[3] []" {
		t.Errorf("the next commit keeps %v and releases %v", keep, release)
	}
	if changes, err := f.After(ctx, "a", 0, 10); err != nil || len(changes) != 2 || changes[1].N != 2 || changes[1].Run != "run_3" {
		t.Errorf("a reader has %+v, %v", changes, err)
	}
}

// After a scan those records are pending that the table does not have.
func TestScan(t *testing.T) {
	f := newFeed(t)
	for n := range int64(4) {
		commit(t, f, "a", n)
	}
	records := f.pending
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Publish()
	if _, err := f.st.drop.Exec("a", int64(2)); err != nil {
		t.Fatal(err)
	}
	if err := f.Add("a", []store.Change{{At: 9, Run: "run_9"}, {At: 9, Run: "run_10"}}); err != nil {
		t.Fatal(err)
	}
	unflushed := f.Records()[0]
	f.BeginScan()
	for _, p := range records {
		f.FoundRecord(p.journal, &format.Record{Key: store.Key{Account: "a"}, First: uint64(p.First), Last: uint64(p.Last), Frames: format.FeedFrames(p.At, p.Data)})
	}
	f.FoundRecord(7, &format.Record{Key: unflushed.Key, First: unflushed.First, Last: unflushed.Last, Frames: unflushed.Frames})
	if keep, err := f.EndScan(); err != nil || fmt.Sprint(keep) != "[7]" {
		t.Errorf("the scan keeps %v, %v", keep, err)
	}
	if last, expired, err := f.Newest(ctx, "a"); err != nil || last != 6 || expired != 2 {
		t.Errorf("the account has changes %d to %d, %v", expired+1, last, err)
	}
}

// The memory between commits is bounded, however many accounts one has had.
func TestMemory(t *testing.T) {
	f := newFeed(t)
	const accounts, most = 5_000, 100
	for n := range accounts {
		if err := f.Add(fmt.Sprint("a", n), []store.Change{{At: 1, Run: "r"}}); err != nil {
			t.Fatal(err)
		}
	}
	if !f.ManyAccounts() {
		t.Error("they are not many accounts")
	}
	if _, err := f.Write(); err != nil {
		t.Fatal(err)
	}
	f.Publish()
	f.Trim(most)
	if len(f.tails) > most || len(f.open) > 0 || max(cap(f.open), cap(f.records), cap(f.placed)) > manyAccounts || f.Pending() {
		t.Errorf("%d ends are in memory, %d rows are open, with room for %d, %d and %d", len(f.tails), len(f.open), cap(f.open), cap(f.records), cap(f.placed))
	}
	for _, n := range []int{0, accounts / 2, accounts - 1} {
		if last, _, err := f.Newest(ctx, fmt.Sprint("a", n)); err != nil || last != 1 {
			t.Errorf("account %d has %d changes, %v", n, last, err)
		}
	}
}
