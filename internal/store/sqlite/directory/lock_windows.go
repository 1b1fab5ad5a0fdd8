// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// A lock of Windows forbids reading what it covers, so the locked byte is far behind
// the pid, which a second process reads.
const lockOffset = 1 << 20

func tryLock(f *os.File) error {
	at := &windows.Overlapped{Offset: lockOffset}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errHeld
	}
	return err
}

// gone reports nothing: a process that is gone holds no file here.
func gone(int) bool { return false }

func readOnly(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, windows.ERROR_WRITE_PROTECT)
}

// Full reports whether an error says that no disk space is left.
func Full(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
