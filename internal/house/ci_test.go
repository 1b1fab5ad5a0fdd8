// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What `go test -fuzz` of Go 1.26 says about a target, recorded; the second is the
// race of golang/go#75804, made by removing the comparison that it slips past.
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

// TestFuzzScript: .ci/fuzz runs a target again after exactly the failure that is
// Go's own, once, and takes every other failure for what it is.
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
		said []string // by the runs of go, in order; one that does not say PASS fails
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

// fuzzScript runs the script over two targets, with a go that says what it is told.
// It returns what was printed, and the targets that were run.
func fuzzScript(t *testing.T, script []byte, said []string) (out, runs string, err error) {
	t.Helper()
	for _, tool := range []string{"sh", "awk", "mktemp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here, with which the script is run", tool)
		}
	}
	dir := t.TempDir()
	files := map[string]string{
		".ci/fuzz":      string(script),
		"sub/x_test.go": "package x\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc FuzzTwo(f *testing.F) {}\n",
		// Called as go test -run ^$ -fuzz ^FuzzOne$ ..., in the directory above .ci.
		"bin/go": "#!/bin/sh\necho \"$5\" | tr -d '^$' >>runs\nn=$(wc -l <runs)\n" +
			"cat \"said$((n))\"\ngrep -q PASS \"said$((n))\"\n",
	}
	for i, text := range said {
		files[fmt.Sprintf("said%d", i+1)] = text
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", filepath.Join(dir, ".ci/fuzz"), "2s")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"), "TMPDIR="+dir)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err = cmd.Run()
	ran, readErr := os.ReadFile(filepath.Join(dir, "runs"))
	if readErr != nil {
		t.Fatalf("go was not run: %v\n%s", readErr, both.String())
	}
	return both.String(), strings.Join(strings.Fields(string(ran)), " "), err
}
