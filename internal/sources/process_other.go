// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package sources

import (
	"os/exec"
	"time"
)

// endGroup bounds how long what git has started may hold its output open after git has ended.
func endGroup(cmd *exec.Cmd) { cmd.WaitDelay = 5 * time.Second }
