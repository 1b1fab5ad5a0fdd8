// SPDX-License-Identifier: Apache-2.0

//go:build small

package dialect

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Inherit does nothing: a small program has no functions.
func Inherit(*recipe.Recipe, *recipe.Source, map[string]*recipe.Function) {}

// Functions returns none.
func Functions(*recipe.Recipe, map[string]*recipe.Function) map[string]*recipe.Function { return nil }

// replaceCalls refuses functions.
func replaceCalls(r *recipe.Recipe, src *recipe.Source, _ map[string]*recipe.Function, check bool) {
	for _, name := range slices.Sorted(maps.Keys(r.Functions)) {
		src.AddSemantic(fault.NotAvailable, r.Ptr+"/functions/"+jsonx.EscapeToken(name), 0, 0, "not-available", "this program is built without functions", "write the expression where it is used")
	}
	r.EachInline(func(_ *recipe.Step, inner *recipe.Recipe) { replaceCalls(inner, src, nil, check) })
}
