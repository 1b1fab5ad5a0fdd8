// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// MaxKnown is how many settled step instances a tally remembers, so that one that
// runs again in a later generation is not counted twice.
const MaxKnown = 200_000

// A Tally counts what a run has made of each step of its plan. It keeps a state per
// step, one entry per open step instance and a bounded number of settled ones: a loop
// over a million items does not cost a million entries.
type Tally struct {
	Plan   *plan.Plan
	Steps  []StepTally // by the number of the step
	Opened []int       // how many scopes of each graph were opened
	Status journal.RunStatus
	Last   uint64 // number of the last event
	Times  *Times // nil unless they were asked for

	known  map[journal.Ref]string // the status of instances
	failed map[journal.Path]int32 // iterations in which something failed, and the step that did
	many   []bool                 // graphs that lie in a loop: their steps have many instances
}

// A StepTally is what a run has made of a step: of all its instances, when it
// stands in a loop.
type StepTally struct {
	// Counts are the instances by status; those of a loop step are its iterations.
	Counts   map[string]int
	Attempts int   // the most that one instance needed
	Tries    int64 // how many it may need
	Micros   int64 // how long the last one took
	Cost     int64 // credits, of all
	Items    int64 // of a loop; -1 = not known, or no loop
	// Note says what it waits for, why it is held back or was passed over.
	Note    string
	Undone  string // "compensated", or why that failed
	Code    fault.Code
	Message string

	Own   string // the status of the step itself, where it has one instance
	Began bool   // an instance was handed out, opened or waits
}

// Status is the one status whose look a card has: that of the instance that
// most wants to be seen.
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

// statuses are those that a step can have, the one that a stack of steps takes
// its look from first.
var statuses = []string{
	"running", "retrying", "waiting", "queued", "blocked", "failed", "timed_out",
	"cancelled", "invalidated", "completed", "skipped", "pending",
}

// NewTally returns the tally of a run of p that has no journal yet. With timed it
// remembers when each step instance ended.
func NewTally(p *plan.Plan, timed bool) *Tally {
	t := &Tally{
		Plan: p, Steps: make([]StepTally, len(p.Steps)), Opened: make([]int, len(p.Graphs)),
		known: map[journal.Ref]string{}, failed: map[journal.Path]int32{},
	}
	t.many = make([]bool, len(p.Graphs))
	for i := range p.Graphs { // a graph comes after the one that holds its owner
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

// Add folds the run's next event.
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
	case journal.EvNodeStarted:
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
		s.Cost += ev.Cost()
		t.set(ev, "completed")
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
			t.withdraw(ev.Step)
		}
		t.set(ev, "invalidated")
	}
}

// Known is how many step instances the tally remembers.
func (t *Tally) Known() int { return len(t.known) }

// set moves a step instance to a status.
func (t *Tally) set(ev *journal.Event, status string) {
	ref := ev.Ref()
	before := t.known[ref]
	s := &t.Steps[ev.Step]
	if t.Plan.Steps[ev.Step].Kind == plan.Loop && !t.many[t.Plan.Steps[ev.Step].Graph] {
		s.Own = status // its counts are its iterations
	} else {
		if before != "" {
			s.Counts[before]--
		}
		s.Counts[status]++
	}
	t.iteration(ev, before, status)
	if before != "" || len(t.known) < MaxKnown || !over(status) {
		t.known[journal.Ref{Path: journal.Path(strings.Clone(string(ref.Path))), Step: ref.Step}] = status
	}
	if over(status) && len(t.known) > MaxKnown {
		delete(t.known, ref)
	}
	if t.Times != nil {
		t.Times.add(ev, status)
	}
}

// over says that a status is final for its generation.
func over(status string) bool {
	switch status {
	case "completed", "failed", "timed_out", "skipped", "cancelled":
		return true
	}
	return false
}

// withdraw forgets what happened inside a step that a retry runs anew. Of one
// in a loop the other iterations keep theirs: there an instance that comes
// again takes the place of the old one.
func (t *Tally) withdraw(step int32) {
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
	if t.Steps[step].Own != "" { // its counts are its iterations
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

// iteration counts for the loop around a step: an iteration has failed with the
// first failure in it that nothing handled, and is over with its last step.
func (t *Tally) iteration(ev *journal.Event, before, status string) {
	g := &t.Plan.Graphs[t.Plan.Steps[ev.Step].Graph]
	if g.Role != plan.Body {
		return
	}
	loop := &t.Steps[g.Owner]
	if t.many[t.Plan.Steps[g.Owner].Graph] {
		return // a loop in a loop: its instances are counted
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
	case status == "invalidated" && over(before):
		loop.Counts[ended(before)]--
		loop.Counts["running"]++
	case over(status) && !over(before):
		loop.Counts[ended(status)]++
		loop.Counts["running"]--
	}
}

// ended is how an iteration ended whose last step ended so.
func ended(last string) string {
	if last == "cancelled" {
		return last
	}
	return "completed"
}

// Settled says that no instance of a step is open and some instance was.
func (t *Tally) Settled(step int32) bool { return over(t.Steps[step].Status()) }

// Passed says that the run never will open, or never opened, a graph.
func (t *Tally) Passed(g int32) bool {
	for g != 0 {
		owner := t.Plan.Graphs[g].Owner
		// What undoes a step may still be wanted until the run has ended.
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
