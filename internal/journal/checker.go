// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Checker reads one run's journal in order and asserts what must hold of any
// journal, whatever made it. It knows the plan but not the run's state, so that the
// machine and the checker cannot be wrong in the same way. It checks the transitions
// of steps (X76) and of the run (X77, X78, X80); that a step ends once per generation
// (I3); that nothing begins before its dependencies (I5), after a failure that ended
// its scope (X95) or after the verdict (I7, I8); that timers fire once and never early
// (I9); that time never goes backwards (I10) and numbers have no gaps (I14). For each
// rule, TestCheckerRules has a journal that breaks it.
type Checker struct {
	plan       *plan.Plan
	last       uint64
	at         int64
	gen        uint32
	inputBytes int64
	// limits are the current ones; a retry may raise them.
	limits plan.Limits

	status  RunStatus
	verdict RunStatus // fixed by EvRunEnding; RunPending = none
	expires int64
	signals int64

	hits  *Hits // nil = not counted
	steps map[Ref]*stepRecord
	ended map[Path]bool // scopes in which nothing may begin
	begun map[item]uint32

	retrying bool          // the events read now belong to the retry itself: its limits and resets
	opening  bool          // the events read now open a generation: nothing in it has begun
	resets   []resetRecord // of that retry
	bound    bindings

	charges  charges
	cached   cachedResult
	credits  credits
	children children
	paused   bool
	effects  map[Ref]*effect
	keys     map[string]bool // effect keys in use
}

// item is one item of a loop. Checker.begun maps it to the generation that began it
// last. An item begins once per generation. The first generation is not recorded,
// because it has no earlier records to reset.
type item struct {
	loop    Ref
	Ordinal int64
}

// stepRecord is what the journal so far says about a step instance.
type stepRecord struct {
	status  Status
	settled uint32 // generation of its last end
	attempt uint32 // the attempt dispatched last
	gen     uint32 // the generation that dispatched it
	due     int64  // of the timer it waits for
	deltas  int64
	lost    int   // attempts lost to crashes since it was reset
	charged bool  // what its attempt cost is recorded
	passed  uint8 // phases of its attempt that moderators have passed, see phaseBit
	flagged bool  // moderators have flagged its attempt
	review  uint8 // phases of its attempt that people decide on
	task    bool  // it waits for a task of a remote worker
	done    bool  // it completed before resetInner reset it, and may still be compensated
}

// NewChecker returns a checker of a run of p whose journal is empty so far.
func NewChecker(p *plan.Plan) *Checker {
	return &Checker{plan: p, limits: p.Limits, gen: 1, steps: map[Ref]*stepRecord{}, ended: map[Path]bool{}, begun: map[item]uint32{}, effects: map[Ref]*effect{}, keys: map[string]bool{}}
}

// Last is the number of the last event seen.
func (c *Checker) Last() uint64 { return c.last }

// At is the time of the last event seen.
func (c *Checker) At() int64 { return c.at }

// Status is the run's status after the events so far.
func (c *Checker) Status() RunStatus { return c.status }

// Generation is the run's generation.
func (c *Checker) Generation() uint32 { return c.gen }

// Signals is how many signals the run has received.
func (c *Checker) Signals() int64 { return c.signals }

// Credits is how many credits are held for the run, and how many it has settled.
func (c *Checker) Credits() (held, settled int64) { return c.credits.held, c.credits.settled }

// Used is what the attempts of the run, and its child runs, have cost.
func (c *Checker) Used() ledger.Amount { return c.credits.used }

// Verdict is how a run that is ending will end.
func (c *Checker) Verdict() RunStatus { return c.verdict }

// InputBytes is the size of the run's input and of its edits.
func (c *Checker) InputBytes() int64 { return c.inputBytes }

// StepStatus is the status of a step instance after the events so far.
func (c *Checker) StepStatus(ref Ref) Status {
	if s := c.steps[ref]; s != nil {
		return s.status
	}
	return Pending
}

