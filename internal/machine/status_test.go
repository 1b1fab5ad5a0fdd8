// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// TestLeavesVerdict: a run is completed when every leaf is completed or skipped; else
// cancelled when a step is cancelled and none failed; else failed (X93).
func TestLeavesVerdict(t *testing.T) {
	const src = "name: r\norder: none\nfailure_policy: drain\nresult_rule: leaves\nsteps:\n" +
		"  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}, dependsOn: [a]}\n  - {id: c, action: {name: work}, dependsOn: [a]}\n"
	for _, tt := range []struct {
		a, b, c journal.Status
		want    journal.RunStatus
	}{
		{journal.Completed, journal.Completed, journal.Completed, journal.RunCompleted},
		{journal.Completed, journal.Completed, journal.Skipped, journal.RunCompleted},
		{journal.Completed, journal.Skipped, journal.Skipped, journal.RunCompleted},
		{journal.StepFailed, journal.Skipped, journal.Completed, journal.RunCompleted},
		{journal.Cancelled, journal.Completed, journal.Skipped, journal.RunCompleted},
		{journal.Completed, journal.Completed, journal.Cancelled, journal.RunCancelled},
		{journal.Cancelled, journal.Cancelled, journal.Cancelled, journal.RunCancelled},
		{journal.Completed, journal.Skipped, journal.Cancelled, journal.RunCancelled},
		{journal.Completed, journal.Completed, journal.StepFailed, journal.RunFailed},
		{journal.Completed, journal.StepFailed, journal.Cancelled, journal.RunFailed},
		{journal.StepFailed, journal.Skipped, journal.Cancelled, journal.RunFailed},
		{journal.Cancelled, journal.Skipped, journal.StepFailed, journal.RunFailed},
	} {
		d := drive(t, Prepare(compilePlan(t, src)))
		for i, st := range []journal.Status{tt.a, tt.b, tt.c} {
			d.run.root.steps[i].status = st
		}
		if got := d.run.leavesVerdict(); got != tt.want {
			t.Errorf("X93: %s, then %s and %s: %s, want %s", tt.a, tt.b, tt.c, got, tt.want)
		}
	}
}
