// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/fault"
)

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
	return f.rows(ctx, account, -1, func(r *Row) error {
		if r.check() != nil { // complained about with the other rows
			known = false
			return nil
		}
		if known && r.First != last+1 {
			if err := complain("changes %d to %d of account %q are missing", last+1, r.First-1, account); err != nil {
				return err
			}
		}
		changes, err := r.changes()
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
