// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/lens"
	"github.com/roux-engine/roux/internal/store"
)

// X25: lenses are found in the directory of the registered recipes and in that beside the recipe;
// without a version the highest one counts.
func TestX25_LensesInFiles(t *testing.T) {
	dir := files(t, map[string]string{
		"work/a.yaml":             "name: a" + body,
		"work/lenses/two.yaml":    "lens: two\nversion: '9'\ntemplate: nine\n",
		"work/lenses/two-10.json": `{"lens": "two", "version": "10", "template": "ten"}`,
		"work/lenses/only.yml":    "lens: only\ntemplate: one\n",
		"work/lenses/new.yaml":    "lens: two\ntemplate: newest\n",
		"work/lenses/broken.yaml": "lens: broken\ntemplat: x\n",
		"work/lenses/note.yaml":   "name: note\n",
		"work/lenses/torn.yaml":   "lens: torn\ntemplate: [x\n",
		"work/lenses/w-1.yaml":    "lens: w\ntemplate: newest\n",
		"work/lenses/w-2.yaml":    "lens: w\nversion: v1\ntemplate: old\n",
		"work/lenses/twin.yaml":   "lens: twin\nversion: '1'\ntemplate: x\n",
		"work/lenses/same.yaml":   "lens: same\nversion: '1'\ntemplate: x\n",
		"shared/twin.yaml":        "lens: twin\nversion: '1'\ntemplate: y\n",
		"shared/same.yaml":        "lens: same\nversion: '1'\ntemplate: \"x\"\n",
		"shared/r.yaml":           "name: r" + body,
		"shared/lens.yaml":        "lens: shared\nversion: v2\ntemplate: s\n",
	})
	f := NewFiles(Config{Recipe: filepath.Join(dir, "work", "a.yaml"), Dir: filepath.Join(dir, "shared"), MaxSource: 1 << 20})
	for _, tt := range []struct {
		id, version, found, template string
		code                         fault.Code
		want                         string
	}{
		{"two", "", "11", "newest", "", ""},
		{"two", "10", "10", "ten", "", ""},
		{"two", "9", "9", "nine", "", ""},
		{"two", "11", "11", "newest", "", ""},
		{"only", "1", "1", "one", "", ""},
		{"shared", "", "v2", "s", "", ""},
		{"same", "", "1", "x", "", ""},
		{"w", "", "1", "newest", "", ""},
		{"w", "v1", "v1", "old", "", ""},
		{"w", "8", "", "", fault.LensNotFound, "it has v1, 1"},
		{"a-torn-one", "", "", "", fault.LensNotFound, filepath.Join("work", "lenses", "torn.yaml") + ":2"},
		{"two", "8", "", "", fault.LensNotFound, "it has 11, 10, 9"},
		{"onli", "", "", "", fault.LensNotFound, `is the lens "onli"`},
		{"broken", "", "", "", fault.LensNotFound, "broken.yaml:2:1: error RECIPE_INVALID/unknown-field"},
		{"twin", "", "", "", fault.Conflict, "two files are the lens"},
	} {
		l, err := f.Lens(tt.id, tt.version)
		switch {
		case tt.code != "":
			if wantCode(t, tt.id+"@"+tt.version, err, tt.code); err != nil && !strings.Contains(fault.Message(err), tt.want) {
				t.Errorf("%s@%s: %v, want %s", tt.id, tt.version, err, tt.want)
			}
		case err != nil || l.Version != tt.found || l.Template != tt.template || l.ID != tt.id:
			t.Errorf("%s@%s is %+v, %v", tt.id, tt.version, l, err)
		}
	}
	if ids := f.LensIDs(); !slices.Equal(ids, []string{"only", "same", "shared", "twin", "two", "w"}) {
		t.Errorf("the lenses are %q", ids)
	}
	// A lens is no broken recipe.
	if _, err := f.Find("lens", ""); err == nil || strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("lenses count as recipes: %v", err)
	}
	if names := f.Names(); !slices.Equal(names, []string{"r"}) {
		t.Errorf("recipes %q", names)
	}
	none := NewFiles(Config{Recipe: filepath.Join(dir, "x.yaml"), MaxSource: 1 << 20})
	if _, err := none.Lens("two", ""); !errors.Is(err, fault.LensNotFound) || !strings.Contains(err.Error(), "no directory ./recipes") {
		t.Errorf("without directories: %v", err)
	}
}

