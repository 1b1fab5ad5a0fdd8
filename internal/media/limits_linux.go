// SPDX-License-Identifier: Apache-2.0

package media

import "syscall"

// lowerLimits asks the kernel to hold this process: memory it writes to, CPU
// seconds, no files written, no core dump. A limit that cannot be set is left
// to watch and to the parent's clock.
func lowerLimits(maxMemory int64) {
	const cpuSeconds = 3_600
	for resource, limit := range map[int]uint64{
		// The kernel counts private writable memory; what the runtime only
		// reserves is free, which makes RLIMIT_AS useless here.
		syscall.RLIMIT_DATA:   uint64(maxMemory) + 128<<20,
		syscall.RLIMIT_CPU:    cpuSeconds,
		syscall.RLIMIT_FSIZE:  0,
		syscall.RLIMIT_CORE:   0,
		syscall.RLIMIT_NOFILE: 32,
	} {
		_ = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit})
	}
}
