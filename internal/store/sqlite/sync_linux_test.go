// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
