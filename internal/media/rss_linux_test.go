// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// peakMemory is the peak memory of a process in bytes; 0 = not known on this
// system.
func peakMemory(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss << 10
	}
	return 0
}

// ownPeakMemory is the peak memory of this process. A child starts with it,
// because the kernel counts what a process used before exec.
func ownPeakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	kib, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	n, _ := strconv.ParseInt(string(kib), 10, 53)
	return n << 10
}
