// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A runChecker observes one run from outside: it keeps the run's journal and asserts
// the invariants after every turn (reliability.md, I1–I9 as far as one run can show
// them).
type runChecker struct {
	run    *Run
	seen   *journal.Checker
	frames []byte
	owed   map[string]bool               // issued commands
	live   map[journal.Ref]journal.Fence // the attempt dispatched last
	jobs   map[jobName]journal.Ref       // those that the store keeps
}

func newLedger(r *Run) *runChecker {
	return &runChecker{run: r, seen: journal.NewChecker(r.plan), owed: map[string]bool{}, live: map[journal.Ref]journal.Fence{}, jobs: map[jobName]journal.Ref{}}
}

func commandKey(c Command) string {
	switch c.Kind {
	case CmdContinue:
		return "continue"
	case CmdAdmit:
		return "admit"
	}
	return fmt.Sprintf("%d %x %d %d.%d %d", c.Kind, c.Ref.Path, c.Ref.Step, c.Fence.Gen, c.Fence.Attempt, c.From)
}

// turn records the result of a Decide and checks the invariants.
func (l *runChecker) turn(t *Turn) error {
	gen := l.run.gen
	for i := range t.Events {
		ev := &t.Events[i]
		if ev.Kind == journal.EvNodeStarted || ev.Kind == journal.EvChildStarted {
			l.live[ev.Ref()] = journal.Fence{Gen: gen, Attempt: ev.Attempt}
		}
		if err := l.seen.Check(ev); err != nil {
			return err
		}
	}
	for i := range t.Events {
		ev, key := &t.Events[i], ""
		if st, k := l.run.at(ev.Ref()); ev.Kind == journal.EvNodeStarted && st != nil && st.steps[k].attempt == ev.Attempt {
			key = l.run.effectKey(st, k) // otherwise it was swept in the same turn
		}
		if err := l.seen.CheckEffectKey(ev, gen, key); err != nil {
			return err
		}
	}
	l.frames = journal.AppendFrame(l.frames, t.Events)
	if err := l.keepJobs(t.Jobs); err != nil {
		return err
	}
	for _, c := range t.Commands {
		l.owed[commandKey(c)] = true
	}
	return l.check()
}

// keepJobs follows what the store keeps of external jobs: each change is of a job that it
// keeps or begins to keep, and it keeps those that steps wait for, no others (X128).
func (l *runChecker) keepJobs(changes []journal.JobChange) error {
	for i := range changes {
		c := &changes[i]
		name := nameOf(&c.Job)
		ref, kept := l.jobs[name]
		switch {
		case c.Kind == journal.JobSubmitted:
			if kept {
				return fmt.Errorf("X128: two steps wait for job %v", name)
			}
			l.jobs[name] = c.Ref
		case c.Unknown:
			if kept {
				return fmt.Errorf("X128: job %v is cancelled as one that nobody waits for, and %v does", name, ref)
			}
		case !kept || ref != c.Ref:
			return fmt.Errorf("X128: job %v ends or has a preview, for which no step waits", name)
		case c.Kind != journal.JobPreviewed:
			delete(l.jobs, name)
		}
	}
	waiting := 0
	var err error
	l.run.EachJob(func(j *OpenJob) {
		waiting++
		if l.jobs[jobName{j.Provider, j.ID}] != j.Ref || j.Fence != l.live[j.Ref] {
			err = fmt.Errorf("X128: %s waits for job %s of attempt %v, which the store does not keep for it", journal.StepPath(l.run.plan, j.Ref), j.ID, j.Fence)
		}
	})
	if err == nil && waiting != len(l.jobs) {
		err = fmt.Errorf("X128: the store keeps %d jobs, and steps wait for %d", len(l.jobs), waiting)
	}
	return err
}

// check asserts the invariants of the current state.
func (l *runChecker) check() error {
	if l.run.last == 0 {
		return nil
	}
	if err := l.replays(); err != nil {
		return err
	}
	if err := l.owes(); err != nil {
		return err
	}
	if err := l.run.CheckValues(l.seen.InputBytes()); err != nil {
		return err
	}
	return l.run.Check()
}