// A registered recipe is compiled again when a lens of its account has changed, and of no other one.
func TestX25_ResolvedAgain(t *testing.T) {
	s := inMemory(t)
	s.register("acme", text("digest", "1.0.0", 1))
	resolve := func() *Compiled {
		t.Helper()
		c, err := s.Resolve(t.Context(), "acme", "digest")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	put := func(account, template string) {
		t.Helper()
		if _, _, err := s.Lenses().Put(t.Context(), account, &lens.Document{Lens: "a", Template: template}, store.AnyRevision, ""); err != nil {
			t.Fatal(err)
		}
	}
	put("acme", "one")
	before := resolve()
	put("acme", "one")
	put("rival", "one")
	if resolve().Plan != before.Plan {
		t.Error("compiled again although nothing has changed")
	}
	before = resolve()
	if put("acme", "two"); resolve().Plan == before.Plan {
		t.Error("a put: not compiled again")
	}
	before = resolve()
	if _, err := s.Lenses().SetCurrent(t.Context(), "acme", "a", "1", store.AnyRevision); err != nil || resolve().Plan == before.Plan {
		t.Errorf("another current version: not compiled again, %v", err)
	}
	before = resolve()
	if err := s.Lenses().Delete(t.Context(), "acme", "a"); err != nil || resolve().Plan == before.Plan {
		t.Errorf("deleted: not compiled again, %v", err)
	}
}

// A Folder puts the lenses in its files, the highest version last, and says what is wrong in them.
func TestX25_FolderWithLenses(t *testing.T) {
	f := newFolderFixture(t)
	if err := os.Mkdir(filepath.Join(f.dir, lensDir), 0o755); err != nil {
		t.Fatal(err)
	}
	f.write("a.yaml", []byte("lens: a\nversion: '10'\ntemplate: ten\n"))
	f.write("lenses/a-9.yaml", []byte("lens: a\nversion: '9'\ntemplate: nine\n"))
	f.write("lenses/b.yaml", []byte("lens: b\ntemplat: x\n"))
	f.write("lenses/recipe.yaml", []byte("name: no-recipe\nstepz: []\n"))
	f.write("r.yaml", text("r", "1.0.0", 1))
	problems := f.look("b.yaml broken", "a-9.yaml registered a@9", "a.yaml registered a@10", "r.yaml registered r@1.0.0")
	if !strings.Contains(problems, `did you mean "template"?`) || strings.Contains(problems, "stepz") {
		t.Errorf("the problems are %s", problems)
	}
	if v, err := f.Lenses().Version(t.Context(), "acme", "a", ""); err != nil || v.Version != "10" {
		t.Errorf("the current version is %+v, %v", v, err)
	}
	f.write("lenses/b.yaml", []byte("lens: b\ntemplate: mended\n"))
	f.look("b.yaml registered b@1")
	f.write("lenses/a-9.yaml", []byte("lens: a\nversion: '9'\ntemplate: changed\n"))
	if problems := f.look("a-9.yaml broken"); !strings.Contains(problems, "a-9.yaml: version 9 of the lens \"a\" has another content\n  A version never changes") {
		t.Errorf("the problems are %s", problems)
	}
	f.write("lenses/c.yaml", []byte("lens: c\ntemplate: [x\n"))
	if problems := f.look("c.yaml broken"); !strings.Contains(problems, "c.yaml:2") {
		t.Errorf("the problems are %s", problems)
	}
	f.write("lenses/c.yaml", []byte("lens: c\ntemplate: x\n"))
	f.look("c.yaml registered c@1")
	if err := os.Remove(filepath.Join(f.dir, "lenses", "b.yaml")); err != nil {
		t.Fatal(err)
	}
	f.look()
	if _, err := f.Lenses().Version(t.Context(), "acme", "b", "1"); err != nil {
		t.Errorf("the lens has gone with its file: %v", err)
	}
}

// A file that was a recipe, or cannot be read and counts as one, becomes a lens when it is rewritten.
func TestX25_FilesBecomeLenses(t *testing.T) {
	f := newFolderFixture(t)
	f.write("a.yaml", []byte("lens: a\ntemplate: [x\n"))
	f.write("r.yaml", text("r", "1.0.0", 1))
	f.look("a.yaml broken", "r.yaml registered r@1.0.0")
	f.write("a.yaml", []byte("lens: a\ntemplate: x\n"))
	f.write("r.yaml", []byte("lens: r\ntemplate: x\n"))
	f.look("r.yaml removed r@1.0.0", "a.yaml registered a@1", "r.yaml registered r@1")
	list, err := f.Versions(t.Context(), "acme", "r")
	if err != nil || len(list) != 1 || list[0].Status != StatusDeprecated {
		t.Errorf("the recipe is %+v, %v", list, err)
	}
	f.write("r.yaml", text("r", "1.0.0", 1))
	f.look("r.yaml found r@1.0.0")
}

// failing are records that cannot be written as long as err is set.
type failing struct {
	kept
	err error
}

type kept interface{ lens.Records }

func (r *failing) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.kept.PutRecords(ctx, changes...)
}

