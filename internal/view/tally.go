// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// MaxKnown is how many settled step instances a tally remembers, so that one that runs
// again in a later generation is not counted twice.
const MaxKnown = 200_000

// A Tally counts the outcomes of each step of a run's plan. It holds a state per step,
// one entry per open step instance and a bounded number of settled ones, so a loop
// over a million items does not need a million entries.
type Tally struct {
	Plan   *plan.Plan
	Steps  []StepTally // by the step's index
	Opened []int       // how many scopes of each graph were opened
	Status journal.RunStatus
	Last   uint64 // number of the last event
	Times  *Times // nil unless requested

	known  map[journal.Ref]string // the status of instances
	failed map[journal.Path]int32 // iterations in which a step failed, and that step
	many   []bool                 // graphs inside a loop, whose steps have many instances
}

// A StepTally is the state of a step: for a step in a loop, of all its instances.
type StepTally struct {
	// Counts are the instances by status; for a loop step, its iterations.
	Counts   map[string]int
	Attempts int           // the most attempts that one instance needed
	Tries    int64         // how many attempts an instance may have
	Micros   int64         // duration of the last instance
	Cost     ledger.Amount // of all instances
	Items    int64         // of a loop; -1 = not known, or no loop
	// Note is what the step waits for, or why it is blocked or skipped.
	Note    string
	Undone  string // "compensated", or why the compensation failed
	Run     string // the newest child run of a step that has one instance
	Code    fault.Code
	Message string

	Own   string // the status of the step itself, if it has one instance
	Began bool   // an instance was dispatched, has opened or waits
}

// Status is the status that is displayed: that of the most important instance.
func (s *StepTally) Status() string {
	if s.Own != "" {
		return s.Own
	}
	for _, status := range statuses {
		if s.Counts[status] > 0 {
			return status
		}
	}
	return "pending"
}

// statuses are all statuses of a step, the most important first.
var statuses = []string{
	"running", "retrying", "waiting", "queued", "blocked", "failed", "timed_out",
	"cancelled", "invalidated", "completed", "skipped", "pending",
}

// NewTally returns a tally of a run of p, without events. With timed it also records
// when each step instance ended.
func NewTally(p *plan.Plan, timed bool) *Tally {
	t := &Tally{
		Plan: p, Steps: make([]StepTally, len(p.Steps)), Opened: make([]int, len(p.Graphs)),
		known: map[journal.Ref]string{}, failed: map[journal.Path]int32{},
	}
	t.many = make([]bool, len(p.Graphs))
	for i := range p.Graphs { // a graph comes after the graph that contains its owner
		if g := &p.Graphs[i]; g.Owner != plan.None {
			t.many[i] = g.Role == plan.Body || t.many[p.Steps[g.Owner].Graph]
		}
	}
	for i := range t.Steps {
		t.fresh(int32(i))
	}
	if timed {
		t.Times = newTimes()
	}
	return t
}

func (t *Tally) fresh(step int32) {
	t.Steps[step] = StepTally{Counts: map[string]int{}, Items: -1, Tries: t.Plan.Steps[step].Retry.Attempts}
}

