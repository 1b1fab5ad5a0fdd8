// SPDX-License-Identifier: Apache-2.0

//go:build unix

package confine

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func ended(state *os.ProcessState) Result {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return Result{Signal: unix.SignalName(ws.Signal())}
	}
	return Result{Exit: state.ExitCode()}
}
