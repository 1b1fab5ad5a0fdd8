// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
)

// Feed reads what has changed in an account: one [Change] for each change of a head and
// for each entry. Commit and Delete derive the changes from what they write and record
// them in the same transaction; nobody passes them in.
//
// The changes of an account are numbered 1, 2, 3 … A number is never used again, also
// after all changes before it were removed. So a reader that remembers the number of the
// last change it has handled finds every later one, in order and once, or is told that
// some are gone.
type Feed interface {
	// Changes returns the account's changes after number `after`, in order, at most
	// limit. No change after the last is no error, and the result is empty. If changes
	// after that number were removed, the error is fault.CursorExpired and names the
	// oldest that is kept. fault.InputInvalid means that the account has no change of
	// that number yet.
	Changes(ctx context.Context, account string, after uint64, limit int) ([]Change, error)

	// Newest returns the number of the account's last change, and the number after which
	// changes are kept: 0 if none was removed. An account without changes has 0 and 0.
	Newest(ctx context.Context, account string) (last, expired uint64, err error)
}

// A Change is a head that was written or deleted, an entry that was recorded, or a level
// of the credits that was crossed.
type Change struct {
	N  uint64 // 1, 2, 3 … in its account
	At int64  // UTC µs; never before the time of the change before it

	// Of a head; Run is "" when an entry was recorded. What else there is to know of the
	// run, its head has. A deleted run has no head, and all that is known here is its id.
	Run         string
	Root        string // of a child run
	Deleted     bool   // removed, with all runs below it
	Recipe      string
	Status      string
	Code        fault.Code
	Ended       int64 // UTC µs; 0 while live
	Quarantined bool
	Imported    bool // see Head.Imported; such a run counts as quarantined
	Hidden      bool // a user has deleted the run: lists hide it until it is removed; see Head.Deleted

	// Of an entry: its number, its key and its kind.
	Entry uint64
	Key   string
	Kind  ledger.Kind

	// Notice is set when entries have crossed a level of the account's credits: fewer are
	// available, or more of a budget in audit mode is used. Run and Entry are then empty.
	Notice ledger.Notice
}

// A FeedEnd is the number and the time of the last change of an account.
type FeedEnd struct {
	Last uint64
	At   int64
}

// Next numbers a change that comes after the end, and makes it the end. Its time is not
// before that of the last one.
func (e *FeedEnd) Next(c *Change) {
	e.Last++
	e.At = max(e.At, c.At)
	c.N, c.At = e.Last, e.At
}

// AppendChanges appends the changes that an accepted transition makes, without their
// numbers: its head, its entries, and the levels that these have crossed. first is the
// number of its first entry.
func AppendChanges(changes []Change, t *Transition, first uint64) []Change {
	if h := t.Head; h != nil && !mutation.Feed {
		changes = append(changes, Change{
			At: h.Updated, Run: t.Run, Root: h.Root, Recipe: h.Recipe, Status: h.Status, Code: h.Code, Ended: h.Ended,
			Quarantined: h.Quarantine != "", Imported: h.Imported(), Hidden: h.Deleted != 0,
		})
	}
	for i, e := range t.Entries {
		changes = append(changes, Change{At: e.At, Entry: first + uint64(i), Key: e.Key, Kind: e.Kind})
	}
	for _, n := range t.notices {
		changes = append(changes, Change{At: t.Entries[len(t.Entries)-1].At, Notice: n})
	}
	return changes
}

// CheckCursor returns the error of a reader whose cursor is `after`, in an account whose
// last change is last and whose changes up to expired were removed.
func CheckCursor(account string, after, last, expired uint64) error {
	switch {
	case after > last:
		return fault.New(fault.InputInvalid, "there is no change %d yet in account %q: the last one is %d", after, account, last)
	case after < expired && expired == last:
		return fault.New(fault.CursorExpired, "the changes of account %q up to %d are no longer kept, and there are none after it: start after %d", account, expired, expired)
	case after < expired:
		return fault.New(fault.CursorExpired, "the changes of account %q after %d are no longer kept: the oldest kept is %d, so start after %d", account, after, expired+1, expired)
	}
	return nil
}
