// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// The limits of one Decide. When it reaches either, it stops and owes CmdContinue.
const (
	MaxEvents = 1_000
	MaxBytes  = 1 << 20
)

// A Turn is the result of one Decide. The caller owns it and may reuse it: Decide cuts
// the slices to length zero and appends to them.
type Turn struct {
	Events   []journal.Event
	Commands []Command
	// Jobs are the external jobs that were submitted and those that have ended, in order.
	// What the store knows of them must change in the commit of the events. They may come
	// without events.
	Jobs []journal.JobChange
	// Limit is the number of events after which a Decide stops and owes CmdContinue.
	// Default MaxEvents.
	Limit int
	// Short is true if a child run needed more than Room. It decided as if its limits were
	// reached.
	Short bool
	// Err is why a user's input (InCancel, InRetry, InEdit, InSignal, InStart) was
	// refused; no event was emitted then. Late and repeated inputs of workers and
	// timers are not errors: they yield no events.
	Err error
}

// Decide handles one input and emits the events that follow from it. The events are
// already applied to the run. The caller must make them durable before it carries out
// a command or answers a request.
func (r *Run) Decide(in *Input, turn *Turn) {
	turn.Events, turn.Commands, turn.Jobs, turn.Short, turn.Err = turn.Events[:0], turn.Commands[:0], turn.Jobs[:0], false, nil
	r.turn, r.size, r.room = turn, 0, in.Room
	r.clock = max(in.At, r.now) // time never goes backwards within a run (I10)
	defer func() { r.turn = nil }()
	if r.start == nil && in.Kind != InStart {
		turn.Err = fault.New(fault.RunNotFound, "the run has not started")
		return
	}
	r.handle(in)
	if turn.Err != nil {
		return // work left from an earlier turn continues with its own InContinue
	}
	r.advance()
	r.issueCancels()
	r.forgetDecoded()
	if r.worklist.len() > 0 && !r.queued() {
		turn.Commands = append(turn.Commands, Command{Kind: CmdContinue, Ref: journal.Ref{Step: -1}})
	}
}

// handle emits the events that follow from the input directly; advance does the rest.
func (r *Run) handle(in *Input) {
	switch in.Kind {
	case InStart:
		r.handleStart(in)
	case InGranted:
		r.handleGranted(in)
	case InHeld:
		r.handleHeld(in)
	case InResult:
		r.handleResult(in)
	case InProgress:
		r.handleProgress(in)
	case InTimer:
		r.fireTimers()
	case InSignal:
		r.handleSignal(in)
	case InItems:
		r.handleItems(in)
	case InWorkerLost:
		r.handleWorkerLost(in)
	case InContinue:
	case InCancel:
		r.handleCancel(in)
	case InRetry, InEdit:
		r.handleRetry(in)
	case InPause, InUnpause:
		r.handlePause(in)
	case InChildEnded:
		r.handleChildEnded(in)
	case InChildExtended:
		r.handleChildExtended(in)
	case InAdmit:
		r.handleAdmit()
	case InPinned:
		r.handlePinned(in)
	case InResume:
		r.handleResume(in)
	}
}

// advance works through the worklist until it is empty or the turn is full.
func (r *Run) advance() {
	for !r.full() && !r.queued() {
		e, ok := r.worklist.front()
		if !ok {
			return
		}
		before := r.last
		switch e.kind {
		case stepEntry:
			r.startStep(e.scope, e.step)
		case compositeEntry:
			r.advanceComposite(e.scope.comps[e.step])
		case scopeEntry:
			r.sweepScope(e.scope)
		case runEntry:
			r.advanceRun()
		}
		if r.last == before {
			panic("machine: a worklist entry that was due decided nothing")
		}
	}
}

// full reports whether the turn has reached its limit of events, or MaxBytes.
func (r *Run) full() bool {
	return len(r.turn.Events) >= cmp.Or(r.turn.Limit, MaxEvents) || r.size >= MaxBytes
}

