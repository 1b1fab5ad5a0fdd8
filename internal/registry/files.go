// SPDX-License-Identifier: Apache-2.0

// Package registry finds the recipes and lenses that steps name.
//
// It decides which text a path or a name means: a file beside the recipe that names it,
// or the newest registered version that fits. It compiles nothing and never reads a file
// outside of the directories that it was given.
package registry

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/userfile"
)

const (
	// maxFiles is how many recipes a directory may register.
	maxFiles = 1000
	// maxBytes is how many bytes they may have together.
	maxBytes = 64 << 20
)

// Files finds recipes in files: those in the directory of one recipe or below it, and
// those that a directory registers by their names and versions. It finds lenses in the files of
// that directory, and of the directory lenses beside the recipe. It implements
// [compile.Recipes] and [catalogue.Lenses]. It reads the directory when a name is first looked up, so it is made
// anew for each compilation. It is not safe for concurrent use.
type Files struct {
	cfg   Config
	given map[string]place // the texts that were returned, by File

	scanned    bool
	registered []entry
	unreadable []string
	err        error

	lenses *lensFiles // nil = none was looked up yet
	finds
}

// Config is what Files is made of.
type Config struct {
	// Recipe is the path of the recipe that is compiled, as its diagnostics have it. For a
	// recipe without a file it is a name in the working directory.
	Recipe string
	// Dir is the directory whose recipes are registered. "" = none are.
	Dir string
	// NoDir is why that directory cannot be had; nil = it can. What is in no other place is then not found for this reason.
	NoDir error
	// MaxSource is how many bytes a recipe may have. Required.
	MaxSource int64
	// Dirs are the directories whose files recipes may name, by a path from the recipe that
	// names it or from Project. nil = the directory of Recipe, and no path from Project.
	Dirs    []string
	Project string
	// NoRefs refuses to find registered recipes.
	NoRefs bool
}

// A place is a file and the directory that it must not lead out of.
type place struct{ dir, name string }

func (p place) file() string { return filepath.Join(p.dir, filepath.FromSlash(p.name)) }

// An entry is a registered recipe.
type entry struct {
	place
	name, id, version string
	draft             bool
	text              []byte
}

// NewFiles returns Files. It reads nothing yet.
func NewFiles(cfg Config) *Files { return &Files{cfg: cfg, given: map[string]place{}} }

// TestEndings are those of the names of files with tests of recipes, which are no recipes.
var TestEndings = []string{".test.yaml", ".test.yml", ".test.json"}

// IsTest reports whether a file has tests, by its name.
func IsTest(file string) bool {
	name := strings.ToLower(filepath.Base(file))
	return slices.ContainsFunc(TestEndings, func(end string) bool { return strings.HasSuffix(name, end) })
}

// File implements [compile.Recipes].
func (f *Files) File(from, name string) (*compile.Text, error) {
	text, err := f.named(from, name)
	if err == nil {
		f.include(from, name, text)
	}
	return text, err
}

// named returns the recipe at a path that another one names.
func (f *Files) named(from, name string) (*compile.Text, error) {
	at, ok := f.given[from]
	if !ok {
		at = place{filepath.Dir(f.cfg.Recipe), filepath.Base(f.cfg.Recipe)}
	}
	if path.IsAbs(name) || filepath.IsAbs(name) {
		return nil, fault.New(fault.RecipeNotFound, "%q is an absolute path: want one relative to %s", name, at.file())
	}
	if f.cfg.Dirs != nil {
		return f.allowed(at, name)
	}
	to := place{at.dir, path.Join(path.Dir(at.name), name)}
	if !filepath.IsLocal(filepath.FromSlash(to.name)) {
		return nil, fault.New(fault.RecipeNotFound, "Path traversal not allowed: %q leads out of the directory of the recipe, %s", name, at.dir)
	}
	return f.file(to)
}

// allowed returns the recipe at a path, which begins at the recipe that names it or at the
// project, and leads into one of the directories whose files may be named (X234). It is
// opened below that directory, so that no link leads out.
func (f *Files) allowed(from place, name string) (*compile.Text, error) {
	if slices.Contains(strings.Split(filepath.ToSlash(name), "/"), "..") {
		return nil, fault.New(fault.RecipeNotFound, "Path traversal not allowed: %q has \"..\": write the path from %s", name, f.cfg.Project)
	}
	var missing error
	for _, dir := range []string{filepath.Join(from.dir, filepath.FromSlash(path.Dir(from.name))), f.cfg.Project} {
		to, ok := f.below(filepath.Join(dir, filepath.FromSlash(name)))
		if !ok {
			continue
		}
		text, err := f.file(to)
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
		missing = cmp.Or(missing, err)
	}
	if missing != nil {
		return nil, missing
	}
	return nil, fault.New(fault.RecipeNotFound, "Pipeline source not in allowed directories: %q is in none of %s (allowed_pipeline_dirs)", name, strings.Join(f.cfg.Dirs, ", "))
}

// below returns the place of a file in the first of the directories that has it below it.
func (f *Files) below(file string) (place, bool) {
	full, err := filepath.Abs(file)
	if err != nil {
		return place{}, false
	}
	for _, dir := range f.cfg.Dirs {
		home, err := filepath.Abs(dir)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(home, full); err == nil && rel != "." && filepath.IsLocal(rel) {
			return place{dir, filepath.ToSlash(rel)}, true
		}
	}
	return place{}, false
}

func (f *Files) file(p place) (*compile.Text, error) {
	text, err := f.read(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.RecipeNotFound, err, "Pipeline file not found: %s", fault.Message(err))
	}
	if err != nil {
		return nil, err
	}
	return f.give(p, text), nil
}

