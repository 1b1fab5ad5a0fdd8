// SPDX-License-Identifier: Apache-2.0

//go:build unix

package engine

import (
	"syscall"
	"time"
)

// processorTime is the processor time of this process so far. On a shared machine it is
// the figure to trust.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
