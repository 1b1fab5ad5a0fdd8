// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"io/fs"
	"syscall"
)

// ownerOf is the user that a file belongs to; ok is false where the system
// does not say.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
