// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/lens"
	"github.com/roux-engine/roux/internal/userfile"
)

// applyPaths returns the files that an argument of apply stands for: itself, or of a directory those
// in it and in its directory lenses.
func applyPaths(arg string) (paths []string, err error) {
	if info, err := os.Stat(arg); err != nil || !info.IsDir() || arg == "-" {
		return []string{arg}, nil // reading it says what is wrong
	}
	for _, dir := range []string{arg, filepath.Join(arg, "lenses")} {
		names, err := userfile.ListWithin(dir, maxApplied, ".yaml", ".yml", ".json")
		if dir != arg && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fault.RecipeNotFound, err, "the files in %s cannot be read: %v", dir, err)
		}
		for _, name := range names {
			if filepath.Base(name) != config.ProjectFile {
				paths = append(paths, filepath.Join(dir, filepath.FromSlash(name)))
			}
		}
	}
	return paths, nil
}

// parseLens reads the text of a lens.
func (f *applyFile) parseLens() {
	doc, src, diags := lens.Parse(f.File, f.text)
	f.Kind, f.source, f.lens = "lens", recipe.NewSource(src, nil), doc
	if doc == nil {
		f.Outcome, f.Diagnostics = applyInvalid, diags
		return
	}
	f.Name, f.Version = doc.Lens, doc.Version
}

// compareLens compares a lens with the version that is kept, or with the current one if it states
// none.
func (f *applyFile) compareLens(ctx context.Context, c *client.Client) error {
	f.Outcome = applyRegistered
	known, err := c.Lenses.Get(ctx, f.Name, f.Version)
	switch {
	case errors.Is(err, fault.LensNotFound):
		return nil
	case err != nil:
		return err
	}
	if f.lens.Same(&lens.Document{Model: known.Model, Template: known.Template, Contracts: lens.Contracts(known.Contracts)}) {
		f.Outcome, f.Version, f.done = applyUnchanged, known.Version, true
		return nil
	}
	if f.Version != "" {
		e := fault.New(fault.Conflict, "%s: version %s of the lens %q is kept with another content, and never changes", f.File, f.Version, f.Name)
		e.Remedy = "Give the lens another version, or none for the next number; `roux lenses show " + f.Name + "@" + f.Version + "` prints the one that is kept."
		f.Outcome, f.err, f.Message = applyRefused, e, e.Msg
	}
	return nil
}

// putLenses puts the lenses that are new, of each the highest version last, so that it is the current
// one.
func (ap *applier) putLenses(ctx context.Context, c *client.Client) error {
	files := slices.DeleteFunc(slices.Clone(ap.files), func(f *applyFile) bool { return f.lens == nil || f.done })
	slices.SortStableFunc(files, func(a, b *applyFile) int { return lens.Order(a.lens, b.lens) })
	for _, f := range files {
		v, created, err := c.Lenses.Put(ctx, f.Name, newLens(f.lens))
		if err != nil {
			return err
		}
		f.Version, f.done = v.Version, true
		if !created {
			f.Outcome = applyUnchanged
		}
	}
	return nil
}

// newLens returns a lens in a file as it is sent.
func newLens(d *lens.Document) client.NewLens {
	return client.NewLens{Version: d.Version, Model: d.Model, Template: d.Template, Contracts: client.LensContracts(d.Contracts)}
}
