// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os/exec"
	"strconv"
)

func exitCode(err error) (int, bool) {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.ExitCode(), true
}

func itoa(n int) string { return strconv.Itoa(n) }
