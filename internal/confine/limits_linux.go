// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dropPrivileges takes every capability from this thread, for good, and makes it the user uid's
// if it is root's.
func dropPrivileges(uid int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break // the kernel has no more of them
		} else if err != nil {
			return err
		}
	}
	if uid != 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setgid(uid); err != nil {
			return err
		}
		if err := syscall.Setuid(uid); err != nil {
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// ownThreads is how many threads of the first process count as processes of the program's user.
const ownThreads = 16

// limitProcess sets the kernel's limits of a process, which what it starts inherits.
func limitProcess(b *Box) error {
	for _, l := range []struct {
		resource int
		limit    uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_NOFILE, 1024},
		{unix.RLIMIT_FSIZE, uint64(b.Disk)},
		{unix.RLIMIT_NPROC, uint64(b.Processes + ownThreads)},
		// RLIMIT_DATA counts private writable memory. RLIMIT_AS would also count what runtimes
		// only reserve.
		{unix.RLIMIT_DATA, uint64(b.Memory)},
	} {
		if err := unix.Prlimit(0, l.resource, &unix.Rlimit{Cur: l.limit, Max: l.limit}, nil); err != nil {
			return err
		}
	}
	return nil
}

// watch calls exceeded when all processes together use more memory than the box permits, or all
// files more of the disk. The kernel's limits are for a process and a file each.
func watch(b *Box, exceeded func(limit string)) {
	for {
		begin := time.Now()
		memory, deleted := usage()
		disk := deleted + diskUse("/"+workInside, b.Disk) + diskUse("/tmp", b.Disk)
		switch {
		case memory > b.Memory:
			exceeded(LimitMemory)
		case disk > b.Disk:
			exceeded(LimitDisk)
		}
		time.Sleep(max(50*time.Millisecond, 10*time.Since(begin)))
	}
}

// usage returns the memory of all processes but this one, and the size of the files that they
// have open and that have no name.
func usage() (memory, deleted int64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 {
			continue
		}
		memory += memoryOf(filepath.Join("/proc", e.Name(), "status"))
		deleted += deletedOf(filepath.Join("/proc", e.Name(), "fd"))
	}
	return memory, deleted
}

// memoryOf returns the memory of a process that is in no file.
func memoryOf(status string) (sum int64) {
	text, err := os.ReadFile(status)
	if err != nil {
		return 0 // it has ended
	}
	for _, field := range []string{"\nRssAnon:", "\nRssShmem:"} {
		_, rest, _ := bytes.Cut(text, []byte(field))
		kib, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
		n, err := strconv.ParseInt(string(kib), 10, 53)
		if err == nil {
			sum += n << 10
		}
	}
	return sum
}

func deletedOf(fds string) (sum int64) {
	entries, err := os.ReadDir(fds)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(fds, e.Name()))
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && st.Nlink == 0 {
			sum += st.Blocks * 512
		}
	}
	return sum
}

// diskUse returns what the files below a directory use, or more than the limit when they are too
// many.
func diskUse(dir string, limit int64) (sum int64) {
	n := 0
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if n++; n > maxEntries {
			sum = limit + 1
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += st.Blocks * 512
			}
		}
		return nil
	})
	return sum
}
