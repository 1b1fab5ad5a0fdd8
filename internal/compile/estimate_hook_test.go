// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/plan"
)

func init() {
	compile.SetEstimate(func(p *plan.Plan, actions catalogue.Finder) int64 {
		return estimate.Of(p, actions, estimate.Known{}).Most
	})
}
