// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"database/sql/driver"
	"math"
	"slices"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// Skipped is how many numbers are left out when the last row of a feed is damaged, or is
// lost with a damaged store: more than the changes that a log can hold, so none of them
// is used twice.
const Skipped = 100_000_000

const (
	// maxPending and maxJournal bound how many rows are pending, and how large the rows of
	// the journal are that have them.
	maxPending = 64
	maxJournal = 2 << 20
	// manyAccounts is from how many accounts on the rows of a commit go to the table at once.
	manyAccounts = 16
	// mergedSize is about how many bytes a row has that was made of pending ones.
	mergedSize = 4 << 10
)

// writer is the state of the store's writer.
type writer struct {
	st     struct{ newest, put, drop, empty *conn.Stmt }
	tails  map[string]*tail
	recent *tail // the one used last: most commits are of one account

	// Of the commit under way.
	open    []*tail // those with a row, in the order of their first change
	made    format.Rows[format.Changes, *format.Changes]
	records []store.Transition
	placed  []int64 // the rows of the journal that have the records
	flushed int     // how many pending rows it writes to the table

	journal int64          // bytes of the journal rows that have the pending rows
	merged  format.Changes // what Flush makes

	// What was found when the journal was read.
	damaged map[uint32]uint64 // damaged records: the last number of a hash
	lost    bool              // a record is lost of which nothing is known
	skipped map[string]uint64 // where the feeds of accounts go on because of that
}

// A tail is the end of an account's feed, after the commits so far. Commits write at
// most one row each: the changes are collected until the transitions have been written.
type tail struct {
	account string
	end     store.FeedEnd
	row     *format.Changes // of the commit under way, or nil
}

func (w *writer) prepare(texts *catalog.Texts, c *conn.Writer) error {
	w.tails = map[string]*tail{}
	for _, q := range []struct {
		dst  **conn.Stmt
		name string
	}{{&w.st.newest, "feedEnd"}, {&w.st.put, "putChanges"}, {&w.st.drop, "dropChanges"}, {&w.st.empty, "emptyChanges"}} {
		st, err := c.Prepare(texts.Text(q.name))
		if err != nil {
			return err
		}
		*q.dst = st
	}
	return nil
}

// tail returns the end of an account's feed.
func (f *Feed) tail(account string) (*tail, error) {
	if f.recent != nil && f.recent.account == account {
		return f.recent, nil
	}
	t := f.tails[account]
	if t == nil {
		r, err := f.stored(account)
		if err != nil {
			return nil, err
		}
		t = &tail{account: account, end: store.FeedEnd{Last: uint64(r.Last), At: r.At}}
		if r.Last != 0 && r.check() != nil {
			// Its numbers may be wrong, and the next ones are far behind them: heads must go
			// on being written, and a reader finds the gap.
			t.end = store.FeedEnd{Last: uint64(min(max(r.Last, 0), math.MaxInt64/2) + Skipped)}
		}
		for i := range f.pending {
			if r := &f.pending[i].Row; r.Account == account && uint64(r.Last) > t.end.Last {
				t.end = store.FeedEnd{Last: uint64(r.Last), At: r.At}
			}
		}
		f.passDamage(t)
		f.tails[account] = t
	}
	f.recent = t
	return t, nil
}

// stored reads the last row of an account in the table; without one, its numbers are 0.
func (f *Feed) stored(account string) (r Row, err error) {
	// No commit under way has written a row of the account, so a reader would see the
	// same; but a writer's statement is prepared.
	var v [5]driver.Value
	if _, err := f.st.newest.Row(v[:], account); err != nil {
		return r, err
	}
	r.Account = account
	r.First, _ = v[0].(int64)
	r.Last, _ = v[1].(int64)
	r.At, _ = v[2].(int64)
	r.Data, _ = v[3].([]byte)
	r.sum, _ = v[4].(int64)
	return r, nil
}

// passDamage moves the end of a feed behind the numbers that damaged records of the journal
// may have used.
func (f *Feed) passDamage(t *tail) {
	if last := f.damaged[format.KeyHash(store.Key{Account: t.account})]; last > t.end.Last {
		t.end.Last = min(last, math.MaxInt64/2) + Skipped
	}
	if f.lost {
		if f.skipped[t.account] == 0 {
			f.skipped[t.account] = t.end.Last + Skipped
		}
		t.end.Last = max(t.end.Last, f.skipped[t.account]) // a commit that had used it may have failed
	}
}

// Add numbers changes and adds them to the account's row of the commit under way.
func (f *Feed) Add(account string, changes []store.Change) error {
	t, err := f.tail(account)
	if err != nil {
		return err
	}
	if t.row == nil {
		t.row = f.made.Next()
		f.open = append(f.open, t)
	}
	for i := range changes {
		t.end.Next(&changes[i])
		t.row.Add(&changes[i])
	}
	return nil
}

// Full reports whether so much is pending that the next commit should flush it.
func (f *Feed) Full() bool { return len(f.pending) >= maxPending || f.journal >= maxJournal }

// ManyAccounts reports whether the commit under way has so many rows that they are better
// written to the table at once.
func (f *Feed) ManyAccounts() bool { return len(f.open) >= manyAccounts }

// Pending reports whether there are pending rows.
func (f *Feed) Pending() bool { return len(f.pending) > 0 }

