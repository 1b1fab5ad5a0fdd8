// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// Apply applies one event of the journal to the run. Events that were applied before
// are ignored, so replay over a snapshot is idempotent. A gap, or an event that is
// impossible in this state, is fault.StoreCorrupt.
func (r *Run) Apply(ev *journal.Event) error {
	if ev.Seq <= r.last {
		return nil
	}
	if ev.Seq != r.last+1 {
		return fault.New(fault.StoreCorrupt, "event %d is missing: %d follows %d", r.last+1, ev.Seq, r.last)
	}
	if ev.Kind != journal.EvRunStarted && r.last == 0 {
		return fault.New(fault.StoreCorrupt, "event %d (%s) before run.started", ev.Seq, ev.Name())
	}
	var s *scope
	if ev.Step >= 0 && !ev.NotTaken() {
		if s, _ = r.at(ev.Ref()); s == nil {
			return fault.New(fault.StoreCorrupt, "event %d (%s) names a step that is not in memory", ev.Seq, ev.Name())
		}
	}
	ev.Data = bytes.Clone(ev.Data) // the value must outlive the page it was read from
	return r.applyStored(ev, s)
}

// applyStored applies an event that came from a store. An event that this release
// wrote always applies. A damaged event may make any index invalid; applyStored
// recovers from the panic, because checking every index would take more code than
// applying the event. The run must not be used after an error.
func (r *Run) applyStored(ev *journal.Event, s *scope) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errImpossible(ev, fmt.Sprint("it is impossible in this state: ", p))
		}
	}()
	return r.apply(ev, s)
}

// apply changes the state by one event; s is the scope that its path names, nil for an
// event of the run. It evaluates no expression and reads nothing but the event, the
// plan and the state. How a published kind is applied never changes.
func (r *Run) apply(ev *journal.Event, s *scope) error {
	r.last, r.now = ev.Seq, ev.At
	if ev.Step < 0 {
		return r.applyRun(ev)
	}
	if ev.NotTaken() {
		return nil
	}
	i := ev.Step - s.g.First
	st := &s.steps[i]
	r.trackAttempt(s, i, ev)
	switch ev.Kind {
	case journal.EvNodeReady:
		st.flags |= flagReady
		r.refreshStep(s, i)
	case journal.EvNodeQueued:
		r.begin(s, i, journal.Queued)
		st.due = 0
	case journal.EvNodeBlocked:
		st.block(ev.LacksCredits())
	case journal.EvNodeStarted:
		r.begin(s, i, journal.Running)
		st.startAttempt(ev)
		if ms := r.brief(s, i).timeoutMS; ms > 0 {
			r.arm(s, i, ev.At+ms*1000)
		}
	case journal.EvNodeOpened:
		r.begin(s, i, journal.Running)
		return r.openComposite(s, i, ev)
	case journal.EvNodeItems:
		return r.applyItems(s, i, ev)
	case journal.EvNodeIteration:
		return r.applyIteration(s, i, ev)
	case journal.EvNodeRound:
		return r.applyRound(s, i, ev)
	case journal.EvNodeDelta:
		s.noteDelta(i, ev)
	case journal.EvModerationPassed, journal.EvModerationFlagged:
		st.applyVerdict(ev)
	case journal.EvNodeProgress, journal.EvNodeLog, journal.EvNodePreview, journal.EvContract, journal.EvNodeCached:
	case journal.EvNodeCharged:
		if ev.Charged() && !s.inCompensation() {
			r.used = r.used.Plus(ev.Amount())
		}
	case journal.EvNodeWaiting:
		r.begin(s, i, journal.Waiting)
		if due := ev.Due(); due > 0 {
			r.arm(s, i, due)
		}
	case journal.EvNodeSubmitted:
		return r.applySubmitted(s, i, ev)
	case journal.EvChildStarted, journal.EvChildExtended, journal.EvChildEnded:
		return r.applyChild(s, i, ev)
	case journal.EvNodeRetried:
		r.countFailure(s, i, ev)
		r.dropChildRun(s, i)
		st.status = journal.Retrying
		r.arm(s, i, ev.Due())
	case journal.EvNodeLost:
		if !ev.HandedBack() || mutation.Losses {
			st.lost++
		}
		st.flags |= flagUnknown
		st.status, st.due = journal.Queued, 0
	case journal.EvNodeFallback:
		r.countFailure(s, i, ev)
		r.setErr(s, i, ev)
		st.flags |= flagFallback
		return r.openFallback(s, i)
	case journal.EvNodeAborting:
		return r.abort(s, i, ev)
	case journal.EvNodeCompleted:
		return r.applyCompleted(s, i, ev)
	case journal.EvNodeFailed:
		r.applyFailed(s, i, ev)
	case journal.EvNodeSkipped:
		r.applySkipped(s, i, ev)
	case journal.EvNodeCancelled:
		st.reason = ev.Reason()
		if st.attempt > 0 && (st.status == journal.Running || st.status == journal.Waiting) {
			st.flags |= flagUnknown
		}
		r.dropChildRun(s, i)
		r.settle(s, i, journal.Cancelled)
	case journal.EvNodeInvalidated:
		return r.applyInvalidated(s, i, ev)
	case journal.EvNodeIgnored:
		st.flags |= ignoredFlag(ev.Source(), ev.Attempt == st.attempt)
	case journal.EvNodeCompensating:
		r.compensating = true
		return r.openChild(r.newComposite(s, i, compensationComposite), s.step(r.plan, i).Compensate, 0, nil)
	case journal.EvNodeCompensated:
		r.applyCompensated(s, i, ev)
	default:
		return fault.New(fault.StoreCorrupt, "event %d: kind %d is not about a step", ev.Seq, ev.Kind)
	}
	return nil
}

