// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/view"
)

// Files of equal content have one hash, and each is saved under its own name. Here the
// three sizes of a small picture are equal, because it is not enlarged.
func TestSaveOfEqualFiles(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "dot.png")
	writePNG(t, picture, 20, 10)
	_, env := dataEnv(t)
	out := t.TempDir()
	for range 2 { // the second time they are there already
		jobRun[any](t, env, job(t, "sizes"), "--file", picture, "--input", "title=dot", "--save", out)
		entries, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if want := []string{"dot-middle-480.jpg", "dot-small-160.jpg", "dot-wide-800.jpg"}; !slices.Equal(names, want) {
			t.Errorf("saved %q, want %q", names, want)
		}
	}
}

// A file that the outputs mention once is saved under one name, whatever other names it
// has in the run.
func TestNamesOfSavedFiles(t *testing.T) {
	a, b := "sha256_"+string(slices.Repeat([]byte("a"), 64)), "sha256_"+string(slices.Repeat([]byte("b"), 64))
	v := &view.Run{History: journal.NewHistory(nil, 0)}
	for _, tt := range []struct {
		outputs any
		want    []string
	}{
		{a, nil},
		{map[string]any{"file": a, "name": "x"}, []string{"x"}},
		{[]any{map[string]any{"file": a, "name": "x"}, map[string]any{"file": a, "name": "y"}}, []string{"x", "y"}},
		{[]any{map[string]any{"file": a, "name": "x"}, map[string]any{"file": a, "name": "x"}}, []string{"x"}},
		{map[string]any{"file": a, "other": b, "name": "x"}, nil},
	} {
		if got := fileNames(v, tt.outputs)[a]; !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.outputs, got, tt.want)
		}
	}
}
