// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

func waitGroup(cmd *exec.Cmd) error { return cmd.Wait() }

func ended(state *os.ProcessState) Result { return Result{Exit: state.ExitCode()} }
