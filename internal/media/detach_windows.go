// SPDX-License-Identifier: Apache-2.0

package media

import (
	"os/exec"
	"syscall"
)

// detachFromTerminal keeps the console's Ctrl-C from the child: the parent
// decides when the child ends.
func detachFromTerminal(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
