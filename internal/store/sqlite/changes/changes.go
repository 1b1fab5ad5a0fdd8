// SPDX-License-Identifier: Apache-2.0

// Package changes keeps the feeds of accounts: the rows of their table, and the pending ones,
// which only the journal has so far.
//
// It decides how the changes of a commit are numbered, when rows of several commits become
// one, and how a reader gets both kinds without a gap. It never opens a transaction and never
// writes to the journal: the store does, and says when a commit is durable.
package changes

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// A Feed has the feeds of all accounts. After, Newest and Check may be called at any time;
// all else belongs to the writer of the store.
type Feed struct {
	read    *sql.DB
	queries struct{ oldest, newest, after, accounts string }
	writer

	mu      sync.RWMutex
	pending []pendingRow // oldest first; the writer locks mu to change it
}

// A pendingRow is not in the table yet.
type pendingRow struct {
	Row
	journal int64 // the row of the journal that has it
}

// A Row has consecutive changes of an account.
type Row struct {
	Account     string
	First, Last int64
	At          int64 // of the last one, UTC µs
	Data        []byte
	sum         int64
}

// Open returns the feeds of a store.
func Open(texts *catalog.Texts, w *conn.Writer, read *sql.DB) (*Feed, error) {
	f := &Feed{read: read}
	f.queries.oldest, f.queries.newest = texts.Text("feedStart"), texts.Text("feedEnd")
	f.queries.after, f.queries.accounts = texts.Text("changesAfter"), texts.Text("fedAccounts")
	return f, errors.Join(f.prepare(texts, w), texts.Err())
}

// After returns the changes of an account after a number, at most limit; see
// [store.Feed].
func (f *Feed) After(ctx context.Context, account string, after uint64, limit int) (changes []store.Change, err error) {
	last := after
	err = f.rows(ctx, account, int64(min(after, math.MaxInt64)), func(r *Row) error {
		if err := r.check(); err != nil {
			return err
		}
		if uint64(r.First) > last+1 {
			return f.gap(ctx, account, last, r)
		}
		part, err := r.changes()
		if err != nil {
			return err
		}
		part = part[min(uint64(len(part)), last+1-uint64(r.First)):]
		part = part[:min(len(part), limit-len(changes))]
		changes = append(changes, part...)
		if last += uint64(len(part)); len(changes) == limit {
			return conn.ErrEnough
		}
		return nil
	})
	switch {
	case len(changes) > 0 && (errors.Is(err, conn.ErrEnough) || errors.Is(err, fault.StoreCorrupt)):
		return changes, nil // the next call reports damage behind them
	case err != nil || len(changes) > 0:
		return changes, err
	}
	newest, err := f.newest(ctx, account)
	if err != nil {
		return nil, err
	}
	// What a commit has written since the rows were read is for the next call.
	return nil, store.CheckCursor(account, after, uint64(newest.Last), 0)
}

// gap returns why there is a gap between change `last` and a row: the changes there were
// removed, or they are lost.
func (f *Feed) gap(ctx context.Context, account string, last uint64, next *Row) error {
	oldest, err := f.oldest(ctx, account)
	if err != nil {
		return err
	}
	expired := uint64(next.First) - 1
	if oldest.Last < next.Last {
		return fault.New(fault.StoreCorrupt, "changes %d to %d of account %q are lost: start after %d to read on", last+1, expired, account, expired)
	}
	newest, err := f.newest(ctx, account)
	if err != nil {
		return err
	}
	return store.CheckCursor(account, last, uint64(newest.Last), expired)
}

// Newest is that of [store.Feed].
func (f *Feed) Newest(ctx context.Context, account string) (last, expired uint64, err error) {
	oldest, err := f.oldest(ctx, account)
	if err != nil || oldest.Last == 0 {
		return 0, 0, err
	}
	newest, err := f.newest(ctx, account)
	if err == nil {
		err = newest.check()
	}
	if err == nil {
		err = oldest.check()
	}
	return uint64(newest.Last), uint64(oldest.First) - 1, err
}

// newest returns the last row of an account; without one, its numbers are 0.
func (f *Feed) newest(ctx context.Context, account string) (Row, error) {
	if rows := f.pendingOf(account); len(rows) > 0 {
		return rows[len(rows)-1], nil
	}
	return f.one(ctx, f.queries.newest, account)
}

// oldest returns the first row of an account; without one, its numbers are 0.
func (f *Feed) oldest(ctx context.Context, account string) (Row, error) {
	rows := f.pendingOf(account)
	r, err := f.one(ctx, f.queries.oldest, account)
	if err == nil && r.Last == 0 && len(rows) > 0 {
		return rows[0], nil
	}
	return r, err
}

// one reads one row of the table.
func (f *Feed) one(ctx context.Context, query, account string) (Row, error) {
	r := Row{Account: account}
	err := r.scan(f.read.QueryRowContext(ctx, query, account))
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, err
}

// rows calls fn for the rows of an account that have changes after a number.
func (f *Feed) rows(ctx context.Context, account string, after int64, fn func(*Row) error) error {
	// The pending ones first: a row that is written to the table meanwhile is then in both,
	// and left out below.
	pending := f.pendingOf(account)
	if len(pending) == 0 || pending[0].First > after+1 {
		rows, err := f.read.QueryContext(ctx, f.queries.after, account, after)
		if err != nil {
			return err
		}
		r := Row{Account: account}
		err = conn.EachRow(rows, func() error {
			if err := r.scan(rows); err != nil {
				return err
			}
			after = max(after, r.Last)
			return fn(&r)
		})
		if err != nil {
			return err
		}
	}
	for i := range pending {
		if pending[i].Last > after {
			if err := fn(&pending[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// pendingOf returns the pending rows of an account.
func (f *Feed) pendingOf(account string) (rows []Row) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i := range f.pending {
		if f.pending[i].Account == account {
			rows = append(rows, f.pending[i].Row)
		}
	}
	return rows
}

func (r *Row) scan(row interface{ Scan(...any) error }) error {
	return row.Scan(&r.First, &r.Last, &r.At, &r.Data, &r.sum)
}

// checksum is what sum should be.
func (r *Row) checksum() int64 {
	return format.FeedSum(r.Account, uint64(r.First), uint64(r.Last), r.At, r.Data)
}

func (r *Row) check() error {
	if r.sum != r.checksum() {
		return fault.New(fault.StoreCorrupt, "changes of account %q up to %d: their row failed the checksum: start after %d to read on", r.Account, r.Last, r.Last)
	}
	return nil
}

func (r *Row) changes() ([]store.Change, error) {
	changes, err := format.DecodeChanges(r.Data, uint64(r.First), uint64(r.Last))
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "changes %d to %d of account %q cannot be read: %v", r.First, r.Last, r.Account, err)
	}
	return changes, nil
}
