// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Recorded outputs of `go test -fuzz` of Go 1.26; the second shows the race of
// golang/go#75804, provoked by removing the comparison that it bypasses.
const (
	fuzzPassed = "fuzz: elapsed: 0s, gathering baseline coverage: 0/1 completed\n" +
		"fuzz: elapsed: 2s, execs: 216725 (105851/sec), new interesting: 0 (total: 1)\nPASS\nok  \texample.com/m\t2.051s\n"
	fuzzRaced = "fuzz: elapsed: 0s, gathering baseline coverage: 0/1 completed\n" +
		"fuzz: elapsed: 2s, execs: 216725 (105851/sec), new interesting: 0 (total: 1)\n" +
		"--- FAIL: FuzzOne (2.05s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\texample.com/m\t2.051s\n"
	fuzzFound = "fuzz: elapsed: 0s, gathering baseline coverage: 0/1 completed\nfuzz: minimizing 33-byte failing input file\n" +
		"--- FAIL: FuzzOne (0.02s)\n    --- FAIL: FuzzOne (0.00s)\n        x_test.go:9: found\n    \n" +
		"    Failing input written to testdata/fuzz/FuzzOne/ab\n    To re-run:\n    go test -run=FuzzOne/ab\nFAIL\nexit status 1\nFAIL\texample.com/m\t0.022s\n"
)

// TestFuzzScript: .ci/fuzz runs a target again, once, after the failure that is Go's own,
// and reports every other failure.
func TestFuzzScript(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci/fuzz"))
	if err != nil {
		t.Fatal(err)
	}
	raced := func(old, replacement string) string {
		t.Helper()
		if strings.Count(fuzzRaced, old) != 1 {
			t.Fatalf("%q does not stand once in what the race says", old)
		}
		return strings.Replace(fuzzRaced, old, replacement, 1)
	}
	for _, tt := range []struct {
		name string
		said []string // outputs of the runs of go, in order; one without PASS fails
		runs string   // the targets that were run
		fine bool
	}{
		{"all pass", []string{fuzzPassed, fuzzPassed}, "FuzzOne FuzzTwo", true},
		{"the race, then fine", []string{fuzzRaced, fuzzPassed, fuzzPassed}, "FuzzOne FuzzOne FuzzTwo", true},
		{"the race twice", []string{fuzzRaced, fuzzRaced, fuzzPassed}, "FuzzOne FuzzOne", false},
		{"the race, then an input", []string{fuzzRaced, fuzzFound, fuzzPassed}, "FuzzOne FuzzOne", false},
		{"an input", []string{fuzzFound, fuzzPassed}, "FuzzOne", false},
		{"the second target", []string{fuzzPassed, strings.ReplaceAll(fuzzFound, "One", "Two")}, "FuzzOne FuzzTwo", false},
		{"the race while an input is made small", []string{raced("--- FAIL", "fuzz: minimizing 33-byte failing input file\n--- FAIL"), fuzzPassed}, "FuzzOne", false},
		{"an input beside the race", []string{raced("exceeded\n", "exceeded\n    Failing input written to testdata/fuzz/FuzzOne/ab\n"), fuzzPassed}, "FuzzOne", false},
		{"a panic beside the race", []string{"panic: found\n" + fuzzRaced, fuzzPassed}, "FuzzOne", false},
		{"a deadline of the target's own", []string{raced("    context", "    x_test.go:9: context"), fuzzPassed}, "FuzzOne", false},
		{"another error at the end", []string{raced("context deadline exceeded", "fuzzing process hung or terminated unexpectedly: EOF"), fuzzPassed}, "FuzzOne", false},
		{"another target's race", []string{strings.ReplaceAll(fuzzRaced, "One", "Two"), fuzzPassed}, "FuzzOne", false},
		{"it does not build", []string{"# example.com/m\n./x_test.go:9: undefined: x\nFAIL\texample.com/m [build failed]\nFAIL\n", fuzzPassed}, "FuzzOne", false},
		{"it is killed", []string{"fuzz: elapsed: 0s, gathering baseline coverage: 0/1 completed\n", fuzzPassed}, "FuzzOne", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, runs, err := fuzzScript(t, script, tt.said)
			if (err == nil) != tt.fine || runs != tt.runs {
				t.Errorf("got error %v after the runs %q, want fine=%t after %q\n%s", err, runs, tt.fine, tt.runs, out)
			}
			again := strings.Count(out, "FuzzOne found nothing; Go stopped it wrongly (golang/go#75804): once more\n")
			if want := strings.Count(tt.runs, "FuzzOne") - 1; again != want {
				t.Errorf("the second run is announced %d times, want %d\n%s", again, want, out)
			}
		})
	}
}

