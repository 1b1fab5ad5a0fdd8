// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// Accounts returns the accounts with rows in the table, from one on, at most limit.
func (f *Feed) Accounts(ctx context.Context, from string, limit int) (accounts []string, err error) {
	rows, err := f.read.QueryContext(ctx, f.accounts, from, limit)
	if err != nil {
		return nil, err
	}
	err = conn.EachRow(rows, func() error {
		var account string
		err := rows.Scan(&account)
		accounts = append(accounts, account)
		return err
	})
	return accounts, err
}

// Forget removes rows of one account from before a time, UTC µs, in the transaction that is
// open, and returns how many, at most limit. The newest row becomes one without changes.
// Such a row goes with the next old one, and so does a damaged one, because its time may be
// wrong. What only the journal has must have been flushed.
func (f *Feed) Forget(ctx context.Context, account string, before int64, limit int) (n int, err error) {
	seen, until, at := 0, int64(0), int64(0)
	err = f.Rows(ctx, account, 0, func(r *Row) error {
		seen++
		switch {
		case r.check() != nil || r.First > r.Last:
			return nil
		case r.At >= before:
			return errEnough
		}
		if n, until, at = seen, r.Last, r.At; n >= limit {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	if n == 0 {
		return 0, nil
	}
	newest, err := f.one(ctx, f.end, account)
	if err != nil {
		return 0, err
	}
	if until == newest.Last {
		r := Row{Account: account, First: until + 1, Last: until, At: at, Data: NoChanges()}
		if _, err := f.empty.Exec(account, until, r.Data, r.sumOf()); err != nil {
			return 0, err
		}
		until--
	}
	_, err = f.drop.Exec(account, until)
	return min(n, limit), err
}

// NoChanges is the data of a row without changes.
func NoChanges() []byte {
	var none format.Changes
	none.Reset()
	return none.Data()
}

// Check reads the changes of every account from the oldest on: none is missing between
// them, and their times never go back.
func (f *Feed) Check(ctx context.Context, complain func(format string, args ...any) error) error {
	var after string
	for {
		accounts, err := f.Accounts(ctx, after, 500)
		if err != nil || len(accounts) == 0 {
			return err
		}
		for _, account := range accounts {
			if err := f.checkOne(ctx, account, complain); err != nil {
				return err
			}
		}
		after = accounts[len(accounts)-1] + "\x00"
	}
}

func (f *Feed) checkOne(ctx context.Context, account string, complain func(format string, args ...any) error) error {
	known, last, at := false, int64(0), int64(0)
	return f.Rows(ctx, account, -1, func(r *Row) error {
		if r.check() != nil { // complained about with the other rows
			known = false
			return nil
		}
		if known && r.First != last+1 {
			if err := complain("changes %d to %d of account %q are missing", last+1, r.First-1, account); err != nil {
				return err
			}
		}
		changes, err := r.Changes()
		if errors.Is(err, fault.StoreCorrupt) {
			return complain("%s", fault.Message(err))
		}
		for i := range changes {
			if known && changes[i].At < at {
				return complain("change %d of account %q was recorded at %d, the one before it at %d", changes[i].N, account, changes[i].At, at)
			}
			known, at = true, changes[i].At
		}
		if at != r.At && len(changes) > 0 {
			return complain("change %d of account %q was recorded at %d, its row says %d", r.Last, account, at, r.At)
		}
		known, last, at = true, r.Last, r.At
		return nil
	})
}