// Live reports whether fence is the last attempt of a step instance and has not ended.
func (c *Checker) Live(ref Ref, fence Fence) bool {
	s := c.steps[ref]
	return s != nil && (s.status == Running || s.status == Waiting) && s.attempt == fence.Attempt && s.gen == fence.Gen && c.gen == fence.Gen
}

// Begun reports whether the attempt of that fence was ever dispatched.
func (c *Checker) Begun(ref Ref, fence Fence) bool {
	s := c.steps[ref]
	return s != nil && (s.gen > fence.Gen || s.gen == fence.Gen && s.attempt >= fence.Attempt)
}

// Check checks the next event.
func (c *Checker) Check(ev *Event) error {
	if ev.Seq != c.last+1 {
		return fmt.Errorf("I14: event %d follows event %d", ev.Seq, c.last)
	}
	if ev.At < c.at {
		return fmt.Errorf("I10: event %d is older than the one before", ev.Seq)
	}
	if !ev.Kind.Known() {
		return fmt.Errorf("I23: event %d is of the unknown kind %d", ev.Seq, ev.Kind)
	}
	if len(c.resets) > 0 && ev.Kind != EvNodeInvalidated {
		if err := c.checkResets(); err != nil {
			return fmt.Errorf("event %d opened generation %d: %w", c.last, c.gen, err)
		}
	}
	if err := checkUnknown(ev); err != nil {
		return err
	}
	if err := c.charges.check(ev); err != nil {
		return err
	}
	if err := c.cached.check(ev, c.plan); err != nil {
		return err
	}
	if err := c.credits.check(ev); err != nil {
		return err
	}
	if err := c.children.check(ev, c.plan, &c.credits); err != nil {
		return err
	}
	c.last, c.at = ev.Seq, ev.At
	queues := ev.Kind == EvRunStatus && ev.Status() == RunQueued
	if queues && !c.opening {
		return fmt.Errorf("X206: event %d queues a run that has begun", ev.Seq)
	}
	c.retrying = c.retrying && (ev.Kind == EvRunResumed || ev.Kind == EvRunLimits || ev.Kind == EvCreditsReserved || queues || ev.Kind == EvNodeInvalidated)
	c.opening = c.opening && (ev.Kind == EvRunLimits || ev.Kind == EvCreditsReserved)
	if c.status.Terminal() && ev.Kind != EvRunRetried {
		return fmt.Errorf("I7: the run is %s, and event %d is %s %s", c.status, ev.Seq, ev.Name(), StepPath(c.plan, ev.Ref()))
	}
	if ev.Step < 0 {
		return c.checkRun(ev)
	}
	if err := c.checkStep(ev); err != nil {
		return fmt.Errorf("event %d, step %s, %s: %w", ev.Seq, StepPath(c.plan, ev.Ref()), ev.Name(), err)
	}
	return nil
}

