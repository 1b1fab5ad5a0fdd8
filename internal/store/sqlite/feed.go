// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// skipped is how many numbers are left out when the last row of a feed is damaged, or is
// lost with a damaged store: more than the changes that a log can hold, so none of them
// is used twice.
const skipped = 100_000_000

// A feedTail is the end of an account's feed, after the commits so far. Commits write at
// most one row each: the changes are collected until the transitions have been written.
type feedTail struct {
	account string
	end     store.FeedEnd
	row     *format.Changes // of the commit under way, or nil
}

// A feedCache has the tails of the accounts that commits have used. It is guarded by w.
type feedCache struct {
	tails   map[string]*feedTail
	open    []*feedTail       // those with a row, in the order of their first change
	rows    []*format.Changes // to be reused
	changes []store.Change    // of one transition
	newest  *feedTail         // most commits are of one account
}

// tail returns the end of an account's feed.
func (s *Store) tail(account string) (*feedTail, error) {
	f := &s.feed
	if f.newest != nil && f.newest.account == account {
		return f.newest, nil
	}
	t := f.tails[account]
	if t == nil {
		// No commit under way has written a row of the account, so a reader would see the
		// same; but a writer's statement is prepared.
		var v [5]driver.Value
		found, err := s.st.feedEnd.Row(v[:], account)
		if err != nil {
			return nil, err
		}
		t = &feedTail{account: account}
		if found {
			t.end = endOf(account, v[:])
		}
		f.tails[account] = t
	}
	f.newest = t
	return t, nil
}

// endOf returns the end that follows from the last row. If the row is damaged its numbers
// may be wrong, and the next ones are far behind them: heads must go on being written, and
// a reader finds the gap.
func endOf(account string, v []driver.Value) store.FeedEnd {
	first, _ := v[0].(int64)
	last, _ := v[1].(int64)
	at, _ := v[2].(int64)
	data, _ := v[3].([]byte)
	if v[4] == format.FeedSum(account, uint64(first), uint64(last), at, data) {
		return store.FeedEnd{Last: uint64(last), At: at}
	}
	return store.FeedEnd{Last: uint64(min(max(last, 0), math.MaxInt64/2) + skipped)}
}

// addChanges collects the changes that a transition makes, which was accepted.
func (s *Store) addChanges(t *store.Transition) error {
	if t.Head == nil && len(t.Entries) == 0 {
		return nil
	}
	first := uint64(0)
	if n := len(t.Entries); n > 0 {
		first = s.accounts[t.Account].account.Seq() - uint64(n) + 1
	}
	s.feed.changes = store.AppendChanges(s.feed.changes[:0], t, first)
	return s.collect(t.Account, s.feed.changes)
}

// collect numbers changes and adds them to the account's row of this commit.
func (s *Store) collect(account string, changes []store.Change) error {
	t, err := s.tail(account)
	if err != nil {
		return err
	}
	f := &s.feed
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

// writeChanges writes the rows of the transaction that is open.
func (s *Store) writeChanges() error {
	for _, t := range s.feed.open {
		first, last, data := t.end.Last-uint64(t.row.Len())+1, t.end.Last, t.row.Data()
		if _, err := s.st.putChanges.Exec(t.account, int64(first), int64(last), t.end.At, data,
			format.FeedSum(t.account, first, last, t.end.At, data)); err != nil {
			return err
		}
		s.c.rows++
		s.c.bytes += int64(len(data))
	}
	return nil
}

// closeRows ends the rows of a commit. After a failed commit the ends of the feeds must be
// read again.
func (f *feedCache) closeRows(failed bool) {
	for _, t := range f.open {
		t.row = nil
	}
	if len(f.rows) > keptRows {
		f.rows = nil
	}
	for i, row := range f.rows {
		if roomy(row.Data()) {
			f.rows[i] = &format.Changes{}
		}
	}
	clear(f.changes[:cap(f.changes)])
	if cap(f.open) > keptRows {
		f.open = nil
	}
	f.open = f.open[:0]
	if failed {
		clear(f.tails)
		f.newest = nil
	}
}

// keptRows bounds how many rows keep their memory for the next commit.
const keptRows = 16

// trim bounds the memory of tails between commits.
func (f *feedCache) trim() {
	for account := range f.tails {
		if len(f.tails) <= maxCached {
			return
		}
		delete(f.tails, account)
		f.newest = nil
	}
}

// Changes implements store.Feed.
func (s *Store) Changes(ctx context.Context, account string, after uint64, limit int) (changes []store.Change, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, nil
	}
	last := after
	err = s.eachFeedRow(ctx, s.t.changesAfter, func(r *feedRow) error {
		if err := r.check(account); err != nil {
			return err
		}
		if uint64(r.first) > last+1 {
			return s.gap(ctx, account, last, r)
		}
		part, err := r.changes(account)
		if err != nil {
			return err
		}
		part = part[min(uint64(len(part)), last+1-uint64(r.first)):]
		part = part[:min(len(part), limit-len(changes))]
		changes = append(changes, part...)
		if last += uint64(len(part)); len(changes) == limit {
			return errEnough
		}
		return nil
	}, account, int64(min(after, math.MaxInt64)))
	switch {
	case len(changes) > 0 && (errors.Is(err, errEnough) || errors.Is(err, fault.StoreCorrupt)):
		return changes, nil // the next call reports damage behind them
	case err == nil && len(changes) == 0:
		var newest feedRow
		if newest, err = s.feedRow(ctx, s.t.feedEnd, account); err == nil {
			// What a commit has written since the rows were read is for the next call.
			err = store.CheckCursor(account, after, uint64(newest.last), 0)
		}
	}
	if _, err = s.explain(err); err != nil {
		return nil, err
	}
	return changes, nil
}

