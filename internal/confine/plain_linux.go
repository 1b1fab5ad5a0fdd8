// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the program when this process ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// waitGroup waits for the program and kills what it has left behind in its group. The number of
// the group stays taken while the program is not waited for.
func waitGroup(cmd *exec.Cmd) error {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	_ = killGroup(cmd)
	return cmd.Wait()
}
