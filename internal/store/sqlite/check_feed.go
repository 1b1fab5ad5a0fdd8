// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// feed reads the changes of every account from the oldest on: none is missing between
// them, and their times never go back.
func (c *checking) feed(ctx context.Context) error {
	var after string
	for {
		var accounts []string
		rows, err := c.s.read.QueryContext(ctx, c.s.t.fedAccounts, after, 500)
		if err != nil {
			return err
		}
		err = conn.EachRow(rows, func() error {
			var account string
			err := rows.Scan(&account)
			accounts = append(accounts, account)
			return err
		})
		if err != nil || len(accounts) == 0 {
			return err
		}
		for _, account := range accounts {
			if err := c.changes(ctx, account); err != nil {
				return err
			}
		}
		after = accounts[len(accounts)-1] + "\x00"
	}
}

func (c *checking) changes(ctx context.Context, account string) error {
	known, last, at := false, int64(0), int64(0)
	return c.s.eachFeedRow(ctx, c.s.t.changesAfter, func(r *feedRow) error {
		if r.check(account) != nil { // complained about with the other rows
			known = false
			return nil
		}
		if known && r.first != last+1 {
			if err := c.Complain("changes %d to %d of account %q are missing", last+1, r.first-1, account); err != nil {
				return err
			}
		}
		changes, err := r.changes(account)
		if errors.Is(err, fault.StoreCorrupt) {
			return c.Complain("%s", fault.Message(err))
		}
		for i := range changes {
			if known && changes[i].At < at {
				return c.Complain("change %d of account %q was recorded at %d, the one before it at %d", changes[i].N, account, changes[i].At, at)
			}
			known, at = true, changes[i].At
		}
		if at != r.at && len(changes) > 0 {
			return c.Complain("change %d of account %q was recorded at %d, its row says %d", r.last, account, at, r.at)
		}
		known, last, at = true, r.last, r.at
		return nil
	}, account, int64(-1))
}
