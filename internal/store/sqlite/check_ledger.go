// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store/format"
)

// ledger reads the entries of every account from the first on, and compares the stored
// states with what they lead to.
func (c *checking) ledger(ctx context.Context) error {
	var accounts []string
	err := c.query(ctx, c.s.t.meteredAccounts, func(rows *sql.Rows) error {
		var account string
		err := rows.Scan(&account)
		accounts = append(accounts, account)
		return err
	})
	if err != nil {
		return err
	}
	for _, account := range accounts {
		if err := c.account(ctx, account); err != nil {
			return err
		}
	}
	return nil
}

func (c *checking) account(ctx context.Context, account string) error {
	sums := map[int64]int64{} // of the stored states, by number
	err := c.query(ctx, c.s.t.accountStates, func(rows *sql.Rows) error {
		var r stateRow
		err := r.scan(rows)
		sums[r.seq] = r.sum
		return err
	}, account)
	if err != nil {
		return err
	}
	a := ledger.NewAccount()
	err = c.s.eachEntry(ctx, account, 0, -1, func(r *entryRow) error {
		if err := r.apply(a, account); err != nil {
			return err
		}
		want, stored := sums[r.seq]
		delete(sums, r.seq)
		if stored && want != format.Sum(account, r.at, r.seq, a.AppendState(nil)) {
			return fault.New(fault.StoreCorrupt, "account %q: the state stored after entry %d is not what the entries lead to", account, r.seq)
		}
		return nil
	})
	switch {
	case errors.Is(err, fault.StoreCorrupt):
		return c.complain("%s", fault.Message(err))
	case err == nil && len(sums) > 0:
		return c.complain("account %q has states after entries that are not there", account)
	}
	return err
}
