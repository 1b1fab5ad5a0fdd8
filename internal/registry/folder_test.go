// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A folderFixture is a directory of recipes with its Folder.
type folderFixture struct {
	*fixture
	*Folder
	dir string
	now time.Time
}

func newFolderFixture(t *testing.T) *folderFixture {
	t.Helper()
	f := &folderFixture{fixture: inMemory(t), dir: t.TempDir(), now: time.Now()}
	f.begin()
	return f
}

// begin makes the Folder as a process does that starts.
func (f *folderFixture) begin() {
	f.Folder = NewFolder(FolderConfig{
		Recipes: f.Recipes, Account: "acme", Dir: f.dir, Ignore: []string{"roux.yaml"}, MaxSource: 1 << 20, Now: func() time.Time { return f.now },
	})
}

func (f *folderFixture) write(name string, text []byte) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), text, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// look looks until nothing changes and returns what came of it, as lines "file change
// name@version".
func (f *folderFixture) look(want ...string) (problems string) {
	f.t.Helper()
	var got []string
	for range 3 { // a change is read at the second look
		changes, err := f.Look(f.t.Context())
		if err != nil {
			f.t.Fatal(err)
		}
		for _, c := range changes {
			line := filepath.Base(c.File) + " " + c.Change
			if c.Version != nil {
				line += " " + c.Version.Name + "@" + c.Version.Version
			}
			if c.Lens != nil {
				line += " " + c.Lens.Lens + "@" + c.Lens.Version
			}
			if c.Newest != "" {
				line += " newest " + c.Newest
			}
			got = append(got, line)
			problems += c.Problems
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.t.Fatalf("it says\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), problems)
	}
	return problems
}

func (f *folderFixture) run(ref string) {
	f.t.Helper()
	c, err := f.Resolve(f.t.Context(), "acme", ref)
	if err == nil {
		err = f.MarkRan(f.t.Context(), "acme", &c.Version)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// A recipe in a folder that is broken, mended, changed after a run, changed back and removed.
func TestFolder(t *testing.T) {
	f := newFolderFixture(t)
	f.write("roux.yaml", []byte("concurrency: 3\n"))
	f.write("input.json", []byte(`{"documents": [1, 2]}`))
	f.write("greet.yaml", text("greet", "1.0.0", 1))
	f.look("greet.yaml registered greet@1.0.0")
	f.look()

	// It never ran: the text is put in its place.
	f.write("greet.yaml", text("greet", "1.0.0", 22))
	f.look("greet.yaml replaced greet@1.0.0")

	// A broken text is shown with its place, once, and the last valid one goes on.
	f.write("greet.yaml", []byte("name: greet\nversion: 1.0.0\nsteps: [{id: one, trnsform: {expression: '3'}}]\n"))
	said := f.look("greet.yaml broken greet@1.0.0")
	if at := filepath.Join(f.dir, "greet.yaml") + ":3:"; !strings.Contains(said, at) || !strings.Contains(said, "^~") {
		t.Errorf("it does not say where, %s:\n%s", at, said)
	}
	f.look()
	f.run("greet") // the last valid one
	f.write("greet.yaml", text("greet", "1.0.0", 22))
	f.look("greet.yaml found greet@1.0.0")

	// It has run, so another text gets the next version, and the name stands for it.
	f.write("greet.yaml", text("greet", "1.0.0", 333))
	f.look("greet.yaml registered greet@1.0.1")
	f.find("acme", "greet", "1.0.1")
	if v := f.find("acme", "greet@1.0.0", "1.0.0"); v.Status != StatusDeprecated {
		t.Errorf("the version before is %s", v.Status)
	}
	f.write("greet.yaml", text("greet", "1.0.0", 4444))
	f.look("greet.yaml replaced greet@1.0.1")

	// The text of before is the version of before.
	f.write("greet.yaml", text("greet", "1.0.0", 22))
	f.look("greet.yaml found greet@1.0.0")
	f.find("acme", "greet", "1.0.0")

	// A process that starts again finds it.
	f.begin()
	f.look("greet.yaml found greet@1.0.0")

	// What is removed is deprecated, and comes back with its file.
	if err := os.Remove(filepath.Join(f.dir, "greet.yaml")); err != nil {
		t.Fatal(err)
	}
	f.look("greet.yaml removed greet@1.0.0")
	if v := f.find("acme", "greet@1.0.0", "1.0.0"); v.Status != StatusDeprecated || v.Note != folderNote {
		t.Errorf("the version of a removed file is %s: %s", v.Status, v.Note)
	}
	f.write("greet.json", []byte(`{"name": "greet", "version": "2.0.0", "steps": [{"id": "one", "transform": {"expression": "5"}}]}`))
	f.look("greet.json registered greet@2.0.0")
}

// What others have registered is neither replaced nor deprecated.
func TestFolderLeavesOthersAlone(t *testing.T) {
	f := newFolderFixture(t)
	f.register("acme", text("greet", "1.0.0", 1))
	f.register("acme", text("greet", "2.0.0", 1))
	f.write("greet.yaml", text("greet", "1.0.0", 2))
	f.look("greet.yaml registered greet@1.0.1 newest 2.0.0")
	for _, version := range []string{"1.0.0", "2.0.0"} {
		if v := f.find("acme", "greet@"+version, version); v.Status != StatusActive || v.By != "ann" {
			t.Errorf("version %s is %s of %s", version, v.Status, v.By)
		}
	}
}

// A recipe names another one in a file that comes later; it is checked again with each change.
func TestFolderOfRecipesThatNameOthers(t *testing.T) {
	f := newFolderFixture(t)
	f.write("a.yaml", []byte("name: outer\nsteps: [{id: one, recipe: {ref: inner}}]\n"))
	f.look("a.yaml broken")
	f.write("b.yaml", text("inner", "", 1))
	f.look("a.yaml registered outer@0.0.0", "b.yaml registered inner@0.0.0")
	f.run("inner")
	f.write("b.yaml", text("inner", "", 22))
	f.look("b.yaml registered inner@0.0.1")
	c, err := f.Resolve(t.Context(), "acme", "outer")
	if err != nil || len(c.Plan.Registered) != 1 || c.Plan.Registered[0].Version != "0.0.1" {
		t.Errorf("the outer recipe runs %+v, %v", c, err)
	}
}

// Two files that are the same recipe: the second one is refused until it has a version of its
// own. A file that cannot be read as anything is told.
func TestFolderOfCopies(t *testing.T) {
	f := newFolderFixture(t)
	f.write("b.yaml", text("greet", "1.0.0", 1))
	f.look("b.yaml registered greet@1.0.0")
	f.write("a.yaml", text("greet", "1.0.0", 1))
	if said := f.look("a.yaml broken"); !strings.Contains(said, "two files are the recipe \"greet\" of version 1.0.0") {
		t.Error(said)
	}
	f.write("a.yaml", text("greet", "1.1.0", 1))
	f.look("a.yaml registered greet@1.1.0")
	f.write("c.yaml", []byte("name: [\n"))
	f.look("c.yaml broken")
	if _, err := NewFolder(FolderConfig{Recipes: f.Recipes, Dir: filepath.Join(f.dir, "none"), Now: time.Now}).Look(t.Context()); err == nil {
		t.Error("there is no such directory")
	}
}

func TestNextVersion(t *testing.T) {
	for version, want := range map[string]string{
		"0.0.0": "0.0.1", "1.2.9": "1.2.10", "1.0.0+build.7": "1.0.1", "1.0.0-rc.1": "1.0.0-rc.2", "1.0.0-rc": "1.0.0-rc.1",
		"1.0.18446744073709551615": "",
	} {
		if got := nextVersion(version); got != want {
			t.Errorf("%s is followed by %q, want %q", version, got, want)
		}
	}
}
