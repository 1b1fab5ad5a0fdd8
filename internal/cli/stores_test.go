// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// earlierStores returns the paths of data directories of earlier releases. Each was
// left by a process that was killed while runs waited, and is stored with the events
// that the release printed. They are never written again.
func earlierStores(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "stores", "*.zip"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no stores", err)
	}
	return paths
}

func unpackStore(t *testing.T, path string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if err := os.CopyFS(dir, z); err != nil {
		t.Fatal(err)
	}
	return dir
}

// frozenEvent is what this test reads of a printed event.
type frozenEvent struct {
	Run     string    `json:"runId"`
	Type    string    `json:"type"`
	Time    time.Time `json:"timestamp"`
	Payload struct {
		Account string `json:"account"`
	} `json:"payload"`
}

// shownBefore reports whether lines of JSON have everything that they had when they were
// frozen: fields of objects are only added.
func shownBefore(t *testing.T, got, frozen string) bool {
	t.Helper()
	var includes func(is, was any) bool
	includes = func(is, was any) bool {
		fields, ok := was.(map[string]any)
		if !ok {
			return reflect.DeepEqual(is, was)
		}
		now, ok := is.(map[string]any)
		for name := range fields {
			ok = ok && includes(now[name], fields[name])
		}
		return ok
	}
	lines, want := strings.Split(got, "\n"), strings.Split(frozen, "\n")
	for i := range want {
		if len(lines) != len(want) || lines[i] == want[i] {
			continue
		}
		var is, was any
		if err := errors.Join(json.Unmarshal([]byte(lines[i]), &is), json.Unmarshal([]byte(want[i]), &was)); err != nil || !includes(is, was) {
			t.Logf("line %d, %v: got\n%s\nwant\n%s", i+1, err, lines[i], want[i])
			return false
		}
	}
	return len(lines) == len(want)
}

// F46, I23: this release reads what earlier releases wrote. It prints the same events,
// and its folds equal the stored snapshots and heads.
func TestF46_StoresOfEarlierReleasesAreRead(t *testing.T) {
	for _, path := range earlierStores(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Setenv("ROUX_DATA", unpackStore(t, path))
			want, err := os.ReadFile(strings.TrimSuffix(path, ".zip") + ".jsonl")
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			runs := map[string]bool{}
			for line := range strings.Lines(string(want)) {
				var ev frozenEvent
				if err := json.Unmarshal([]byte(line), &ev); err != nil {
					t.Fatal(err)
				}
				if runs[ev.Run] {
					continue
				}
				runs[ev.Run] = true
				out, talk, code := inProcess("", "events", ev.Run, "-o", "jsonl", "--account", ev.Payload.Account)
				if code != fault.ExitOK {
					t.Fatalf("events: exit %d\n%s", code, talk)
				}
				got.WriteString(out)
				if _, talk, code := inProcess("", "replay", ev.Run, "--account", ev.Payload.Account); code != fault.ExitOK {
					t.Errorf("replay %s: exit %d\n%s", ev.Run, code, talk)
				}
			}
			if !shownBefore(t, got.String(), string(want)) {
				t.Errorf("the events read otherwise than when they were written; got\n%s", got.String())
			}
			if len(runs) < 8 {
				t.Errorf("%d runs are in the store", len(runs))
			}
			if ledger, err := os.ReadFile(strings.TrimSuffix(path, ".zip") + ".ledger"); err == nil {
				out, talk, code := inProcess("", "credits", "ledger", "--account", "acme", "--limit", "1000", "-o", "jsonl")
				if out != string(ledger) {
					t.Errorf("exit %d: the ledger reads otherwise than when it was written; got\n%s%s", code, out, talk)
				}
				wantBooks(t)
			}
			if out, talk, code := inProcess("", "doctor"); code != fault.ExitOK {
				t.Errorf("doctor: exit %d\n%s%s", code, out, talk)
			}
		})
	}
}

// wantBooks checks that the books of the account that pays agree with its journals.
func wantBooks(t *testing.T) {
	t.Helper()
	if out, talk, code := inProcess("", "credits", "reconcile", "--all"); code != fault.ExitOK || !strings.Contains(out, "acme: ") {
		t.Errorf("credits reconcile: exit %d\n%s%s", code, out, talk)
	}
}

