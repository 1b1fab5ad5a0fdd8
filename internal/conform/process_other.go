// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package conform

import (
	"errors"
	"os/exec"
)

// signals says that processes cannot be asked to end.
const signals = false

func group(*exec.Cmd) {}

func terminate(*exec.Cmd) error { return errors.ErrUnsupported }

// kill ends the program. It may have ended already.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
