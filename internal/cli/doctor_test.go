// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/config"
)

// TestDoctorSaysWhyItIsUsed checks that doctor says why it uses a ./.roux that the user
// has not named, because it may have come with a project.
func TestDoctorSaysWhyItIsUsed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	if err := os.Mkdir(config.LocalDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		env  string
		args []string
		want bool
	}{
		{"", []string{"doctor"}, true},
		{"", []string{"doctor", "--data", config.LocalDir}, false},
		{filepath.Join(dir, config.LocalDir), []string{"doctor"}, false},
	} {
		t.Setenv("ROUX_DATA", tt.env)
		out, talk, code := inProcess("", tt.args...)
		if got := strings.Contains(out, "is used because it is here"); got != tt.want || code != 0 {
			t.Errorf("ROUX_DATA=%q roux %v: exit %d\n%s%s", tt.env, tt.args, code, out, talk)
		}
	}
}
