// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
)

// A project's roux.yaml sets how long runs are kept only for a data directory inside
// the project. Otherwise a cloned project could have the runs of all other projects
// deleted.
func TestProjectKeepsOnlyItsOwn(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string // roux.yaml
		args []string
		lay  func(project string) error
		want string // of config get retain.runs
	}{
		{"the user's directory", "", nil, nil, "7d"},
		{"--data elsewhere", "", []string{"--data", "../else"}, nil, "7d"},
		{"--data, a link out of the project", "", []string{"--data", "way"}, func(project string) error {
			return os.Symlink(filepath.Dir(project), filepath.Join(project, "way"))
		}, "7d"},
		{"a directory of the project", "data: state\n", nil, nil, "2h"},
		{"./.roux", "", nil, func(project string) error { return os.Mkdir(filepath.Join(project, config.LocalDir), 0o700) }, "2h"},
		{"--data in the project", "", []string{"--data", "state"}, nil, "2h"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			project := filepath.Join(t.TempDir(), "project")
			if err := os.Mkdir(project, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("ROUX_DATA", "")
			t.Setenv("XDG_DATA_HOME", "")
			t.Setenv("HOME", filepath.Join(filepath.Dir(project), "home"))
			t.Chdir(project)
			if err := os.WriteFile(config.ProjectFile, []byte(tt.file+"retain: {runs: 2h}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.lay != nil {
				if err := tt.lay(project); err != nil {
					t.Fatal(err)
				}
			}
			out, talk, code := inProcess("", append([]string{"config", "get", "retain.runs"}, tt.args...)...)
			if code != fault.ExitOK || strings.TrimSpace(out) != tt.want {
				t.Errorf("exit %d: retain.runs is %q, want %q: %s", code, out, tt.want, talk)
			}
			if ignored := strings.Contains(talk, "roux.yaml:1: retain.runs is not used"); ignored != (tt.want == "7d") {
				t.Errorf("says that it is not used: %t: %s", ignored, talk)
			}
		})
	}
}
