// SPDX-License-Identifier: Apache-2.0

package conn

import (
	"context"
	"errors"

	sqlite "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/roux-engine/roux/fault"
)

// Explain converts an error of SQLite to one of package fault. It reports whether the
// error is fatal: whether the store must stop acknowledging until it is opened again.
//
// An error is not fatal if it means that nothing was done: after a full disk, a lock
// held by another SQLite client or a read-only file the database is as it was, and the
// next commit may succeed. After a failed write or sync the content of the disk is
// unknown, and the kernel may have dropped pages that a second sync would report as
// written (I21).
func Explain(path string, err error) (fatal bool, _ error) {
	var own *fault.Error
	if err == nil || errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false, err
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false, fault.Wrap(fault.InternalError, err, "%s: %v", path, err)
	}
	switch e.Code() {
	case lib.SQLITE_IOERR_SHMSIZE:
		// The index of the write-ahead log could not grow. A restart rebuilds it, so
		// nothing is lost. The one common cause is a full disk.
		return false, full(path, err)
	case lib.SQLITE_IOERR_NOMEM:
		return false, fault.Wrap(fault.InternalError, err, "%s: out of memory", path)
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		return false, full(path, err)
	case lib.SQLITE_READONLY:
		return false, fault.Wrap(fault.StoreReadOnly, err, "%s cannot be written: correct its permissions, or use another directory", path)
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return false, fault.Wrap(fault.StoreLocked, err, "another program holds a lock on %s: close it and try again", path)
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return true, fault.Wrap(fault.StoreCorrupt, err, "%s is damaged (%v): restore it from a backup", path, err)
	case lib.SQLITE_IOERR:
		return true, fault.Wrap(fault.StoreFailed, err, "the disk failed under %s (%v): check it, then start again", path, err)
	case lib.SQLITE_CANTOPEN:
		return false, fault.Wrap(fault.StoreFailed, err, "cannot open %s: %v", path, err)
	}
	return false, fault.Wrap(fault.InternalError, err, "%s: %v", path, err)
}

func full(path string, err error) error {
	return fault.Wrap(fault.StoreFull, err, "no space is left for %s: free some; nothing acknowledged was lost", path)
}
