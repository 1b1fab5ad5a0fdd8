// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/plan"
)

// A lifecycle checks every event of a run against the statuses that may follow
// each other. Scenarios and random runs go through it, so each of their events
// proves it: X76 for steps, X77, X78 and X80 for the run, R2, R4.
type lifecycle struct {
	run   RunStatus
	steps map[Ref]Status
}

// nextStatus is what a step instance may become from each status.
var nextStatus = [...][]Status{
	Pending:     {Queued, Running, Waiting, Retrying, Completed, StepFailed, Skipped, Cancelled},
	Blocked:     {Blocked, Running, StepFailed, Skipped, Cancelled},
	Queued:      {Blocked, Running, StepFailed, Skipped, Cancelled},
	Running:     {Running, Retrying, Queued, Completed, StepFailed, Skipped, Cancelled},
	Waiting:     {Running, Completed, StepFailed, Skipped, Cancelled},
	Retrying:    {Queued, Running, StepFailed, Skipped, Cancelled},
	Completed:   {},
	StepFailed:  {},
	Skipped:     {},
	Cancelled:   {},
	Invalidated: {Queued, Running, Waiting, Completed, StepFailed, Skipped, Cancelled},
}

// became is the status an event gives its step.
var became = map[EventKind]Status{
	EvNodeQueued: Queued, EvNodeBlocked: Blocked, EvNodeStarted: Running, EvNodeOpened: Running,
	EvNodeFallback: Running, EvNodeWaiting: Waiting, EvNodeRetried: Retrying, EvNodeLost: Queued,
	EvNodeCompleted: Completed, EvNodeFailed: StepFailed, EvNodeSkipped: Skipped, EvNodeCancelled: Cancelled,
}

// nextRun is what a run may become: dispatching → running ⇄ preview → an end.
var nextRun = map[RunStatus][]RunStatus{
	RunPending:     {RunDispatching},
	RunDispatching: {RunRunning, RunCompleted, RunFailed, RunCancelled, RunExpired},
	RunRunning:     {RunPreview, RunCompleted, RunFailed, RunCancelled, RunExpired},
	RunPreview:     {RunRunning, RunCompleted, RunFailed, RunCancelled, RunExpired},
	RunCompleted:   {RunDispatching}, // by a retry or an edit alone
	RunFailed:      {RunDispatching},
	RunCancelled:   {RunDispatching},
	RunExpired:     {RunDispatching},
}

func (l *lifecycle) event(ev *Event, r *Run) error {
	if ev.Step < 0 {
		return l.runEvent(ev)
	}
	if l.steps == nil {
		l.steps = map[Ref]Status{}
	}
	ref := ev.Ref()
	if ev.Kind == EvNodeInvalidated {
		if was := l.steps[ref]; !was.Settled() || was != Status(ev.Flag) {
			return fmt.Errorf("X76: %s is reset from %s, it was %s", StepPath(r.plan, ref), Status(ev.Flag), was)
		}
		l.reset(ref, ev, r.plan)
		return nil
	}
	next, changes := became[ev.Kind]
	if !changes || notTaken(ev) {
		return nil
	}
	if was := l.steps[ref]; !slices.Contains(nextStatus[was], next) {
		return fmt.Errorf("X76: %s went from %s to %s", StepPath(r.plan, ref), was, next)
	}
	if ev.Kind == EvNodeOpened {
		l.forget(ev, r.plan)
	}
	l.steps[ref] = next
	return nil
}

// reset: a step that is only reopened runs on; another is as it was at first,
// with everything it owned.
func (l *lifecycle) reset(ref Ref, ev *Event, p *plan.Plan) {
	switch {
	case ev.N == 1:
		l.steps[ref] = Running
	case Status(ev.Flag) == Completed:
		l.steps[ref] = Invalidated
		l.forget(ev, p)
	default:
		l.steps[ref] = Pending
		l.forget(ev, p)
	}
}

// forget drops the steps of scopes that will be opened anew.
func (l *lifecycle) forget(ev *Event, p *plan.Plan) {
	var buf [16]level
	own, _ := ev.Path.levels(p, buf[:0])
	depth := len(own)
	for ref := range l.steps {
		if !strings.HasPrefix(string(ref.Path), string(ev.Path)) {
			continue
		}
		if levels, ok := ref.Path.levels(p, buf[:0]); ok && len(levels) > depth && p.Graphs[levels[depth].graph].Owner == ev.Step {
			delete(l.steps, ref)
		}
	}
}

func (l *lifecycle) runEvent(ev *Event) error {
	var next RunStatus
	switch ev.Kind {
	case EvRunStarted, EvRunRetried:
		next = RunDispatching
	case EvRunStatus:
		next = RunStatus(ev.Flag)
		if RunStatus(ev.N) != l.run {
			return fmt.Errorf("X80: the event says the run was %s, it was %s", RunStatus(ev.N), l.run)
		}
	case EvRunCompleted, EvRunFailed, EvRunCancelled, EvRunExpired:
		next = endStatus[ev.Kind]
	case EvRunEnding: // it runs, towards a verdict that is fixed
		if l.run == RunRunning {
			return nil
		}
		next = RunRunning
	default:
		return nil
	}
	if !slices.Contains(nextRun[l.run], next) || l.run.Terminal() != (ev.Kind == EvRunRetried) {
		return fmt.Errorf("X77: the run went from %s to %s", l.run, next)
	}
	l.run = next
	return nil
}

// TestStatusNames: the names that people and programs read, in full (X76, X77,
// X78, R2, R4), and which of them are ends.
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
