// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dialect

import (
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
)

// NameOuter has a recipe that inherits the context of another one, in another text, name the steps of that as its dialect
// names steps: ids are those with dashes, of [OuterIDs].
func NameOuter(r *recipe.Recipe, src *recipe.Source, ids map[string]bool) {
	nameOuter(r, src.Source, ids)
}

// OuterIDs returns the ids with dashes that a recipe which inherits the context of r may name, inherited being those that r
// may name itself.
func OuterIDs(r *recipe.Recipe, inherited map[string]bool) map[string]bool {
	return texts.DashedIDs(r, inherited)
}

// nameOuter is [NameOuter], and the same for the recipes within the recipe.
func nameOuter(r *recipe.Recipe, src *form.Source, ids map[string]bool) {
	if l := named(r.Read); l != nil && l.outer != nil && len(ids) > 0 {
		l.outer(r, src, ids)
	}
	var all map[string]bool
	r.EachInline(func(s *recipe.Step, inner *recipe.Recipe) {
		if !s.Recipe.Inherits(recipe.InheritContext) {
			return
		}
		if all == nil {
			all = OuterIDs(r, ids)
		}
		nameOuter(inner, src, all)
	})
}
