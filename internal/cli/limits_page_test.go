// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/config"
)

// The commands of the page work, and so do the limits that it shows.
func TestLimitsPage(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("a tool of the page is not installed: %s", "curl")
	}
	runEmulated(t, "limits", 7, "127.0.0.1:7432", freeAddress(t), "127.0.0.1:7420", freeAddress(t))

	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range pageBlock.FindAllStringSubmatch(string(page), -1) {
		if b[1] != "yaml" || !strings.Contains(b[2], "\nlimits:\n") {
			continue
		}
		t.Chdir(t.TempDir())
		if err := os.WriteFile("roux.yaml", []byte(b[2]), 0o600); err != nil {
			t.Fatal(err)
		}
		out, talk, code := inProcess("", "config", "explain", "limits")
		if s := config.Find("limits"); code != 0 || s == nil || !strings.Contains(out, "roux.yaml") {
			t.Errorf("exit %d for\n%s\n%s%s", code, b[2], out, talk)
		}
	}
}
