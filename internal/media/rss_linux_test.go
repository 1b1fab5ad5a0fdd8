// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// peakMemory is the most memory that a process had at once, in bytes; 0 = not
// known on this system.
func peakMemory(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss << 10
	}
	return 0
}

// peakOfThis is the same for this process. A child begins with it: the system
// counts what a process was before it became another program.
func peakOfThis() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	kib, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	n, _ := strconv.ParseInt(string(kib), 10, 53)
	return n << 10
}
