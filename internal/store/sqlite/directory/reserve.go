// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"os"
	"path/filepath"

	"github.com/roux-engine/roux/internal/datadir"
)

// A full disk must not prevent reading. Opening a store that was not closed rebuilds the
// index of the write-ahead log, in a file that may have to grow, and SQLite fails when it
// cannot. So a little disk space is reserved for that moment (F31).
const reserveBytes = 256 << 10 // the index of a log of 128 MiB in pages of 4 KiB

// SpendReserve frees the reserved space and reports whether there was any.
func SpendReserve(dir string) bool { return os.Remove(filepath.Join(dir, datadir.Reserve)) == nil }

// KeepReserve reserves the space again, or as much as there is. An error here is no
// reason not to open the store.
func KeepReserve(dir string) {
	path := filepath.Join(dir, datadir.Reserve)
	info, err := os.Lstat(path)
	if err == nil && (info.Size() >= reserveBytes || !info.Mode().IsRegular()) {
		return
	}
	f, err := datadir.Open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	held := int64(0)
	if info != nil {
		held = info.Size()
	}
	for piece := make([]byte, 4096); held < reserveBytes; held += int64(len(piece)) {
		if _, err := f.Write(piece); err != nil {
			return
		}
	}
}
