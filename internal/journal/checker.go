// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// A Checker reads one run's journal in order and asserts what must hold of any
// journal, whatever made it. It knows the plan and nothing of the run's state,
// so that fold and checker cannot be wrong in the same way: what a step may
// become (X76), what a run may become (X77, X78, X80), one end a step and
// generation (I3), nothing begun before what it depends on (I5), after a failure
// that ends its scope (X95) or after the verdict (I7, I8), timers that fire once
// and never early (I9), time that never falls (I10), numbers without gaps (I14).
// For each rule, TestCheckerRules has a journal that breaks it.
type Checker struct {
	plan  *plan.Plan
	last  uint64
	at    int64
	gen   uint32
	given int64
	// limits are those in force; a retry may raise them.
	limits plan.Limits

	status  RunStatus
	verdict RunStatus // fixed by EvRunEnding; RunPending = none
	expires int64
	signals int64

	hits  *Hits // nil = nobody counts
	steps map[Ref]*seen
	ended map[Path]bool // scopes in which nothing may begin any more
	begun map[item]uint32

	opening bool        // a retry's own events are being read: its limits and resets
	resets  []resetSeen // of that retry
	bound   bindings

	effects map[Ref]*effect
	keys    map[string]bool // effect keys handed out
}

// item is one of a loop; begun has the generation that began it last, after the
// first one, in which each begins once.
type item struct {
	loop    Ref
	Ordinal int64
}

// seen is what a journal has told of a step instance.
type seen struct {
	status  Status
	settled uint32 // generation of its last end
	attempt uint32 // the last one that was handed out, in
	gen     uint32 // … this generation
	due     int64  // of the timer it waits for
	deltas  int64
	lost    int  // attempts lost to crashes since it was reset
	done    bool // it was completed in a scope that is to be opened anew
}

// NewChecker returns a checker of a run of p that has no journal yet.
func NewChecker(p *plan.Plan) *Checker {
	return &Checker{plan: p, limits: p.Limits, gen: 1, steps: map[Ref]*seen{}, ended: map[Path]bool{}, begun: map[item]uint32{}, effects: map[Ref]*effect{}, keys: map[string]bool{}}
}

// Last is the number of the last event seen.
func (w *Checker) Last() uint64 { return w.last }

// At is the time of the last event seen.
func (w *Checker) At() int64 { return w.at }

// Status is what the run has become.
func (w *Checker) Status() RunStatus { return w.status }

// Generation is the run's generation.
func (w *Checker) Generation() uint32 { return w.gen }

// Signals is how many signals the run has taken.
func (w *Checker) Signals() int64 { return w.signals }

// Given is how many bytes the run's input and its edits take.
func (w *Checker) Given() int64 { return w.given }

// StepStatus is what a step instance has become.
func (w *Checker) StepStatus(ref Ref) Status {
	if s := w.steps[ref]; s != nil {
		return s.status
	}
	return Pending
}

// Live says that fence is the attempt of a step instance that was handed out
// last, and that it has not ended.
func (w *Checker) Live(ref Ref, fence Fence) bool {
	s := w.steps[ref]
	return s != nil && s.status == Running && s.attempt == fence.Attempt && s.gen == fence.Gen && w.gen == fence.Gen
}

// Begun says that the attempt of that fence was handed out at some time.
func (w *Checker) Begun(ref Ref, fence Fence) bool {
	s := w.steps[ref]
	return s != nil && (s.gen > fence.Gen || s.gen == fence.Gen && s.attempt >= fence.Attempt)
}

// See takes the next event.
func (w *Checker) See(ev *Event) error {
	if ev.Seq != w.last+1 {
		return fmt.Errorf("I14: event %d follows event %d", ev.Seq, w.last)
	}
	if ev.At < w.at {
		return fmt.Errorf("I10: event %d is older than the one before", ev.Seq)
	}
	if !ev.Kind.Known() {
		return fmt.Errorf("I23: event %d is of the unknown kind %d", ev.Seq, ev.Kind)
	}
	if len(w.resets) > 0 && ev.Kind != EvNodeInvalidated {
		if err := w.wholly(); err != nil {
			return fmt.Errorf("event %d opened generation %d: %w", w.last, w.gen, err)
		}
	}
	w.last, w.at = ev.Seq, ev.At
	w.opening = w.opening && (ev.Kind == EvRunLimits || ev.Kind == EvNodeInvalidated)
	if w.status.Terminal() && ev.Kind != EvRunRetried {
		return fmt.Errorf("I7: the run is %s, and event %d is %s %s", w.status, ev.Seq, ev.Name(), StepPath(w.plan, ev.Ref()))
	}
	if ev.Step < 0 {
		return w.run(ev)
	}
	if err := w.step(ev); err != nil {
		return fmt.Errorf("event %d, step %s, %s: %w", ev.Seq, StepPath(w.plan, ev.Ref()), ev.Name(), err)
	}
	return nil
}

