// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/lens"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/userfile"
)

// lensDir is the directory beside a recipe whose files are lenses.
const lensDir = "lenses"

// lensFiles are the lenses in files.
type lensFiles struct {
	byID   map[string][]lensFile // those without a version first, then the highest
	dirs   []string              // that were looked in
	broken []string              // files with the reason why they are none
	err    error
}

// A lensFile is a version of a lens.
type lensFile struct {
	file string
	doc  *lens.Document
	text [sha256.Size]byte // hash of the text
}

// Lens implements [catalogue.Lenses]. The current version of a lens is the one that would be put last: one
// that states none, or else the highest.
func (f *Files) Lens(id, version string) (*catalogue.Lens, error) {
	all := f.scanLenses()
	if all.err != nil {
		return nil, all.err
	}
	list := all.byID[id]
	fits := func(l lensFile) bool { return version == "" || l.doc.Version == version }
	at := slices.IndexFunc(list, fits)
	switch {
	case len(list) == 0 && f.cfg.NoDir != nil:
		return nil, f.cfg.NoDir
	case len(list) == 0:
		return nil, all.notFound(id)
	case at < 0:
		return nil, lens.NoVersion(id, version, versionsOf(list))
	}
	found := list[at]
	for _, other := range list[at+1:] {
		if other.doc.Version == found.doc.Version && !other.doc.Same(found.doc) {
			return nil, fault.New(fault.Conflict, "two files are the lens %q of version %s: %s and %s", id, found.doc.Version, found.file, other.file)
		}
	}
	f.note(Found{FoundLens, join(id, version), id, found.doc.Version, found.text, nil}, "")
	return found.doc.Compiled(), nil
}

// LensIDs implements [catalogue.Lenses].
func (f *Files) LensIDs() []string { return slices.Sorted(maps.Keys(f.scanLenses().byID)) }

func versionsOf(list []lensFile) (versions []string) {
	for _, l := range list {
		versions = append(versions, l.doc.Version)
	}
	return slices.Compact(versions)
}

// notFound is the error for an id that no file has. Whoever compiles names a near one; else a broken file
// may be the one that was meant.
func (l *lensFiles) notFound(id string) error {
	text := "no file in " + strings.Join(l.dirs, " or ")
	if len(l.dirs) == 0 {
		text = "there is no directory ./recipes, and none lenses beside the recipe: no file"
	}
	text += " is the lens %q"
	if len(l.broken) > 0 && spell.Nearest(id, slices.Collect(maps.Keys(l.byID))) == "" {
		return fault.New(fault.LensNotFound, text+"; %s", id, strings.Join(l.broken[:min(len(l.broken), 5)], "; "))
	}
	return fault.New(fault.LensNotFound, text, id)
}

// scanLenses reads the lenses, once.
func (f *Files) scanLenses() *lensFiles {
	if f.lenses != nil {
		return f.lenses
	}
	f.lenses = &lensFiles{byID: map[string][]lensFile{}}
	left := int64(maxBytes)
	beside := filepath.Join(filepath.Dir(f.cfg.Recipe), lensDir)
	for _, dir := range []string{f.cfg.Dir, beside} {
		if dir == "" || dir == beside && slices.Contains(f.lenses.dirs, dir) {
			continue
		}
		f.lenses.err = cmp.Or(f.lenses.err, f.lenses.read(dir, dir == beside, &left))
	}
	for _, list := range f.lenses.byID {
		slices.SortStableFunc(list, func(a, b lensFile) int { return lens.Order(b.doc, a.doc) })
		number(list)
	}
	return f.lenses
}

// read reads the lenses in a directory, which may be missing if it is optional.
func (l *lensFiles) read(dir string, optional bool, left *int64) error {
	names, err := userfile.ListWithin(dir, maxFiles, ".yaml", ".yml", ".json")
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(fault.LensNotFound, err, "the lenses in %s cannot be read: %v", dir, err)
	}
	l.dirs = append(l.dirs, dir)
	for _, name := range names {
		file := filepath.Join(dir, filepath.FromSlash(name))
		text, err := userfile.ReadWithin(dir, name, lens.MaxDocument, fault.LensNotFound)
		own := filepath.Base(dir) == lensDir
		switch {
		case err != nil && own:
			l.broken = append(l.broken, file+": "+fault.Message(err))
			continue
		case err != nil || !lens.Is(file, text) && (!own || !lens.Unreadable(file, text)):
			continue // the directory may hold other files
		}
		if *left -= int64(len(text)); *left < 0 {
			return fault.New(fault.RecipeInvalid, "the lenses in %s have more than %d bytes together", strings.Join(l.dirs, " and "), maxBytes)
		}
		doc, _, diags := lens.Parse(file, text)
		if doc == nil {
			l.broken = append(l.broken, diags[0].String())
			continue
		}
		l.byID[doc.Lens] = append(l.byID[doc.Lens], lensFile{file, doc, sha256.Sum256(text)})
	}
	return nil
}

