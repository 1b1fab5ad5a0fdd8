// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"database/sql/driver"
	"encoding/binary"
	"math"
	"slices"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// Skipped is how many numbers are left out when the last row of a feed is damaged, or is
// lost with a damaged store: more than the changes that a log can hold, so none of them
// is used twice.
const Skipped = 100_000_000

const (
	// keptRows bounds how many rows keep their memory for the next commit.
	keptRows = 16
	// fullRows and fullBytes are how many rows may be in the journal only, and how large the
	// journal rows may be that are kept for them.
	fullRows  = 64
	fullBytes = 2 << 20
	// manyAccounts is from how many accounts on the rows of a commit go to the table.
	manyAccounts = 16
	// mergedSize is about how many bytes a row has that was made of those of many commits.
	mergedSize = 4 << 10
)

// writing is the state of the writer.
type writing struct {
	tails   map[string]*tail
	open    []*tail           // those with a row of the commit under way, in the order of their first change
	rows    []*format.Changes // to be reused
	latest  *tail             // most commits are of one account
	records []store.Transition
	placed  []int64 // the journal rows of records
	merged  format.Changes

	flushed int   // how many of the kept rows the commit under way writes to the table
	held    int64 // bytes of journal rows that are kept for the kept rows

	// Of the journal when it was read.
	damaged map[uint32]uint64 // damaged records: the last change of a hash
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

// tail returns the end of an account's feed.
func (f *Feed) tail(account string) (*tail, error) {
	if f.latest != nil && f.latest.account == account {
		return f.latest, nil
	}
	t := f.tails[account]
	if t == nil {
		r, err := f.last(account)
		if err != nil {
			return nil, err
		}
		t = &tail{account: account, end: store.FeedEnd{Last: uint64(r.Last), At: r.At}}
		if r.Last != 0 && !r.sound {
			// Its numbers may be wrong, and the next ones are far behind them: heads must go
			// on being written, and a reader finds the gap.
			t.end = store.FeedEnd{Last: uint64(min(max(r.Last, 0), math.MaxInt64/2) + Skipped)}
		}
		for i := range f.only {
			if r := &f.only[i].Row; r.Account == account && uint64(r.Last) > t.end.Last {
				t.end = store.FeedEnd{Last: uint64(r.Last), At: r.At}
			}
		}
		f.passDamage(t)
		f.tails[account] = t
	}
	f.latest = t
	return t, nil
}

// last reads the last row of an account in the table; without one, its numbers are 0.
func (f *Feed) last(account string) (r Row, err error) {
	// No commit under way has written a row of the account, so a reader would see the
	// same; but a writer's statement is prepared.
	var v [5]driver.Value
	r = Row{Account: account}
	found, err := f.ends.Row(v[:], account)
	if err != nil || !found {
		return r, err
	}
	r.First, _ = v[0].(int64)
	r.Last, _ = v[1].(int64)
	r.At, _ = v[2].(int64)
	r.Data, _ = v[3].([]byte)
	r.sum, r.sound = v[4].(int64)
	r.sound = r.sound && r.sum == r.sumOf()
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
		if len(f.open) == len(f.rows) {
			f.rows = append(f.rows, &format.Changes{})
		}
		t.row = f.rows[len(f.open)]
		t.row.Reset()
		f.open = append(f.open, t)
	}
	for i := range changes {
		t.end.Next(&changes[i])
		t.row.Add(&changes[i])
	}
	return nil
}

// Full reports whether so much is in the journal only that the next commit should write it
// to the table.
func (f *Feed) Full() bool { return len(f.only) >= fullRows || f.held >= fullBytes }

// Wide reports whether the commit under way has changes of many accounts. They are better
// written to the table at once.
func (f *Feed) Wide() bool { return len(f.open) >= manyAccounts }

// Kept reports whether the journal has rows that the table does not have.
func (f *Feed) Kept() bool { return len(f.only) > 0 }

// Write writes the rows of the commit under way to the table. What only the journal has must
// have been flushed. It returns the bytes written.
func (f *Feed) Write() (written int64, err error) {
	for _, t := range f.open {
		r := t.made()
		if err := f.putRow(&r); err != nil {
			return 0, err
		}
		written += int64(len(r.Data))
	}
	return written, nil
}

// made returns the row of the commit under way.
func (t *tail) made() Row {
	return Row{Account: t.account, First: int64(t.end.Last) - int64(t.row.Len()) + 1, Last: int64(t.end.Last), At: t.end.At, Data: t.row.Data(), sound: true}
}

func (f *Feed) putRow(r *Row) error {
	_, err := f.put.Exec(r.Account, r.First, r.Last, r.At, r.Data, r.sumOf())
	return err
}

