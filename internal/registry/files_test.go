// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

const body = "\nsteps: [{transform: {expression: '1'}}]\n"

// files writes files and returns their directory.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFind: a recipe is found by its name or id; the newest version that fits counts, a
// draft or a pre-release does not.
func TestFind(t *testing.T) {
	dir := files(t, map[string]string{
		"a1.yaml":     "name: a\nversion: 1.2.0" + body,
		"a2.yml":      "name: a\nversion: 1.10.0\nstatus: deprecated" + body,
		"a3.json":     `{"name": "a", "version": "2.0.0-rc.1", "steps": [{"transform": {"expression": "1"}}]}`,
		"a4.yaml":     "name: a\nversion: 3.0.0\nstatus: draft" + body,
		"b.yaml":      "name: b\nid: recipe_b" + body,
		"c1.yaml":     "name: c\nversion: 1.0.0" + body,
		"c2.yaml":     "name: c\nversion: 1.0.0+x" + body,
		"c3.yaml":     "name: c\nversion: 1.0.1" + body,
		"sub/d.yaml":  "name: d" + body,
		"e.txt":       "name: e" + body,
		"f.yaml":      "name: f" + body,
		"g.yaml":      "name: g\nid: f\nversion: 2.0.0" + body,
		"broken.yaml": "name: broken\nsteps: [{transform: {expresion: '1'}}]\n",
		"list.yaml":   "[1, 2]\n",
	})
	f := NewFiles(Config{Recipe: "x.yaml", Dir: dir, MaxSource: 1 << 20})
	for _, tt := range []struct {
		name, version, want string
		code                fault.Code
	}{
		{"a", "", "a2.yml", ""},
		{"a", "1", "a2.yml", ""},
		{"a", "1.2", "a1.yaml", ""},
		{"a", "2", "", fault.RecipeNotFound},
		{"a", "2.0.0-rc.1", "a3.json", ""},
		{"a", "3", "", fault.RecipeNotFound},
		{"recipe_b", "", "b.yaml", ""},
		{"b", "0.0.0", "b.yaml", ""},
		{"c", "1.0.0", "", fault.Conflict},
		{"c", "1", "c3.yaml", ""}, // those of the same version are older
		{"d", "", "", fault.RecipeNotFound},
		{"f", "", "", fault.Conflict}, // one is called so, the other has the id
		{"g", "", "g.yaml", ""},
		{"e", "", "", fault.RecipeNotFound},
		{"broken", "", "broken.yaml", ""},
		{"", "", "", fault.RecipeNotFound},
	} {
		text, err := f.Find(tt.name, tt.version)
		got := ""
		if text != nil {
			got = filepath.Base(text.File)
		}
		if got != tt.want || fault.CodeOf(err) != tt.code {
			t.Errorf("%s@%s is %q, %v; want %q, %s", tt.name, tt.version, got, err, tt.want, tt.code)
		}
	}
	if got := f.Names(); !slices.Equal(got, []string{"a", "b", "broken", "c", "f", "g", "recipe_b"}) {
		t.Errorf("names %q", got)
	}
	// What a registered recipe names is relative to its own file.
	if _, err := f.File(filepath.Join(dir, "a1.yaml"), "sub/d.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := NewFiles(Config{Recipe: "x.yaml", MaxSource: 1}).Find("a", ""); !strings.Contains(fault.Message(err), "--recipes") {
		t.Errorf("without a directory: %v", err)
	}
}

// TestDirectoryLimits: a directory of very many or very large files is refused, one with
// a file that is too large is not.
func TestDirectoryLimits(t *testing.T) {
	many := map[string]string{}
	for i := range maxFiles + 1 {
		many[fmt.Sprintf("%d.yaml", i)] = "name: a" + body
	}
	if _, err := NewFiles(Config{Dir: files(t, many), MaxSource: 1 << 20}).Find("a", ""); fault.CodeOf(err) != fault.RecipeNotFound || !strings.Contains(err.Error(), "1001") {
		t.Errorf("%d files: %v", len(many), err)
	}
	f := NewFiles(Config{Dir: files(t, map[string]string{"a.yaml": "name: a" + body, "b.yaml": strings.Repeat("#", 1000)}), MaxSource: 999})
	if _, err := f.Find("a", ""); err != nil {
		t.Errorf("beside a file that is too large: %v", err)
	}
}

