// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// maxTimed is how many step instances a critical path may be looked for in.
const maxTimed = 500_000

// maxKnown is how many settled step instances a fold remembers, so that one that
// runs again in a later generation is not counted twice.
const maxKnown = 200_000

// A Fold gathers from a run's events what its picture shows. It keeps a state
// per step of the plan, one entry per open step instance and a bounded number
// of settled ones: a loop over a million items does not cost a million entries.
type Fold struct {
	p      *plan.Plan
	steps  []State
	known  map[journal.Ref]string // the status of instances
	failed map[journal.Path]int32 // iterations in which something failed, and the step that did
	opened []int                  // scopes of each graph
	many   []bool                 // graphs that lie in a loop: their steps have many instances
	status journal.RunStatus
	last   uint64
	times  *times // nil without a critical path
}

// NewFold begins a picture of a run of p. With critical it remembers when every
// step instance ended.
func NewFold(p *plan.Plan, critical bool) *Fold {
	f := &Fold{
		p: p, steps: make([]State, len(p.Steps)), opened: make([]int, len(p.Graphs)),
		known: map[journal.Ref]string{}, failed: map[journal.Path]int32{},
	}
	f.many = make([]bool, len(p.Graphs))
	for i := range p.Graphs { // a graph comes after the one that holds its owner
		if g := &p.Graphs[i]; g.Owner != plan.None {
			f.many[i] = g.Role == plan.Body || f.many[p.Steps[g.Owner].Graph]
		}
	}
	for i := range f.steps {
		f.fresh(int32(i))
	}
	if critical {
		f.times = newTimes()
	}
	return f
}

func (f *Fold) fresh(step int32) {
	f.steps[step] = State{Counts: map[string]int{}, Items: -1, Tries: f.p.Steps[step].Retry.Attempts}
}

// Add folds the run's next event.
func (f *Fold) Add(ev *journal.Event) {
	f.last = ev.Seq
	if ev.Step < 0 {
		f.run(ev)
		return
	}
	s := &f.steps[ev.Step]
	if ev.Kind != journal.EvNodeReady && ev.Kind != journal.EvNodeSkipped && ev.Kind != journal.EvNodeCancelled {
		s.began = true
	}
	switch ev.Kind {
	case journal.EvNodeReady:
		f.set(ev, "pending")
	case journal.EvNodeQueued, journal.EvNodeLost:
		f.set(ev, "queued")
	case journal.EvNodeBlocked:
		s.Note = strings.Clone(ev.Text)
		f.set(ev, "blocked")
	case journal.EvNodeStarted:
		s.Attempts = max(s.Attempts, int(ev.Attempt))
		f.set(ev, "running")
	case journal.EvNodeOpened:
		f.enter(ev, s)
		f.set(ev, "running")
	case journal.EvNodeIteration:
		f.opened[f.p.Steps[ev.Step].Body]++
		if !f.many[f.p.Steps[ev.Step].Graph] {
			s.Counts["running"]++
		}
	case journal.EvNodeWaiting:
		s.Note = waitNote(strings.Clone(ev.Text), ev.Due())
		f.set(ev, "waiting")
	case journal.EvNodeRetried:
		s.fail(ev)
		f.set(ev, "retrying")
	case journal.EvNodeFallback:
		s.fail(ev)
		f.opened[f.p.Steps[ev.Step].Fallback]++
		f.set(ev, "running")
	case journal.EvNodeCompensating:
		f.opened[f.p.Steps[ev.Step].Compensate]++
	case journal.EvNodeCompensated:
		s.Undone = "compensated"
		if !ev.Undone() {
			s.Undone = fmt.Sprintf("compensation failed: %s: %s", ev.Code, ev.Text)
		}
	default:
		f.settle(ev, s)
	}
}

func (s *State) fail(ev *journal.Event) { s.Code, s.Message = ev.Code, strings.Clone(ev.Text) }

func (f *Fold) run(ev *journal.Event) {
	switch ev.Kind {
	case journal.EvRunStarted, journal.EvRunRetried:
		f.status = journal.RunDispatching
	case journal.EvRunStatus:
		f.status = ev.Status()
	case journal.EvRunCompleted:
		f.status = journal.RunCompleted
	case journal.EvRunFailed:
		f.status = journal.RunFailed
	case journal.EvRunCancelled:
		f.status = journal.RunCancelled
	case journal.EvRunExpired:
		f.status = journal.RunExpired
	}
}

