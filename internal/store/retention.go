// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/roux-engine/roux/fault"
)

// Retention reports what is still needed and deletes the rest. The caller decides how
// long anything is needed.
//
// The caller also decides the order, and it matters: delete runs first, then files. A
// crash between the two leaves files that no run names, which the next pass finds. It
// never leaves a run that names a missing file.
type Retention interface {
	// References returns the runs of the account whose events name the file (see
	// Transition.Files), by id, at most limit.
	References(ctx context.Context, account, hash string, limit int) (References, error)

	// Ended returns settled root runs that ended before `before` (UTC µs) and come after
	// `after` in the order of end, account and run, at most limit. Wake.At is the time
	// when they ended. It reads no other runs.
	Ended(ctx context.Context, before int64, after Wake, limit int) ([]Wake, error)

	// Delete removes settled root runs with all runs below them: head, events, snapshot
	// and the names of files. It returns a verdict for each: fault.StaleEpoch;
	// fault.RunNotFound; or fault.Conflict when it is a child run, or a run of the tree
	// has not settled or has events only in the journal, in which case compact it first. A
	// deleted run answers like one that never existed, also after a crash. Each deletion
	// of a root is a change of its account ([Feed]), made at `at` (UTC µs).
	//
	// The runs below a root of a large tree are removed after it, in several commits; a
	// crash leaves the rest to the next Delete. Until then they can be read by their ids,
	// and count as naming files.
	Delete(ctx context.Context, epoch uint64, at int64, keys []Key) ([]Verdict, error)

	// ForgetChanges removes changes that were made before `before`, in the order of
	// accounts, from account `from` on. It looks at no more than limit accounts and
	// removes the changes of no more than limit commits, and returns where to continue;
	// "" means that no such changes are left. The changes that one commit made in an
	// account go together; a store may let those of more commits go with the newest of them.
	ForgetChanges(ctx context.Context, epoch uint64, before int64, from string, limit int) (next string, err error)

	// ForgetKeys removes idempotency keys whose Until is before `before` and whose run
	// has ended or is gone, at most limit, and returns how many it removed.
	ForgetKeys(ctx context.Context, epoch uint64, before int64, limit int) (int, error)

	// ForgetFile removes what References.Released records of a deleted file.
	ForgetFile(ctx context.Context, account, hash string) error
}

// References are the runs that need a file.
type References struct {
	Runs []string
	// Released is the time when the deleted runs that named the file ended, UTC µs: the
	// latest of these times, or 0 when there is no such run.
	Released int64
}

// RefuseChild returns the verdict on the deletion of a child run alone.
func RefuseChild(h *Head) Verdict {
	return Refuse(fault.Conflict, "run %s is a child run: it is deleted with its root, run %s", h.Run, h.Root)
}
