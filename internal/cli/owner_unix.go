// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"
)

// ownedByUs says what is wrong with the owner of an open file.
func ownedByUs(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	return nil
}
