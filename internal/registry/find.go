// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
)

// idPrefix begins the id of a registered recipe.
const idPrefix = "recipe_"

// Recipe returns a recipe by its id or its name. A deleted one is not found.
func (r *Recipes) Recipe(ctx context.Context, account, ref string) (*Recipe, error) {
	ref, _, _ = strings.Cut(ref, "@")
	if strings.HasPrefix(ref, idPrefix) {
		rec, err := r.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindRecipe, ID: ref})
		if fault.CodeOf(err) != fault.RecordNotFound {
			if err != nil {
				return nil, err
			}
			out, err := store.DecodeRecord[Recipe](&rec)
			if err != nil || out.Deleted == 0 {
				return out, err
			}
		}
	}
	out, err := r.named(ctx, account, ref)
	if err == nil && out == nil {
		err = r.notFound(ctx, account, ref)
	}
	return out, err
}

// ID returns the id of the recipe of a name, or the name itself if there is none: a run may
// be of a recipe that was never registered, or is deleted. It is remembered, because every
// run that is shown asks for it.
func (r *Recipes) ID(ctx context.Context, account, name string) (string, error) {
	key := reference{account, name}
	r.mu.Lock()
	changes, had := r.changes[account], r.ids[key]
	r.mu.Unlock()
	if had.id != "" && had.changes == changes {
		return had.id, nil
	}
	rec, err := r.named(ctx, account, name)
	if err != nil {
		return "", err
	}
	id := name
	if rec != nil {
		id = rec.ID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) >= maxNames {
		clear(r.ids)
	}
	r.ids[key] = knownID{changes, id}
	return id, nil
}

// notFound is the error for a reference that no recipe of the account has.
func (r *Recipes) notFound(ctx context.Context, account, ref string) error {
	names, err := r.names(ctx, account)
	if err != nil {
		return err
	}
	if near := spell.Nearest(ref, names); near != "" {
		return fault.New(fault.RecipeNotFound, "no recipe of that name or id is registered; did you mean %q?", near)
	}
	return fault.New(fault.RecipeNotFound, "no recipe of that name or id is registered")
}

// maxNames bounds the names that are read for a suggestion.
const maxNames = 1000

func (r *Recipes) names(ctx context.Context, account string) (names []string, err error) {
	q := store.RecordQuery{Account: account, Kind: kindRecipe, Limit: 500}
	for len(names) < maxNames {
		list, more, err := r.cfg.Records.Records(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].Name != "" {
				names = append(names, list[i].Name)
			}
		}
		if !more {
			break
		}
		q.After = list[len(list)-1].ID
	}
	slices.Sort(names)
	return names, nil
}

func (r *Recipes) named(ctx context.Context, account, name string) (*Recipe, error) {
	rec, err := r.cfg.Records.RecordNamed(ctx, account, kindRecipe, name)
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return store.DecodeRecord[Recipe](&rec)
}

// version returns a version by its id, or nil.
func (r *Recipes) version(ctx context.Context, account, id string) (*Version, error) {
	rec, err := r.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindVersion, ID: id})
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	v, err := store.DecodeRecord[Version](&rec)
	if err == nil {
		v.Revision = rec.Revision
	}
	return v, err
}

// List returns the newest version of each recipe that is not deleted, the newest recipe
// first. place is where a page begins, and next where the following one does; "" = it was
// the last. One page looks at no more than a thousand recipes, so it may have fewer than
// limit and still not be the last.
func (r *Recipes) List(ctx context.Context, account, place string, limit int, fits func(*Version) bool) (list []*Version, next string, err error) {
	q := store.RecordQuery{Account: account, Kind: kindRecipe, After: place, Newest: true, Limit: 100}
	for seen := 0; seen < maxNames; {
		page, more, err := r.cfg.Records.Records(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			q.After = page[i].ID
			seen++
			v, err := r.listed(ctx, account, &page[i])
			if err != nil {
				return nil, "", err
			}
			switch {
			case v == nil || !fits(v):
			case len(list) == limit:
				return list, list[limit-1].Recipe, nil // there is another one
			default:
				list = append(list, v)
			}
		}
		if !more {
			return list, "", nil
		}
	}
	return list, q.After, nil
}

// listed returns the version that stands for a recipe in a list, or nil for none. A recipe
// that cannot be read does not hide the others; to get it is an error.
func (r *Recipes) listed(ctx context.Context, account string, rec *store.Record) (*Version, error) {
	known, err := store.DecodeRecord[Recipe](rec)
	if err == nil && known.Deleted != 0 {
		return nil, nil
	}
	var v *Version
	if err == nil {
		v, err = r.Find(ctx, account, known.ID)
	}
	switch fault.CodeOf(err) {
	case fault.StoreCorrupt, fault.RecipeNotFound: // deleted since the page was read
		return nil, nil
	}
	return v, err
}

