// SPDX-License-Identifier: Apache-2.0

package media

import (
	"os"
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