// checkRun checks an event of the run itself.
func (c *Checker) checkRun(ev *Event) error {
	var next RunStatus
	switch ev.Kind {
	case EvRunStarted:
		c.inputBytes += int64(len(ev.Data))
		c.pin(ev)
		c.expires = ev.At + c.plan.TTLMS*1000
		c.opening, next = true, RunDispatching
	case EvRunRetried:
		if ev.Generation() != int64(c.gen)+1 {
			return fmt.Errorf("I7: event %d opens generation %d after %d", ev.Seq, ev.Generation(), c.gen)
		}
		c.inputBytes += int64(len(ev.Data))
		c.expires = ev.At + c.plan.TTLMS*1000
		c.gen, c.verdict, c.retrying, c.opening = uint32(ev.Generation()), RunPending, true, true
		clear(c.ended)
		next = RunDispatching
	case EvRunLimits:
		limits, err := DecodeLimits(ev.Data)
		if err != nil {
			return fmt.Errorf("I2: event %d holds no limits: %.60q", ev.Seq, ev.Data)
		}
		if !c.retrying {
			return fmt.Errorf("I7: event %d changes the limits in the middle of generation %d", ev.Seq, c.gen)
		}
		if lim := c.limits; limits.TotalSteps < lim.TotalSteps || limits.LoopItems < lim.LoopItems || limits.MemoryBytes < lim.MemoryBytes ||
			ExpressionCost(limits) < ExpressionCost(lim) || limits == lim {
			return fmt.Errorf("I7: event %d raises no limit: %+v after %+v", ev.Seq, limits, lim)
		}
		c.limits, next = limits, RunDispatching
	case EvRunResumed:
		if !c.retrying {
			return fmt.Errorf("X104: event %d goes on in the middle of generation %d", ev.Seq, c.gen)
		}
		next = RunDispatching
	case EvCreditsReserved:
		next = RunDispatching
	case EvRunStatus:
		next = ev.Status()
		if ev.Previous() != c.status {
			return fmt.Errorf("X80: event %d says the run was %s, it was %s", ev.Seq, ev.Previous(), c.status)
		}
	case EvRunCompleted, EvRunFailed, EvRunCancelled, EvRunExpired:
		next = ev.Kind.EndStatus()
		if c.verdict != RunPending && c.verdict != next {
			return fmt.Errorf("I8: the verdict was %s, and event %d ends the run %s", c.verdict, ev.Seq, next)
		}
		if c.verdict == RunPending && (next == RunExpired || next == RunCancelled && !c.plan.Leaves) {
			return fmt.Errorf("I8: event %d ends the run %s, and nothing had fixed that verdict", ev.Seq, next)
		}
		c.verdict, c.paused = next, false
		if err := c.checkOutputs(ev); err != nil {
			return err
		}
	case EvRunEnding: // the run continues until it ends with this verdict
		if c.verdict != RunPending {
			return fmt.Errorf("I8: event %d fixes the verdict %s, which was %s", ev.Seq, ev.Verdict(), c.verdict)
		}
		if c.verdict = ev.Verdict(); c.verdict == RunExpired && ev.At < c.expires {
			return fmt.Errorf("I9: event %d ends the run %d µs before its ttl", ev.Seq, c.expires-ev.At)
		}
		c.ended[""] = true
		next = RunRunning
	case EvRunPaused, EvRunUnpaused:
		if c.paused == (ev.Kind == EvRunPaused) {
			return fmt.Errorf("X76: event %d pauses a paused run, or unpauses one that is not", ev.Seq)
		}
		c.paused, next = !c.paused, c.status
	case EvRunSignalled:
		c.signals++
		return nil
	default:
		return nil
	}
	if !c.allow(Change{ev.Kind, Status(c.status), Status(next)}) {
		return fmt.Errorf("X77: event %d makes a run that was %s %s", ev.Seq, c.status, next)
	}
	c.status = next
	return nil
}

// statusAfter is the status that an event gives its step; Pending = the event sets
// none.
var statusAfter = func() (to [eventKinds]Status) {
	for _, row := range changes {
		if row.to != same && row.event != EvNodeInvalidated {
			to[row.event] = row.to
		}
	}
	return to
}()

