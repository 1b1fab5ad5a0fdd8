// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/recipetest"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// devTests runs the tests in a folder when one of its files, or of its directory tests, was saved.
type devTests struct {
	*app
	dir    string
	limit  int64
	stamps map[string]userfile.Stamp
}

// look runs the tests if a file has changed since the last look, and tells what came of them.
func (t *devTests) look(ctx context.Context) {
	stamps, err := t.read()
	if err != nil || maps.Equal(stamps, t.stamps) {
		return // why a folder cannot be read is told where its recipes are registered
	}
	t.stamps = stamps
	files, err := recipetest.Find([]string{t.dir})
	if err == nil && len(files) > 0 {
		var done []*recipetest.File
		opt := &testFlags{unlocked: true, limit: t.limit, parallel: runtime.NumCPU()}
		err = recipetest.Run(ctx, files, t.testConfig(opt, nil), func(f *recipetest.File) { done = append(done, f) })
		if err == nil {
			t.tell(done)
		}
	}
	if err != nil && ctx.Err() == nil {
		t.screen.Print(t.screen.Paint("error", "error:") + " " + view.OneLine(fault.Message(err)) + "\n")
	}
}

// read returns the stamps of the files that tests and their recipes may be in.
func (t *devTests) read() (map[string]userfile.Stamp, error) {
	all := map[string]userfile.Stamp{}
	for _, dir := range []string{t.dir, filepath.Join(t.dir, "tests")} {
		stamps, err := userfile.StampsWithin(dir, maxApplied, ".yaml", ".yml", ".json")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for name, s := range stamps {
			all[filepath.Join(dir, name)] = s
		}
	}
	return all, nil
}

// tell says what came of the tests: what failed, and how many did not.
func (t *devTests) tell(files []*recipetest.File) {
	for _, f := range files {
		if len(f.Diags) > 0 {
			t.screen.Print(view.Clean(f.Format()))
		}
		for i := range f.Results {
			if r := &f.Results[i]; r.Outcome == recipetest.Failed {
				t.screen.Print(fmt.Sprintf("%s %s\n  %s\n", t.screen.Glyph("failed"), view.OneLine(r.Test), strings.ReplaceAll(view.Clean(r.Report()), "\n", "\n  ")))
			}
		}
	}
	passed, failed, skipped, broken := recipetest.Counts(files)
	text := counted(passed, failed, skipped)
	if broken > 0 {
		text = view.Join(", ", text, view.Count(broken, "file")+" invalid")
	}
	t.say("tests: %s", text)
}
