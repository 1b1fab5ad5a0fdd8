// SPDX-License-Identifier: Apache-2.0

package recipe

import "github.com/roux-engine/roux/fault"

// Runnable returns an error if the recipe's status does not let it run (X3, R36): active
// and deprecated recipes run, a draft does not.
func (r *Recipe) Runnable() error {
	if r.Status == "draft" {
		return fault.New(fault.RecipeInvalid, "recipe %q is a draft and is not run; set `status: active`, or leave status out", r.Name)
	}
	return nil
}