// gap returns why there is a gap between change `last` and a row: the changes there were
// removed, or they are lost.
func (s *Store) gap(ctx context.Context, account string, last uint64, next *feedRow) error {
	oldest, err := s.feedRow(ctx, s.t.feedStart, account)
	if err != nil {
		return err
	}
	expired := uint64(next.first) - 1
	if oldest.last < next.last {
		return fault.New(fault.StoreCorrupt, "changes %d to %d of account %q are lost: start after %d to read on", last+1, expired, account, expired)
	}
	newest, err := s.feedRow(ctx, s.t.feedEnd, account)
	if err != nil {
		return err
	}
	return store.CheckCursor(account, last, uint64(newest.last), expired)
}

// Newest implements store.Feed.
func (s *Store) Newest(ctx context.Context, account string) (last, expired uint64, err error) {
	if err := s.isOpen(ctx); err != nil {
		return 0, 0, err
	}
	newest, err := s.feedRow(ctx, s.t.feedEnd, account)
	var oldest feedRow
	if err == nil {
		oldest, err = s.feedRow(ctx, s.t.feedStart, account)
	}
	if err == nil && newest.last != 0 {
		if err = newest.check(account); err == nil {
			err = oldest.check(account)
		}
	}
	if _, err = s.explain(err); err != nil || newest.last == 0 {
		return 0, 0, err
	}
	return uint64(newest.last), uint64(oldest.first) - 1, nil
}

// feedRow reads one row; without one, its numbers are 0.
func (s *Store) feedRow(ctx context.Context, query, account string) (r feedRow, err error) {
	if err = r.scan(s.read.QueryRowContext(ctx, query, account)); errors.Is(err, sql.ErrNoRows) {
		return feedRow{}, nil
	}
	return r, err
}

// ForgetChanges implements store.Retention.
func (s *Store) ForgetChanges(ctx context.Context, epoch uint64, before int64, from string, limit int) (next string, err error) {
	if err := s.lockToWrite(ctx); err != nil {
		return "", err
	}
	defer s.w.Unlock()
	if err := store.Fenced(epoch, s.epoch); err != nil {
		return "", err
	}
	limit = max(limit, 1)
	accounts, err := s.texts(ctx, s.t.fedAccounts, from, limit+1)
	if err != nil {
		return "", err
	}
	if len(accounts) > limit {
		next = accounts[limit]
		accounts = accounts[:limit]
	}
	err = s.inTx(func() error {
		for _, account := range accounts {
			n, err := s.forgetChanges(ctx, account, before, limit)
			if err != nil {
				return err
			}
			if limit -= n; limit == 0 {
				next = account
				break
			}
		}
		return nil
	})
	if err != nil {
		return "", s.fail(err)
	}
	return next, nil
}

// forgetChanges removes old rows of one account in the transaction that is open, and
// returns how many, at most limit. The newest row becomes one without changes. Such a
// row goes with the next old one, and so does a damaged one, because its time may be
// wrong.
func (s *Store) forgetChanges(ctx context.Context, account string, before int64, limit int) (n int, err error) {
	seen, until, at := 0, int64(0), int64(0)
	err = s.eachFeedRow(ctx, s.t.changesAfter, func(r *feedRow) error {
		seen++
		switch {
		case r.check(account) != nil || r.first > r.last:
			return nil
		case r.at >= before:
			return errEnough
		}
		if n, until, at = seen, r.last, r.at; n >= limit {
			return errEnough
		}
		return nil
	}, account, int64(0))
	if err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	if n == 0 {
		return 0, nil
	}
	newest, err := s.feedRow(ctx, s.t.feedEnd, account)
	if err != nil {
		return 0, err
	}
	if until == newest.last {
		var none format.Changes
		none.Reset()
		sum := format.FeedSum(account, uint64(until)+1, uint64(until), at, none.Data())
		if _, err := s.st.emptyChanges.Exec(account, until, none.Data(), sum); err != nil {
			return 0, err
		}
		until--
	}
	_, err = s.st.dropChanges.Exec(account, until)
	s.countPages(int64(2 * n))
	return min(n, limit), err
}

// eachFeedRow calls fn for the rows of a query.
func (s *Store) eachFeedRow(ctx context.Context, query string, fn func(*feedRow) error, args ...any) error {
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	var r feedRow
	return conn.EachRow(rows, func() error {
		if err := r.scan(rows); err != nil {
			return err
		}
		return fn(&r)
	})
}

// errEnough ends a walk over rows before their end.
var errEnough = errors.New("enough rows")

// A feedRow is a row of the table feed.
type feedRow struct {
	first, last, at int64
	data            []byte
	sum             int64
}

func (r *feedRow) scan(row scanner) error {
	return row.Scan(&r.first, &r.last, &r.at, &r.data, &r.sum)
}

func (r *feedRow) check(account string) error {
	if r.sum != format.FeedSum(account, uint64(r.first), uint64(r.last), r.at, r.data) {
		return fault.New(fault.StoreCorrupt, "changes of account %q up to %d: their row failed the checksum: start after %d to read on", account, r.last, r.last)
	}
	return nil
}

func (r *feedRow) changes(account string) ([]store.Change, error) {
	changes, err := format.DecodeChanges(r.data, uint64(r.first), uint64(r.last))
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "changes %d to %d of account %q cannot be read: %v", r.first, r.last, account, err)
	}
	return changes, nil
}