// startAttempt begins an attempt. The flags of the one before it go, or become what is still
// known of it.
func (st *stepState) startAttempt(ev *journal.Event) {
	st.attempt = ev.Attempt
	known := st.flags / flagIgnored & 7 * flagIgnoredOlder
	if ev.Unknown {
		known |= flagDoubt
	}
	st.flags = st.flags&^(flagsIgnored|flagUnknown|flagDoubt|flagUnfunded|flagInputReview) | known
}

// block makes the step wait for an attempt, perhaps because its account has too few
// credits.
func (st *stepState) block(unfunded bool) {
	st.status = journal.Blocked
	st.flags &^= flagUnfunded
	if unfunded {
		st.flags |= flagUnfunded
	}
}

func (r *Run) applyCompensated(s *scope, i int32, ev *journal.Event) {
	s.steps[i].flags |= flagCompensated
	r.failures = r.failures || !ev.CompensationOK()
	r.compensations = r.compensations[:len(r.compensations)-1]
	r.compensating = false
	r.dropComposite(s, i)
	r.refreshRun()
}

func (r *Run) applySkipped(s *scope, i int32, ev *journal.Event) {
	s.steps[i].reason = ev.Reason()
	if ev.Code != "" {
		r.setErr(s, i, ev)
	}
	if ev.Attempt > 0 {
		r.countFailure(s, i, ev)
	}
	r.dropComposite(s, i)
	r.settle(s, i, journal.Skipped)
}

func (r *Run) applyRun(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunStarted:
		st := r.begins
		if st == nil {
			var err error
			if st, err = journal.DecodeStart(ev.Data); err != nil {
				return err
			}
		}
		r.setStart(st)
		if st.Child != nil {
			r.extend(st.Child.Share)
		}
		r.valueMem += int64(len(ev.Data))
		r.status = journal.RunDispatching
		r.ttlDue = ev.At + r.plan.TTLMS*1000
		r.root = r.newScope("", 0, nil, -1, 0)
	case journal.EvRunStatus:
		admitted := r.queued()
		if r.status = ev.Status(); admitted {
			r.applyAdmitted()
		}
	case journal.EvRunEnding:
		r.phase, r.verdict = phaseEnding, ev.Verdict()
		r.code, r.message, r.failedStep = ev.Code, ev.Text, ev.FailedStep()
		r.ttlDue, r.status = 0, journal.RunRunning
		if r.verdict == journal.RunCancelled || r.verdict == journal.RunExpired {
			r.sweep(r.root, journal.ByCancel)
		}
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		r.applyEnd(ev)
	case journal.EvRunRecovered, journal.EvRunContract:
	case journal.EvRunSignalled:
		r.signals = append(r.signals, signal{ev.Text, r.addRef(newValue(ev.Seq, ev.Data))})
	case journal.EvRunRetried:
		if err := r.applyRetried(ev); err != nil {
			return err
		}
	case journal.EvRunLimits:
		limits, err := journal.DecodeLimits(ev.Data)
		if err != nil {
			return errImpossible(ev, err.Error())
		}
		r.limits, r.prog, r.edits = limits, r.prog.withLimits(limits), append(r.edits, ev.Seq)
	case journal.EvRunPinned:
		if err := r.applyPinned(ev); err != nil {
			return err
		}
	case journal.EvRunResumed:
		if err := r.applyResumed(ev); err != nil {
			return err
		}
	case journal.EvRunExtended:
		var more journal.Share
		*ev.Resource().Of(&more) = ev.Added()
		r.extend(more)
	case journal.EvRunPaused, journal.EvRunUnpaused:
		r.paused = ev.Kind == journal.EvRunPaused
	case journal.EvCreditsEstimated:
		r.funds.estimated = ev.Expected()
	case journal.EvCreditsReserved, journal.EvCreditsExtended:
		r.funds.held += ev.Credits()
	case journal.EvCreditsSettled:
		r.funds.settled += ev.Credits()
		r.funds.held = 0
	default:
		return fault.New(fault.StoreCorrupt, "event %d: kind %d is not about the run", ev.Seq, ev.Kind)
	}
	r.refreshRun()
	return nil
}