// Records returns the rows of the commit under way as records for the journal: of no run,
// with the numbers of the changes instead of those of events, and the row for frames. The
// store tells with Place where they are.
func (f *Feed) Records() []store.Transition {
	f.records, f.placed = f.records[:0], f.placed[:0]
	for _, t := range f.open {
		r := t.made()
		f.records = append(f.records, store.Transition{Key: store.Key{Account: r.Account}, First: uint64(r.First), Last: uint64(r.Last),
			Frames: append(binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(r.Data)), uint64(r.At)), r.Data...)})
		f.placed = append(f.placed, 0)
	}
	return f.records
}

// Place says in which row of the journal record i is.
func (f *Feed) Place(i int, row int64) { f.placed[i] = row }

// recorded is the row that a record has; of one that was read, frames may be anything.
func recorded(key store.Key, first, last uint64, frames []byte) Row {
	r := Row{Account: key.Account, First: int64(first), Last: int64(last), sound: true}
	if len(frames) >= 8 {
		r.At, r.Data = int64(binary.LittleEndian.Uint64(frames)), frames[8:]
	}
	return r
}

// Flush writes the rows that only the journal has to the table. If they are many, those of
// commits one after another become one.
func (f *Feed) Flush() error {
	for i := range f.only {
		account := f.only[i].Account
		if slices.ContainsFunc(f.only[:i], func(k kept) bool { return k.Account == account }) {
			continue
		}
		if err := f.flush(account, f.only[i:]); err != nil {
			return err
		}
	}
	f.flushed = len(f.only)
	return nil
}

// flush writes the rows of one account.
func (f *Feed) flush(account string, rows []kept) error {
	var r Row // what is being merged; First = 0 while that is nothing
	end := func() error {
		if r.First == 0 {
			return nil
		}
		r.Data = f.merged.Data()
		err := f.putRow(&r)
		r = Row{Account: account}
		return err
	}
	for i := range rows {
		k := &rows[i].Row
		if k.Account != account {
			continue
		}
		var changes []store.Change
		alone := len(k.Data) > mergedSize/2 || !f.Full()
		if !alone {
			var err error
			changes, err = k.Changes()
			alone = err != nil // whoever reads the row is told
		}
		if alone || r.First != 0 && (r.Last+1 != k.First || len(f.merged.Data())+len(k.Data) > mergedSize) {
			if err := end(); err != nil {
				return err
			}
		}
		if alone {
			if err := f.putRow(k); err != nil {
				return err
			}
			continue
		}
		if r.First == 0 {
			f.merged.Reset()
			r = Row{Account: account, First: k.First}
		}
		for j := range changes {
			f.merged.Add(&changes[j])
		}
		r.Last, r.At = k.Last, k.At
	}
	return end()
}

// Publish makes what the commit has done visible: it is durable. It returns the rows of the
// journal that are kept for the changes in them from now on, and those that are not any
// longer.
func (f *Feed) Publish() (keep, release []int64) {
	if f.flushed > 0 || len(f.records) > 0 {
		f.mu.Lock()
		for i := range f.only[:f.flushed] {
			release = append(release, f.only[i].journal)
		}
		if f.flushed > 0 {
			f.only, f.held = slices.Clone(f.only[f.flushed:]), 0
		}
		for i := range f.records {
			t := &f.records[i]
			f.only = append(f.only, kept{recorded(t.Key, t.First, t.Last, t.Frames), f.placed[i]})
		}
		f.mu.Unlock()
		keep = f.placed
	}
	f.close()
	return keep, release
}

// Hold counts the bytes of a journal row that is kept for the changes in it.
func (f *Feed) Hold(bytes int64) { f.held += bytes }

// Failed forgets what the commit under way has done: it has failed, or is taken back. The
// ends of the feeds must be read again.
func (f *Feed) Failed() {
	f.close()
	clear(f.tails)
	f.latest = nil
}

// close ends the rows of a commit.
func (f *Feed) close() {
	for _, t := range f.open {
		t.row = nil
	}
	if len(f.rows) > keptRows {
		f.rows = nil
	}
	for i, row := range f.rows {
		if b := row.Data(); cap(b) > max(256<<10, 8*len(b)) {
			f.rows[i] = &format.Changes{}
		}
	}
	if cap(f.open) > keptRows {
		f.open, f.records, f.placed = nil, nil, nil
	}
	clear(f.records)
	f.open, f.records, f.placed, f.flushed = f.open[:0], f.records[:0], f.placed[:0], 0
}

// Memory returns how many tails and rows are in memory, and how many rows are open.
func (f *Feed) Memory() (tails, rows, open int) { return len(f.tails), len(f.rows), len(f.open) }

// Trim bounds how many tails are kept in memory between commits.
func (f *Feed) Trim(most int) {
	for account := range f.tails {
		if len(f.tails) <= most {
			return
		}
		delete(f.tails, account)
		f.latest = nil
	}
}
