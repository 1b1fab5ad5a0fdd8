// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bytes"
	"errors"
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

// watch calls end when all processes together use more memory than the box permits, or all files
// more of the disk. The kernel's limits are for a process and a file each.
func watch(b *Box, end func(limit string)) {
	for {
		begin := time.Now()
		if limit := exceeded(b); limit != "" {
			end(limit)
		}
		time.Sleep(max(50*time.Millisecond, 10*time.Since(begin)))
	}
}

// exceeded returns the limit that is exceeded; "" = none.
func exceeded(b *Box) string {
	processes := others()
	if memoryUse(processes, b.Memory) > b.Memory {
		return LimitMemory
	}
	var disk int64
	for _, p := range processes {
		disk += deletedOf(filepath.Join(p, "fd"))
	}
	for _, dir := range []string{"/" + workInside, "/tmp"} {
		n, ok := diskUse(dir, MaxEntries)
		if !ok {
			return LimitEntries
		}
		disk += n
	}
	if disk > b.Disk {
		return LimitDisk
	}
	return ""
}

// others returns the directories in /proc of all processes but this one.
func others() (dirs []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 {
			dirs = append(dirs, filepath.Join("/proc", e.Name()))
		}
	}
	return dirs
}

// memoryUse returns the memory of processes that is in no file. Pages that several of them share
// count once for each, unless that makes more than the limit: then they count once, which takes
// longer to find out.
func memoryUse(processes []string, limit int64) (sum int64) {
	resident := func(p string) int64 {
		n, _ := kib(filepath.Join(p, "status"), "RssAnon", "RssShmem") // 0: it has ended
		return n
	}
	for _, p := range processes {
		sum += resident(p)
	}
	if sum <= limit {
		return sum
	}
	sum = 0
	for _, p := range processes {
		n, ok := kib(filepath.Join(p, "smaps_rollup"), "Pss_Anon", "Pss_Shmem")
		if !ok {
			n = resident(p)
		}
		sum += n
	}
	return sum
}

// kib returns the sum of some fields of a file of /proc, which are in KiB, as bytes. It is not ok
// when one is missing.
func kib(file string, fields ...string) (sum int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for _, field := range fields {
		_, rest, _ := bytes.Cut(text, []byte("\n"+field+":"))
		number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
		n, err := strconv.ParseInt(string(number), 10, 53)
		if err != nil {
			return 0, false
		}
		sum += n << 10
	}
	return sum, true
}

// deletedOf returns the size of the files that a process has open and that have no name.
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

// diskUse returns what the files below a directory use. It is not ok when there are more than most
// of them, or some cannot be counted, for example because their path is too long for the kernel.
func diskUse(dir string, most int) (sum int64, ok bool) {
	n := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil // it was removed or replaced meanwhile
		}
		if n++; err == nil && n > most {
			err = fs.ErrInvalid
		}
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum, err == nil
}
