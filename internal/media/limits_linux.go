// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// lowerLimits sets kernel limits for this process: writable memory, CPU
// seconds, no file writes, no core dump. Where a limit cannot be set,
// enforceLimits and the parent's timeout remain.
func lowerLimits(maxMemory int64) {
	const cpuSeconds = 3_600
	for resource, limit := range map[int]uint64{
		// RLIMIT_DATA counts private writable memory. RLIMIT_AS would also count what
		// the runtime only reserves, so it is of no use here.
		syscall.RLIMIT_DATA:   dataSize() + uint64(maxMemory) + uint64(min(128<<20, maxMemory/4)),
		syscall.RLIMIT_CPU:    cpuSeconds,
		syscall.RLIMIT_FSIZE:  0,
		syscall.RLIMIT_CORE:   0,
		syscall.RLIMIT_NOFILE: 32,
	} {
		_ = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit})
	}
}

// dataSize is how much of RLIMIT_DATA this process uses already. That is
// little, except under the race detector, whose shadow memory should not count.
func dataSize() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmData:"))
	kib, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	n, err := strconv.ParseUint(string(kib), 10, 53)
	if err != nil {
		return 0
	}
	return n << 10
}