// emit applies an event and appends it to the turn, with the commands it causes.
func (r *Run) emit(s *scope, ev journal.Event) {
	ev.Seq, ev.At = r.last+1, r.clock
	if s != nil {
		ev.Path = s.path
	}
	r.mustApply(&ev, s)
	r.size += 48 + len(ev.Data) + len(ev.Text)
	r.turn.Events = append(r.turn.Events, ev)
	r.commandsOf(&ev, s)
}

// emitStep emits an event of a step instance.
func (r *Run) emitStep(s *scope, i int32, ev journal.Event) {
	ev.Step = s.g.First + i
	r.emit(s, ev)
	if ev.Kind == journal.EvNodeCompleted && s == r.root {
		r.estimateAgain(i)
	}
}

func (r *Run) emitRun(ev journal.Event) {
	ev.Step = -1
	r.emit(nil, ev)
}

func (r *Run) handleStart(in *Input) {
	if r.start != nil {
		r.turn.Err = fault.New(fault.Conflict, "run %s has started already", r.start.Run)
		return
	}
	terms := in.Start.Credits
	if terms != nil && in.Start.Child == nil && terms.Reserved > in.Available {
		r.turn.Err = in.bound().Refuse(terms.Reserved, in.Available)
		return
	}
	data, err := journal.EncodeStart(in.Start)
	if err != nil {
		r.turn.Err = err
		return
	}
	if params := in.Start.Parameters; in.Start.Child != nil && (params == nil || len(params) > 0) {
		r.begins = in.Start
	}
	r.emitRun(journal.Event{Kind: journal.EvRunStarted, Data: data})
	r.begins = nil
	if terms != nil && in.Start.Child == nil && terms.Reserved > 0 {
		r.emitRun(journal.Event{Kind: journal.EvCreditsReserved, N: terms.Reserved, M: terms.Estimated})
	}
	r.enqueue(in)
}

// emitRunning changes the status to running when the first step begins (X78, X80), and
// again when work continues after a preview result (X79).
func (r *Run) emitRunning() {
	if r.status == journal.RunDispatching || r.status == journal.RunPreview {
		r.emitStatus(journal.RunRunning)
	}
}

func (r *Run) handleGranted(in *Input) {
	s, i := r.at(in.Ref)
	if s == nil {
		return
	}
	st := &s.steps[i]
	if st.status != journal.Queued && st.status != journal.Blocked || s.state == scopeSweep || r.paused && !mutation.Pause {
		return // it was or will be cancelled; the engine sees no node.started and frees the slot
	}
	if r.brief(s, i).kind == plan.Recipe {
		if in.Child != nil {
			r.grantChild(s, i, in)
		}
		return
	}
	if !r.fund(s, i, in) {
		return
	}
	r.emitRunning()
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeStarted, Attempt: st.attempt + 1, Unknown: st.flags&flagUnknown != 0 && st.attempt > 0})
}

func (r *Run) handleHeld(in *Input) {
	s, i := r.at(in.Ref)
	if s == nil || s.steps[i].status != journal.Queued && s.steps[i].status != journal.Blocked || r.brief(s, i).kind == plan.Recipe {
		return // a child run needs no slot
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeBlocked, Text: in.Text})
}

