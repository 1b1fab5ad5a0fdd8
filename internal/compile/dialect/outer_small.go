// SPDX-License-Identifier: Apache-2.0

//go:build small

package dialect

import (
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// NameOuter does nothing: in the dialect of recipes an id with dashes is no name.
func NameOuter(*recipe.Recipe, *recipe.Source, map[string]bool) {}

// OuterIDs returns nil.
func OuterIDs(*recipe.Recipe, map[string]bool) map[string]bool { return nil }

func nameOuter(*recipe.Recipe, *form.Source, map[string]bool) {}