// fuzzScript runs the script with two targets and a fake go that prints given outputs. It
// returns what was printed, and the targets that were run.
func fuzzScript(t *testing.T, script []byte, said []string) (out, runs string, err error) {
	t.Helper()
	files := map[string]string{
		".ci/fuzz":      string(script),
		"not/y_test.go": "package y\n\nfunc FuzzThree(f *testing.F) {}\n",
		"sub/x_test.go": "package x\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc FuzzTwo(f *testing.F) {}\n",
		// Called as go test -run ^$ -fuzz ^FuzzOne$ ..., in the directory above .ci.
		"bin/go": "#!/bin/sh\necho \"$5\" | tr -d '^$' >>runs\nn=$(wc -l <runs)\n" +
			"cat \"said$((n))\"\ngrep -q PASS \"said$((n))\"\n",
	}
	for i, text := range said {
		files[fmt.Sprintf("said%d", i+1)] = text
	}
	dir, cmd := scriptIn(t, files, ".ci/fuzz", "2s", "0", "1", "/(sub|none)/")
	all, err := cmd.CombinedOutput()
	ran, readErr := os.ReadFile(filepath.Join(dir, "runs"))
	if readErr != nil {
		t.Fatalf("go was not run: %v\n%s", readErr, all)
	}
	return string(all), strings.Join(strings.Fields(string(ran)), " "), err
}

// scriptIn writes files into a directory and returns a command for a script among them,
// with the directory's bin first in PATH.
func scriptIn(t *testing.T, files map[string]string, script string, args ...string) (dir string, cmd *exec.Cmd) {
	t.Helper()
	for _, tool := range []string{"sh", "awk", "mktemp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here, with which the script is run", tool)
		}
	}
	dir = t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd = exec.Command("sh", append([]string{filepath.Join(dir, script)}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"), "TMPDIR="+dir, "CI=")
	return dir, cmd
}

// TestTestScript: .ci/test fails for a failed test, and for a skipped test whose reason is
// not listed for this environment; it counts passed, failed and skipped tests.
func TestTestScript(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci/test"))
	if err != nil {
		t.Fatal(err)
	}
	const skips = "# a comment\n\nalways it is long: \nmachine no strace\nshort not short: \nmachine there is no %s here\n"
	skip := func(reason string) string {
		return "=== RUN   TestA\n=== RUN   TestB\n=== PAUSE TestB\n=== NAME  TestA\n    a_test.go:7: " + reason +
			"\n--- SKIP: TestA (0.00s)\n=== CONT  TestB\n    b_test.go:9: it is long: not the reason of A\n--- PASS: TestB (0.00s)\nok  \tm\t0.1s\n"
	}
	for _, tt := range []struct {
		name, said, argument, ci string
		status                   string // of go
		small                    string // of go for a small binary
		red                      string // what must be printed; "" = green
	}{
		{name: "listed", said: skip("it is long: a minute")},
		{name: "not listed", said: skip("too hard"), red: "TestA: too hard"},
		{name: "in the middle", said: skip("but it is long: a minute"), red: "TestA: but it is"},
		{name: "without a reason", said: "=== RUN   TestA\n--- SKIP: TestA (0.00s)\n", red: "TestA: no reason"},
		{name: "a subtest", said: "=== RUN   TestA\n=== RUN   TestA/x\n    a_test.go:7: too hard\n    --- SKIP: TestA/x (0.00s)\n--- PASS: TestA (0.00s)\n", red: "TestA/x: too hard"},
		{name: "of the machine", said: skip("no strace here")},
		{name: "of the machine, a name in it", said: skip("there is no awk here")},
		{name: "of the machine in CI", said: skip("no strace here"), ci: "true", red: "TestA: no strace here"},
		{name: "short", said: skip("not short: children"), argument: "-short"},
		{name: "not short", said: skip("not short: children"), red: "TestA: not short"},
		{name: "a failure", said: "=== RUN   TestA\n--- FAIL: TestA (0.00s)\nFAIL\n", status: "exit 1", red: "1 failed, 0 skipped"},
		{name: "a failure of a small binary", small: "exit 1", red: "== go vet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, cmd := scriptIn(t, map[string]string{
				".ci/test": string(script), ".ci/skips": skips, "said": tt.said,
				"bin/go": "#!/bin/sh\ncase \"$*\" in vet*) exit 0 ;; *\" -tags small \"*) " + cmp.Or(tt.small, "exit 0") + " ;; esac\ncat said\n" + tt.status + "\n",
			}, ".ci/test", strings.Fields(tt.argument)...)
			cmd.Env = append(cmd.Env, "CI="+tt.ci)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (tt.red == "") || !strings.Contains(string(out), tt.red) {
				t.Errorf("%v\n%s\nwant %q", err, out, tt.red)
			}
		})
	}
}

