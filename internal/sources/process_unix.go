// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sources

import (
	"os/exec"
	"syscall"
)

// endGroup makes the end of the context end what git has started, too. Ctrl-C of the terminal
// does not reach them: their parent decides.
func endGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
