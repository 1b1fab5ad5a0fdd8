// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

func TestMain(m *testing.M) {
	testMisbehave = misbehave
	Dispatch()
	os.Exit(m.Run())
}

// A fact is what other tools measured for a file of the shared data.
type fact struct {
	Encrypted bool   `json:"encrypted_needs_password"`
	Pages     int    `json:"pages_qpdf"`
	Words     int    `json:"words_poppler"`
	Outcome   string `json:"outcome"`
	Mime      string `json:"mime"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Note      string `json:"note"`

	Orientation int `json:"exif_orientation"`
	ShownWidth  int `json:"shown_width"`
	ShownHeight int `json:"shown_height"`
}

func sharedData(t *testing.T) (string, map[string]fact) {
	t.Helper()
	dir, facts := sharedFacts(t)
	if facts == nil {
		t.Skip("no shared test data: set ROUX_SHARED to the folder that has data/FACTS.json")
	}
	return dir, facts
}

// sharedFacts is sharedData for tests that also run without shared data: it
// returns nil facts instead of skipping the test.
func sharedFacts(t *testing.T) (string, map[string]fact) {
	t.Helper()
	dir := os.Getenv("ROUX_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared") // beside the module
	}
	data, err := os.ReadFile(filepath.Join(dir, "data", "FACTS.json"))
	if err != nil {
		return "", nil
	}
	var facts struct{ Files map[string]fact }
	if err := json.Unmarshal(data, &facts); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data"), facts.Files
}

// X159, X160: page counts of every readable PDF, and typed errors within 5 s
// for the others.
func TestX159_SharedPDFs(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	dir, facts := sharedData(t)
	r := New(Config{})
	for name, f := range facts {
		if !strings.HasPrefix(name, "pdf/") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			var took []time.Duration // CPU time of the children
			r.childEnded = func(s *os.ProcessState) { took = append(took, s.UserTime()+s.SystemTime()) }
			info, err := r.Info(context.Background(), bytes.NewReader(data))
			doc, terr := r.Text(context.Background(), bytes.NewReader(data), TextOptions{})
			if len(took) != 2 || slices.Max(took) > 5*time.Second {
				t.Errorf("took %v", took)
			}
			switch {
			case f.Encrypted:
				if !errors.Is(err, fault.FileEncrypted) || !errors.Is(terr, fault.FileEncrypted) {
					t.Errorf("want FILE_ENCRYPTED: %v, %v", err, terr)
				}
				return
			case f.Outcome == "unreadable":
				if !errors.Is(err, fault.FileInvalid) || !errors.Is(terr, fault.FileInvalid) {
					t.Errorf("want FILE_INVALID: %v, %v", err, terr)
				}
				return
			case err != nil || terr != nil:
				t.Fatalf("%v, %v", err, terr)
			}
			words := 0
			for i, p := range doc.Pages {
				words += p.Words
				if p.Problem != "" {
					t.Logf("page %d: %s", i+1, p.Problem)
				}
			}
			if info.PageCount != f.Pages || doc.PageCount != f.Pages || len(doc.Pages) != f.Pages {
				t.Errorf("pages = %d and %d, want %d", info.PageCount, doc.PageCount, f.Pages)
			}
			t.Logf("%d pages, %d words of %d, info %v, text %v (%v a page), repaired %v, title %q, %d headings", doc.PageCount, words, f.Words,
				took[0].Round(time.Millisecond), took[1].Round(time.Millisecond), took[1]/time.Duration(doc.PageCount), doc.Repaired, doc.Title, len(doc.Headings))
		})
	}
}