// replays asserts that applying the journal, and restoring a snapshot, give the same
// bytes (I2).
func (l *runChecker) replays() error {
	want := l.run.Snapshot(nil)
	again := NewRun(l.run.prog)
	if err := journal.EachEvent(l.frames, again.Apply); err != nil {
		return fmt.Errorf("I2: replay: %w", err)
	}
	if got := again.Snapshot(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("I2: replay of %d events gives another state: %s", l.seen.Last(), differ(again, l.run))
	}
	back, err := Restore(l.run.prog, want)
	if err != nil {
		return fmt.Errorf("I2: restore: %w", err)
	}
	if err := supplyAll(back, l.frames); err != nil {
		return err
	}
	if got := back.Snapshot(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("I2: snapshot → restore → snapshot differs: %s", differ(back, l.run))
	}
	if a, b := back.NextDue(), l.run.NextDue(); a != b {
		return fmt.Errorf("I9: restored timers say %d, live ones %d", a, b)
	}
	if a, b := willFire(back), willFire(l.run); !slices.Equal(a, b) {
		return fmt.Errorf("I9: restored timers fire as %v, live ones as %v", a, b)
	}
	if a, b := fmt.Sprint(back.Owed(nil)), fmt.Sprint(l.run.Owed(nil)); a != b {
		return fmt.Errorf("I2: restored run owes %s, live one %s", a, b)
	}
	return nil
}

// willFire lists the live timers, in order.
func willFire(r *Run) (order []string) {
	due := r.timers
	due.sorted, due.heap = slices.Clone(due.sorted), slices.Clone(due.heap)
	for first := due.first(); first != nil; first = due.first() {
		t := *first
		due.pop()
		if what := fmt.Sprintf("%d %x %d %v", t.due, t.scope.path, t.step, t.total); r.timerLive(t) && !slices.Contains(order, what) {
			order = append(order, what)
		}
	}
	return order
}

func supplyAll(r *Run, frames []byte) error {
	need := r.Missing()
	if err := journal.EachEvent(frames, func(ev *journal.Event) error {
		if slices.Contains(need, ev.Seq) {
			return r.Supply(ev)
		}
		return nil
	}); err != nil {
		return err
	}
	if left := r.Missing(); len(left) > 0 {
		return fmt.Errorf("values of events %v were not supplied", left)
	}
	return nil
}

// owes asserts that every owed command was issued because of an event.
func (l *runChecker) owes() error {
	for _, c := range l.run.Owed(nil) {
		if !l.owed[commandKey(c)] {
			return fmt.Errorf("Owed names a command that no event issued: %+v", c)
		}
	}
	return nil
}

// differ describes the first difference between two runs, for a failing test.
func differ(a, b *Run) string {
	if a.worklist.len() != b.worklist.len() {
		return fmt.Sprintf("worklists of %d and %d entries", a.worklist.len(), b.worklist.len())
	}
	as, bs := a.sortedScopes(), b.sortedScopes()
	if len(as) != len(bs) {
		return fmt.Sprintf("%d and %d scopes", len(as), len(bs))
	}
	for k := range as {
		for i := range as[k].steps {
			x, y := as[k].steps[i], bs[k].steps[i]
			x.pos, y.pos = 0, 0
			if x != y {
				return fmt.Sprintf("step %s: %+v and %+v", journal.StepPath(a.plan, as[k].ref(int32(i))), x, y)
			}
		}
	}
	return fmt.Sprintf("%d/%d/%d/%v/%d/%d and %d/%d/%d/%v/%d/%d", a.last, a.status, a.valueMem, a.compensations, len(a.signals), a.started,
		b.last, b.status, b.valueMem, b.compensations, len(b.signals), b.started)
}

// stepNamed is the index of the plan's step with that id.
func stepNamed(p *plan.Plan, id string) int32 {
	for i := range p.Steps {
		if p.Steps[i].ID == id {
			return int32(i)
		}
	}
	panic("no step " + id)
}
