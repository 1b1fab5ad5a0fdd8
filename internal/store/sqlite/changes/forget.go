// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// Accounts returns the accounts with rows in the table, from one on, at most limit.
func (f *Feed) Accounts(ctx context.Context, from string, limit int) ([]string, error) {
	return conn.Texts(ctx, f.read, f.queries.accounts, from, limit)
}

// Forget removes rows of one account from before a time, UTC µs, in the transaction that is
// open, and returns how many, at most limit. The newest row becomes one without changes.
// Such a row goes with the next old one, and so does a damaged one, because its time may be
// wrong. What is pending must have been flushed.
func (f *Feed) Forget(ctx context.Context, account string, before int64, limit int) (n int, err error) {
	seen, until, at := 0, int64(0), int64(0)
	err = f.rows(ctx, account, 0, func(r *Row) error {
		seen++
		switch {
		case r.check() != nil || r.First > r.Last:
			return nil
		case r.At >= before:
			return conn.ErrEnough
		}
		if n, until, at = seen, r.Last, r.At; n >= limit {
			return conn.ErrEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, conn.ErrEnough) {
		return 0, err
	}
	if n == 0 {
		return 0, nil
	}
	newest, err := f.one(ctx, f.queries.newest, account)
	if err != nil {
		return 0, err
	}
	if until == newest.Last {
		r := Row{Account: account, First: until + 1, Last: until, At: at, Data: NoChanges()}
		if _, err := f.st.empty.Exec(account, until, r.Data, r.checksum()); err != nil {
			return 0, err
		}
		until--
	}
	_, err = f.st.drop.Exec(account, until)
	return min(n, limit), err
}

// NoChanges is the data of a row without changes.
func NoChanges() []byte {
	var none format.Changes
	none.Reset()
	return none.Data()
}
