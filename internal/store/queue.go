// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// StatusQueued is the status of a run that its account may not begin yet.
const StatusQueued = "queued"

// A Queue finds the runs that count against the limits of their accounts. The cost of its
// methods does not depend on how many runs have ended. Imported runs that nobody has
// adopted do not count, because nothing carries them on.
type Queue interface {
	// Unended counts the account's root runs that have not ended: suspended and quarantined
	// ones, too.
	Unended(ctx context.Context, account string) (Unended, error)

	// Queued returns the queued runs of all accounts that come after `after`, at most
	// limit: by account, then in the order in which they were queued, then by run.
	// Wake.At is when a run was queued (Head.Updated).
	Queued(ctx context.Context, after Wake, limit int) ([]Wake, error)
}

// Unended is how many runs of an account have not ended.
type Unended struct {
	Live   int `json:"live"`
	Queued int `json:"queued"`
}

// An UnendedState is how many runs of an account that have not ended have one state: their
// status, or quarantined.
type UnendedState struct {
	Account, State string
	Runs           int
}

// Counts reports whether a run is one of those that Unended counts. This is the one
// place that says so, besides the statements of a store.
func (h *Head) Counts() bool { return h.Root == "" && h.Ended == 0 && h.Damage == "" && !h.Imported() }
