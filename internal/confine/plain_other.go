// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package confine

import (
	"os/exec"
	"syscall"
)

func dieWithParent(*syscall.SysProcAttr) {}

// waitGroup waits for the program and kills what it has left behind in its group.
func waitGroup(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = killGroup(cmd)
	return err
}