// run takes an event of the run itself.
func (w *Checker) run(ev *Event) error {
	var next RunStatus
	switch ev.Kind {
	case EvRunStarted:
		w.given += int64(len(ev.Data))
		w.expires = ev.At + w.plan.TTLMS*1000
		next = RunDispatching
	case EvRunRetried:
		if ev.Generation() != int64(w.gen)+1 {
			return fmt.Errorf("I7: event %d opens generation %d after %d", ev.Seq, ev.Generation(), w.gen)
		}
		w.given += int64(len(ev.Data))
		w.expires = ev.At + w.plan.TTLMS*1000
		w.gen, w.verdict, w.opening = uint32(ev.Generation()), RunPending, true
		clear(w.ended)
		next = RunDispatching
	case EvRunLimits:
		limits, err := DecodeLimits(ev.Data)
		if err != nil {
			return fmt.Errorf("I2: event %d holds no limits: %.60q", ev.Seq, ev.Data)
		}
		if !w.opening {
			return fmt.Errorf("I7: event %d changes the limits in the middle of generation %d", ev.Seq, w.gen)
		}
		if lim := w.limits; limits.TotalSteps < lim.TotalSteps || limits.LoopItems < lim.LoopItems || limits.MemoryBytes < lim.MemoryBytes ||
			ExpressionCost(limits) < ExpressionCost(lim) || limits == lim {
			return fmt.Errorf("I7: event %d raises no limit: %+v after %+v", ev.Seq, limits, lim)
		}
		w.limits, next = limits, RunDispatching
	case EvRunStatus:
		next = ev.Status()
		if ev.Previous() != w.status {
			return fmt.Errorf("X80: event %d says the run was %s, it was %s", ev.Seq, ev.Previous(), w.status)
		}
	case EvRunCompleted, EvRunFailed, EvRunCancelled, EvRunExpired:
		next = ev.Kind.EndStatus()
		if w.verdict != RunPending && w.verdict != next {
			return fmt.Errorf("I8: the verdict was %s, and event %d ends the run %s", w.verdict, ev.Seq, next)
		}
		if w.verdict == RunPending && (next == RunExpired || next == RunCancelled && !w.plan.Leaves) {
			return fmt.Errorf("I8: event %d ends the run %s, and nothing had fixed that verdict", ev.Seq, next)
		}
		w.verdict = next
		if err := w.results(ev); err != nil {
			return err
		}
	case EvRunEnding: // it runs, towards a verdict that is fixed
		if w.verdict != RunPending {
			return fmt.Errorf("I8: event %d fixes the verdict %s, which was %s", ev.Seq, ev.Verdict(), w.verdict)
		}
		if w.verdict = ev.Verdict(); w.verdict == RunExpired && ev.At < w.expires {
			return fmt.Errorf("I9: event %d ends the run %d µs before its ttl", ev.Seq, w.expires-ev.At)
		}
		w.ended[""] = true
		next = RunRunning
	case EvRunSignalled:
		w.signals++
		return nil
	default:
		return nil
	}
	if !w.met(Change{ev.Kind, Status(w.status), Status(next)}) {
		return fmt.Errorf("X77: event %d makes a run that was %s %s", ev.Seq, w.status, next)
	}
	w.status = next
	return nil
}

// became is the status an event gives its step; Pending = none of its own.
var became = func() (to [eventKinds]Status) {
	for _, row := range changes {
		if row.to != same && row.event != EvNodeInvalidated {
			to[row.event] = row.to
		}
	}
	return to
}()

