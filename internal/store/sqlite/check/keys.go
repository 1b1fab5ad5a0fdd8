// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"database/sql"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// Keys are the keys of an account that were recorded, in the order of their entries.
type Keys struct {
	rows *sql.Rows
	key  string
	seq  uint64 // 0 = there are no more
}

// NewKeys returns the keys in rows, with the number of the entry of each.
func NewKeys(rows *sql.Rows) *Keys { return &Keys{rows: rows} }

// Seq is the number of the entry of the present key; 0 = there are no more.
func (k *Keys) Seq() uint64 { return k.seq }

// Next goes on to the next key.
func (k *Keys) Next() error {
	k.seq = 0
	if !k.rows.Next() {
		return k.rows.Err()
	}
	return k.rows.Scan(&k.key, &k.seq)
}

// Entry compares an entry with the next key. One that follows from an event need not have
// been recorded.
func (k *Keys) Entry(e *ledger.Entry, n uint64) error {
	if k.seq == n && k.key == e.Key {
		return k.Next()
	}
	if _, follows := e.Event(); follows && k.seq != n {
		return nil
	}
	return fault.New(fault.StoreCorrupt, "entry %d (%s) is not the one that is recorded under its key", n, e.Key)
}

// Ledger calls fold for every account that has entries, and complains where it finds that what
// is stored is not what the entries lead to.
func (c *Check) Ledger(ctx context.Context, accountsQuery string, fold func(account string) error) error {
	var accounts []string
	err := c.Query(ctx, accountsQuery, func(rows *sql.Rows) error {
		var account string
		err := rows.Scan(&account)
		accounts = append(accounts, account)
		return err
	})
	if err != nil {
		return err
	}
	for _, account := range accounts {
		err := fold(account)
		if errors.Is(err, fault.StoreCorrupt) {
			err = c.Complain("%s", fault.Message(err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
