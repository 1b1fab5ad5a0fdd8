// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// X159: file-inspect agrees with the measurements of other tools on the shared
// files.
func TestX159_SharedFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	dir := os.Getenv("ROUX_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared") // beside the module
	}
	data, err := os.ReadFile(filepath.Join(dir, "data", "FACTS.json"))
	if err != nil {
		t.Skipf("no shared test data (set ROUX_SHARED): %v", err)
	}
	var facts struct {
		Files map[string]struct {
			SHA256    string
			Bytes     int64
			Mime      string
			Width     int64
			Height    int64
			Turned    int64 `json:"exif_orientation"`
			Shown     int64 `json:"shown_width"`
			Encrypted bool  `json:"encrypted_needs_password"`
			Pages     int64 `json:"pages_qpdf"`
			Outcome   string
			Note      string
		}
	}
	if err := json.Unmarshal(data, &facts); err != nil {
		t.Fatal(err)
	}
	s := store(t)
	for name, f := range facts.Files {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, "data", name))
			if err != nil {
				t.Fatal(err)
			}
			info := upload(t, s, filepath.Base(name), data)
			if info.Hash != "sha256_"+f.SHA256 || info.Size != f.Bytes {
				t.Fatalf("stored as %+v", info)
			}
			got, err := call(t, s, "file-inspect", map[string]any{"file": info.Hash})
			if f.Outcome == "unreadable" {
				if !errors.Is(err, fault.FileInvalid) {
					t.Errorf("error = %v, want FILE_INVALID", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			ext := got["extended"].(map[string]any)
			switch {
			case f.Encrypted:
				if ext["encrypted"] != true {
					t.Errorf("extended = %v, want encrypted", ext)
				}
			case f.Pages > 0:
				if ext["pageCount"] != f.Pages || got["mimeType"] != typePDF {
					t.Errorf("%v %v, want %d pages", got["mimeType"], ext, f.Pages)
				}
			default:
				if got["mimeType"] != f.Mime || ext["width"] != f.Width || ext["height"] != f.Height {
					t.Errorf("%v %v, want %s %d × %d", got["mimeType"], ext, f.Mime, f.Width, f.Height)
				}
				if want := max(f.Turned, 1); ext["orientation"] != want {
					t.Errorf("orientation %v, want %d", ext["orientation"], want)
				}
				if want := cmp.Or(f.Shown, f.Width); ext["shownWidth"] != want {
					t.Errorf("shown %v wide, want %d", ext["shownWidth"], want)
				}
				if strings.HasPrefix(f.Note, "must be an error") != (ext["damaged"] == true) {
					t.Errorf("damaged = %v: %s", ext["damaged"], f.Note)
				}
			}
		})
	}
}
