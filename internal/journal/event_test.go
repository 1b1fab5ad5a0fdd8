// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"slices"
	"testing"
)

// TestStatusNames: the status names that people and programs read, in full (X76, X77,
// X78, R2, R4), and which of them are final.
func TestStatusNames(t *testing.T) {
	for st, want := range map[Status]string{
		Pending: "pending", Blocked: "blocked", Queued: "queued", Running: "running", Waiting: "waiting", Retrying: "retrying",
		Completed: "completed", StepFailed: "failed", Skipped: "skipped", Cancelled: "cancelled", Invalidated: "invalidated",
	} {
		ends := st == Completed || st == StepFailed || st == Skipped || st == Cancelled
		if st.String() != want || st.Settled() != ends {
			t.Errorf("X76: step status %d is %q, settled %v; want %q, %v", st, st, st.Settled(), want, ends)
		}
	}
	for st, want := range map[RunStatus]string{
		RunPending: "pending", RunQueued: "queued", RunDispatching: "dispatching", RunRunning: "running", RunPreview: "preview",
		RunCompleted: "completed", RunFailed: "failed", RunCancelled: "cancelled", RunExpired: "expired",
	} {
		ends := slices.Contains([]string{"completed", "failed", "cancelled", "expired"}, want)
		if st.String() != want || st.Terminal() != ends {
			t.Errorf("X77, X78: run status %d is %q, terminal %v; want %q, %v", st, st, st.Terminal(), want, ends)
		}
	}
	if len(statusNames) != 11 || len(runStatusNames) != 9 {
		t.Errorf("%d step and %d run statuses have names, want 11 and 9", len(statusNames), len(runStatusNames))
	}
	for why, want := range map[Reason]string{ByCondition: "condition", BranchNotTaken: "branch_not_taken", ParentFailure: "parent_failure",
		BranchLost: "branch_lost", ByOnError: "on_error", RunEnded: "run_ended", ByCancel: "cancelled"} {
		if why.String() != want {
			t.Errorf("R4: reason %d is %q, want %q", why, why, want)
		}
	}
}
