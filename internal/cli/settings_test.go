// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/config"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the generated pages")

// TestSettings: docs/config.md is the table, every row is whole, and every
// flag that a row names exists.
func TestSettings(t *testing.T) {
	const path = "../../docs/config.md"
	want := configPage()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(got), "\r\n", "\n") != want {
		t.Error("docs/config.md is not current: run `make rewrite` and read the diff")
	}
	root := (&app{getenv: func(string) string { return "" }}).command()
	for _, s := range config.All() {
		if s.What == "" || s.Want == "" || s.Default == "" || s.Env != "ROUX_"+strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(s.Key)) {
			t.Errorf("the row of %q is not whole", s.Key)
		}
		if f := root.PersistentFlags().Lookup(s.Flag); s.Flag != "" && f == nil {
			if cmd, _, err := root.Find([]string{"run"}); err != nil || cmd.Flags().Lookup(s.Flag) == nil {
				t.Errorf("%s: there is no flag --%s", s.Key, s.Flag)
			}
		}
		if !strings.HasPrefix(s.Default, "(") {
			if err := s.Valid(s.Default); err != nil {
				t.Errorf("%s: its default %q is not valid: %v", s.Key, s.Default, err)
			}
		}
	}
}

func configPage() string {
	var b strings.Builder
	b.WriteString("# Settings\n\nGenerated from the table in package `config` by `make rewrite`; do not edit.\n\n" +
		"The first that says something counts: the flag, the variable, `roux.yaml` of the project (in the working directory or the\n" +
		"nearest one above), `config.yaml` of the user (`$XDG_CONFIG_HOME/roux`, else the system's place), the default.\n" +
		"`roux config explain KEY` shows which one it was. A point in a key leads into a mapping; lists are lists in files, and\n" +
		"separated by commas elsewhere; mappings are mappings in files, and JSON elsewhere. A relative path in a file begins at that file.\n\n" +
		"| key | flag | variable | default | takes | what for |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, s := range config.All() {
		flag := ""
		if s.Flag != "" {
			flag = "`--" + s.Flag + "`"
		}
		def := s.Default
		if !strings.HasPrefix(def, "(") {
			def = "`" + def + "`"
		}
		what := s.What
		if s.Personal {
			what += "; not taken from a project's `roux.yaml`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s | %s |\n", s.Key, flag, s.Env, def, strings.ReplaceAll(s.Want, "|", "\\|"), what)
	}
	b.WriteString("\n```yaml\n# roux.yaml\ndata: .roux\noutput: table\nconcurrency: 8\n```\n\n" +
		"Also read: `NO_COLOR`, `TERM=dumb` (no colours), `COLORFGBG` (a light background), `CI=1` (no control codes, annotations\n" +
		"beside diagnostics), `XDG_DATA_HOME`, `XDG_CONFIG_HOME`, `HOME` (where the data and configuration of a user are).\n")
	return b.String()
}