// handleResult admits one result per attempt: the fence must be that of the live
// attempt of this generation. A webhook, a poll and a worker that was presumed dead
// may all report. The first result wins; the first late one of each source is recorded
// as node.ignored (I3, X81, X82, X95).
func (r *Run) handleResult(in *Input) {
	s, i := r.at(in.Ref)
	if s == nil { // its scope has ended
		if in.Job != nil {
			r.cancelJob(in)
		}
		return
	}
	st := &s.steps[i]
	c := s.comps[i]
	if c != nil && c.kind == loopComposite {
		r.handleCollected(s, i, c, in)
		return
	}
	if !s.attemptOpen(i) && !mutation.Duplicate || c != nil || r.stale(st, in) {
		if in.Job != nil {
			r.disown(s, i, in)
		}
		if in.Fence.Attempt > 0 && in.Fence.Attempt <= st.attempt && !r.status.Terminal() && in.Outcome != Preview &&
			st.flags&ignoredFlag(in.Source, in.Fence.Attempt == st.attempt) == 0 {
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeIgnored, Flag: uint8(in.Source), Attempt: in.Fence.Attempt})
		}
		return
	}
	if in.Outcome != Preview && !r.passes(s, i, in) {
		return
	}
	switch in.Outcome {
	case Submitted:
		r.submit(s, i, in)
	case Preview:
		if !r.shows(s, i, in.Moderation != nil && in.Moderation.Shown) {
			return
		}
		if r.status == journal.RunRunning {
			r.emitStatus(journal.RunPreview)
		}
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodePreview, Data: in.Output})
		r.mark(s, i, in)
	case Success:
		r.emitRunning()
		if f := r.checkOutput(in.Output); f != nil {
			r.emitCharge(s, i, in, false)
			r.failStep(s, i, f, in.InputHash)
			return
		}
		if in.Cached != nil {
			r.completeCached(s, i, in)
			return
		}
		cost, f := r.costOf(s, i, in)
		if f != nil {
			r.failStep(s, i, f, in.InputHash)
			return
		}
		r.emitCharge(s, i, in, true)
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: in.Output, N: cost, Attempt: st.attempt,
			M: r.clock - st.at, Hash: in.InputHash})
	case Failed:
		r.emitRunning()
		r.emitCharge(s, i, in, false)
		r.failStep(s, i, in.Err, in.InputHash)
		if in.Job != nil { // it could not be made the job of the step
			r.disown(s, i, in)
		}
	}
}

// emitCharge records what an attempt of an action with a price cost: the price that was
// pinned, or less if the attempt says so. What it cost without completing its step is
// recorded if the attempt says so, and not charged, as that of compensations is (R44).
func (r *Run) emitCharge(s *scope, i int32, in *Input, completes bool) {
	amount := r.price(s, i)
	flag := uint8(0)
	if !completes && !mutation.Charge || s.inCompensation() {
		flag = 1
	}
	switch {
	case in.Price != nil:
		amount = max(0, min(amount, *in.Price))
	case !completes:
		return
	}
	if amount > 0 {
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCharged, N: int64(amount), Flag: flag, Attempt: s.steps[i].attempt})
	}
}

// price is the price that was pinned for the step's action.
func (r *Run) price(s *scope, i int32) ledger.Amount {
	return r.pin(r.brief(s, i)).Price
}

// stale reports whether the fence of an input names another attempt than the live one
// of this generation (I3, I7).
func (r *Run) stale(st *stepState, in *Input) bool {
	return in.Fence.Attempt != st.attempt && !mutation.Fence || in.Fence.Gen != r.gen && !mutation.Generation
}

func ignoredFlag(src journal.Source, current bool) stepFlags {
	if current {
		return flagIgnored << min(src, journal.FromPoll)
	}
	return flagIgnoredOlder << min(src, journal.FromPoll)
}

// checkOutput returns a failure when an output exceeds the inline limit or the run's
// memory (R38).
func (r *Run) checkOutput(out []byte) *Failure { return r.checkReturned(out, 0) }

// checkReturned is checkOutput for an output that comes with bytes of memory that the run
// gets back.
func (r *Run) checkReturned(out []byte, back int64) *Failure {
	if len(out) > maxInline {
		return &Failure{Code: fault.OutputTooLarge, Msg: fmt.Sprintf("the output has %d bytes, the limit is %d; return a file instead", len(out), maxInline)}
	}
	return r.checkMemory(len(out) - int(back))
}

func (r *Run) handleProgress(in *Input) {
	s, i := r.at(in.Ref)
	if s == nil {
		return
	}
	st := &s.steps[i]
	if !s.attemptOpen(i) || s.comps[i] != nil || r.stale(st, in) || in.Progress.Text != "" && !r.shows(s, i, in.Progress.Passed) {
		return
	}
	switch in.Progress.Kind {
	case ProgressDelta:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeDelta, N: s.deltas[i], Text: in.Progress.Text, Attempt: st.attempt})
		r.mark(s, i, in)
	case ProgressLog:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeLog, Code: fault.Code(in.Progress.Level), Text: in.Progress.Text, Attempt: st.attempt})
	default:
		ppm := int64(min(max(in.Progress.Fraction, 0), 1) * 1e6)
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeProgress, N: ppm, Text: in.Progress.Text, Attempt: st.attempt})
	}
}

