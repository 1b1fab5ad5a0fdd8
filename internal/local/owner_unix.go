// SPDX-License-Identifier: Apache-2.0

//go:build unix

package local

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user that owns a file; ok is false when the system does not
// tell.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
