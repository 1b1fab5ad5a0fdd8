// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Retention says what is still wanted, and lets go of what is not. How long anything is wanted is the caller's to decide.
//
// The order of a sweep is the caller's as well, and it matters: runs go first,
// files after them. A crash in between leaves files that nobody names, which the
// next sweep finds; it never leaves a run that names a missing file.
type Retention interface {
	// References returns runs of the account whose events name the file (as
	// Transition.Files told), by id, at most limit.
	References(ctx context.Context, account, hash string, limit int) (References, error)

	// Ended returns settled runs that ended before `before` (UTC µs) and come
	// after `after` in the order of (end, account, run), at most limit. Wake.At is
	// when they ended. It looks at those runs only.
	Ended(ctx context.Context, before int64, after Wake, limit int) ([]Wake, error)

	// Delete removes settled runs: head, events, snapshot, and what they name.
	// Each answers by itself: fault.StaleEpoch; fault.RunNotFound; fault.Conflict
	// when it is not settled, or when events of it are only in the journal (compact
	// it first). Afterwards the run answers like one that never existed, also
	// after a crash.
	Delete(ctx context.Context, epoch uint64, keys []Key) ([]Verdict, error)

	// ForgetKeys removes idempotency keys whose Until is before `before` and whose
	// run has ended or is gone, at most limit, and returns how many.
	ForgetKeys(ctx context.Context, epoch uint64, before int64, limit int) (int, error)

	// ForgetFile drops what References.Released says of a file that is gone.
	ForgetFile(ctx context.Context, account, hash string) error
}

// References is who wants a file.
type References struct {
	Runs []string
	// Released is when the last deleted run that named it had ended, UTC µs;
	// 0 = no such run.
	Released int64
}