// maxSignals bounds the signals that no step waits for yet (I15).
const maxSignals = 1_000

func (r *Run) handleSignal(in *Input) {
	switch {
	case (r.status.Terminal() || r.phase == phaseEnding) && !mutation.Terminal:
		r.turn.Err = fault.New(fault.TooLate, "run %s is %s and takes no signal", r.start.Run, r.statusText())
		return
	case len(r.signals) >= maxSignals:
		r.turn.Err = fault.New(fault.QuotaExceeded, "run %s holds %d signals that no step has waited for", r.start.Run, maxSignals)
		return
	case in.Name == "":
		r.turn.Err = fault.New(fault.Usage, "a signal needs a name")
		return
	}
	data := []byte("null")
	if len(in.Data) > 0 {
		var err error
		if data, err = jsonx.CanonicalRaw(in.Data); err != nil {
			r.turn.Err = fault.Wrap(fault.InputInvalid, err, "signal %q: its payload is not JSON: %v", in.Name, err)
			return
		}
	}
	if jsonx.Reserved(data) {
		r.turn.Err = journal.ErrReserved(fmt.Sprintf("the payload of signal %q", in.Name))
		return
	}
	if f := r.checkOutput(data); f != nil {
		r.turn.Err = fault.New(f.Code, "signal %q: %s", in.Name, f.Msg)
		return
	}
	r.emitRun(journal.Event{Kind: journal.EvRunSignalled, Text: in.Name, Data: data})
	if s, i := r.waiter(in.Name); s != nil {
		r.signalled(s, i, data)
	}
}

// waiter finds the step that has waited longest for the signal.
func (r *Run) waiter(name string) (found *scope, at int32) {
	var best int64
	r.eachScope(func(s *scope) {
		for i := range s.steps {
			k := int32(i)
			if s.steps[i].status != journal.Waiting || s.step(r.plan, k).Signal != name {
				continue
			}
			if since := s.steps[i].at; found == nil || since < best ||
				since == best && (s.path < found.path || s.path == found.path && k < at) {
				found, at, best = s, k, since
			}
		}
	})
	return found, at
}

func (r *Run) signalled(s *scope, i int32, data []byte) {
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: data, M: r.clock - s.steps[i].at})
}

// handleItems handles the answer to CmdNeedItems.
func (r *Run) handleItems(in *Input) {
	s, i := r.at(in.Ref)
	if s == nil {
		return
	}
	c, items := s.comps[i], in.Items
	if c == nil || c.loop == nil || !c.needsItems() || items == nil || items.From != c.loop.have || s.steps[i].status != journal.Running {
		return
	}
	data := []byte{'['}
	for k, item := range items.List {
		if k > 0 {
			data = append(data, ',')
		}
		data = append(data, item...)
	}
	data = append(data, ']')
	// The limits are checked against the total number of items, before the first one
	// begins.
	known := max(items.Total-c.loop.have, int64(len(items.List)))
	f := r.checkLoop(s, i, c.loop.have+known, known)
	if f == nil {
		f = r.checkMemory(len(data) + itemBytes*len(items.List))
	}
	if f != nil {
		r.abortStep(s, i, f)
		return
	}
	flag := uint8(0)
	if in.More {
		flag = 1
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeItems, N: items.From, M: int64(len(items.List)), Data: data, Flag: flag})
}

// handleCollected handles the answer to CmdCollect, and the failure of CmdCollect or
// CmdNeedItems.
func (r *Run) handleCollected(s *scope, i int32, c *composite, in *Input) {
	if !c.owes() || in.Fence.Gen != r.gen && !mutation.Generation {
		return
	}
	if in.Outcome == Failed {
		r.abortStep(s, i, in.Err)
		return
	}
	if in.Outcome == Success && !c.needsItems() {
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: c.loop.withAccumulated(in.Output), M: r.clock - s.steps[i].at})
	}
}

