// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/sources"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) lockCommands() []*cobra.Command { return []*cobra.Command{a.lockCommand()} }

func (a *app) lockCommand() *cobra.Command {
	l := &locker{app: a, limit: defaultSource}
	cmd := &cobra.Command{
		Use:   "lock [SOURCE…]",
		Short: "Pin the recipes that a project fetches and names",
		Long: "Pin the recipes that a project fetches and names: write into roux.lock, beside the project's `roux.yaml` or in the working directory, the hash of each source from outside " +
			"(that of --recipes, and each SOURCE) and the version and hash of each recipe and lens that the recipes of the project name with `ref` or `lens`. " +
			"Where there is a roux.lock, `roux run`, `validate`, `apply` and `serve` refuse what differs from it. " +
			"What is pinned already stays, and is an error if it differs now; with --update it is pinned anew, and sources that are not named any more are removed.",
		Example: `roux lock
roux lock git+https://example.com/team/recipes@v1.2.0#recipes
roux lock --update
roux lock --check`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVar(&l.update, "update", false, "pin what there is now, also what was pinned with another hash")
	cmd.Flags().BoolVar(&l.check, "check", false, "write nothing; exit code 7 if roux.lock would change")
	a.sourceFlags(cmd, &l.limit)
	return cmd
}

// What comes of an entry of a lock file.
const (
	lockAdded     = "added"
	lockUpdated   = "updated"
	lockUnchanged = "unchanged"
	lockRemoved   = "removed"
)

// A lockEntry is an entry of a lock file, and what came of it.
type lockEntry struct {
	Kind    string `json:"kind"` // source, recipe or lens
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // of a source its commit
	SHA256  string `json:"sha256"`
	Outcome string `json:"outcome"`
}

// A locker makes a lock file.
type locker struct {
	*app
	update, check bool
	limit         int64
	old, made     *sources.Lock
	list          []lockEntry
	wrong         []error            // what differs from what is pinned
	wrongRecipes  bool               // the source of --recipes is among that
	pinned        []*sources.Fetched // what is kept once the file is written
}

func (l *locker) run(ctx context.Context, args []string) (err error) {
	if l.old, err = l.locked(); err != nil {
		return err
	}
	if l.old == nil {
		l.old = new(sources.Lock)
	}
	l.made = new(sources.Lock)
	if err := l.fetching(func(ctx context.Context) error { return l.lockSources(ctx, args) }); err != nil {
		return err
	}
	if !l.wrongRecipes { // else all that they name would be missing
		if err := l.lockReferences(); err != nil {
			return err
		}
	}
	for _, err := range l.wrong[:max(len(l.wrong)-1, 0)] {
		l.report(err)
	}
	if len(l.wrong) > 0 {
		return l.wrong[len(l.wrong)-1]
	}
	return l.write()
}

// lockSources pins the source of the recipes, those that are named, and those that are pinned. With
// --update those that are pinned and not named leave the lock.
func (l *locker) lockSources(ctx context.Context, args []string) error {
	names := append([]string{l.recipes}, args...)
	named := len(names)
	if !l.update {
		for _, known := range l.old.Sources {
			names = append(names, known.Source)
		}
	}
	f, err := l.fetcher()
	if err != nil {
		return err
	}
	for i, name := range names {
		if name == "" {
			continue
		}
		s, err := l.source(name, i >= named)
		if err != nil {
			return err
		}
		if !s.External() {
			if i > 0 {
				return fault.New(fault.Usage, "%s is a directory: only sources from outside are pinned", view.OneLine(name))
			}
			continue
		}
		if l.made.Pin(s) != "" {
			continue
		}
		if err := l.lockSource(ctx, f, s, i == 0); err != nil {
			return err
		}
	}
	if !l.update {
		return nil
	}
	for _, known := range l.old.Sources {
		if !slices.ContainsFunc(l.made.Sources, func(s sources.LockedSource) bool { return s.Source == known.Source }) {
			l.list = append(l.list, lockEntry{"source", l.shownSource(known.Source), known.Commit, known.SHA256, lockRemoved})
		}
	}
	return nil
}

func (l *locker) lockSource(ctx context.Context, f *sources.Fetcher, s *sources.Source, recipes bool) error {
	pin := l.old.Pin(s)
	var got *sources.Fetched
	var err error
	if pin != "" && !l.update {
		got, err = f.Pinned(ctx, s, pin)
	} else if got, err = f.Latest(ctx, s); err == nil && s.Pin != "" {
		err = got.Check(s.Pin)
	}
	if fault.CodeOf(err) == fault.Conflict {
		l.wrong = append(l.wrong, err)
		l.wrongRecipes = l.wrongRecipes || recipes
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := l.unpack(got) // what cannot be unpacked is not pinned
	if err != nil {
		return err
	}
	if recipes {
		l.recipes = dir
	}
	entry := lockEntry{Kind: "source", Name: s.Show(), Version: got.Commit, SHA256: got.Hash, Outcome: lockAdded}
	for _, known := range l.old.Sources {
		switch {
		case known.Source != s.Name():
		case known.SHA256 == got.Hash:
			entry.Outcome, entry.Version = lockUnchanged, known.Commit
			got.Commit = known.Commit
		default:
			entry.Outcome = lockUpdated
		}
	}
	l.made.Set(got)
	l.pinned = append(l.pinned, got)
	l.list = append(l.list, entry)
	return nil
}

// lockReferences pins what the recipes of the project name, and what those name in turn.
func (l *locker) lockReferences() error {
	dirs := []string{l.config.ProjectDir()}
	if l.recipes != "" {
		dirs = append(dirs, l.recipes)
	}
	for _, dir := range dirs {
		names, err := userfile.ListWithin(dir, maxApplied, ".yaml", ".yml", ".json")
		if err != nil {
			return fault.Wrap(fault.RecipeNotFound, err, "the recipes in %s cannot be read: %v", dir, err)
		}
		for _, name := range names {
			if name == config.ProjectFile {
				continue
			}
			if err := l.lockFile(dir, name); err != nil {
				return err
			}
		}
	}
	for _, known := range l.old.References {
		if !slices.ContainsFunc(l.made.References, func(r sources.LockedReference) bool { return r.Kind == known.Kind && r.Ref == known.Ref }) {
			l.list = append(l.list, lockEntry{known.Kind, known.Ref, known.Version, known.SHA256, lockRemoved})
		}
	}
	return nil
}

// lockFile pins what a recipe in a file names. A file that is no recipe is passed over.
func (l *locker) lockFile(dir, name string) error {
	path := filepath.Join(dir, name)
	text, err := userfile.ReadWithin(dir, name, l.limit, fault.RecipeNotFound)
	if err != nil {
		return err
	}
	if called, is := registry.RecipeIn(path, text, l.limit); !is || called == "" {
		return nil
	}
	files, err := l.recipesFor(path, l.limit)
	if err != nil {
		return err
	}
	c, err := l.compileWith(files, path, text, l.limit)
	if err != nil {
		l.printDiagnostics(l.stderr, c)
		l.annotate(c.diags)
		l.shown = true
		return err
	}
	for _, found := range files.Found() {
		l.lockReference(lockedReference(found))
	}
	return nil
}

func (l *locker) lockReference(r sources.LockedReference) {
	if slices.Contains(l.made.References, r) {
		return
	}
	entry := lockEntry{r.Kind, r.Ref, r.Version, r.SHA256, lockAdded}
	for _, known := range l.old.References {
		switch {
		case known.Kind != r.Kind || known.Ref != r.Ref:
		case known == r:
			entry.Outcome = lockUnchanged
		case !l.update:
			l.wrong = append(l.wrong, l.old.Check(r))
			return
		default:
			entry.Outcome = lockUpdated
		}
	}
	l.made.References = append(l.made.References, r)
	l.list = append(l.list, entry)
}

// keep keeps what was pinned, so that it need not be fetched again.
func (l *locker) keep() error {
	f, err := l.fetcher()
	if err != nil {
		return err
	}
	for _, got := range l.pinned {
		f.Keep(got)
	}
	return nil
}

// write writes the lock file, unless it has that text.
func (l *locker) write() error {
	text := l.made.Text()
	had, err := userfile.ReadWithin(l.config.ProjectDir(), sources.LockFile, sources.MaxLock, fault.FileNotFound)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	same := bytes.Equal(had, text)
	if !same && !l.check {
		root, base, err := userfile.OpenParent(l.lockPath())
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }()
		if err := userfile.Replace(root, base, l.lockPath(), text); err != nil {
			return err
		}
	}
	if !l.check {
		if err := l.keep(); err != nil {
			return err
		}
	}
	l.show(l.list, func() {
		rows := [][]string{{"KIND", "NAME", "VERSION", "SHA256", "OUTCOME"}}
		for _, e := range l.list {
			rows = append(rows, []string{e.Kind, view.OneLine(e.Name), view.OneLine(view.Cut(e.Version, 20)), e.SHA256[:12] + "…", e.Outcome})
		}
		l.table(rows, 1)
	})
	if l.check && !same {
		return fault.New(fault.Conflict, "%s is not up to date: `roux lock` writes it", l.lockPath())
	}
	return nil
}
