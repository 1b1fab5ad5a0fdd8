// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/userfile"
)

const (
	// folderBy marks the versions that a Folder has registered, unless it has a mark of its
	// own: it changes no others.
	folderBy = "roux dev"
	// folderNote is why it has deprecated one.
	folderNote = "its file has been changed or removed"
	// retryAfter is when what has failed, and may have passed, is tried again.
	retryAfter = 3 * time.Second
)

// What has come of a file of a Folder.
const (
	FolderRegistered = "registered" // as a new version
	FolderReplaced   = "replaced"   // a version that never ran
	FolderFound      = "found"      // the text was registered already
	FolderBroken     = "broken"     // the last version that was valid goes on
	FolderRemoved    = "removed"
)

// A FolderChange is what has come of a file that has changed.
type FolderChange struct {
	File   string // its path
	Change string
	// Version is what is registered. Of a broken or removed file it is what was; nil = nothing.
	Version *Version
	// Lens is the version of the lens that the file is; nil = it is a recipe, or a broken lens.
	Lens *LensVersion
	// Stated is the version that the text states; another text has it when Version is not it.
	Stated string
	// Newest is the version that the name stands for, when it is another one.
	Newest string
	// Problems are the errors and warnings, with their lines.
	Problems string
}

// A Folder keeps the registered recipes of an account in line with the recipes in the files
// of a directory. A text is registered under the version that it states. When that version
// has run with another text, so that it never changes, the next patch version that is free
// is taken. Versions that a Folder has registered and no file has any more are deprecated.
// The files that are lenses, also those in the directory lenses below, become versions of the lenses
// of the account, which stay when their files go. It is not safe for concurrent use.
type Folder struct {
	cfg   FolderConfig
	watch watch
	files map[string]*folderFile // those that are recipes, by name
	texts []*lensText            // of lenses, that are to be put
	due   map[string]bool        // recipes whose versions without a file are to be deprecated
	again bool                   // what was refused is to be looked at
	tried time.Time              // when files were registered last
}

// FolderConfig is what a Folder is made of. Ignore, By, Shown and Admit are optional.
type FolderConfig struct {
	Recipes   *Recipes
	Account   string
	Dir       string
	Ignore    []string // names of files that are no recipes
	MaxSource int64
	Now       func() time.Time
	By        string // marks the versions that the Folder registers
	Shown     string // the directory in messages; "" = Dir
	// Admit refuses a recipe or a lens that is not to be registered.
	Admit func(text Found, draft bool) error
}

// A folderFile is a recipe in a file.
type folderFile struct {
	at      string // its name in the directory
	shown   string // its path, as diagnostics have it
	text    []byte
	unread  error    // why there is no text
	fresh   bool     // the text was not looked at yet
	name    string   // of the recipe, also when it is broken; "" = not known
	stated  string   // the version in the text of the last valid one
	version *Version // what is registered; nil = it was never valid
	problem string   // what is wrong with it

	change string // the outcome of the look in progress
	err    error  // the same
	diags  []fault.Diagnostic
}

// NewFolder returns a Folder. It reads nothing yet.
func NewFolder(cfg FolderConfig) *Folder {
	cfg.By, cfg.Shown = cmp.Or(cfg.By, folderBy), cmp.Or(cfg.Shown, cfg.Dir)
	return &Folder{cfg: cfg, files: map[string]*folderFile{}, due: map[string]bool{}}
}

// Again makes the next look try everything again, also what Admit has refused.
func (f *Folder) Again() { f.again = true }

// Move makes dir the directory that is looked at. Files of one name are the same file.
func (f *Folder) Move(dir string) { f.cfg.Dir = dir }