// step takes an event of a step instance.
func (w *Checker) step(ev *Event) error {
	s := w.steps[ev.Ref()]
	if s == nil {
		s = new(seen)
		w.steps[ev.Ref()] = s
	}
	if ev.Kind == EvNodeInvalidated {
		return w.reset(s, ev)
	}
	if err := w.loses(s, ev); err != nil {
		return err
	}
	w.binds(ev)
	if ev.Kind == EvNodeDelta {
		if s.deltas++; ev.DeltaIndex() != s.deltas-1 {
			return fmt.Errorf("I14: delta %d follows %d others", ev.DeltaIndex(), s.deltas-1)
		}
	}
	if ev.NotTaken() {
		return nil
	}
	if err := w.begins(s, ev); err != nil {
		return err
	}
	next := became[ev.Kind]
	if next == Pending {
		from := s.status
		if (ev.Kind == EvNodeCompensating || ev.Kind == EvNodeCompensated) && from == Pending && s.done {
			from = Completed // its scope was not opened anew: what it did is still to be undone
		}
		if it := (item{ev.Ref(), ev.Item()}); ev.Kind == EvNodeIteration && w.gen > 1 && w.begun[it] != w.gen {
			// A loop that was reopened comes to items that an earlier generation had.
			w.begun[it] = w.gen
			w.forget(ev, ev.Item())
		}
		return w.change(ev, from, from)
	}
	if err := w.change(ev, s.status, next); err != nil {
		return err
	}
	if err := w.timely(s, ev); err != nil {
		return err
	}
	switch ev.Kind {
	case EvNodeStarted:
		if s.gen == w.gen && ev.Attempt <= s.attempt {
			return fmt.Errorf("I3: attempt %d was handed out after attempt %d", ev.Attempt, s.attempt)
		}
		s.attempt, s.gen = ev.Attempt, w.gen
	case EvNodeOpened:
		w.forget(ev, everyItem)
	case EvNodeRetried, EvNodeWaiting:
		s.due = ev.Due()
	case EvNodeFailed:
		if !ev.Handled() && !w.plan.Drain {
			w.ended[ev.Path] = true
		}
	}
	if next.Settled() {
		if s.settled == w.gen {
			return fmt.Errorf("I3: it settled twice in generation %d", w.gen)
		}
		s.settled = w.gen
	}
	s.status, s.done = next, false
	return nil
}

// begins asserts that a step begins when everything it depends on has settled
// (I5), and not in a scope that has ended (X95, X96), as the whole run has after
// the verdict (I8), or inside of one.
func (w *Checker) begins(s *seen, ev *Event) error {
	switch ev.Kind {
	case EvNodeReady, EvNodeQueued, EvNodeStarted, EvNodeOpened, EvNodeIteration, EvNodeWaiting:
	case EvNodeCompleted:
		if s.status != Pending && s.status != Invalidated {
			return nil
		}
	default:
		return nil
	}
	for _, p := range w.plan.Steps[ev.Step].Preds {
		if st := w.StepStatus(Ref{ev.Path, p}); !st.Settled() {
			return fmt.Errorf("I5: it begins while %s is %s", w.plan.Steps[p].ID, st)
		}
	}
	if w.plan.Waves && ev.Kind != EvNodeReady {
		if p := w.earlier(ev.Ref()); p >= 0 {
			return fmt.Errorf("X58: it begins while %s of an earlier wave is %s", w.plan.Steps[p].ID, w.StepStatus(Ref{ev.Path, p}))
		}
	}
	if w.ended[ev.Path] {
		return fmt.Errorf("X95: its scope has ended")
	}
	if w.within(ev.Path) {
		return fmt.Errorf("X95, I8: a scope around it has ended")
	}
	return nil
}

// earlier finds a step in the same scope that has not settled and belongs to an
// earlier wave; -1 = none.
func (w *Checker) earlier(ref Ref) int32 {
	step := &w.plan.Steps[ref.Step]
	g := &w.plan.Graphs[step.Graph]
	for p := g.First; p < g.First+g.N; p++ {
		if w.plan.Steps[p].Wave < step.Wave && !w.StepStatus(Ref{ref.Path, p}).Settled() {
			return p
		}
	}
	return -1
}

// within says whether a scope around the one that p names has ended. What undoes
// a step begins after that.
func (w *Checker) within(p Path) (ended bool) {
	if len(w.ended) == 0 {
		return false
	}
	var buf [16]Level
	levels, _ := p.Levels(w.plan, buf[:0])
	above := Path("")
	for _, l := range levels {
		if w.plan.Graphs[l.Graph].Role == plan.Compensation {
			return false
		}
		ended = ended || w.ended[above]
		above = above.Child(l.Graph, l.Ordinal)
	}
	return ended
}

// timely asserts that what only a timer can do was not done early (I9).
func (w *Checker) timely(s *seen, ev *Event) error {
	early := s.due - ev.At
	step := &w.plan.Steps[ev.Step]
	switch {
	case ev.Kind == EvNodeQueued && s.status == Retrying,
		ev.Kind == EvNodeCompleted && s.status == Waiting && step.Signal == "",
		ev.Kind == EvNodeFailed && s.status == Waiting && ev.Code == fault.WaitTimeout:
		if early > 0 {
			return fmt.Errorf("I9: its timer fired %d µs early", early)
		}
	}
	return nil
}