func (f *Files) read(p place) ([]byte, error) {
	text, err := userfile.ReadWithin(p.dir, p.name, f.cfg.MaxSource, fault.RecipeNotFound)
	if errors.Is(err, fault.FileTooLarge) {
		return nil, fault.New(fault.RecipeInvalid, "%s, the limit of a recipe: --max-source raises it up to 16MiB", fault.Message(err))
	}
	return text, err
}

func (f *Files) give(p place, text []byte) *compile.Text {
	f.given[p.file()] = p
	return &compile.Text{File: p.file(), Data: text}
}

// Find implements [compile.Recipes]. A recipe is found by its name or its id. Drafts are
// not found.
func (f *Files) Find(name, version string) (*compile.Text, error) {
	if f.cfg.NoRefs {
		return nil, switchedOff(name)
	}
	if err := cmp.Or(f.cfg.NoDir, f.scan()); err != nil {
		return nil, err
	}
	var named, fitting []entry
	for _, e := range f.registered {
		if e.name == name || e.id != "" && e.id == name {
			named = append(named, e)
			if !e.draft && catalogue.Admits(version, e.version) {
				fitting = append(fitting, e)
			}
		}
	}
	slices.SortStableFunc(fitting, newestFirst)
	for _, e := range named {
		if other := named[0]; e.name != other.name {
			return nil, fault.New(fault.Conflict, "%q is the name or id of two recipes: %q in %s and %q in %s", name, other.name, other.file(), e.name, e.file())
		}
	}
	switch {
	case len(fitting) == 0:
		return nil, f.notFound(name, version, named)
	case len(fitting) > 1 && catalogue.CompareVersions(fitting[0].version, fitting[1].version) == 0:
		return nil, fault.New(fault.Conflict, "two files are the recipe %q of version %s: %s and %s", name, fitting[0].version, fitting[0].file(), fitting[1].file())
	}
	text := f.give(fitting[0].place, fitting[0].text)
	f.note(Found{FoundRecipe, join(name, version), fitting[0].name, fitting[0].version, sha256.Sum256(text.Data), nil}, text.File)
	return text, nil
}

// switchedOff refuses to look for a registered recipe (X236).
func switchedOff(name string) error {
	return fault.New(fault.RecipeNotFound, "the recipe %q is not looked for, because enable_pipeline_registry is false: have it inline, or in a file beside this one", name)
}

func newestFirst(a, b entry) int { return catalogue.CompareVersions(b.version, a.version) }

func (f *Files) notFound(name, version string, named []entry) error {
	var has []string
	slices.SortStableFunc(named, newestFirst)
	for _, e := range named {
		word := e.version
		if e.draft {
			word += " (a draft)"
		}
		has = append(has, word)
	}
	switch {
	case f.cfg.Dir == "":
		return fault.New(fault.RecipeNotFound, "no recipe %q is registered: there is no directory ./recipes; --recipes names another one", name)
	case len(has) > 0 && version == "":
		return fault.New(fault.RecipeNotFound, "the recipe %q in %s has no version that runs: it has %s", name, f.cfg.Dir, strings.Join(has, ", "))
	case len(has) > 0:
		return fault.New(fault.RecipeNotFound, "the recipe %q in %s has no version %s: it has %s", name, f.cfg.Dir, version, strings.Join(has, ", "))
	case len(f.unreadable) > 0:
		return fault.New(fault.RecipeNotFound, "no recipe %q is registered in %s; %s cannot be read as a recipe", name, f.cfg.Dir, strings.Join(f.unreadable[:min(len(f.unreadable), 5)], ", "))
	}
	return fault.New(fault.RecipeNotFound, "no recipe %q is registered in %s", name, f.cfg.Dir)
}

// Names implements [compile.Recipes]. It lists names and ids.
func (f *Files) Names() (names []string) {
	if f.cfg.NoRefs || f.scan() != nil {
		return nil
	}
	for _, e := range f.registered {
		names = append(names, e.name)
		if e.id != "" {
			names = append(names, e.id)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// scan reads the directory of registered recipes, once. A file that is not a recipe is
// left out: the directory may hold other files.
func (f *Files) scan() error {
	if f.scanned || f.cfg.Dir == "" {
		return f.err
	}
	f.scanned = true
	names, err := userfile.ListWithin(f.cfg.Dir, maxFiles, ".yaml", ".yml", ".json")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("there is no such directory")
		}
		f.err = fault.Wrap(fault.RecipeNotFound, err, "the recipes in %s cannot be read: %v", f.cfg.Dir, err)
		return f.err
	}
	left := int64(maxBytes)
	for _, name := range names {
		if IsTest(name) {
			continue
		}
		p := place{f.cfg.Dir, name}
		text, err := f.read(p)
		if err != nil {
			f.unreadable = append(f.unreadable, name)
			continue
		}
		if left -= int64(len(text)); left < 0 {
			f.err = fault.New(fault.RecipeInvalid, "the recipes in %s have more than %d bytes together", f.cfg.Dir, maxBytes)
			return f.err
		}
		if isLensText(p.file(), text) {
			continue
		}
		r, src, _ := dialect.Parse(p.file(), text, form.Options{MaxBytes: int(f.cfg.MaxSource)})
		if r == nil {
			r = src.Recovered() // whoever names it will see what is wrong in it
		}
		if r == nil || r.Name == "" {
			f.unreadable = append(f.unreadable, name)
			continue
		}
		f.registered = append(f.registered, entry{p, r.Name, r.ID, cmp.Or(r.Version, unversioned), r.Status == "draft", text})
	}
	return nil
}

var _ compile.Recipes = (*Files)(nil)
