// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestCompleteness: every command, every flag and every variable of the
// environment is named by a transcript or a test, and has its sentence of help.
func TestCompleteness(t *testing.T) {
	var all strings.Builder
	for _, pattern := range []string{"testdata/script/*.txtar", "*_test.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if name != "flags_test.go" {
				all.Write(text)
			}
		}
	}
	corpus := all.String()
	a := &app{getenv: func(string) string { return "" }}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no help", cmd.CommandPath())
		}
		if cmd.HasParent() {
			words := strings.Fields(cmd.CommandPath())[1:]
			quoted := `"` + strings.Join(words, `", "`) + `"`
			if !strings.Contains(corpus, cmd.CommandPath()) && !strings.Contains(corpus, quoted) {
				t.Errorf("no transcript runs `%s`", cmd.CommandPath())
			}
			if cmd.Example == "" && cmd.Runnable() {
				t.Errorf("the help of %s leads with no example", cmd.CommandPath())
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			short := f.Shorthand != "" && strings.Contains(corpus, " -"+f.Shorthand+" ")
			if f.Name != "help" && !short && !strings.Contains(corpus, "--"+f.Name) {
				t.Errorf("no transcript uses --%s of %s", f.Name, cmd.CommandPath())
			}
			if f.Usage == "" {
				t.Errorf("--%s of %s has no help", f.Name, cmd.CommandPath())
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(a.command())
	variables := []string{"NO_COLOR", "TERM=dumb", "COLORFGBG", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "CI=1", "CI=true"}
	for _, s := range settings {
		variables = append(variables, s.env)
	}
	for _, name := range variables {
		if !strings.Contains(corpus, name) {
			t.Errorf("no test sets %s", name)
		}
	}
}