func (r *Run) applyEnd(ev *journal.Event) {
	r.phase, r.verdict = phaseEnding, ev.Kind.EndStatus()
	r.status = r.verdict
	r.failures = r.failures || ev.HasFailures()
	r.ttlDue, r.paused = 0, false
	if ev.Kind != journal.EvRunCompleted {
		r.code, r.message = ev.Code, ev.Text
	}
	if ev.Kind == journal.EvRunFailed {
		r.failedStep = ev.FailedStep()
	}
}

// begin marks a step instance as begun, which is when it leaves pending.
func (r *Run) begin(s *scope, i int32, status journal.Status) {
	st := &s.steps[i]
	if !st.status.Begun() {
		r.busy++
		if st.at == 0 {
			r.started++
		}
		st.at = r.now
		r.armTotal(s, i)
	}
	st.status = status
	r.refreshStep(s, i)
}

// countFailure records a failed attempt. If its effect may have happened, the effect key stays;
// otherwise the next try gets a new one (I4).
func (r *Run) countFailure(s *scope, i int32, ev *journal.Event) {
	st := &s.steps[i]
	st.fails++
	if fault.EndsUnknown(ev.Code) || ev.Unknown && !mutation.EffectKey {
		st.flags |= flagUnknown
	} else {
		st.keyTry++
	}
}

func (r *Run) setErr(s *scope, i int32, ev *journal.Event) {
	if s.errs == nil {
		s.errs = make(map[int32]stepError, 1)
	}
	r.dropErr(s, i)
	e := stepError{ev.Code, ev.Text}
	if s.errs[i] = e; s.parent != nil {
		r.structMem += e.bytes()
	}
}

func (r *Run) dropErr(s *scope, i int32) {
	if e, ok := s.errs[i]; ok {
		if delete(s.errs, i); s.parent != nil {
			r.structMem -= e.bytes()
		}
	}
}

func (r *Run) applyCompleted(s *scope, i int32, ev *journal.Event) error {
	st, brief := &s.steps[i], r.brief(s, i)
	if !s.inCompensation() {
		r.used = r.used.Plus(ledger.Whole(ev.Cost())) // compensations are recorded and not charged (R44)
	}
	if ev.Attempt > 0 {
		st.keyTry++ // the effect is known, so another generation is another effect
	}
	if st.at == 0 {
		r.started++ // a transform completes without having begun
	}
	c := s.comps[i]
	switch {
	case ev.FromInner() && c == nil:
		return errImpossible(ev, "no inner scope has an output")
	case !brief.keep && !s.givesOutput(i): // nobody will look it up
	case ev.FromInner():
		r.storeOutput(s, i, c.out)
	default:
		r.storeOutput(s, i, newValue(ev.Seq, ev.Data))
	}
	if brief.kind == plan.Wait {
		if name := s.step(r.plan, i).Signal; name != "" {
			r.consumeSignal(name)
		}
	}
	if brief.compensated && !s.inCompensation() {
		r.compensations = append(r.compensations, s.ref(i))
	}
	r.dropErr(s, i)
	r.dropComposite(s, i)
	r.settle(s, i, journal.Completed)
	return nil
}

// givesOutput reports whether the output of a step is that of its scope.
func (s *scope) givesOutput(i int32) bool { return s.g.Out == s.g.First+i && s.g.Role != plan.Root }

// storeOutput stores an output where later expressions look it up.
func (r *Run) storeOutput(s *scope, i int32, val *value) {
	if step := s.step(r.plan, i); step.Keep {
		if s.outs == nil {
			s.outs = make(map[int32]*value, 4)
		}
		old := s.outs[i]
		r.replace(&old, val)
		s.outs[i] = val
		if step.Slot >= 0 {
			f := s.frame
			if f.slots == nil {
				f.slots = make([]*value, r.plan.Graphs[f.graph].Slots)
			}
			if !mutation.Rebind || f.slots[step.Slot] == nil {
				r.replace(&f.slots[step.Slot], val)
			}
		}
	}
	if s.givesOutput(i) {
		r.replace(&s.out, val)
	}
}

