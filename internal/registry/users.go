// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"context"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// maxUses bounds what is kept of the uses of a version.
	maxUses = 1000
	// maxScanned bounds how many versions are looked at for those that use a recipe.
	maxScanned = 20_000
	// MaxUsers is how many of them are returned.
	MaxUsers = 1000
)

// usesOf returns what a recipe with a plan uses, each thing once. It is never nil.
func usesOf(p *plan.Plan, r *recipe.Recipe) []Use {
	list := []Use{}
	add := func(u Use) {
		if len(list) < maxUses && !slices.Contains(list, u) {
			list = append(list, u)
		}
	}
	for _, b := range r.Extends {
		if b.Ref != "" {
			name, version := plan.SplitRef(b.Ref)
			add(Use{UsesRecipe, name, version})
		}
	}
	for _, p := range append([]*plan.Plan{p}, p.Embedded...) {
		for _, ref := range p.Children {
			if ref.Registered() {
				add(Use{UsesRecipe, ref.Name, ref.Version})
			}
		}
		for i := range p.Steps {
			if prompt := p.Steps[i].Prompt; prompt != nil {
				name, version, _ := strings.Cut(prompt.Lens, "@")
				add(Use{UsesLens, name, version})
			}
		}
		for _, ref := range p.Actions {
			add(Use{UsesAction, ref.Name, ref.Version})
		}
	}
	slices.SortFunc(list, func(a, b Use) int {
		return strings.Compare(a.Kind+"\x00"+a.Name+"\x00"+a.Version, b.Kind+"\x00"+b.Name+"\x00"+b.Version)
	})
	return list
}

// maxOldUses bounds what is kept of the uses of versions that do not have them: how many
// versions and uses.
const maxOldUses = 100_000

// oldUses is what versions use that were registered by a release that did not note it.
type oldUses struct {
	known map[reference]oldUse
	size  int
}

// An oldUse is what a version with that plan uses, or why it cannot run, which counts until the
// recipes of the account change.
type oldUse struct {
	plan    string
	changes uint64
	uses    []Use
	err     error
}

// Uses returns what a version uses.
func (r *Recipes) Uses(ctx context.Context, account string, v *Version) ([]Use, error) {
	if v.Uses != nil {
		return v.Uses, nil
	}
	key := reference{account, v.ID()}
	r.mu.Lock()
	changes, had := r.changes[account], r.old.known[key]
	r.mu.Unlock()
	if had.plan == v.Plan && (had.err == nil || had.changes == changes) {
		return had.uses, had.err
	}
	// Its plan is not kept as Resolve does: those of recipes that run stay there.
	text, err := r.Source(ctx, account, v)
	if err != nil {
		return nil, err
	}
	now := oldUse{plan: v.Plan, changes: changes}
	c, _, err := r.Check(ctx, account, Draft{Text: text, File: v.file(), Name: v.Name})
	if now.err = err; err == nil {
		now.uses = usesOf(c.Plan, c.Recipe)
	}
	if ctx.Err() != nil {
		return now.uses, now.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.old.size >= maxOldUses || r.old.known == nil {
		r.old = oldUses{known: map[reference]oldUse{}}
	}
	r.old.known[key], r.old.size = now, r.old.size+1+len(now.uses)
	return now.uses, now.err
}

// A User is a version that runs a recipe, and how a step of it names that.
type User struct {
	Version *Version
	Use     Use
}

// UsedBy returns the versions whose steps run the version v. With any, those count that run
// any version of its recipe. They are sorted by recipe, the newest version first. more says
// that there are others: too many were found, or too many versions are registered.
func (r *Recipes) UsedBy(ctx context.Context, account string, v *Version, any bool) (users []User, more bool, err error) {
	q := store.RecordQuery{Account: account, Kind: kindVersion, Limit: 500}
	alive := map[string]bool{}
	for seen := 0; seen < maxScanned; {
		page, next, err := r.cfg.Records.Records(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for i := range page {
			q.After = page[i].ID
			seen++
			user, err := store.DecodeRecord[Version](&page[i])
			if err != nil {
				continue // one that is damaged does not hide the others
			}
			use, is, err := r.runs(ctx, account, user, v, any)
			if err != nil {
				return nil, false, err
			}
			if !is {
				continue
			}
			if known, looked := alive[user.Recipe]; looked && !known {
				continue
			} else if !looked {
				_, err := r.Recipe(ctx, account, user.Recipe)
				if err != nil && fault.CodeOf(err) != fault.RecipeNotFound {
					return nil, false, err
				}
				if alive[user.Recipe] = err == nil; err != nil {
					continue // it is deleted
				}
			}
			if len(users) == MaxUsers {
				return sortUsers(users), true, nil
			}
			users = append(users, User{user, use})
		}
		if !next {
			return sortUsers(users), false, nil
		}
	}
	return sortUsers(users), true, nil
}

// runs reports whether a step of user runs v, or with any a version of its recipe.
func (r *Recipes) runs(ctx context.Context, account string, user, v *Version, any bool) (use Use, is bool, err error) {
	uses, err := r.Uses(ctx, account, user)
	if err != nil {
		if ctx.Err() != nil {
			return Use{}, false, err
		}
		return Use{}, false, nil // it cannot run, so it runs nothing
	}
	for _, use := range uses {
		if use.Kind == UsesRecipe && (use.Name == v.Name || use.Name == v.Recipe) && (any || catalogue.Admits(use.Version, v.Version)) {
			return use, true, nil
		}
	}
	return Use{}, false, nil
}

func sortUsers(users []User) []User {
	slices.SortFunc(users, func(a, b User) int {
		if c := strings.Compare(a.Version.Name, b.Version.Name); c != 0 {
			return c
		}
		return catalogue.CompareVersions(b.Version.Version, a.Version.Version)
	})
	return users
}
