// SPDX-License-Identifier: Apache-2.0

package doctor

import "syscall"

// networkDisks maps the kernel's numbers of network file systems to their names.
var networkDisks = map[int64]string{
	0x6969: "NFS", 0x517B: "SMB", 0xFF534D42: "CIFS", 0xFE534D42: "SMB2", 0x5346414F: "AFS", 0x00C36400: "Ceph", 0x01021997: "9P",
}

// diskOf returns how many bytes are free for this user under dir, and the name of
// the network file system that dir is on, if it is on one.
func diskOf(dir string) (free uint64, network string, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, "", false
	}
	return st.Bavail * uint64(st.Bsize), networkDisks[int64(st.Type)], true //nolint:unconvert // the fields' types differ between machines
}