// Versions returns the versions of a recipe, the newest first.
func (r *Recipes) Versions(ctx context.Context, account, ref string) ([]*Version, error) {
	rec, err := r.Recipe(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	var list []*Version
	q := store.RecordQuery{Account: account, Kind: kindVersion, Prefix: rec.ID + "@", Limit: 500}
	for {
		page, more, err := r.cfg.Records.Records(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page {
			v, err := store.DecodeRecord[Version](&page[i])
			if err != nil {
				return nil, err
			}
			v.Revision = page[i].Revision
			list = append(list, v)
		}
		if !more {
			break
		}
		q.After = page[len(page)-1].ID
	}
	slices.SortFunc(list, func(a, b *Version) int {
		return cmp.Or(catalogue.CompareVersions(b.Version, a.Version), strings.Compare(b.Version, a.Version))
	})
	return list, nil
}

// Find returns the version that a reference stands for: an id or a name stands for the
// newest active version; with "@" and a range, for the newest active one within the range.
// Where none is active, the newest deprecated one counts, and then the newest draft. A
// pre-release is found by its exact version only, unless there is nothing else.
func (r *Recipes) Find(ctx context.Context, account, ref string) (*Version, error) {
	rec, err := r.Recipe(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	_, want, _ := strings.Cut(ref, "@")
	if want != "" { // damage of another version does not matter then
		if v, err := r.version(ctx, account, rec.ID+"@"+want); err != nil || v != nil {
			return v, err
		}
	}
	list, err := r.Versions(ctx, account, rec.ID)
	if err != nil {
		return nil, err
	}
	fitting := slices.DeleteFunc(slices.Clone(list), func(v *Version) bool { return !catalogue.Admits(want, v.Version) })
	if want == "" && len(fitting) == 0 {
		fitting = list
	}
	for _, status := range []string{StatusActive, StatusDeprecated, StatusDraft} {
		for _, v := range fitting {
			if v.Status == status {
				return v, nil
			}
		}
	}
	var has []string
	for _, v := range list[:min(len(list), 10)] {
		has = append(has, v.Version)
	}
	return nil, fault.New(fault.RecipeNotFound, "the recipe has no version of that range: it has %s", strings.Join(has, ", "))
}

// Resolve returns the version that a reference stands for, ready to run. What it stood for
// is remembered until the recipes of the account change.
func (r *Recipes) Resolve(ctx context.Context, account, ref string) (*Compiled, error) {
	key := reference{account, ref}
	r.mu.Lock()
	changes, had := r.changes[account], r.resolved[key]
	r.mu.Unlock()
	if had != nil && had.changes == changes {
		return &had.Compiled, nil
	}
	v, text, err := r.text(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	c, _, err := r.Check(ctx, account, Draft{Text: text, File: v.file(), Name: v.Name})
	if err != nil {
		return nil, err // what it refers to has changed since
	}
	// The plan is that of today: it has the newest recipes that its steps name. The version
	// keeps the one of its registration.
	c.Version = *v
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.resolved) >= maxCompiled {
		clear(r.resolved)
	}
	r.resolved[key] = &resolution{changes, *c}
	return c, nil
}

// text returns the version that a reference stands for, and its text.
func (r *Recipes) text(ctx context.Context, account, ref string) (*Version, []byte, error) {
	for {
		v, err := r.Find(ctx, account, ref)
		if err != nil {
			return nil, nil, err
		}
		text, err := r.Source(ctx, account, v)
		if err != nil {
			return nil, nil, err
		}
		// The version may have been replaced between the reads: another text would then be
		// taken for its own.
		now, err := r.version(ctx, account, v.ID())
		if err != nil || now != nil && now.Revision == v.Revision {
			return v, text, err
		}
	}
}

// A finder finds the registered recipes that steps name. Recipes in files are not found: a
// registered text has no directory.
type finder struct {
	ctx     context.Context
	recipes *Recipes
	account string
}

// File implements compile.Recipes.
func (f *finder) File(_, name string) (*compile.Text, error) {
	return nil, fault.New(fault.RecipeNotFound, "%q is a file: a registered recipe names others with `ref`, or has them inline", name)
}

// Find implements compile.Recipes.
func (f *finder) Find(name, version string) (*compile.Text, error) {
	if f.recipes.cfg.NoRefs {
		return nil, switchedOff(name)
	}
	v, text, err := f.recipes.text(f.ctx, f.account, name+"@"+version)
	if err != nil {
		return nil, err
	}
	if v.Status == StatusDraft {
		return nil, draft(v)
	}
	found := &compile.Text{File: v.file(), Data: text, Name: v.Name}
	if v.Version != unversioned {
		found.Version = v.Version
	}
	return found, nil
}

// Names implements compile.Recipes.
func (f *finder) Names() []string {
	names, err := f.recipes.names(f.ctx, f.account)
	if err != nil || f.recipes.cfg.NoRefs {
		return nil
	}
	return names
}

var _ compile.Recipes = (*finder)(nil)