// Add adds the run's next event.
func (t *Tally) Add(ev *journal.Event) {
	t.Last = ev.Seq
	if ev.Step < 0 {
		t.run(ev)
		return
	}
	s := &t.Steps[ev.Step]
	if ev.Kind != journal.EvNodeReady && ev.Kind != journal.EvNodeSkipped && ev.Kind != journal.EvNodeCancelled {
		s.Began = true
	}
	switch ev.Kind {
	case journal.EvNodeReady:
		t.set(ev, "pending")
	case journal.EvNodeQueued, journal.EvNodeLost:
		t.set(ev, "queued")
	case journal.EvNodeBlocked:
		s.Note = strings.Clone(ev.Text)
		t.set(ev, "blocked")
	case journal.EvNodeStarted, journal.EvChildStarted:
		if ev.Kind == journal.EvChildStarted && !t.many[t.Plan.Steps[ev.Step].Graph] {
			s.Run = strings.Clone(ev.Text)
		}
		s.Attempts = max(s.Attempts, int(ev.Attempt))
		t.set(ev, "running")
	case journal.EvNodeOpened:
		t.enter(ev, s)
		t.set(ev, "running")
	case journal.EvNodeIteration:
		t.Opened[t.Plan.Steps[ev.Step].Body]++
		if !t.many[t.Plan.Steps[ev.Step].Graph] {
			s.Counts["running"]++
		}
	case journal.EvNodeSubmitted:
		s.Note = jobText(ev)
		t.set(ev, "waiting")
	case journal.EvNodeWaiting:
		s.Note = waitingText(ev.Text, ev.Due())
		t.set(ev, "waiting")
	case journal.EvNodeRetried:
		s.fail(ev)
		t.set(ev, "retrying")
	case journal.EvNodeFallback:
		s.fail(ev)
		t.Opened[t.Plan.Steps[ev.Step].Fallback]++
		t.set(ev, "running")
	case journal.EvNodeCompensating:
		t.Opened[t.Plan.Steps[ev.Step].Compensate]++
	case journal.EvNodeCompensated:
		s.Undone = undoneText(ev)
	default:
		t.settle(ev, s)
	}
}

func (s *StepTally) fail(ev *journal.Event) { s.Code, s.Message = ev.Code, strings.Clone(ev.Text) }

func (t *Tally) run(ev *journal.Event) {
	switch ev.Kind {
	case journal.EvRunStarted, journal.EvRunRetried:
		t.Status = journal.RunDispatching
	case journal.EvRunStatus:
		t.Status = ev.Status()
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		t.Status = ev.Kind.EndStatus()
	}
}

func (t *Tally) enter(ev *journal.Event, s *StepTally) {
	step := &t.Plan.Steps[ev.Step]
	switch step.Kind {
	case plan.Condition:
		if ev.Side() == journal.ThenSide && step.Then != plan.None {
			t.Opened[step.Then]++
		}
		if ev.Side() == journal.ElseSide && step.Else != plan.None {
			t.Opened[step.Else]++
		}
	case plan.Parallel:
		for _, g := range step.Branches {
			t.Opened[g]++
		}
	case plan.Loop:
		if !t.many[step.Graph] {
			s.Items = max(ev.Items(), 0)
		}
	}
}

func (t *Tally) settle(ev *journal.Event, s *StepTally) {
	switch ev.Kind {
	case journal.EvNodeCompleted:
		s.Micros = ev.Micros()
		if !t.many[t.Plan.Steps[ev.Step].Graph] { // in a loop another iteration may have failed
			s.Code, s.Message = "", ""
		}
		s.Cost = s.Cost.Plus(ledger.Whole(ev.Cost()))
		t.set(ev, "completed")
	case journal.EvChildEnded:
		s.Cost = s.Cost.Plus(ev.ChildUsed())
	case journal.EvNodeCharged:
		if ev.Charged() {
			s.Cost = s.Cost.Plus(ev.Amount())
		}
	case journal.EvNodeFailed:
		s.Micros = ev.Micros()
		s.fail(ev)
		t.set(ev, failedStatus(ev.Code))
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		s.Note = reasonText(ev.Reason().String())
		status := "skipped"
		if ev.Kind == journal.EvNodeCancelled {
			status = "cancelled"
		}
		t.set(ev, status)
	case journal.EvNodeInvalidated:
		if _, known := t.known[ev.Ref()]; !known {
			t.known[ev.Ref()] = ev.Before().String()
		}
		s.Micros = 0
		if !ev.Reopened() {
			t.resetInner(ev.Step)
		}
		t.set(ev, "invalidated")
	}
}

// Known is how many step instances the tally remembers.
func (t *Tally) Known() int { return len(t.known) }

