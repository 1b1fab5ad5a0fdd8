// SPDX-License-Identifier: Apache-2.0

package roux

import (
	"context"
	"iter"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A Change is one thing that changed in an account: the status of a run, or the credits.
type Change struct {
	ID   uint64 // 1, 2, 3 … per account
	Time time.Time

	// Of a run; Run is "" when the credits have changed. Get has what else there is to
	// know, unless the run was deleted.
	Run     string
	Recipe  string
	Status  string // such as "running", "completed", "failed"
	Ended   bool
	Code    fault.Code // why the run did not complete
	Deleted bool       // the run was removed because it was too old; the other fields are empty
	Hidden  bool       // the run was deleted by its user: lists leave it out until it is removed
	// Quarantined is set if the run does not continue until a user releases it, Imported if
	// it came in a bundle and was not adopted.
	Quarantined, Imported bool

	// Of the credits: the number, the key and the kind of the entry, such as "settle".
	Entry uint64
	Key   string
	Kind  string

	// Limit is set when a level of the credits was crossed: "account" if fewer than
	// AtLimit credits are available now (AccountRules.LowBalance), "day" or "key:NAME" if
	// more than AtLimit are used of a budget in audit mode. Amount is how many.
	Limit           string
	AtLimit, Amount int64
}

// Feed yields what has changed after the change number `after`, in order and without gaps
// or duplicates: first what is stored, then what comes, as soon as it is durable. It ends
// when ctx ends or the engine is closed, with an error. A loop that is slow misses nothing.
//
// A program that stores the ID of the last change it has handled, and passes it as `after`
// when it starts again, handles every change. Changes are kept at least as long as runs are
// ([Retention]): for an older number the error is fault.CursorExpired, and its message names
// the number after which to continue. Then Get has the current status of each run. A number
// that no change has yet is fault.InputInvalid.
func (e *Engine) Feed(ctx context.Context, after uint64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for c, err := range e.node.Engine.Feed().Changes(ctx, e.account, after) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			out := Change{
				ID: c.N, Time: time.UnixMicro(c.At).UTC(), Run: c.Run, Recipe: c.Recipe, Status: c.Status, Ended: c.Ended != 0, Code: c.Code,
				Deleted: c.Deleted, Hidden: c.Hidden, Quarantined: c.Quarantined, Imported: c.Imported, Entry: c.Entry, Key: c.Key,
				Limit: c.Notice.Source, AtLimit: c.Notice.Limit, Amount: c.Notice.Amount,
			}
			if c.Run == "" && out.Limit == "" {
				out.Kind = c.Kind.String()
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}

// LastChange returns the ID of the last change, 0 if there is none. Feed(ctx, id) yields
// what comes after it.
func (e *Engine) LastChange(ctx context.Context) (id uint64, err error) {
	id, _, err = e.node.Store.Newest(ctx, e.account)
	return id, err
}
