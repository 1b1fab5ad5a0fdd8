// SPDX-License-Identifier: Apache-2.0

//go:build unix

package media

import (
	"os/exec"
	"syscall"
	"time"
)

// cpuTime is how much CPU time this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// apart keeps the terminal's Ctrl-C from the child: the parent decides when it
// ends.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
