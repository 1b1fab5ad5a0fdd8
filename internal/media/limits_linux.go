// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// lowerLimits asks the kernel to hold this process: memory it writes to, CPU
// seconds, no files written, no core dump. A limit that cannot be set is left
// to watch and to the parent's clock.
func lowerLimits(maxMemory int64) {
	const cpuSeconds = 3_600
	for resource, limit := range map[int]uint64{
		// The kernel counts private writable memory; what the runtime only
		// reserves is free, which makes RLIMIT_AS useless here.
		syscall.RLIMIT_DATA:   dataSize() + uint64(maxMemory) + uint64(min(128<<20, maxMemory/4)),
		syscall.RLIMIT_CPU:    cpuSeconds,
		syscall.RLIMIT_FSIZE:  0,
		syscall.RLIMIT_CORE:   0,
		syscall.RLIMIT_NOFILE: 32,
	} {
		_ = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit})
	}
}

// dataSize is what RLIMIT_DATA counts of this process already: little, except
// under the race detector, whose shadow memory is no part of the limit.
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
