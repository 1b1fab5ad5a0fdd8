// SPDX-License-Identifier: Apache-2.0

//go:build unix

package datadir

import (
	"io/fs"
	"syscall"
)

// noFollow refuses a link as the last part of a path, and does not wait for the
// other end of a FIFO.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// onlyDir refuses what is no directory, without a wait for the other end of a FIFO.
const onlyDir = syscall.O_DIRECTORY | syscall.O_NONBLOCK

// ownerOf returns the user that a file belongs to and how many names it has. ok is
// false where the system does not report it.
func ownerOf(info fs.FileInfo) (uid int, links uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), uint64(st.Nlink), true //nolint:unconvert // its size depends on the system
}
