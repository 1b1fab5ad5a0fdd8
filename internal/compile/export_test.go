// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/plan"
)

// estimateMost is the most credits that a run of a plan may cost. It is set by a test of
// package compile_test, because package estimate imports this one.
var estimateMost func(p *plan.Plan, actions catalogue.Finder) int64

// SetEstimate sets estimateMost.
func SetEstimate(f func(p *plan.Plan, actions catalogue.Finder) int64) { estimateMost = f }

// priced returns actions with different costs.
func priced() *catalogue.Catalogue {
	return catalogue.New(&action.Action{Name: "cheap", Version: "1.0.0", Cost: 1}, &action.Action{Name: "dear", Version: "1.0.0", Cost: 10})
}
