// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// cpu returns the CPU time of this process so far. On a shared machine it is the most
// reliable figure.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuOf returns the CPU time of another process so far, to 10 ms.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name of the program, in parentheses, may have spaces; see proc_pid_stat(5).
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const utime, stime, ticksPerSecond = 11, 12, 100
	var ticks int64
	for _, i := range []int{utime, stime} {
		if i < len(fields) {
			v, _ := strconv.ParseInt(string(fields[i]), 10, 64)
			ticks += v
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// rssOf returns the resident memory of another process in MiB.
func rssOf(pid int) float64 {
	v, _ := field("/proc/"+strconv.Itoa(pid)+"/status", "VmRSS:")
	return float64(v) / 1024
}

// rss returns the resident memory of this process in MiB.
func rss() float64 {
	v, _ := field("/proc/self/status", "VmRSS:")
	return float64(v) / 1024
}

// pss returns the proportional set size in MiB: memory that is shared with other
// processes, such as the program's code, is divided among them.
func pss() float64 {
	v, _ := field("/proc/self/smaps_rollup", "Pss:")
	return float64(v) / 1024
}

// written returns how many bytes this process has caused to be sent to the
// disk.
func written() int64 {
	v, _ := field("/proc/self/io", "write_bytes:")
	return v
}

// field reads a number from a file with lines "name: number".
func field(file, name string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), name); ok {
			v, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return v, err == nil
		}
	}
	return 0, false
}

// machine describes the machine.
func machine(dir string) map[string]string {
	m := map[string]string{}
	if v, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = "Linux " + strings.TrimSpace(string(v))
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if name, ok := strings.CutPrefix(s.Text(), "model name"); ok {
				m["cpu"] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
				break
			}
		}
	}
	if kb, ok := field("/proc/meminfo", "MemTotal:"); ok {
		m["memory"] = fmt.Sprintf("%.1f GiB", float64(kb)/(1<<20))
	}
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) == nil {
		m["filesystem"] = fsName(fs.Type)
	}
	if v, err := os.ReadFile("/proc/loadavg"); err == nil {
		m["load"], _, _ = strings.Cut(string(v), " ")
	}
	return m
}

func fsName(magic int64) string {
	switch magic {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs (memory: no figure of a sync means anything)"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("%#x", magic)
}