func (f *Fold) enter(ev *journal.Event, s *State) {
	step := &f.p.Steps[ev.Step]
	switch step.Kind {
	case plan.Condition:
		if ev.Side() == journal.ThenSide && step.Then != plan.None {
			f.opened[step.Then]++
		}
		if ev.Side() == journal.ElseSide && step.Else != plan.None {
			f.opened[step.Else]++
		}
	case plan.Parallel:
		for _, g := range step.Branches {
			f.opened[g]++
		}
	case plan.Loop:
		if !f.many[step.Graph] {
			s.Items = max(ev.Items(), 0)
		}
	}
}

func (f *Fold) settle(ev *journal.Event, s *State) {
	switch ev.Kind {
	case journal.EvNodeCompleted:
		s.Micros = ev.Micros()
		if !f.many[f.p.Steps[ev.Step].Graph] { // in a loop another iteration may have failed
			s.Code, s.Message = "", ""
		}
		s.Cost += ev.Cost()
		f.set(ev, "completed")
	case journal.EvNodeFailed:
		s.Micros = ev.Micros()
		s.fail(ev)
		status := "failed"
		if fault.CauseOf(ev.Code) == fault.CauseTimeout {
			status = "timed_out"
		}
		f.set(ev, status)
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		s.Note = reasons[ev.Reason()]
		status := "skipped"
		if ev.Kind == journal.EvNodeCancelled {
			status = "cancelled"
		}
		f.set(ev, status)
	case journal.EvNodeInvalidated:
		if _, known := f.known[ev.Ref()]; !known {
			f.known[ev.Ref()] = ev.Before().String()
		}
		s.Micros = 0
		if !ev.Reopened() {
			f.withdraw(ev.Step)
		}
		f.set(ev, "invalidated")
	}
}

