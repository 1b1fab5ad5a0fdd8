// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/datadir"
)

// waits has two child runs whose workspaces have the same path; one of them waits when it has written.
const waits = `name: waits
steps:
  - id: short
    recipe:
      workspace: ./nested/same
      inline:
        name: short
        steps:
          - {id: w, action: {name: workspace-write, parameters: {path: a.txt, text: short}}}
          - {id: l, action: {name: workspace-list}}
        outputs: {count: steps.l.output.count}
  - id: long
    recipe:
      workspace: ./nested/same
      inline:
        name: long
        steps:
          - {id: w, action: {name: workspace-write, parameters: {path: kept.txt, text: long}}}
          - {id: decision, wait: {signal: go}}
`

// written returns the files of workspaces, with what else is beside them.
func written(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, datadir.Workspaces), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has been removed since its name was read
		}
		if err == nil && !d.IsDir() && filepath.Base(path) != "run" {
			files = append(files, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// untilWritten waits, for 30 seconds at most, until workspaces have exactly these files. It looks at the directory again
// and again: another process removes a workspace after the event that ends its run, and no event follows.
func untilWritten(t *testing.T, dir, want string, said func() string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); strings.Join(written(t, dir), " ") != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there is %v, want %s\n%s", written(t, dir), want, said())
		}
	}
}

// TestX235_KilledProcess: after kill -9 the workspace of a child run that goes on is there, and once that has been
// cancelled it is removed. What a person has put beside it stays (R25).
func TestX235_KilledProcess(t *testing.T) {
	dir, env := dataEnv(t)
	p := start(t, env, "run", write(t, "waits.yaml", waits))
	p.until("run.started")
	untilWritten(t, dir, "kept.txt", p.said) // that of the other child run is gone
	p.signal(os.Kill)
	p.wait()
	mine := filepath.Join(dir, datadir.Workspaces, "ws_mine")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mine, "mine.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := write(t, "other.yaml", "name: other\nsteps: [{id: one, transform: {expression: '1'}}]\n")
	step := func(want string, args ...string) {
		t.Helper()
		if _, said, code := roux(t, env, args...); code != 0 {
			t.Fatalf("roux %v: %d\n%s", args, code, said)
		}
		if got := strings.Join(written(t, dir), " "); got != want {
			t.Errorf("after roux %v there is %q, want %q", args, got, want)
		}
	}
	last, _, _ := roux(t, env, "runs", "list", "-o", "name")
	step("kept.txt mine.txt", "run", other)
	step("mine.txt", "runs", "cancel", strings.TrimSpace(last))
}