// checkStep checks an event of a step instance.
func (c *Checker) checkStep(ev *Event) error {
	s := c.steps[ev.Ref()]
	if s == nil {
		s = new(stepRecord)
		c.steps[ev.Ref()] = s
	}
	if ev.Kind == EvNodeInvalidated {
		return c.checkReset(s, ev)
	}
	if err := c.checkLost(s, ev); err != nil {
		return err
	}
	c.recordBinding(ev)
	if ev.Kind == EvNodeDelta {
		if s.deltas++; ev.DeltaIndex() != s.deltas-1 {
			return fmt.Errorf("I14: delta %d follows %d others", ev.DeltaIndex(), s.deltas-1)
		}
	}
	if ev.NotTaken() {
		return nil
	}
	if ev.Kind == EvNodeCharged {
		if err := c.checkCharge(s, ev); err != nil {
			return err
		}
	}
	if err := c.checkModeration(s, ev); err != nil {
		return err
	}
	if err := c.credits.use(ev, c.plan); err != nil {
		return err
	}
	if err := c.checkBegin(s, ev); err != nil {
		return err
	}
	next := statusAfter[ev.Kind]
	if next == Pending {
		from := s.status
		if (ev.Kind == EvNodeCompensating || ev.Kind == EvNodeCompensated) && from == Pending && s.done {
			from = Completed // its scope was not opened again, so it must still be compensated
		}
		if it := (item{ev.Ref(), ev.Item()}); ev.Kind == EvNodeIteration && c.gen > 1 && c.begun[it] != c.gen {
			// A reopened loop opens items again that an earlier generation had.
			c.begun[it] = c.gen
			c.resetInner(ev, ev.Item())
		}
		return c.checkChange(ev, from, from)
	}
	if err := c.checkChange(ev, s.status, next); err != nil {
		return err
	}
	if err := c.checkTiming(s, ev); err != nil {
		return err
	}
	switch ev.Kind {
	case EvNodeStarted, EvChildStarted:
		if c.paused {
			return fmt.Errorf("X76: attempt %d begins while the run is paused", ev.Attempt)
		}
		if s.gen == c.gen && ev.Attempt <= s.attempt {
			return fmt.Errorf("I3: attempt %d was handed out after attempt %d", ev.Attempt, s.attempt)
		}
		s.attempt, s.gen, s.charged = ev.Attempt, c.gen, false
		s.passed, s.review, s.flagged = 0, 0, false
	case EvNodeOpened:
		c.resetInner(ev, everyItem)
	case EvNodeRetried, EvNodeWaiting:
		s.due = ev.Due()
	case EvNodeSubmitted:
		if err := s.submitted(ev); err != nil {
			return err
		}
	case EvNodeFailed:
		if !ev.Handled() && !c.plan.Drain {
			c.ended[ev.Path] = true
		}
	}
	if next.Settled() {
		if s.settled == c.gen {
			return fmt.Errorf("I3: it settled twice in generation %d", c.gen)
		}
		s.settled = c.gen
	}
	s.status, s.done = next, false
	return nil
}

// checkBegin asserts that a step begins only after everything it depends on has
// settled (I5), and not in a scope that has ended (X95, X96) or inside one. The
// verdict ends the scope of the whole run (I8).
func (c *Checker) checkBegin(s *stepRecord, ev *Event) error {
	switch ev.Kind {
	case EvNodeReady, EvNodeQueued, EvNodeStarted, EvChildStarted, EvNodeOpened, EvNodeIteration, EvNodeWaiting:
	case EvNodeCompleted:
		if s.status != Pending && s.status != Invalidated {
			return nil
		}
	default:
		return nil
	}
	if c.status == RunQueued {
		return fmt.Errorf("X206: it begins while the run is queued")
	}
	for _, p := range c.plan.Steps[ev.Step].Preds {
		if st := c.StepStatus(Ref{ev.Path, p}); !st.Settled() {
			return fmt.Errorf("I5: it begins while %s is %s", c.plan.Steps[p].ID, st)
		}
	}
	if c.plan.Waves && ev.Kind != EvNodeReady {
		if p := c.unsettledEarlier(ev.Ref()); p >= 0 {
			return fmt.Errorf("X58: it begins while %s of an earlier wave is %s", c.plan.Steps[p].ID, c.StepStatus(Ref{ev.Path, p}))
		}
	}
	if c.ended[ev.Path] {
		return fmt.Errorf("X95: its scope has ended")
	}
	if c.inEndedScope(ev.Path) {
		return fmt.Errorf("X95, I8: a scope around it has ended")
	}
	return nil
}

// unsettledEarlier finds a step of the same scope that belongs to an earlier wave and
// has not settled; -1 = none.
func (c *Checker) unsettledEarlier(ref Ref) int32 {
	step := &c.plan.Steps[ref.Step]
	g := &c.plan.Graphs[step.Graph]
	for p := g.First; p < g.First+g.N; p++ {
		if c.plan.Steps[p].Wave < step.Wave && !c.StepStatus(Ref{ref.Path, p}).Settled() {
			return p
		}
	}
	return -1
}

