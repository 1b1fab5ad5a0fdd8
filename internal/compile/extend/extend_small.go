// SPDX-License-Identifier: Apache-2.0

//go:build small

package extend

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// complete refuses a recipe that extends others: a small program has no such recipes.
func complete(r *recipe.Recipe, src *recipe.Source, _ Options) (diags []fault.Diagnostic) {
	refuse := func(r *recipe.Recipe) {
		if extends(r) {
			at := r.Ptr + "/extends"
			diags = append(diags, fault.Diagnostic{
				Code: fault.NotAvailable, Rule: "not-available", Pos: src.KeyPos(at), Pointer: at,
				Msg: "this program is built without recipes that extend others", Hint: "write the recipe in one text: roux convert of a complete program does that",
			})
		}
	}
	refuse(r)
	eachInline(r, refuse)
	return diags
}
