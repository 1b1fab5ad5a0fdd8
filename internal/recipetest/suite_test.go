// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/registry"
)

// actions are those that come with Roux, and one with effects.
func actions() catalogue.Actions {
	list := builtin.Actions(builtin.Config{})
	list = append(list, approval.Action(), action.Action{
		Name: "charge-card", Version: "1.0.0", Price: "2.5", Slots: 1,
		Run: func(context.Context, *action.Task) (action.Result, error) { panic("a test called a real action") },
	})
	decls := make([]*action.Action, len(list))
	for i := range list {
		decls[i] = &list[i]
	}
	return catalogue.New(decls...)
}

// options are what recipes are compiled against, with a directory of recipes for those whose test files name none.
func options(recipes string) func(file, dir string) (Options, error) {
	return func(file, dir string) (Options, error) {
		files := registry.NewFiles(registry.Config{Recipe: file, Dir: cmp.Or(dir, recipes), MaxSource: 1 << 20})
		return Options{Options: compile.Options{Actions: actions(), MaxSource: 1 << 20, Recipes: files, Lenses: files}}, nil
	}
}

// write writes the files of an archive to a directory.
func write(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFiles runs the test files in testdata, all of whose tests pass but those whose name begins
// with "fails:": then the report of what differs contains the rest of the name.
func TestFiles(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(err, "no archives")
	}
	for _, name := range archives {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			dir := write(t, string(text))
			files, err := filepath.Glob(filepath.Join(dir, "*.test.yaml"))
			if err != nil || len(files) == 0 {
				t.Fatal(err, "no test files")
			}
			for _, file := range files {
				checkFile(t, file, dir)
			}
		})
	}
}

func checkFile(t *testing.T, file, dir string) {
	t.Helper()
	f, err := RunFile(t.Context(), file, Config{Actions: actions(), Options: options(filepath.Join(dir, "recipes")), Parallel: 4})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Diags) > 0 {
		t.Fatal(f.Format())
	}
	for _, r := range f.Results {
		text := r.Problem + "\n"
		for _, m := range r.Mismatches {
			text += m.String() + "\n"
		}
		text += strings.Join(r.Hints, "\n")
		want, fails := strings.CutPrefix(r.Test, "fails: ")
		switch {
		case fails && (r.Outcome != Failed || !strings.Contains(text, want)):
			t.Errorf("%s: %s: %s\n%s", file, r.Test, r.Outcome, text)
		case !fails && r.Outcome == Failed:
			t.Errorf("%s: %s\n%s", file, r.Test, text)
		}
	}
}