// inEndedScope reports whether a scope around p has ended. Compensations are exempt,
// because they begin after that.
func (c *Checker) inEndedScope(p Path) (ended bool) {
	if len(c.ended) == 0 {
		return false
	}
	var buf [16]Level
	levels, _ := p.Levels(c.plan, buf[:0])
	above := Path("")
	for _, l := range levels {
		if c.plan.Graphs[l.Graph].Role == plan.Compensation {
			return false
		}
		ended = ended || c.ended[above]
		above = above.Child(l.Graph, l.Ordinal)
	}
	return ended
}

// checkTiming asserts that no timer fired early (I9).
func (c *Checker) checkTiming(s *stepRecord, ev *Event) error {
	early := s.due - ev.At
	step := &c.plan.Steps[ev.Step]
	switch {
	case ev.Kind == EvNodeQueued && s.status == Retrying,
		ev.Kind == EvNodeCompleted && s.status == Waiting && step.Kind == plan.Wait && step.Signal == "",
		ev.Kind == EvNodeFailed && s.status == Waiting && ev.Code == fault.WaitTimeout && step.Signal != "",
		s.status == Waiting && ev.Code == fault.JobExpired:
		if early > 0 {
			return fmt.Errorf("I9: its timer fired %d µs early", early)
		}
	}
	return nil
}

// checkReset checks the reset of a step. A step that is only reopened keeps running;
// any other returns to its first state, with everything it owned.
func (c *Checker) checkReset(s *stepRecord, ev *Event) error {
	if !c.retrying {
		return fmt.Errorf("X119: it is reset in the middle of generation %d", c.gen)
	}
	if s.status != ev.Before() {
		return fmt.Errorf("X76: it is reset from %s, it was %s", ev.Before(), s.status)
	}
	was := s.status
	s.lost = 0
	c.resets = append(c.resets, resetRecord{ev.Ref(), ev.Reopened()})
	c.dropBindings(ev)
	switch {
	case ev.Reopened():
		s.status = Running
	case s.status == Completed:
		s.status = Invalidated
		c.resetInner(ev, everyItem)
	default:
		s.status = Pending
		c.resetInner(ev, everyItem)
	}
	return c.checkChange(ev, was, s.status)
}

// checkChange asserts that the transition is in the table, and counts it (X76).
func (c *Checker) checkChange(ev *Event, from, to Status) error {
	if !c.allow(Change{ev.Kind, from, to}) {
		return fmt.Errorf("X76: it was %s and became %s", from, to)
	}
	return nil
}

// allow counts a transition and reports whether it is in the table.
func (c *Checker) allow(ch Change) bool {
	if !allowed[ch.Event][ch.From][ch.To] {
		return false
	}
	if c.hits != nil {
		c.hits[ch.Event][ch.From][ch.To]++
	}
	return true
}

// CountHits makes the checker count the transitions it sees in hits.
func (c *Checker) CountHits(hits *Hits) { c.hits = hits }

const everyItem = -1

// resetInner resets the records of steps in scopes that are, or will be, opened again:
// the scope of one item, or all scopes that the step owns.
func (c *Checker) resetInner(ev *Event, ordinal int64) {
	var buf [16]Level
	own, _ := ev.Path.Levels(c.plan, buf[:0])
	depth := len(own)
	for ref, s := range c.steps {
		if len(ref.Path) <= len(ev.Path) || ref.Path[:len(ev.Path)] != ev.Path {
			continue
		}
		if levels, ok := ref.Path.Levels(c.plan, buf[:0]); ok && len(levels) > depth && c.plan.Graphs[levels[depth].Graph].Owner == ev.Step &&
			(ordinal == everyItem || levels[depth].Ordinal == ordinal) {
			s.done = s.done && s.status == Pending || s.status == Completed
			s.status, s.due, s.deltas, s.lost = Pending, 0, 0, 0
		}
	}
}
