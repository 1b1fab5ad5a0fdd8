// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

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
