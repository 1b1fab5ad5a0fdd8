// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/term"
)

// TestDoctorClock: a clock that cannot be right is a problem.
func TestDoctorClock(t *testing.T) {
	for _, tt := range []struct {
		now  time.Time
		want string
	}{
		{time.Date(1970, 1, 1, 0, 0, 7, 0, time.UTC), isProblem},
		{time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), isOK},
	} {
		none := func(string) string { return "" }
		a := &app{now: func() time.Time { return tt.now }, getenv: none, config: config.New(none, new(string)), screen: term.NewScreen(new(bytes.Buffer), true, none)}
		d := &doctor{app: a, ctx: t.Context()}
		d.machine()
		if !slices.ContainsFunc(d.list, func(f finding) bool { return f.Check == "clock" && f.Status == tt.want }) {
			t.Errorf("at %s: %+v", tt.now, d.list)
		}
	}
}

// TestDoctorSaysWhyItIsUsed: nobody named a ./.roux, and it may have come with a
// project.
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
