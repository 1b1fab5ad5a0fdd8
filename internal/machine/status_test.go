// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
)

// TestLeavesVerdict: completed when every leaf is completed or skipped; else
// cancelled when a step is and none failed; else failed (X93).
func TestLeavesVerdict(t *testing.T) {
	const src = "name: r\norder: none\nfailure_policy: drain\nresult_rule: leaves\nsteps:\n" +
		"  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}, dependsOn: [a]}\n  - {id: c, action: {name: work}, dependsOn: [a]}\n"
	for _, tt := range []struct {
		a, b, c Status
		want    RunStatus
	}{
		{Completed, Completed, Completed, RunCompleted},
		{Completed, Completed, Skipped, RunCompleted},
		{Completed, Skipped, Skipped, RunCompleted},
		{StepFailed, Skipped, Completed, RunCompleted},
		{Cancelled, Completed, Skipped, RunCompleted},
		{Completed, Completed, Cancelled, RunCancelled},
		{Cancelled, Cancelled, Cancelled, RunCancelled},
		{Completed, Skipped, Cancelled, RunCancelled},
		{Completed, Completed, StepFailed, RunFailed},
		{Completed, StepFailed, Cancelled, RunFailed},
		{StepFailed, Skipped, Cancelled, RunFailed},
		{Cancelled, Skipped, StepFailed, RunFailed},
	} {
		d := drive(t, Prepare(compilePlan(t, src)))
		for i, st := range []Status{tt.a, tt.b, tt.c} {
			d.run.root.steps[i].status = st
		}
		if got := d.run.leavesVerdict(); got != tt.want {
			t.Errorf("X93: %s, then %s and %s: %s, want %s", tt.a, tt.b, tt.c, got, tt.want)
		}
	}
}