// A lens that could not be put for another reason than its text is put later, and that is said once.
func TestX25_FolderPutsAgain(t *testing.T) {
	f := newFolderFixture(t)
	records := &failing{kept: f.Recipes.cfg.Records, err: fault.New(fault.ServiceUnavailable, "the disk is full")}
	f.Recipes.lenses = lens.New(lens.Config{Records: records, Now: time.Now, Changed: func(string) {}})
	f.write("a.yaml", []byte("lens: a\ntemplate: old\n"))
	f.write("b.yaml", []byte("lens: b\ntemplate: x\n"))
	f.write("c.yaml", []byte("lens: c\ntemplate: x\n"))
	if problems := f.look("a.yaml broken", "b.yaml broken", "c.yaml broken"); !strings.Contains(problems, "the disk is full") {
		t.Errorf("the problems are %s", problems)
	}
	f.write("a.yaml", []byte("lens: a\ntemplate: new\n"))
	if err := os.Remove(filepath.Join(f.dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	f.look("a.yaml broken")
	records.err = nil
	f.look("a.yaml registered a@1", "c.yaml registered c@1")
	if _, d, err := f.Lenses().Get(t.Context(), "acme", "a", ""); err != nil || d.Template != "new" {
		t.Errorf("the lens is %+v, %v", d, err)
	}
	if _, err := f.Lenses().Lens(t.Context(), "acme", "b"); !errors.Is(err, fault.LensNotFound) {
		t.Errorf("a file that has gone was put: %v", err)
	}
}

// X22: a step finds the lenses of its account only, and the current version at each start.
func TestX22_StepsNameLenses(t *testing.T) {
	s := inMemory(t)
	object := json.RawMessage(`{"type":"object"}`)
	ask := action.Action{Name: "ask", Version: "1.0.0", Input: object, Output: object, Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, nil
	}}
	s.cfg.Actions = func(string) catalogue.Actions { return catalogue.New(&ask) }
	put := func(template string) {
		t.Helper()
		if _, _, err := s.Lenses().Put(t.Context(), "acme", &lens.Document{Lens: "tone", Template: template}, store.AnyRevision, ""); err != nil {
			t.Fatal(err)
		}
	}
	prompt := func(name string) string {
		t.Helper()
		c, err := s.Resolve(t.Context(), "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		return c.Plan.Steps[0].Prompt.Template
	}
	text := func(name, lens string) []byte {
		return []byte("name: " + name + "\nversion: 1.0.0\nsteps: [{id: a, action: {name: ask, lens: " + lens + "}}]\n")
	}
	put("one")
	s.register("acme", text("newest", "tone"))
	s.register("acme", text("fixed", "{id: tone, version: '1'}"))
	if got := prompt("newest"); got != "one" {
		t.Errorf("the prompt is %q", got)
	}
	put("two")
	if newest, fixed := prompt("newest"), prompt("fixed"); newest != "two" || fixed != "one" {
		t.Errorf("the prompts are %q and %q", newest, fixed)
	}
	_, _, diags, err := s.Register(t.Context(), "rival", Draft{Text: text("newest", "tone")})
	if wantCode(t, "a lens of another account", err, fault.LensNotFound); len(diags) != 1 || strings.Contains(fmt.Sprint(diags), "did you mean") {
		t.Errorf("diagnostics %v", diags)
	}
}
