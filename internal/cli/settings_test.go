// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
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
	for _, s := range settings {
		if s.what == "" || s.want == "" || s.def == "" || s.env != "ROUX_"+strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(s.key)) {
			t.Errorf("the row of %q is not whole", s.key)
		}
		if f := root.PersistentFlags().Lookup(s.flag); s.flag != "" && f == nil {
			if cmd, _, err := root.Find([]string{"run"}); err != nil || cmd.Flags().Lookup(s.flag) == nil {
				t.Errorf("%s: there is no flag --%s", s.key, s.flag)
			}
		}
		if !strings.HasPrefix(s.def, "(") {
			if err := s.valid(s.def); err != nil {
				t.Errorf("%s: its default %q is not valid: %v", s.key, s.def, err)
			}
		}
	}
}

func configPage() string {
	var b strings.Builder
	b.WriteString("# Settings\n\nGenerated from the table in package `cli` by `make rewrite`; do not edit.\n\n" +
		"The first that says something counts: the flag, the variable, `roux.yaml` of the project (in the working directory or the\n" +
		"nearest one above), `config.yaml` of the user (`$XDG_CONFIG_HOME/roux`, else the system's place), the default.\n" +
		"`roux config explain KEY` shows which one it was. A point in a key leads into a mapping; lists are lists in files, and\n" +
		"separated by commas elsewhere. A relative path in a file begins at that file.\n\n" +
		"| key | flag | variable | default | takes | what for |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, s := range settings {
		flag := ""
		if s.flag != "" {
			flag = "`--" + s.flag + "`"
		}
		def := s.def
		if !strings.HasPrefix(def, "(") {
			def = "`" + def + "`"
		}
		what := s.what
		if s.personal {
			what += "; not taken from a project's `roux.yaml`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s | %s |\n", s.key, flag, s.env, def, strings.ReplaceAll(s.want, "|", "\\|"), what)
	}
	b.WriteString("\n```yaml\n# roux.yaml\ndata: .roux\noutput: table\nconcurrency: 8\n```\n\n" +
		"Also read: `NO_COLOR`, `TERM=dumb` (no colours), `COLORFGBG` (a light background), `CI=1` (no control codes, annotations\n" +
		"beside diagnostics), `XDG_DATA_HOME`, `XDG_CONFIG_HOME`, `HOME` (where the data and configuration of a user are).\n")
	return b.String()
}

// TestForeignConfiguration: what another user wrote above us does not say where
// our runs go; it is named and not read.
func TestForeignConfiguration(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() != 0 {
		t.Skip("only root can give a file to somebody else")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, projectFile)
	if err := os.WriteFile(path, []byte("time: iso\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	read := func() (int, string) {
		var talk bytes.Buffer
		none := func(string) string { return "" }
		a := &app{getenv: none, environ: none, stderr: &talk, screen: newScreen(&talk, true, none)}
		if err := a.readConfigs(); err != nil {
			t.Fatal(err)
		}
		return len(a.configs), talk.String()
	}
	if n, talk := read(); n != 1 || talk != "" {
		t.Errorf("our own: %d files, %q", n, talk)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if n, talk := read(); n != 0 || !strings.Contains(talk, "roux.yaml belongs to another user: it is not read") {
		t.Errorf("another's: %d files, %q", n, talk)
	}
}