// Look registers what has changed since the last look, and returns what came of it. What has
// failed for a reason that is not in its text is tried again. The error says that the directory
// cannot be read, that versions could not be deprecated, or that ctx has ended.
func (f *Folder) Look(ctx context.Context) ([]FolderChange, error) {
	stamps, err := f.stamps()
	if err != nil {
		return nil, err
	}
	read, gone := f.watch.look(stamps, f.cfg.Now())
	changed, left := f.read(read)
	for _, name := range gone {
		f.forget(name)
	}
	var out []FolderChange
	for _, file := range left {
		if file.version != nil {
			out = append(out, FolderChange{File: file.shown, Change: FolderRemoved, Version: file.version})
		}
	}
	out = append(out, f.putLenses(ctx)...)
	changed = changed || len(out) > 0 // recipes may name the lenses
	for _, name := range gone {
		if file := f.files[name]; file != nil {
			left = append(left, file)
			out = append(out, FolderChange{File: file.shown, Change: FolderRemoved, Version: file.version})
		}
	}
	for _, file := range left {
		delete(f.files, file.at)
		f.touch(file)
		changed = true
	}
	now := f.cfg.Now()
	if !changed && !f.again && (now.Sub(f.tried) < retryAfter || len(f.due) == 0 && !f.passing()) {
		return nil, nil
	}
	f.tried = now
	for _, file := range f.files {
		f.touch(file)
	}
	if err := f.placeAll(ctx); err != nil {
		return out, err
	}
	f.again = false
	for _, file := range f.files {
		f.touch(file)
	}
	err = f.deprecate(ctx)
	return append(out, f.outcomes(ctx)...), cmp.Or(err, ctx.Err())
}

// stamps returns those of the files that may be recipes or lenses.
func (f *Folder) stamps() (map[string]userfile.Stamp, error) {
	stamps, err := userfile.StampsWithin(f.cfg.Dir, maxFiles, ".yaml", ".yml", ".json")
	if err != nil {
		return nil, fault.Wrap(fault.RecipeNotFound, err, "the recipes in %s cannot be read: %v", f.cfg.Dir, err)
	}
	if err := f.addLenses(stamps); err != nil {
		return nil, err
	}
	size := int64(0)
	for name, s := range stamps {
		if slices.Contains(f.cfg.Ignore, name) || IsTest(name) || s.Size > f.cfg.MaxSource && f.files[name] == nil {
			delete(stamps, name)
			continue
		}
		size += s.Size
	}
	if size > maxBytes {
		return nil, fault.New(fault.RecipeInvalid, "the files in %s have more than %d bytes together", f.cfg.Dir, maxBytes)
	}
	return stamps, nil
}

// touch notes the recipes that a file is and was: some of their versions may have no file now.
func (f *Folder) touch(file *folderFile) {
	f.due[file.name] = true
	if file.version != nil {
		f.due[file.version.Name] = true
	}
}

// passing reports whether a file could not be registered for a reason that may pass.
func (f *Folder) passing() bool {
	for _, file := range f.files {
		if file.unread == nil && passes(file.err) {
			return true
		}
	}
	return false
}

// passes reports whether an error is not of the text, so that a later try may succeed.
func passes(err error) bool {
	switch fault.CauseOf(fault.CodeOf(err)) {
	case fault.CauseDefinition, fault.CauseRequest, fault.CauseLimit, fault.CauseRateLimit: // that of a quota
		return false
	}
	return err != nil
}

func (f *Folder) sorted() (list []*folderFile) {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		list = append(list, f.files[name])
	}
	return list
}

// read reads files and reports whether a recipe has changed. It returns the files that were recipes and
// are lenses now.
func (f *Folder) read(names []string) (changed bool, left []*folderFile) {
	for _, name := range names {
		shown := filepath.Join(f.cfg.Shown, name)
		if f.cfg.Shown != f.cfg.Dir {
			shown = f.cfg.Shown + "/" + filepath.ToSlash(name) // a URL is no path
		}
		text, err := userfile.ReadWithin(f.cfg.Dir, name, f.cfg.MaxSource, fault.RecipeNotFound)
		seen := text
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it has just been removed
		case err != nil:
			seen = []byte(err.Error())
		}
		if !f.watch.took(name, seen) {
			continue
		}
		file := f.files[name]
		f.forget(name)
		if isLens(name, shown, text, err) {
			f.texts = append(f.texts, &lensText{name: name, shown: shown, text: text, unread: err})
			if file != nil {
				left = append(left, file)
			}
			continue
		}
		called, is := RecipeIn(shown, text, f.cfg.MaxSource)
		switch {
		case file == nil && (!is && err == nil || inLenses(name)):
			continue // the directory may hold other files
		case file == nil:
			file = &folderFile{at: name, shown: shown}
			f.files[name] = file
		}
		file.text, file.unread, file.fresh, changed = text, err, true, true
		file.name = cmp.Or(called, file.name)
	}
	return changed, left
}

