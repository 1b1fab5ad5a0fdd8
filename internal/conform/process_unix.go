// SPDX-License-Identifier: Apache-2.0

//go:build unix

package conform

import (
	"os/exec"
	"syscall"
)

// signals says that processes can be asked to end.
const signals = true

// group makes the program the head of a group of processes, which ends with it.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminate(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the group. It may have ended already.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