func (r *Run) consumeSignal(name string) {
	for k := range r.signals {
		if r.signals[k].name == name {
			r.release(r.signals[k].val)
			r.signals = append(r.signals[:k], r.signals[k+1:]...)
			return
		}
	}
}

func (r *Run) applyFailed(s *scope, i int32, ev *journal.Event) {
	st := &s.steps[i]
	r.setErr(s, i, ev)
	r.dropChildRun(s, i)
	if ev.Attempt > 0 {
		r.countFailure(s, i, ev)
	}
	if st.at == 0 && s.step(r.plan, i).Kind == plan.Fail {
		r.started++
	}
	if ev.Handled() {
		st.flags |= flagHandled
	} else if s.state == scopeOpen {
		if s.failed < 0 {
			s.failed = s.g.First + i
		}
		if s == r.root {
			r.failures = true
		}
		if !r.plan.Drain {
			r.sweep(s, 0)
		}
	}
	r.settle(s, i, journal.StepFailed)
}

// settle ends a step instance for this generation and decrements the counters of its
// successors. Fan-in is this counter: a successor becomes ready when the counter
// reaches zero, which happens once (I5, X56).
func (r *Run) settle(s *scope, i int32, status journal.Status) {
	st := &s.steps[i]
	if st.status.Begun() {
		r.busy--
	}
	st.status, st.due = status, 0
	r.refreshStep(s, i)
	if c := s.comps[i]; c != nil {
		r.refreshComposite(c)
	}
	s.live--
	step := s.step(r.plan, i)
	for _, succ := range step.Succs {
		k := succ - s.g.First
		s.steps[k].waiting--
		if s.steps[k].waiting == 0 || mutation.FanIn {
			r.refreshStep(s, k)
		}
	}
	if r.plan.Waves {
		r.advanceWave(s, step.Wave)
	}
	if s.live == 0 {
		r.alive--
		if s.failed >= 0 && s.state == scopeOpen {
			s.failed = r.unhandled(s)
		}
		if s == r.root {
			r.failures = s.failed >= 0
		}
		r.scopeSettled(s)
	}
}

// unhandled returns the failed step that a settled scope of a draining run reports, or
// -1. A failure is consumed if a step with substitute_default ran in spite of it (R9).
// The scope reports its first failure or, if that was consumed, another one that was
// neither consumed nor handled.
func (r *Run) unhandled(s *scope) int32 {
	if !s.consumed(r.plan, s.failed-s.g.First) {
		return s.failed
	}
	for k := range s.steps {
		if i := int32(k); s.steps[k].status == journal.StepFailed && s.steps[k].flags&flagHandled == 0 && !s.consumed(r.plan, i) {
			return s.g.First + i
		}
	}
	return -1
}

// consumed reports whether a step with substitute_default ran in spite of the failure
// of step i.
func (s *scope) consumed(p *plan.Plan, i int32) bool {
	for _, succ := range s.step(p, i).Succs {
		st := &s.steps[succ-s.g.First]
		if p.Steps[succ].ParentFailure == plan.SubstituteDefault && st.status.Settled() && st.status != journal.Cancelled {
			return true
		}
	}
	return false
}

// advanceWave opens the next wave of a scope once the current one has settled.
func (r *Run) advanceWave(s *scope, settled int32) {
	if settled == s.wave {
		s.inWave--
	}
	waves := r.prog.waves[s.graph]
	for s.inWave == 0 && int(s.wave)+1 < len(waves) {
		s.wave++
		for _, k := range waves[s.wave] {
			if !s.steps[k].status.Settled() {
				s.inWave++
			}
			r.refreshStep(s, k)
		}
	}
}

func errImpossible(ev *journal.Event, why string) error {
	return fault.New(fault.StoreCorrupt, "event %d (%s): %s", ev.Seq, ev.Name(), why)
}

// mustApply applies an event that Decide itself made.
func (r *Run) mustApply(ev *journal.Event, s *scope) {
	if err := r.apply(ev, s); err != nil {
		panic(fmt.Sprintf("machine: run %s cannot apply its own event: %v", r.start.Run, err))
	}
}

// noteDelta counts the pieces of text that a step has streamed.
func (s *scope) noteDelta(i int32, ev *journal.Event) {
	if s.deltas == nil {
		s.deltas = make(map[int32]int64, 1)
	}
	s.deltas[i] = ev.DeltaIndex() + 1
}