// set moves a step instance to a status.
func (f *Fold) set(ev *journal.Event, status string) {
	ref := ev.Ref()
	before := f.known[ref]
	s := &f.steps[ev.Step]
	if f.p.Steps[ev.Step].Kind == plan.Loop && !f.many[f.p.Steps[ev.Step].Graph] {
		s.own = status // its counts are its iterations
	} else {
		if before != "" {
			s.Counts[before]--
		}
		s.Counts[status]++
	}
	f.iteration(ev, before, status)
	if before != "" || len(f.known) < maxKnown || !over(status) {
		f.known[journal.Ref{Path: journal.Path(strings.Clone(string(ref.Path))), Step: ref.Step}] = status
	}
	if over(status) && len(f.known) > maxKnown {
		delete(f.known, ref)
	}
	if f.times != nil {
		f.times.add(ev, status)
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
func (f *Fold) withdraw(step int32) {
	if f.many[f.p.Steps[step].Graph] {
		return
	}
	inside := map[int32]bool{}
	f.forget(step, inside)
	if len(inside) == 0 {
		return
	}
	for ref := range f.known {
		if inside[f.p.Steps[ref.Step].Graph] {
			delete(f.known, ref)
		}
	}
	for path := range f.failed {
		if inside[f.p.Steps[f.failed[path]].Graph] {
			delete(f.failed, path)
		}
	}
	if f.times != nil {
		f.times.forget(f.p, inside)
	}
}

func (f *Fold) forget(step int32, inside map[int32]bool) {
	if f.steps[step].own != "" { // its counts are its iterations
		f.steps[step].Counts = map[string]int{}
	}
	for _, g := range f.p.Steps[step].Graphs() {
		inside[g], f.opened[g] = true, 0
		for i := f.p.Graphs[g].First; i < f.p.Graphs[g].First+f.p.Graphs[g].N; i++ {
			f.forget(i, inside)
			f.fresh(i)
		}
	}
}

// iteration counts for the loop around a step: an iteration has failed with the
// first failure in it that nothing handled, and is over with its last step.
func (f *Fold) iteration(ev *journal.Event, before, status string) {
	g := &f.p.Graphs[f.p.Steps[ev.Step].Graph]
	if g.Role != plan.Body {
		return
	}
	loop := &f.steps[g.Owner]
	if f.many[f.p.Steps[g.Owner].Graph] {
		return // a loop in a loop: its instances are counted
	}
	failure := (status == "failed" || status == "timed_out") && !ev.Handled()
	_, failed := f.failed[ev.Path]
	switch {
	case failure && !failed:
		f.failed[journal.Path(strings.Clone(string(ev.Path)))] = ev.Step
		loop.Counts["failed"]++
		loop.Counts["running"]--
	case failed && status == "invalidated" && (before == "failed" || before == "timed_out"):
		delete(f.failed, ev.Path)
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

// Picture is the picture of the run as far as it was folded.
func (f *Fold) Picture(name string, bindings bool) (*Picture, error) {
	pic := Of(f.p, name, bindings)
	pic.Run = true
	pic.Note = fmt.Sprintf("%s, event %d", f.status, f.last)
	scopes := map[string]int32{}
	for i := range pic.Nodes {
		n := &pic.Nodes[i]
		f.node(n)
		for _, g := range f.p.Steps[n.Step].Graphs() {
			scopes[scopeOf(f.p, n.ID, g)] = g
		}
	}
	for i := range pic.Groups {
		g := &pic.Groups[i]
		if graph, ok := scopes[g.ID]; ok {
			g.Untaken = f.passed(graph)
		}
	}
	steps := map[string]int32{}
	for i := range pic.Nodes {
		n := &pic.Nodes[i]
		steps[n.ID] = n.Step
	}
	for i := range pic.Edges {
		f.edge(&pic.Edges[i], steps, scopes)
	}
	if f.times != nil {
		if err := f.critical(pic); err != nil {
			return nil, err
		}
		pic.Note += ", critical path marked"
	}
	return pic, nil
}

func (f *Fold) node(n *Node) {
	s := f.steps[n.Step]
	if s.own != "" || s.Status() != "pending" || s.Counts["pending"] > 0 {
		n.State = &s
		n.Untaken = s.Status() == "skipped"
		return
	}
	if n.Untaken = f.status.Terminal() || f.passed(f.p.Steps[n.Step].Graph); n.Untaken {
		return
	}
	if g := f.p.Steps[n.Step].Graph; g == 0 || f.opened[g] > 0 {
		var unmet []string
		for _, pred := range f.p.Steps[n.Step].Preds {
			if !f.settled(pred) {
				unmet = append(unmet, line(f.p.Steps[pred].ID))
			}
		}
		if len(unmet) > 0 {
			s.Note = "waits for " + strings.Join(unmet, ", ")
			s.own = "pending"
			n.State = &s
		}
	}
}

// settled says that no instance of a step is open and some instance was.
func (f *Fold) settled(step int32) bool { return over(f.steps[step].Status()) }

// passed says that the run never will open, or never opened, a graph.
func (f *Fold) passed(g int32) bool {
	for g != 0 {
		owner := f.p.Graphs[g].Owner
		// What undoes a step may still be wanted until the run has ended.
		never := f.settled(owner) && f.p.Graphs[g].Role != plan.Compensation
		if f.opened[g] == 0 && (f.status.Terminal() || never) {
			return true
		}
		if f.opened[g] > 0 {
			return false
		}
		g = f.p.Steps[owner].Graph
	}
	return false
}

func (f *Fold) edge(e *Edge, steps, scopes map[string]int32) {
	if e.Kind == Opens {
		g := scopes[e.To]
		e.Taken, e.Untaken = f.opened[g] > 0, f.passed(g)
		return
	}
	to := steps[e.To]
	switch e.Kind {
	case Passes:
		owner := steps[e.From]
		then := f.p.Steps[owner].Then
		e.Taken = f.opened[then] == 0 && f.steps[owner].Status() == "completed" && f.steps[to].began
		e.Untaken = !e.Taken && (f.status.Terminal() || f.settled(owner))
		return
	case Rejoins:
		g := scopes[e.From]
		e.Taken = f.opened[g] > 0 && f.steps[to].began
		e.Untaken = !e.Taken && (f.status.Terminal() || f.passed(g))
		return
	}
	e.Taken = f.steps[to].began
	e.Untaken = !e.Taken && (f.status.Terminal() || f.passed(f.p.Steps[to].Graph) || f.steps[to].Status() == "skipped")
}