// RecipeIn returns the name of the recipe in a text, and whether the text is meant to be one.
// A text that cannot be read at all may be; a list of JSON and a lens are not.
func RecipeIn(file string, text []byte, limit int64) (name string, is bool) {
	if isLensText(file, text) {
		return "", false
	}
	r, src, _ := dialect.Parse(file, text, form.Options{MaxBytes: int(limit)})
	if r == nil {
		r = src.Recovered()
	}
	if r == nil {
		return "", !json.Valid(text)
	}
	return r.Name, r.Name != "" || len(r.Steps) > 0
}

// placeAll registers the texts of all files. As long as something is registered, those that name
// what is not known are tried again, and then all: recipes may name others.
func (f *Folder) placeAll(ctx context.Context) error {
	list := f.sorted()
	for _, file := range list {
		file.change = FolderFound
	}
	for range len(list) + 1 {
		progress := false
		for open := list; len(open) > 0; {
			moved, left, err := f.placeOpen(ctx, open)
			if err != nil {
				return err
			}
			if !moved {
				break
			}
			open, progress = left, true
		}
		if !progress {
			break
		}
	}
	return nil
}

// placeOpen registers the texts of files. It reports whether any was registered, and returns
// those that name what is not known.
func (f *Folder) placeOpen(ctx context.Context, open []*folderFile) (moved bool, left []*folderFile, err error) {
	for _, file := range open {
		change, err := f.place(ctx, file)
		if ctx.Err() != nil {
			return moved, nil, ctx.Err()
		}
		if file.err = err; err == nil && change != FolderFound {
			file.change, moved = change, true
		}
		if err != nil && slices.ContainsFunc(file.diags, func(d fault.Diagnostic) bool { return d.Code == fault.RecipeNotFound || d.Code == fault.LensNotFound }) {
			left = append(left, file)
		}
	}
	return moved, left, nil
}

// place registers the text of a file, if it is not yet.
func (f *Folder) place(ctx context.Context, file *folderFile) (change string, err error) {
	file.diags = nil
	if file.unread != nil {
		return "", file.unread
	}
	c, diags, err := f.cfg.Recipes.Check(ctx, f.cfg.Account, Draft{Text: file.text, File: file.shown, By: f.cfg.By})
	file.diags = diags
	if err == nil {
		err = f.admit(Found{Kind: FoundRecipe, Name: c.Version.Name, Version: c.Version.Version, Text: sha256.Sum256(file.text)}, c.Version.Status == StatusDraft)
	}
	if err != nil {
		return "", err
	}
	for range 3 { // a version may run at any time, and is then no longer to be replaced
		var v *Version
		v, change, err = f.choose(ctx, file, &c.Version)
		if fault.CodeOf(err) == fault.Conflict && v != nil {
			continue
		}
		if err == nil {
			file.version, file.stated, file.name = v, c.Version.Version, v.Name
		}
		return change, err
	}
	return "", err
}

func (f *Folder) admit(text Found, draft bool) error {
	if f.cfg.Admit == nil {
		return nil
	}
	return f.cfg.Admit(text, draft)
}

// choose registers a text as the first version, from the one that it states on, that has the
// same text, never ran, or does not exist. A version that comes with an error was refused
// because it has just run.
func (f *Folder) choose(ctx context.Context, file *folderFile, stated *Version) (v *Version, change string, err error) {
	r, account := f.cfg.Recipes, f.cfg.Account
	list, err := r.Versions(ctx, account, stated.Name)
	if err != nil && fault.CodeOf(err) != fault.RecipeNotFound {
		return nil, "", err
	}
	for version := stated.Version; version != ""; version = nextVersion(version) {
		other := f.holder(file, stated.Name, version)
		if other != nil && other.stated == stated.Version {
			return nil, "", fault.New(fault.Conflict, "two files are the recipe %q of version %s: %s and %s", stated.Name, version, other.shown, file.shown)
		}
		if other != nil {
			continue
		}
		d := Draft{Text: file.text, File: file.shown, By: f.cfg.By}
		if version != stated.Version {
			d.Version = version
		}
		at := slices.IndexFunc(list, func(v *Version) bool { return v.Version == version })
		switch {
		case len(list) == 0:
			v, _, _, err = r.Register(ctx, account, d)
			return v, FolderRegistered, err
		case at < 0:
			v, _, _, err = r.Replace(ctx, account, stated.Name, store.AnyRevision, d)
			return v, FolderRegistered, err
		}
		same, err := r.sameText(ctx, account, list[at], file.text)
		switch {
		case err != nil:
			return nil, "", err
		case same:
			v, err = f.restore(ctx, list[at])
			return v, FolderFound, err
		case list[at].Ran || list[at].By != f.cfg.By:
			continue
		}
		if v, _, _, err = r.Replace(ctx, account, stated.Name, store.AnyRevision, d); err != nil {
			return list[at], "", err
		}
		return v, FolderReplaced, nil
	}
	return nil, "", fault.New(fault.Conflict, "no version after %s can be computed: give the text another one", stated.Version)
}

