// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/check"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// ledger folds the entries of every account.
func (c *checking) ledger(ctx context.Context) error {
	return c.Ledger(ctx, c.s.t.meteredAccounts, func(account string) error {
		return c.s.fold(ctx, account, func(*ledger.Account, *ledger.Entry, uint64) error { return nil })
	})
}

// FoldLedger reads all entries of an account and compares what must be consistent: their
// rows, the keys that are looked up, and the stored states. It calls fn with the account
// before each entry, the entry and its number. What is wrong is fault.StoreCorrupt.
func (s *Store) FoldLedger(ctx context.Context, account string, fn func(a *ledger.Account, e *ledger.Entry, n uint64) error) error {
	if err := s.isOpen(ctx); err != nil {
		return err
	}
	_, err := s.explain(s.fold(ctx, account, fn))
	return err
}

func (s *Store) fold(ctx context.Context, account string, fn func(a *ledger.Account, e *ledger.Entry, n uint64) error) (err error) {
	sums := map[int64]int64{} // of the stored states, by number
	states, err := s.read.QueryContext(ctx, s.t.accountStates, account)
	if err != nil {
		return err
	}
	err = conn.EachRow(states, func() error {
		var r stateRow
		err := r.scan(states)
		sums[r.seq] = r.sum
		return err
	})
	if err != nil {
		return err
	}
	rows, err := s.read.QueryContext(ctx, s.t.entryKeys, account)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	keys := check.NewKeys(rows)
	if err := keys.Next(); err != nil {
		return err
	}
	a := ledger.NewAccount()
	err = s.eachEntry(ctx, account, 0, func(e *ledger.Entry, n uint64) error {
		if err := fn(a, e, n); err != nil {
			return err
		}
		if err := applyEntry(a, e, account); err != nil {
			return err
		}
		if err := keys.Entry(e, n); err != nil {
			return err
		}
		want, stored := sums[int64(n)]
		delete(sums, int64(n))
		if stored && want != format.Sum(account, a.At(), int64(n), a.AppendState(nil)) {
			return fault.New(fault.StoreCorrupt, "account %q: the state stored after entry %d is not what the entries lead to", account, n)
		}
		return nil
	})
	switch {
	case err == nil && len(sums) > 0:
		return fault.New(fault.StoreCorrupt, "account %q has states after entries that are not there", account)
	case err == nil && keys.Seq() > 0:
		return fault.New(fault.StoreCorrupt, "account %q has keys of entries that are not there", account)
	}
	return err
}