// number gives the versions of a lens that state none the numbers that they would get if they were
// put after the others.
func number(list []lensFile) {
	next := lens.Next(versionsOf(list))
	for _, l := range list {
		l.doc.Version = cmp.Or(l.doc.Version, next)
	}
}

// LensVersion is a version of a lens that a Folder has put.
type LensVersion = lens.Version

// accountLenses are the lenses that the recipes of accounts may name.
type accountLenses = *lens.Lenses

func newAccountLenses(cfg *RecipesConfig, changed func(account string)) accountLenses {
	return lens.New(lens.Config{Records: cfg.Records, Now: cfg.Now, Changed: changed})
}

// Lenses returns the lenses that the recipes may name.
func (r *Recipes) Lenses() *lens.Lenses { return r.lenses }

func isLensText(file string, text []byte) bool { return lens.Is(file, text) }

// A lensText is the text of a lens in a file that a Folder has read.
type lensText struct {
	name, shown string
	text        []byte
	unread      error  // why there is no text
	problem     string // why it could not be put at an earlier look
	refused     bool   // by Admit
}

// inLenses reports whether a file of a Folder is in the directory of the lenses.
func inLenses(name string) bool { return strings.HasPrefix(name, lensDir+"/") }

// addLenses adds the files of the directory of the lenses, if there is one.
func (f *Folder) addLenses(stamps map[string]userfile.Stamp) error {
	dir := filepath.Join(f.cfg.Dir, lensDir)
	more, err := userfile.StampsWithin(dir, maxFiles, ".yaml", ".yml", ".json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.LensNotFound, err, "the lenses in %s cannot be read: %v", dir, err)
	}
	for name, s := range more {
		stamps[lensDir+"/"+name] = s
	}
	return nil
}

// isLens reports whether a file that was read is that of a lens: in the directory of the lenses also one
// that cannot be read.
func isLens(name, shown string, text []byte, err error) bool {
	if inLenses(name) && (err != nil || lens.Unreadable(shown, text)) {
		return true
	}
	return lens.Is(shown, text)
}

// forget drops the text of a file that was to be put as a lens.
func (f *Folder) forget(name string) {
	f.texts = slices.DeleteFunc(f.texts, func(t *lensText) bool { return t.name == name })
}

// putLenses puts the lenses that are new, of each the highest version last, so that it is the current
// one. Those that could not be put for another reason than what they are stay for the next look, and are
// in out again only when the reason is another one. Those that were refused wait for Again.
func (f *Folder) putLenses(ctx context.Context) (out []FolderChange) {
	var files []lensFile
	texts := map[string]*lensText{}
	var stay []*lensText
	for _, t := range f.texts {
		if t.refused && !f.again {
			stay = append(stay, t)
			continue
		}
		texts[t.shown] = t
		if t.unread != nil {
			out = append(out, FolderChange{File: t.shown, Change: FolderBroken, Problems: problemOf(t.shown, t.unread)})
			continue
		}
		doc, src, diags := lens.Parse(t.shown, t.text)
		if doc != nil {
			files = append(files, lensFile{t.shown, doc, sha256.Sum256(t.text)})
			continue
		}
		c := FolderChange{File: t.shown, Change: FolderBroken}
		for _, d := range diags {
			c.Problems += src.Format(d)
		}
		out = append(out, c)
	}
	f.texts = stay
	slices.SortStableFunc(files, func(a, b lensFile) int { return lens.Order(a.doc, b.doc) })
	for _, file := range files {
		if c := f.putLens(ctx, file, texts[file.file]); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// putLens puts one lens; nil = why it could not be put was said.
func (f *Folder) putLens(ctx context.Context, file lensFile, t *lensText) *FolderChange {
	c := &FolderChange{File: file.file, Change: FolderRegistered}
	err := f.admit(Found{Kind: FoundLens, Name: file.doc.Lens, Version: file.doc.Version, Text: file.text}, false)
	t.refused = err != nil
	created := false
	if err == nil {
		c.Lens, created, err = f.cfg.Recipes.lenses.Put(ctx, f.cfg.Account, file.doc, store.AnyRevision, f.cfg.By)
	}
	if err == nil {
		if !created {
			c.Change = FolderFound
		}
		return c
	}
	had := t.problem
	c.Change, c.Lens, c.Problems = FolderBroken, nil, problemOf(file.file, err)
	if code := fault.CodeOf(err); t.refused || code != fault.RecipeInvalid && code != fault.Conflict {
		t.problem, t.refused = c.Problems, t.refused && !passes(err)
		f.texts = append(f.texts, t)
	}
	if c.Problems == had {
		return nil
	}
	return c
}
