// SPDX-License-Identifier: Apache-2.0

//go:build small

package registry

import (
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// usesOf returns nil: a small binary does not note what versions use. Others find it when
// they are asked.
func usesOf(*plan.Plan, *recipe.Recipe) []Use { return nil }

type oldUses struct{}