// TestFileStaysInside: a path is relative to the recipe that names it, and does not lead
// out of the directory of the outermost one.
func TestFileStaysInside(t *testing.T) {
	dir := files(t, map[string]string{
		"outside.yaml": "name: o" + body, "in/main.yaml": "name: m" + body, "in/sub/a.yaml": "name: a" + body, "in/sub/b.yaml": "name: b" + body,
	})
	main := filepath.Join(dir, "in", "main.yaml")
	if err := os.Symlink("../outside.yaml", filepath.Join(dir, "in", "link.yaml")); err != nil {
		t.Skip("making links needs a privilege on Windows: " + err.Error())
	}
	if err := os.Symlink("sub/a.yaml", filepath.Join(dir, "in", "near.yaml")); err != nil {
		t.Fatal(err)
	}
	f := NewFiles(Config{Recipe: main, MaxSource: 1 << 20})
	a, err := f.File(main, "./sub/a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, name string
		ok         bool
	}{
		{main, "sub/b.yaml", true},
		{main, "near.yaml", true},
		{a.File, "b.yaml", true},
		{a.File, "../main.yaml", true},
		{a.File, "../../outside.yaml", false},
		{main, "../outside.yaml", false},
		{main, "sub/../../outside.yaml", false},
		{main, "link.yaml", false},
		{main, filepath.Join(dir, "outside.yaml"), false},
		{main, "/outside.yaml", false},
		{main, "/sub/b.yaml", false},
		{main, "sub", false},
		{main, "", false},
		{main, "gone.yaml", false},
	} {
		text, err := f.File(tt.from, tt.name)
		if (err == nil) != tt.ok {
			t.Errorf("%s from %s: %v, %v", tt.name, tt.from, text, err)
		}
		if !tt.ok && fault.CodeOf(err) != fault.RecipeNotFound {
			t.Errorf("%s: %v, want %s", tt.name, err, fault.RecipeNotFound)
		}
	}
	if b, err := f.File(a.File, "../sub/./a.yaml"); err != nil || b.File != a.File {
		t.Errorf("one file has two names: %v, %v", b, err)
	}
}

// TestX234_AllowedDirs: where directories are named, only their files are read, by a path from the
// recipe or from the project, without .. and without links that lead out.
func TestX234_AllowedDirs(t *testing.T) {
	dir := files(t, map[string]string{
		"main.yaml": "name: m" + body, "secret.yaml": "name: s" + body,
		"pipelines/a.yaml": "name: a" + body, "pipelines/sub/b.yaml": "name: b" + body, "shared/c.yaml": "name: c" + body, "pipelines2/d.yaml": "name: d" + body,
	})
	if err := os.Symlink("../secret.yaml", filepath.Join(dir, "shared", "link.yaml")); err != nil {
		t.Skip("making links needs a privilege on Windows: " + err.Error())
	}
	main := filepath.Join(dir, "main.yaml")
	f := NewFiles(Config{
		Recipe: main, MaxSource: 1 << 20, Project: dir, Dirs: []string{filepath.Join(dir, "pipelines"), filepath.Join(dir, "shared")},
	})
	a, err := f.File(main, "./pipelines/a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const traversal, outside, missing = "Path traversal not allowed", "Pipeline source not in allowed directories", "Pipeline file not found"
	for _, tt := range []struct{ from, name, want string }{
		{a.File, "sub/b.yaml", ""},
		{a.File, "shared/c.yaml", ""},
		{a.File, "pipelines/sub/b.yaml", ""},
		{a.File, "../shared/c.yaml", traversal},
		{main, "pipelines/../secret.yaml", traversal},
		{main, "secret.yaml", outside},
		{main, "pipelines2/d.yaml", outside},
		{main, "pipelines", outside},
		{main, "shared/gone.yaml", missing},
		{main, "shared/link.yaml", "shared"},
		{main, "/etc/hosts", "absolute"},
	} {
		text, err := f.File(tt.from, tt.name)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s from %s: %v", tt.name, tt.from, err)
		case tt.want != "" && (fault.CodeOf(err) != fault.RecipeNotFound || !strings.Contains(fault.Message(err), tt.want)):
			t.Errorf("%s from %s: %v, %v; want %q", tt.name, tt.from, text, err, tt.want)
		}
	}
	if again, err := f.File(main, "pipelines/a.yaml"); err != nil || again.File != a.File {
		t.Errorf("one file has two names: %v, %v", again, err)
	}
}

// TestX236_NoRegistry: with the registry switched off no name is found, and the reason names the setting.
func TestX236_NoRegistry(t *testing.T) {
	f := NewFiles(Config{Recipe: "x.yaml", Dir: files(t, map[string]string{"a.yaml": "name: a" + body}), MaxSource: 1 << 20, NoRefs: true})
	if _, err := f.Find("a", ""); fault.CodeOf(err) != fault.RecipeNotFound || !strings.Contains(fault.Message(err), "enable_pipeline_registry") {
		t.Errorf("found: %v", err)
	}
	if names := f.Names(); names != nil {
		t.Errorf("names %q", names)
	}
}
