// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"errors"
	"io/fs"
	"os"
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

// ownedByUs says what is wrong with the owner of an open file. The system's
// own user may have written it.
func ownedByUs(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, ok := ownerOf(info); ok && uid != 0 && uid != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	return nil
}
