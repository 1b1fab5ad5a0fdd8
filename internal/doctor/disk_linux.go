// SPDX-License-Identifier: Apache-2.0

package doctor

import "syscall"

// networkDisks are the file systems that lie on another machine, by the number
// that the kernel gives them.
var networkDisks = map[int64]string{
	0x6969: "NFS", 0x517B: "SMB", 0xFF534D42: "CIFS", 0xFE534D42: "SMB2", 0x5346414F: "AFS", 0x00C36400: "Ceph", 0x01021997: "9P",
}

// diskOf is how many bytes are free for this user under dir, and the name of a
// network file system when it lies on one.
func diskOf(dir string) (free uint64, network string, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, "", false
	}
	return st.Bavail * uint64(st.Bsize), networkDisks[int64(st.Type)], true //nolint:unconvert // the fields' types differ between machines
}
