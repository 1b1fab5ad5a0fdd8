// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"math"
	"syscall"
)

// Free returns how many bytes are free for this user on the disk under dir. ok is false where
// that is not known.
func Free(dir string) (free int64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(min(st.Bavail*uint64(st.Bsize), math.MaxInt64)), true // their types differ between machines
}