// F46: the runs that an earlier release was in the middle of go on in this one, with
// their files and what they had recorded, half an hour after that process was killed.
func TestF46_StoresOfEarlierReleasesGoOn(t *testing.T) {
	for _, path := range earlierStores(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			dir := unpackStore(t, path)
			e, st, heads := openStored(t, path, dir)
			statuses := map[string][]string{}
			resumed := 0
			for _, h := range heads {
				if h.Ended == 0 {
					resumed++
					if h.Recipe == "waiting" || h.Recipe == "filed" {
						if err := e.Signal(t.Context(), account, h.Run, "go", "on"); err != nil {
							t.Errorf("signal %s: %v", h.Recipe, err)
						}
					}
				}
				if h.Recipe == "failed" { // a third generation
					if err := e.Retry(t.Context(), account, h.Run, engine.RetryRequest{}); err != nil {
						t.Error(err)
					}
				}
				end, err := e.Wait(t.Context(), account, h.Run)
				if err != nil {
					t.Fatal(err)
				}
				statuses[h.Recipe] = append(statuses[h.Recipe], end.Status)
				if end.Status == "failed" && h.Recipe != "failed" {
					t.Errorf("%s: %s %s", h.Recipe, end.Code, end.Message)
				}
			}
			for recipe, want := range map[string]string{
				"done": "completed", "flaky": "completed", "failed": "failed", "timer": "completed", "busy": "completed",
				"filed": "completed", "waiting": "completed cancelled",
			} {
				if got := strings.Join(statuses[recipe], " "); got != want {
					t.Errorf("%s: %s, want %s", recipe, got, want)
				}
			}
			if resumed != 4 {
				t.Errorf("%d runs were under way, want 4", resumed)
			}
			if _, err := os.Stat(strings.TrimSuffix(path, ".zip") + ".ledger"); err == nil {
				payingGoOn(t, e, st)
			}
			if _, err := e.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// payingGoOn lets the runs go on that an account pays for, those in trees and one that is
// queued among them, and proves the account's books.
func payingGoOn(t *testing.T, e *engine.Engine, st *sqlite.Store) {
	t.Helper()
	heads, err := st.List(t.Context(), store.Query{Account: "acme", All: true})
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[string][]string{}
	for _, h := range heads {
		if h.Ended == 0 && (h.Recipe == "waiting" || h.Recipe == "twig") {
			if err := e.Signal(t.Context(), "acme", h.Run, "go", "on"); err != nil {
				t.Errorf("signal %s: %v", h.Recipe, err)
			}
		}
	}
	for _, h := range heads {
		end, err := e.Wait(t.Context(), "acme", h.Run)
		if err != nil {
			t.Fatal(err)
		}
		statuses[h.Recipe] = append(statuses[h.Recipe], end.Status)
	}
	want := map[string]string{"done": "completed", "failed": "failed", "waiting": "completed completed"}
	switch queued := len(statuses["done"]) > 1; {
	case len(statuses["tree"]) > 0:
		want = map[string]string{"done": "completed completed", "failed": "failed", "waiting": "completed", "tree": "completed completed",
			"twig": "completed completed completed completed", "leaf": "completed completed completed completed"}
	case queued:
		want["done"] = "completed completed"
	}
	for recipe, list := range statuses {
		if got := strings.Join(list, " "); got != want[recipe] {
			t.Errorf("acme: %s: %s, want %s", recipe, got, want[recipe])
		}
		delete(want, recipe)
	}
	r, err := reconcile.Account(t.Context(), st, "acme", nil)
	if err != nil || len(want) > 0 || len(r.Findings) > 0 || r.Held > 0 || r.Entries == 0 {
		t.Errorf("runs of %v are missing; %+v, %v", want, r, err)
	}
}

// openStored opens the engine of a frozen store half an hour after its process was killed,
// and returns the heads as they were left.
func openStored(t *testing.T, path, dir string) (_ *engine.Engine, _ *sqlite.Store, heads []store.Head) {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(path, ".zip") + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var last frozenEvent
	for line := range strings.Lines(string(text)) {
		var ev frozenEvent
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Time.After(last.Time) {
			last = ev
		}
	}
	st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	files, err := blob.Open(blob.Config{Dir: filepath.Join(dir, datadir.Files)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	if heads, err = st.List(t.Context(), store.Query{Account: account}); err != nil { // as they were left
		t.Fatal(err)
	}
	now := last.Time.Add(30 * time.Minute)
	e, err := engine.Open(t.Context(), engine.Config{
		Store: st, Actions: node.Catalogue(builtin.Actions(builtin.Config{})), Blobs: files, Now: func() time.Time { return now },
		Accounts: func(name string) engine.AccountRules {
			return engine.AccountRules{Unmetered: name == account, MaxLiveRuns: 2, Budgets: ledger.Budgets{Keys: map[string]ledger.Budget{"ci": {Limit: 100}}}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, st, heads
}
