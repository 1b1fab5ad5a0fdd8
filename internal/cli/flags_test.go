// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
)

// A tried is a command line of a transcript.
type tried struct {
	file  string
	words []string
}

// triedLines are all command lines of the transcripts that run roux.
func triedLines(t *testing.T) (lines []tried, codes map[string]bool) {
	t.Helper()
	names, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal("no transcripts", err)
	}
	codes = map[string]bool{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(text), "\n-- ")
		for line := range strings.Lines(script) {
			words := strings.Fields(line)
			at := slices.Index(words, "roux")
			if strings.HasPrefix(line, "#") || at < 1 {
				continue
			}
			switch words[at-1] {
			case "exec":
				if words[0] != "!" {
					codes["0"] = true
				}
			default:
				if words[0] == "code" {
					codes[words[1]] = true
				} else if words[0] != "until" {
					continue
				}
			}
			lines = append(lines, tried{name, words[at+1:]})
		}
	}
	return lines, codes
}

// TestEveryCommandHasATranscript checks that each command, with each of its flags, is
// run by a transcript, and that its help has a description, an example that names the
// command first, and a sentence for each flag.
func TestEveryCommandHasATranscript(t *testing.T) {
	// Flags that only a terminal or a killed process shows are tried in Go.
	elsewhere := map[string]string{"completion": "cobra's own; its scripts are made from our commands", "lsp": "TestLanguageServerSession plays sessions"}
	root := (&app{getenv: func(string) string { return "" }}).command()
	root.InitDefaultCompletionCmd()
	ran, used := map[string]bool{}, map[string]bool{}
	lines, _ := triedLines(t)
	for _, line := range lines {
		cmd, _, err := root.Find(line.words)
		if err != nil {
			continue // a mistake that the transcript makes on purpose
		}
		for c := cmd; c != nil; c = c.Parent() {
			ran[c.CommandPath()] = ran[c.CommandPath()] || c == cmd
		}
		for _, w := range line.words {
			name, _, _ := strings.Cut(strings.Trim(w, "'"), "=")
			if !strings.HasPrefix(name, "-") || name == "-" {
				continue
			}
			f := cmd.Flags().Lookup(strings.TrimPrefix(name, "--"))
			if f == nil {
				f = cmd.InheritedFlags().Lookup(strings.TrimPrefix(name, "--"))
			}
			if f == nil && len(name) == 2 {
				if f = cmd.Flags().ShorthandLookup(name[1:]); f == nil {
					f = cmd.InheritedFlags().ShorthandLookup(name[1:])
				}
			}
			if f != nil {
				used[cmd.CommandPath()+" --"+f.Name] = true
				used["--"+f.Name] = true
			}
		}
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		_, excused := elsewhere[strings.TrimPrefix(path, "roux ")]
		if excused {
			return
		}
		if !ran[path] {
			t.Errorf("no transcript runs `%s`", path)
		}
		if cmd.Short == "" {
			t.Errorf("%s does not say what it is", path)
		}
		if lines := exampleLines(cmd); len(lines) == 0 || !strings.Contains(strings.Join(lines, "\n"), path) {
			t.Errorf("the help of %s leads with no example of it", path)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !used[path+" --"+f.Name] {
				t.Errorf("no transcript tries `%s --%s`", path, f.Name)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !used["--"+f.Name] {
			t.Errorf("no transcript tries --%s", f.Name)
		}
	})
}

// TestEveryExitCodeIsTried checks that each exit code of docs/exit-codes.md is reached
// by a command of a transcript or by the named test.
func TestEveryExitCodeIsTried(t *testing.T) {
	inGo := map[int]string{
		fault.ExitForbidden: "TestReadOnlyDataDir", fault.ExitUnreachable: "TestExitUnreachable",
		fault.ExitCancelled: "TestCancelFromOutside", fault.ExitInterrupted: "TestCtrlCTwice",
	}
	_, codes := triedLines(t)
	tests := testNames(t)
	for _, code := range []int{
		fault.ExitOK, fault.ExitFailed, fault.ExitUsage, fault.ExitDefinition, fault.ExitNotFound, fault.ExitForbidden, fault.ExitCredits,
		fault.ExitConflict, fault.ExitTimeout, fault.ExitUnreachable, fault.ExitCancelled, fault.ExitAssertion, fault.ExitInternal, fault.ExitInterrupted,
	} {
		if test := inGo[code]; !codes[strconv.Itoa(code)] && !tests[test] {
			t.Errorf("nothing ends in exit code %d (%s)", code, test)
		}
	}
}

// testNames are the tests of this package.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
	}
	return names
}

// TestExitUnreachable checks that a command exits with 9 when the process that holds
// the data directory hangs up.
func TestExitUnreachable(t *testing.T) {
	dir, env := dataEnv(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Skipf("unix sockets: %v", err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	if _, talk, code := roux(t, env, "runs", "list"); code != fault.ExitUnreachable || !strings.Contains(talk, "SERVER_UNREACHABLE, exit 9") {
		t.Errorf("exit %d:\n%s", code, talk)
	}
}

// TestVariables: every variable of the environment is set by a transcript or a test.
func TestVariables(t *testing.T) {
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
	variables := []string{"NO_COLOR", "TERM=dumb", "COLORFGBG", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "CI=1", "CI=true"}
	for _, s := range config.All() {
		variables = append(variables, s.Env)
	}
	for _, name := range variables {
		if !strings.Contains(corpus, name) {
			t.Errorf("no test sets %s", name)
		}
	}
}
