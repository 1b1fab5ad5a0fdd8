// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// Expanded returns the formula of the estimate of a plan with the values of a run in place of
// names; "" if there is none, if some of the values are not to be shown, or if it cannot be
// computed here: an action may no longer be registered.
func Expanded(p *plan.Plan, actions catalogue.Finder, start *journal.Start) string {
	if start == nil || p.Estimate == nil || p.Estimate.Formula == "" || view.NewMask(p) != nil {
		return ""
	}
	prog, err := New(p)
	if err != nil {
		return ""
	}
	if _, _, err := prog.Pin(actions); err != nil {
		return ""
	}
	return prog.Budget(actions, start.Parameters, start.Files).Expanded
}
