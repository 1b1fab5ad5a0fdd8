// SPDX-License-Identifier: Apache-2.0

//go:build unix

package media

import (
	"os/exec"
	"syscall"
)

// detachFromTerminal keeps the terminal's Ctrl-C from the child: the parent
// decides when the child ends.
func detachFromTerminal(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
