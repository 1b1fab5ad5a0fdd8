// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/lens"
)

type lensDocument = lens.Document

func isLens(file string, text []byte) bool { return lens.Is(file, text) }

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

// compareLenses compares all lenses, and finds those that are to be put and in which order.
func (ap *applier) compareLenses(ctx context.Context, c *client.Client) error {
	for _, f := range ap.files {
		if f.lens == nil {
			continue
		}
		if err := f.compareLens(ctx, c); err != nil {
			return err
		}
		if !f.done && f.err == nil {
			ap.lenses = append(ap.lenses, f)
		}
	}
	slices.SortStableFunc(ap.lenses, func(a, b *applyFile) int { return lens.Order(a.lens, b.lens) })
	return nil
}

// A lensUse is a step that names a lens.
type lensUse struct {
	step  *recipe.Step
	names []string // the placeholders of the lens that is to be put
}

// lensesOf returns the steps of a recipe that name lenses.
func lensesOf(r *recipe.Recipe) (uses []lensUse) {
	r.Each(func(s *recipe.Step) {
		if s.Action != nil && s.Action.Lens != nil {
			uses = append(uses, lensUse{step: s})
		}
		if s.Recipe != nil && s.Recipe.Inline != nil {
			uses = append(uses, lensesOf(s.Recipe.Inline)...)
		}
	})
	return uses
}

// usesOf returns the steps that will have another lens when those of list are put.
func (f *applyFile) usesOf(list []*applyFile) (uses []lensUse) {
	for _, u := range f.uses {
		ref := u.step.Action.Lens
		var found *applyFile
		for _, l := range list {
			if l.Name == ref.ID && (ref.Version == "" || ref.Version == l.lens.Version) {
				found = l // the last one becomes the current one
			}
		}
		if found != nil {
			u.names, _ = found.lens.Compiled().Placeholders() // parseLens has checked it
			uses = append(uses, u)
		}
	}
	return uses
}

// mayMend reports whether an error at a place of the recipe may go when the lens of the step is put.
func (u *lensUse) mayMend(d fault.Diagnostic, at string) bool {
	at, inStep := strings.CutPrefix(at, u.step.Ptr+"/")
	switch d.Rule {
	case expr.RuleUndefinedField, expr.RuleType: // of what the step gives or, without a binding, is given
		return true
	case "unknown-input":
		_, name, _ := strings.Cut(at, "/")
		return inStep && slices.Contains(u.names, jsonx.UnescapeToken(name))
	case "bad-lens", "bad-parameter":
		return inStep
	}
	return false
}

// unknownValues returns an error for each value that a step binds and its lens to be put has no placeholder for.
func (f *applyFile) unknownValues(uses []lensUse) (diags []fault.Diagnostic) {
	for _, u := range uses {
		for _, name := range slices.Sorted(maps.Keys(u.step.InputBindings)) {
			if slices.Contains(u.names, name) {
				continue
			}
			at := u.step.Ptr + "/inputBindings/" + jsonx.EscapeToken(name)
			diags = append(diags, fault.Diagnostic{
				Code: fault.RecipeInvalid, Rule: "unknown-input", Pointer: f.source.Pointer(at), Pos: f.source.KeyPos(at),
				Msg: fmt.Sprintf("the lens %s that is to be put has no placeholder %q", u.step.Action.Lens.ID, name),
			})
		}
	}
	return diags
}

// putLenses puts the lenses that are new, of each the highest version last, so that it is the current
// one.
func (ap *applier) putLenses(ctx context.Context, c *client.Client) error {
	for _, f := range ap.lenses {
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
