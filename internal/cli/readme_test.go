// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var shellBlock = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```")

// shellLines are the commands that a page shows.
func shellLines(t *testing.T, page string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// TestReadmeCommands runs every command of README.md, in order, in a copy of
// what a clone holds, with one data directory. The command that runs all tests
// is only looked up: this test is part of it.
func TestReadmeCommands(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	lines := shellLines(t, filepath.Join(root, "README.md"))
	for _, want := range []string{"go run ./cmd/roux run examples/document-digest.yaml --file examples/report.pdf", "./.ci/test"} {
		if !slices.Contains(lines, want) {
			t.Errorf("README.md does not show %q", want)
		}
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Skipf("symbolic links: %v", err)
	}
	env := append(os.Environ(), "ROUX_DATA="+filepath.Join(dir, "data"))
	for _, line := range lines {
		switch line {
		case "./.ci/test":
			if info, err := os.Stat(filepath.Join(root, line)); err != nil || info.Mode().Perm()&0o100 == 0 {
				t.Errorf("%s cannot be run: %v", line, err)
			}
			continue
		case "go build -o roux ./cmd/roux":
			cmd := exec.Command("go", "build", "-o", os.DevNull, "./cmd/roux")
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			continue
		}
		args, ok := strings.CutPrefix(line, "go run ./cmd/roux ")
		if !ok {
			args, ok = strings.CutPrefix(line, "./roux ")
		}
		if !ok {
			t.Errorf("README.md shows %q, which this test does not know how to run", line)
			continue
		}
		cmd := &exec.Cmd{Path: exe, Args: append([]string{"roux"}, strings.Fields(args)...), Env: env, Dir: dir}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

// TestExamplesAreValid: every recipe in the examples is valid.
func TestExamplesAreValid(t *testing.T) {
	names, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("no examples")
	}
	for i := range names {
		if names[i], err = filepath.Abs(names[i]); err != nil {
			t.Fatal(err)
		}
	}
	if out, talk, code := roux(t, nil, append([]string{"validate"}, names...)...); code != 0 || strings.Contains(out, "warning") {
		t.Errorf("exit %d\n%s%s", code, out, talk)
	}
}
