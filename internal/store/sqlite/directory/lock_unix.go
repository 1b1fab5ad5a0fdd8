// SPDX-License-Identifier: Apache-2.0

//go:build unix

package directory

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func tryLock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errHeld
		default:
			return err
		}
	}
}

// gone reports whether there is no process of that id; 0 is none's.
func gone(pid int) bool { return pid != 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func readOnly(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
}

// Full reports whether an error says that no disk space is left.
func Full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