// skip matches calls that skip a test, with the text of the reason.
var skip = regexp.MustCompile(`\bt\.Skip(f?)\(("(?:[^"\\]|\\.)*"|` + "`[^`]*`" + `)?`)

// TestSkipsAreListed: every reason for skipping a test begins with a line of .ci/skips,
// and every line is the reason of a test.
func TestSkipsAreListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".ci/skips"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{} // whether a test has the reason
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		class, begin, _ := strings.Cut(line, " ")
		if !slices.Contains([]string{"always", "machine", "short"}, class) || begin == "" {
			t.Errorf(".ci/skips: %q: want a class and the first words of a reason", line)
		}
		listed[begin] = false
	}
	for _, f := range load(t) {
		if !f.test || f.foreign || f.path == "internal/house/ci_test.go" {
			continue
		}
		for _, m := range skip.FindAllSubmatch(f.text, -1) {
			reason, err := strconv.Unquote(string(m[2]))
			if err != nil {
				t.Errorf("%s: %s: a skip begins with its reason as text", f.path, m[0])
				continue
			}
			found := false
			for begin := range listed {
				if strings.HasPrefix(reason, begin) {
					listed[begin], found = true, true
				}
			}
			if !found {
				t.Errorf("%s: the reason %q is not in .ci/skips", f.path, reason)
			}
		}
	}
	for begin, used := range listed {
		if !used && !strings.HasPrefix(begin, "there is no %s here") {
			t.Errorf(".ci/skips: no test skips for the reason %q", begin)
		}
	}
}

// nightly matches the steps of .ci/nightly that run some tests of some packages: the names, and the packages.
var nightly = regexp.MustCompile(`(?m)^step .* -run '?([^' ]+)'?((?: \./[a-z/-]+)+)`)

// TestNightlyTestsAreThere: each alternative of a -run of .ci/nightly begins the name of a test in one of the
// packages. Go reports no error for a pattern that matches nothing.
func TestNightlyTestsAreThere(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci/nightly"))
	if err != nil {
		t.Fatal(err)
	}
	steps := nightly.FindAllSubmatch(script, -1)
	if want := strings.Count(string(script), " -run "); len(steps) != want {
		t.Errorf("%d steps are read, and -run is there %d times", len(steps), want)
	}
	for _, m := range steps {
		for name := range strings.SplitSeq(string(m[1]), "|") {
			there := slices.ContainsFunc(load(t), func(f *source) bool {
				return f.test && slices.Contains(strings.Fields(string(m[2])), "./"+f.pkg) && strings.Contains(string(f.text), "\nfunc "+name)
			})
			if !there {
				t.Errorf(".ci/nightly: no test of%s begins with %s", m[2], name)
			}
		}
	}
}