// reset: a step that is only reopened runs on; another is as it was at first,
// with everything it owned.
func (w *Checker) reset(s *seen, ev *Event) error {
	if !w.opening {
		return fmt.Errorf("X119: it is reset in the middle of generation %d", w.gen)
	}
	if s.status != ev.Before() {
		return fmt.Errorf("X76: it is reset from %s, it was %s", ev.Before(), s.status)
	}
	was := s.status
	s.lost = 0
	w.resets = append(w.resets, resetSeen{ev.Ref(), ev.Reopened()})
	w.unbinds(ev)
	switch {
	case ev.Reopened():
		s.status = Running
	case s.status == Completed:
		s.status = Invalidated
		w.forget(ev, everyItem)
	default:
		s.status = Pending
		w.forget(ev, everyItem)
	}
	return w.change(ev, was, s.status)
}

// change asserts that the table of changes has such a cell, and counts it (X76).
func (w *Checker) change(ev *Event, from, to Status) error {
	if !w.met(Change{ev.Kind, from, to}) {
		return fmt.Errorf("X76: it was %s and became %s", from, to)
	}
	return nil
}

// met counts a change and says whether the table has it.
func (w *Checker) met(c Change) bool {
	if !allowed[c.Event][c.From][c.To] {
		return false
	}
	if w.hits != nil {
		w.hits[c.Event][c.From][c.To]++
	}
	return true
}

// Count has the changes that the checker sees counted in hits.
func (w *Checker) Count(hits *Hits) { w.hits = hits }

const everyItem = -1

// forget withdraws what is known of scopes that are opened anew, or will be: those
// of one item, or all that the step owns.
func (w *Checker) forget(ev *Event, ordinal int64) {
	var buf [16]Level
	own, _ := ev.Path.Levels(w.plan, buf[:0])
	depth := len(own)
	for ref, s := range w.steps {
		if len(ref.Path) <= len(ev.Path) || ref.Path[:len(ev.Path)] != ev.Path {
			continue
		}
		if levels, ok := ref.Path.Levels(w.plan, buf[:0]); ok && len(levels) > depth && w.plan.Graphs[levels[depth].Graph].Owner == ev.Step &&
			(ordinal == everyItem || levels[depth].Ordinal == ordinal) {
			s.done = s.done && s.status == Pending || s.status == Completed
			s.status, s.due, s.deltas, s.lost = Pending, 0, 0, 0
		}
	}
}

// An effect is what an observer knows of an instance's last attempt.
type effect struct {
	key     string
	gen     uint32
	attempt uint32
	open    bool // it has not ended
	unknown bool // it ended, and its effect may have happened or not
}

// Effect asserts I4: a new attempt carries the key of the one before it while
// that one's outcome is unknown, else a key that nobody had before. Inside
// scopes a retry may begin anew, with new keys. ev is an event of generation
// gen; key is the effect key of the attempt that an EvNodeStarted hands out, ""
// when it is not known any more.
func (w *Checker) Effect(ev *Event, gen uint32, key string) error {
	e := w.effects[ev.Ref()]
	switch ev.Kind {
	case EvNodeStarted:
		if key == "" {
			return nil
		}
		anew := e == nil || e.gen != gen && ev.Path != ""
		switch {
		case e != nil && e.unknown && key != e.key && !anew:
			return fmt.Errorf("I4: %s: the outcome of the last attempt is unknown and its key has changed", StepPath(w.plan, ev.Ref()))
		case (e == nil || !e.unknown) && w.keys[key]:
			return fmt.Errorf("I4: %s: a new effect has the key of an old one", StepPath(w.plan, ev.Ref()))
		}
		w.keys[key] = true
		w.effects[ev.Ref()] = &effect{key: key, gen: gen, attempt: ev.Attempt, open: true}
	case EvNodeLost, EvNodeCancelled:
		if e != nil && e.open {
			e.open, e.unknown = false, true
		}
	case EvNodeCompensated:
		if e != nil {
			e.unknown = false // whatever it was, it was undone
		}
	case EvNodeRetried, EvNodeFailed, EvNodeFallback, EvNodeSkipped, EvNodeCompleted:
		if e != nil && e.open {
			cause := fault.CauseOf(ev.Code)
			e.open, e.unknown = false, ev.Code != "" && (cause == fault.CauseTimeout || cause == fault.CauseLost)
		}
	}
	return nil
}

// Key is the effect key of an attempt, when it is the last that was handed out.
func (w *Checker) Key(ref Ref, fence Fence) (key string, ok bool) {
	e := w.effects[ref]
	if e == nil || e.gen != fence.Gen || e.attempt != fence.Attempt {
		return "", false
	}
	return e.key, true
}
