// SPDX-License-Identifier: Apache-2.0

package recipe

import "github.com/roux-engine/roux/fault"

// Runnable says whether the recipe's status lets it run (X3, R36): active and
// deprecated recipes do, a draft is refused until its author says otherwise.
func (r *Recipe) Runnable() error {
	if r.Status == "draft" {
		return fault.New(fault.RecipeInvalid, "recipe %q is a draft and is not run; set `status: active`, or leave status out", r.Name)
	}
	return nil
}
