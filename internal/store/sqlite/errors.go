// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"

	sqlite "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/roux-engine/roux/fault"
)

// explain turns an error of SQLite into one of ours and says whether it is
// fatal: whether the store must stop acknowledging until it is opened again.
//
// The line runs between "this was not done" and "the disk did not do what it
// said". A full disk, a lock held by somebody's SQLite shell or a read-only
// file leave the database as it was, and the next commit may work. After a
// failed write or sync nobody knows what the disk holds, and the kernel may
// have dropped the pages that a second sync would claim to have written (I21).
func (s *Store) explain(err error) (fatal bool, _ error) {
	var own *fault.Error
	if err == nil || errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false, err
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false, fault.Wrap(fault.InternalError, err, "%s: %v", s.path, err)
	}
	switch e.Code() {
	case lib.SQLITE_IOERR_SHMSIZE:
		// The index of the write-ahead log could not grow. It holds nothing that
		// a restart would miss; a full disk is the one common cause.
		return false, s.full(err)
	case lib.SQLITE_IOERR_NOMEM:
		return false, fault.Wrap(fault.InternalError, err, "%s: out of memory", s.path)
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		return false, s.full(err)
	case lib.SQLITE_READONLY:
		return false, fault.Wrap(fault.StoreReadOnly, err, "%s cannot be written: mend its permissions, or use another directory", s.path)
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return false, fault.Wrap(fault.StoreLocked, err, "another program holds a lock on %s: close it and try again", s.path)
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return true, fault.Wrap(fault.StoreCorrupt, err, "%s is damaged (%v): restore it from a backup", s.path, err)
	case lib.SQLITE_IOERR:
		return true, fault.Wrap(fault.StoreFailed, err, "the disk failed under %s (%v): check it, then start again", s.path, err)
	case lib.SQLITE_CANTOPEN:
		return false, fault.Wrap(fault.StoreFailed, err, "cannot open %s: %v", s.path, err)
	}
	return false, fault.Wrap(fault.InternalError, err, "%s: %v", s.path, err)
}

func (s *Store) full(err error) error {
	return fault.Wrap(fault.StoreFull, err, "no space is left for %s: free some; nothing acknowledged was lost", s.path)
}

// fail reports a failed write, and remembers a fatal one for ever. The caller
// holds s.w.
func (s *Store) fail(err error) error {
	fatal, err := s.explain(err)
	if fatal && s.failed == nil {
		s.failed = fault.Wrap(fault.StoreFailed, err, "an earlier write to %s failed, so nothing more is acknowledged: check the disk, then start again", s.path)
	}
	return err
}
