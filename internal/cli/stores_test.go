// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/node"
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
	Run  string    `json:"runId"`
	Type string    `json:"type"`
	Time time.Time `json:"timestamp"`
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
				out, talk, code := inProcess("", "events", ev.Run, "-o", "jsonl")
				if code != fault.ExitOK {
					t.Fatalf("events: exit %d\n%s", code, talk)
				}
				got.WriteString(out)
				if _, talk, code := inProcess("", "replay", ev.Run); code != fault.ExitOK {
					t.Errorf("replay %s: exit %d\n%s", ev.Run, code, talk)
				}
			}
			if got.String() != string(want) {
				t.Errorf("the events read otherwise than when they were written; got\n%s", got.String())
			}
			if len(runs) < 8 {
				t.Errorf("%d runs are in the store", len(runs))
			}
			if out, talk, code := inProcess("", "doctor"); code != fault.ExitOK {
				t.Errorf("doctor: exit %d\n%s%s", code, out, talk)
			}
		})
	}
}

// F46: the runs that an earlier release was in the middle of go on in this one, with
// their files and what they had recorded, half an hour after that process was killed.
func TestF46_StoresOfEarlierReleasesGoOn(t *testing.T) {
	for _, path := range earlierStores(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			dir := unpackStore(t, path)
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
			defer st.Close()
			files, err := blob.Open(blob.Config{Dir: filepath.Join(dir, datadir.Files)})
			if err != nil {
				t.Fatal(err)
			}
			defer files.Close()
			heads, err := st.List(t.Context(), store.Query{Account: account}) // as they were left
			if err != nil {
				t.Fatal(err)
			}
			now := last.Time.Add(30 * time.Minute)
			e, err := engine.Open(t.Context(), engine.Config{
				Store: st, Actions: node.Catalogue(builtin.Actions(builtin.Config{})), Blobs: files, Now: func() time.Time { return now },
			})
			if err != nil {
				t.Fatal(err)
			}
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
			if _, err := e.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
