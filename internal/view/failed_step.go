// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// FailedStep returns the id of the first step that failed, if ev is the end of a run that
// failed for one; else "".
func FailedStep(p *plan.Plan, ev *journal.Event) string {
	if ev.Kind != journal.EvRunFailed {
		return ""
	}
	if i := ev.FailedStep(); i >= 0 && int(i) < len(p.Steps) {
		return p.Steps[i].ID
	}
	return ""
}