// restore makes a version active that was deprecated because no file had it.
func (f *Folder) restore(ctx context.Context, v *Version) (*Version, error) {
	if v.Status != StatusDeprecated || v.Note != folderNote {
		return v, nil
	}
	return f.cfg.Recipes.SetStatus(ctx, f.cfg.Account, v.ID(), Standing{Status: StatusActive})
}

// holder returns the file that a version is of, or nil; not file itself.
func (f *Folder) holder(file *folderFile, name, version string) *folderFile {
	for _, other := range f.files {
		if other != file && other.version != nil && other.version.Name == name && other.version.Version == version {
			return other
		}
	}
	return nil
}

// deprecate deprecates the versions of recipes that no file has any more. What cannot be is due
// at the next look.
func (f *Folder) deprecate(ctx context.Context) error {
	held := map[string]bool{}
	for _, file := range f.files {
		switch {
		case file.version != nil:
			held[file.version.ID()] = true
		default:
			delete(f.due, file.name) // one of the versions may be of this file, which is broken
		}
	}
	for name := range f.due {
		list, err := f.cfg.Recipes.Versions(ctx, f.cfg.Account, name)
		if err != nil && fault.CodeOf(err) != fault.RecipeNotFound {
			return err
		}
		for _, v := range list {
			if v.By != f.cfg.By || v.Status != StatusActive || held[v.ID()] {
				continue
			}
			if _, err := f.cfg.Recipes.SetStatus(ctx, f.cfg.Account, v.ID(), Standing{Status: StatusDeprecated, Note: folderNote}); err != nil {
				return err
			}
		}
		delete(f.due, name)
	}
	return nil
}

// outcomes returns what is new of the files after a look.
func (f *Folder) outcomes(ctx context.Context) (out []FolderChange) {
	for _, file := range f.sorted() {
		text, had := f.problems(file), file.problem
		c := FolderChange{File: file.shown, Change: file.change, Version: file.version, Stated: file.stated, Problems: text}
		file.problem = ""
		if file.err != nil {
			c.Change, file.problem = FolderBroken, text
		}
		if file.fresh || file.err == nil && c.Change != FolderFound || file.problem != had {
			if v := file.version; v != nil && file.err == nil {
				if newest, err := f.cfg.Recipes.Find(ctx, f.cfg.Account, v.Name); err == nil && newest.Version != v.Version {
					c.Newest = newest.Version
				}
			}
			out = append(out, c)
		}
		file.fresh = false
	}
	return out
}

// problems returns the problems of a file, as the commands that compile it show them.
func (f *Folder) problems(file *folderFile) string {
	var b strings.Builder
	_, src, _ := dialect.Parse(file.shown, file.text, form.Options{MaxBytes: int(f.cfg.MaxSource)})
	for _, d := range file.diags {
		b.WriteString(src.Format(d))
	}
	if file.err != nil && !compile.HasErrors(file.diags) {
		b.WriteString(problemOf(file.shown, file.err))
	}
	return b.String()
}

// problemOf says what is wrong with a file, as problems of recipes are shown.
func problemOf(file string, err error) string {
	text := file + ": " + fault.Message(err) + "\n"
	if remedy := fault.RemedyOf(err); remedy != "" {
		text += "  " + remedy + "\n"
	}
	return text
}
