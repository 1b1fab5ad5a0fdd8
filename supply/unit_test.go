// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd finds nothing wrong with the unit, and its exposure is low.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	text, err := os.ReadFile("roux.service")
	if err != nil {
		t.Fatal(err)
	}
	// It is verified on a machine that has no such program.
	unit := filepath.Join(t.TempDir(), "roux.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/roux", "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// The threshold is in tenths: at most 2.0 of 10.
	out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", "--no-pager", unit).CombinedOutput()
	switch {
	case strings.Contains(string(out), "unrecognized option"):
		t.Logf("this release of systemd measures no exposure offline: %s", out)
	case err != nil:
		t.Errorf("the unit exposes more than it should: %v\n%s", err, out)
	}
}
