// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	library "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/doctor"
	"github.com/roux-engine/roux/internal/store"
)

// Two runs in a damaged log are each intact only in a different reading of it: an event
// of the first is damaged, and the second began after that event. Both are saved with
// their files and idempotency keys, and continue.
func TestSalvageSavesFromEveryReading(t *testing.T) {
	held := library.Request{Source: "w.yaml", IdempotencyKey: "once", Recipe: []byte("name: w\nsteps:\n" +
		"  - {id: split, action: {name: text-split, parameters: {text: 'a b c', output: file}}}\n" +
		"  - {id: hold, action: {name: hold}}\n  - {id: go, wait: {signal: go}}\n")}
	dir, first, second := heldAndKilled(t, held)
	before := digestOf(t, dir)
	saved := filepath.Join(t.TempDir(), "saved")
	out, talk, code := inProcess("", "doctor", "--data", dir, "--salvage", saved, "-o", "json")
	var got doctor.Salvaged
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("exit %d: %s%s", code, out, talk)
	}
	if got.Runs != 2 || len(got.Others) != 1 || got.Rest != "" ||
		code != fault.ExitFailed || len(got.Damaged) != 1 || got.Damaged[0].Run != first || !strings.Contains(got.Damaged[0].Why, "saved up to event") {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
	if digestOf(t, dir) != before {
		t.Error("the damaged directory was changed")
	}
	if out, talk, code := inProcess("", "doctor", "--data", saved); code != fault.ExitOK {
		t.Errorf("doctor of what was saved: exit %d: %s%s", code, out, talk)
	}
	if out, _, _ := inProcess("", "runs", "get", first, "--data", saved); strings.Contains(out, store.ImportedReason) {
		t.Errorf("it is the user's own run: %s", out)
	}
	files, _, _ := inProcess("", "files", "ls", "--data", saved, "-o", "name")
	if out, talk, code := inProcess("", "files", "rm", strings.TrimSpace(files), "--data", saved); code != fault.ExitConflict || !strings.Contains(talk, first) {
		t.Errorf("%s names no file: exit %d: %s%s", first, code, out, talk)
	}
	goes := make(chan struct{})
	close(goes)
	e := holding(t, saved, nil, goes)
	defer e.Close()
	if run, err := e.Start(t.Context(), held); err != nil || run != first {
		t.Errorf("the same request started %s, %v", run, err)
	}
	if err := e.Signal(t.Context(), first, "go", "again"); err != nil {
		t.Error(err)
	}
	for _, run := range []string{first, second} {
		if res, err := e.Wait(t.Context(), run); err != nil || res.Status != "completed" {
			t.Errorf("%s is %s, %v", run, res.Status, err)
		}
	}
}

// holding opens an engine with an action that sends to began when it starts and returns
// once goes is closed.
func holding(t *testing.T, dir string, began chan<- struct{}, goes <-chan struct{}) *library.Engine {
	t.Helper()
	e, err := library.Open(t.Context(), library.Options{Dir: dir, Actions: []action.Action{{
		Name: "hold", Version: "1.0.0", Description: "Waits.",
		Run: func(ctx context.Context, _ *action.Task) (action.Result, error) {
			if began != nil {
				began <- struct{}{}
			}
			select {
			case <-goes:
			case <-ctx.Done():
			}
			return action.Result{}, ctx.Err()
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// heldAndKilled makes a data directory as a killed process leaves it. The run first is
// in the middle of a step; the run second started later and has ended. One bit of an
// event of first is flipped in the log.
func heldAndKilled(t *testing.T, held library.Request) (dir, first, second string) {
	t.Helper()
	live, dir := filepath.Join(t.TempDir(), "live"), filepath.Join(t.TempDir(), "killed")
	began := make(chan struct{}, 1)
	e := holding(t, live, began, nil)
	defer e.Close()
	first, err := e.Start(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range e.Watch(t.Context(), first, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Step == "split" && ev.Type == "node.completed" {
			break
		}
	}
	<-began
	mark := rand.Text() // on a page that nothing else is written to
	var around strings.Builder
	for range 1_000 {
		around.WriteString(rand.Text())
	}
	if err := e.Signal(t.Context(), first, "go", around.String()+mark+around.String()); err != nil {
		t.Fatal(err)
	}
	second, err = e.Start(t.Context(), library.Request{Source: "r.yaml", Recipe: []byte("name: r\nsteps: [{id: t, transform: {expression: '1'}}]\n")})
	if err == nil {
		_, err = e.Wait(t.Context(), second)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "roux.db-wal")
	wal, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(wal, []byte(mark))
	if at < 0 {
		t.Fatal("the event is not in the log")
	}
	wal[at] ^= 1
	if err := os.WriteFile(path, wal, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, first, second
}