// handleWorkerLost gives up attempts whose worker is lost. The effect may have
// happened, so the attempt counts against lost_limit and not against the retries, and
// the next attempt keeps the effect key (I4).
func (r *Run) handleWorkerLost(in *Input) {
	if !in.All {
		if s, i := r.at(in.Ref); s != nil && s.steps[i].status == journal.Running && s.comps[i] == nil && !r.stale(&s.steps[i], in) {
			r.loseAttempt(s, i, in.Text)
		}
		return
	}
	type lost struct {
		s *scope
		i int32
	}
	var all []lost
	for _, s := range r.sortedScopes() {
		for i := range s.steps {
			if s.steps[i].status == journal.Running && s.comps[int32(i)] == nil {
				all = append(all, lost{s, int32(i)})
			}
		}
	}
	if len(all) == 0 {
		return
	}
	r.emitRun(journal.Event{Kind: journal.EvRunRecovered, N: int64(len(all))})
	for _, l := range all {
		if l.s.steps[l.i].status == journal.Running { // the failure of an attempt before it may have cancelled it
			r.loseAttempt(l.s, l.i, in.Text)
		}
	}
}

func (r *Run) loseAttempt(s *scope, i int32, handedBack string) {
	st := &s.steps[i]
	if s.state == scopeSweep {
		return // the sweep is about to cancel it
	}
	if r.pin(r.brief(s, i)).Once {
		r.finalFailure(s, i, &Failure{Code: fault.Interrupted, Msg: "the attempt was lost, and the action may be attempted only once"}, nil)
		return
	}
	if handedBack == "" && int(st.lost) >= journal.LostLimit {
		r.finalFailure(s, i, &Failure{Code: fault.Interrupted, Msg: journal.LostTooOften}, nil)
		return
	}
	flag := uint8(0)
	if handedBack != "" {
		flag = 1
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeLost, Attempt: st.attempt, Flag: flag, Text: handedBack})
}

// pin is what the step's action resolved to when the run started. It is not to be
// modified.
func (r *Run) pin(b *stepBrief) *journal.Pin {
	if k := int(b.action); b.kind == plan.Action && k < len(r.start.Pins) {
		return &r.start.Pins[k]
	}
	return &noPin
}

var noPin journal.Pin

// handlePause pauses a run or lets it go on. A run that has ended is neither; to pause
// one that is paused changes nothing.
func (r *Run) handlePause(in *Input) {
	switch {
	case r.status.Terminal():
		r.turn.Err = fault.New(fault.TooLate, "run %s is %s; it can neither be paused nor go on", r.start.Run, r.statusText())
	case in.Kind == InUnpause:
		r.unpause("")
	case !r.paused:
		r.emitRun(journal.Event{Kind: journal.EvRunPaused, Text: in.Text})
	}
}

// unpause lets a paused run go on. Its end, by a cancel or by its ttl, does so too,
// because its compensations must run.
func (r *Run) unpause(why string) {
	if r.paused {
		r.emitRun(journal.Event{Kind: journal.EvRunUnpaused, Text: why})
	}
}

// handleCancel accepts a cancel only if the run will end cancelled. After that, only
// compensations are dispatched (I8, X96, X97).
func (r *Run) handleCancel(in *Input) {
	if (r.status.Terminal() || r.phase == phaseEnding || r.Failing()) && !mutation.Cancel {
		r.turn.Err = fault.New(fault.TooLate, "run %s is %s; it cannot be cancelled any more", r.start.Run, r.statusText())
		return
	}
	reason := in.Text
	if reason == "" {
		reason = "the run was cancelled; no reason was given"
	}
	r.unpause("the run is cancelled")
	r.emitRun(journal.Event{Kind: journal.EvRunEnding, Flag: uint8(journal.RunCancelled), Code: fault.ExecutionCancelled, Text: reason, N: -1})
}

// Failing reports whether the run is to fail, and waits only for what it has stopped. It
// cannot be cancelled any more.
func (r *Run) Failing() bool {
	return r.root != nil && r.root.failed >= 0 && r.root.state == scopeSweep
}

func (r *Run) statusText() string {
	switch {
	case r.status.Terminal():
		return r.status.String()
	case r.phase == phaseEnding:
		return "ending as " + r.verdict.String()
	case r.root != nil && r.root.failed >= 0:
		return "failing"
	}
	return r.status.String()
}