// set changes the status of a step instance.
func (t *Tally) set(ev *journal.Event, status string) {
	ref := ev.Ref()
	before := t.known[ref]
	s := &t.Steps[ev.Step]
	if t.Plan.Steps[ev.Step].Kind == plan.Loop && !t.many[t.Plan.Steps[ev.Step].Graph] {
		s.Own = status // its counts are those of its iterations
	} else {
		if before != "" {
			s.Counts[before]--
		}
		s.Counts[status]++
	}
	t.iteration(ev, before, status)
	if before != "" || len(t.known) < MaxKnown || !final(status) {
		t.known[journal.Ref{Path: journal.Path(strings.Clone(string(ref.Path))), Step: ref.Step}] = status
	}
	if final(status) && len(t.known) > MaxKnown {
		delete(t.known, ref)
	}
	if t.Times != nil {
		t.Times.add(ev, status)
	}
}

// final reports whether a status is final for its generation.
func final(status string) bool {
	switch status {
	case "completed", "failed", "timed_out", "skipped", "cancelled":
		return true
	}
	return false
}

// resetInner removes the records of what is inside a step that a retry runs again.
// Inside a loop the other iterations keep theirs; there a repeated instance replaces
// the old one.
func (t *Tally) resetInner(step int32) {
	if t.many[t.Plan.Steps[step].Graph] {
		return
	}
	inside := map[int32]bool{}
	t.forget(step, inside)
	if len(inside) == 0 {
		return
	}
	for ref := range t.known {
		if inside[t.Plan.Steps[ref.Step].Graph] {
			delete(t.known, ref)
		}
	}
	for path := range t.failed {
		if inside[t.Plan.Steps[t.failed[path]].Graph] {
			delete(t.failed, path)
		}
	}
	if t.Times != nil {
		t.Times.forget(t.Plan, inside)
	}
}

func (t *Tally) forget(step int32, inside map[int32]bool) {
	if t.Steps[step].Own != "" { // its counts are those of its iterations
		t.Steps[step].Counts = map[string]int{}
	}
	for _, g := range t.Plan.Steps[step].Graphs() {
		inside[g], t.Opened[g] = true, 0
		for i := t.Plan.Graphs[g].First; i < t.Plan.Graphs[g].First+t.Plan.Graphs[g].N; i++ {
			t.forget(i, inside)
			t.fresh(i)
		}
	}
}

// iteration updates the counts of the loop around a step. An iteration fails at the
// first unhandled failure in it, and ends with its last step.
func (t *Tally) iteration(ev *journal.Event, before, status string) {
	g := &t.Plan.Graphs[t.Plan.Steps[ev.Step].Graph]
	if g.Role != plan.Body {
		return
	}
	loop := &t.Steps[g.Owner]
	if t.many[t.Plan.Steps[g.Owner].Graph] {
		return // for a nested loop the instances are counted
	}
	failure := (status == "failed" || status == "timed_out") && !ev.Handled()
	_, failed := t.failed[ev.Path]
	switch {
	case failure && !failed:
		t.failed[journal.Path(strings.Clone(string(ev.Path)))] = ev.Step
		loop.Counts["failed"]++
		loop.Counts["running"]--
	case failed && status == "invalidated" && (before == "failed" || before == "timed_out"):
		delete(t.failed, ev.Path)
		loop.Counts["failed"]--
		loop.Counts["running"]++
	case failed || ev.Step != g.Out:
	case status == "invalidated" && final(before):
		loop.Counts[ended(before)]--
		loop.Counts["running"]++
	case final(status) && !final(before):
		loop.Counts[ended(status)]++
		loop.Counts["running"]--
	}
}

// ended is the status of an iteration whose last step ended with the given status.
func ended(last string) string {
	if last == "cancelled" {
		return last
	}
	return "completed"
}

// Settled reports whether the step has instances and none of them is open.
func (t *Tally) Settled(step int32) bool { return final(t.Steps[step].Status()) }

// NeverOpened reports whether the run has not opened a graph and never will.
func (t *Tally) NeverOpened(g int32) bool {
	for g != 0 {
		owner := t.Plan.Graphs[g].Owner
		// A compensation may still run until the run has ended.
		never := t.Settled(owner) && t.Plan.Graphs[g].Role != plan.Compensation
		if t.Opened[g] == 0 && (t.Status.Terminal() || never) {
			return true
		}
		if t.Opened[g] > 0 {
			return false
		}
		g = t.Plan.Steps[owner].Graph
	}
	return false
}