// Write writes the rows of the commit under way to the table, behind what is pending, which
// must have been flushed. It returns the bytes written.
func (f *Feed) Write() (written int64, err error) {
	for _, t := range f.open {
		r := t.current()
		if err := f.put(&r); err != nil {
			return 0, err
		}
		written += int64(len(r.Data))
	}
	return written, nil
}

// current is the row of the commit under way.
func (t *tail) current() Row {
	r := Row{Account: t.account, First: int64(t.end.Last) - int64(t.row.Len()) + 1, Last: int64(t.end.Last), At: t.end.At, Data: t.row.Data()}
	r.sum = r.checksum()
	return r
}

func (f *Feed) put(r *Row) error {
	_, err := f.st.put.Exec(r.Account, r.First, r.Last, r.At, r.Data, r.sum)
	return err
}

// Records returns the rows of the commit under way as records for the journal, which are
// pending then; see [format.FeedFrames]. The store calls Place for each of them.
func (f *Feed) Records() []store.Transition {
	for _, t := range f.open {
		r := t.current()
		f.records = append(f.records, store.Transition{Key: store.Key{Account: r.Account}, First: uint64(r.First), Last: uint64(r.Last),
			Frames: format.FeedFrames(r.At, r.Data)})
	}
	f.placed = slices.Grow(f.placed, len(f.records))[:len(f.records)]
	return f.records
}

// Place says in which row of the journal record i is.
func (f *Feed) Place(i int, journal int64) { f.placed[i] = journal }

// pend adds the row that a record of the journal has to the pending ones. The caller locks mu.
func (f *Feed) pend(journal int64, key store.Key, first, last uint64, frames []byte) {
	r := Row{Account: key.Account, First: int64(first), Last: int64(last)}
	r.At, r.Data = format.ParseFeedFrames(frames)
	r.sum = r.checksum()
	f.pending = append(f.pending, pendingRow{r, journal})
}

// Flush writes the pending rows to the table. If they are many, those of commits one after
// another become one.
func (f *Feed) Flush() error {
	merge := f.Full()
	for i := range f.pending {
		account := f.pending[i].Account
		if slices.ContainsFunc(f.pending[:i], func(p pendingRow) bool { return p.Account == account }) {
			continue
		}
		if err := f.flush(account, f.pending[i:], merge); err != nil {
			return err
		}
	}
	f.flushed = len(f.pending)
	return nil
}

// flush writes the pending rows of one account.
func (f *Feed) flush(account string, rows []pendingRow, merge bool) error {
	var r Row // what is being merged; First = 0 while that is nothing
	end := func() error {
		if r.First == 0 {
			return nil
		}
		r.Data = f.merged.Data()
		r.sum = r.checksum()
		err := f.put(&r)
		r = Row{}
		return err
	}
	for i := range rows {
		next := &rows[i].Row
		if next.Account != account {
			continue
		}
		var changes []store.Change
		alone := !merge || len(next.Data) > mergedSize/2
		if !alone {
			var err error
			changes, err = next.changes()
			alone = err != nil // whoever reads the row is told
		}
		if alone || r.Last+1 != next.First || len(f.merged.Data())+len(next.Data) > mergedSize {
			if err := end(); err != nil {
				return err
			}
		}
		if alone {
			if err := f.put(next); err != nil {
				return err
			}
			continue
		}
		if r.First == 0 {
			f.merged.Reset()
			r = Row{Account: account, First: next.First}
		}
		for j := range changes {
			f.merged.Add(&changes[j])
		}
		r.Last, r.At = next.Last, next.At
	}
	return end()
}

// Publish makes what the commit has done visible: it is durable. It returns the rows of the
// journal that have pending rows from now on, and those that have none any longer.
func (f *Feed) Publish() (keep, release []int64) {
	if f.flushed > 0 || len(f.records) > 0 {
		f.mu.Lock()
		for i := range f.pending[:f.flushed] {
			// A row has the changes of several accounts if they were committed together.
			if id := f.pending[i].journal; i+1 == len(f.pending) || f.pending[i+1].journal != id {
				release = append(release, id)
			}
		}
		if f.flushed > 0 {
			f.pending, f.journal = slices.Clone(f.pending[f.flushed:]), 0
		}
		for i := range f.records {
			t := &f.records[i]
			f.pend(f.placed[i], t.Key, t.First, t.Last, t.Frames)
		}
		f.mu.Unlock()
		keep = f.placed
	}
	f.close()
	return keep, release
}

// Keep counts the bytes of a row of the journal that is kept for pending rows.
func (f *Feed) Keep(bytes int64) { f.journal += bytes }

// Discard forgets the commit under way: it has failed, or is taken back. The ends of the
// feeds must be read again.
func (f *Feed) Discard() {
	f.close()
	clear(f.tails)
	f.recent = nil
}

// close ends the rows of a commit.
func (f *Feed) close() {
	for _, t := range f.open {
		t.row = nil
	}
	f.made.Release()
	clear(f.records)
	if cap(f.open) > manyAccounts {
		f.open, f.records, f.placed = nil, nil, nil
	}
	f.open, f.records, f.placed, f.flushed = f.open[:0], f.records[:0], f.placed[:0], 0
}

// Trim bounds how many tails are in memory between commits.
func (f *Feed) Trim(most int) {
	for account := range f.tails {
		if len(f.tails) <= most {
			return
		}
		delete(f.tails, account)
		f.recent = nil
	}
}
