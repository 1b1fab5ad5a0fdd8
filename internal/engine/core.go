// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/admission"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/reads"
	"github.com/roux-engine/roux/internal/slots"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

const (
	minCompaction = 16 << 10 // bytes of events below which a run is compacted only at its end or by compactOldest
	// maxRuns bounds a batch when events are small: a run that starts or ends costs one
	// row in addition to the journal's.
	maxRuns = 2_000
	// maxChildren bounds the runs of a batch to which child runs are added, so that some
	// are committed while others are started.
	maxChildren = 256
	// minTail and maxTail bound the initial capacity of a run's tail, in bytes.
	minTail, maxTail = 512, 16 << 10
	// lazyTick is how long progress may wait for an urgent change whose commit it can share, in
	// µs, and textTick how long text, which has waited for more of it before.
	lazyTick, textTick = 100_000, 10_000
)

// core is the engine without its goroutines. Its owner calls, always from one
// goroutine at a time:
//
//	handle(now, inputs)          handles what has arrived; nothing leaves yet
//	pipeline.encodeBatch()       returns the batch to commit, or nil
//	pipeline.committed(verdicts) takes the store's answer; the next batch may be encoded
//	pipeline.releaseCommitted()  appends what waited for the commit to effects and frames
//	wakeup()                     returns when to call handle again at the latest
type core struct {
	cfg   *Config
	ctx   context.Context // of reads from the store
	epoch uint64
	now   int64 // UTC µs, never falls

	programs  *program.Cache
	attempts  attempts              // attempts in flight, and their slots
	residency residency             // which runs are in memory
	pipeline  pipeline              // what is made durable
	recovery  recovery              // after a crash or a failed commit
	purses    *purse.Purses[waiter] // what the accounts of runs can pay
	tree      tree                  // what runs and their child runs tell each other
	queues    *admission.Queues     // which runs may begin

	backlog    []*input     // arrived and not handled yet
	again      []*input     // reports whose effects were taken back
	continues  []*loadedRun // runs that owe InContinue
	discardFor *loadedRun   // its commands are dropped, because they are taken from Owed
	turn       machine.Turn
	injected   machine.Input // the core's own input to a run, reused
	closing    bool          // grant no more slots

	effects []effect
	frames  []feed.Published
	watched []feed.Observed // like frames, for Config.Observer
	jobs    []jobs.Change   // like frames, for Config.Jobs

	observer turnObserver // nil outside of simulations
}

func newCore(ctx context.Context, cfg *Config) *core {
	c := &core{cfg: cfg, ctx: ctx, programs: program.NewCache(cfg.MaxPlans)}
	c.attempts = attempts{attemptTable: slots.NewTable(cfg.Concurrency, func(req *slotRequest) { req.Holder.loaded = nil })}
	c.residency.init(c)
	c.pipeline.init(c)
	c.recovery.init(c)
	c.tree.init()
	c.purses = purse.New[waiter](purseHost{c})
	c.queues = admission.New(queueHost{c})
	c.turn.Limit = cfg.MaxTurn
	return c
}

// handle handles what has arrived and does as much work as fits into one batch.
func (c *core) handle(now int64, inputs []*input) {
	c.now = max(c.now, now)
	c.backlog = append(c.backlog, inputs...)
	if c.recovery.dead != nil || c.recovery.stalled != nil && !c.recovery.reload() {
		c.recovery.refuseBacklog()
		return
	}
	c.recovery.loadReturning()
	c.tree.askDue(c.now)
	c.attempts.Arbiter.Advance(c.now)
	// Reports first, however full the batch is: otherwise the attempts that they end would
	// be dispatched again with it.
	again := c.again
	c.again = nil
	for _, in := range again {
		c.handleInput(in)
	}
	n := 0
	for ; n < len(c.backlog) && !c.pipeline.full(); n++ {
		c.handleInput(c.backlog[n])
		c.backlog[n] = nil
	}
	rest := copy(c.backlog, c.backlog[n:])
	clear(c.backlog[rest:])
	c.backlog = c.backlog[:rest]
	c.recovery.recoverNext()
	c.residency.fireDue()
	c.purses.Tick()
	c.queues.Tick()
	c.advance()
}

// busy reports whether handle has more to do once there is room in a batch.
func (c *core) busy() bool {
	return c.recovery.stalled == nil && c.recovery.dead == nil &&
		(len(c.backlog) > 0 || len(c.again) > 0 || c.tree.busy(c.closing) || c.tree.returns(c.now) && c.pipeline.committing == nil || len(c.continues) > 0 || len(c.recovery.recovering) > 0 || !c.closing && (c.attempts.Arbiter.Granted() || c.purses.Due() || c.queues.Due()))
}

// handleInput handles one input. Its answer, if it needs one, is fixed here and sent
// when the batch that holds what it depends on is durable.
func (c *core) handleInput(in *input) {
	switch in.kind {
	case inStart:
		in.out = c.start(in)
	case inRun:
		if len(c.tree.away) > 0 && c.tree.away[in.key] && (in.reply == nil || c.tree.returnAt == 0) {
			c.tree.postponed = append(c.tree.postponed, in)
			return
		}
		in.out = answer{run: in.key.Run, err: c.deliver(in)}
		if len(c.tree.away) > 0 && c.tree.away[in.key] { // its run cannot be read, or what it caused was taken back
			if in.reply == nil {
				c.tree.postponed = append(c.tree.postponed, in)
				return
			}
			in.out.err = cmp.Or[error](in.out.err, store.TakenBackError(in.key.Run))
		}
	case inRelease:
		in.out = answer{run: in.key.Run, err: c.recovery.release(in.key)}
	case inSoftDelete:
		in.out = answer{run: in.key.Run, err: c.softDelete(in.key)}
	case inSettle:
		c.settle(in)
	case inLook:
		in.look(c)
	case inCredits:
		in.out = answer{err: c.purses.Change(in.key.Account, in.credits)}
	case inFreed:
		if c.tree.away[in.key] { // the report that holds the slot may be postponed
			c.tree.postponed = append(c.tree.postponed, in)
		} else {
			c.attempts.Free(in.task(), false)
		}
		return
	}
	if in.reply != nil {
		c.pipeline.building.inputs = append(c.pipeline.building.inputs, in)
		c.pipeline.building.urgent = true
	}
}

// start starts a run.
func (c *core) start(in *input) answer {
	if c.closing {
		return answer{run: in.key.Run, err: errStopping}
	}
	prog := in.start.prog
	capacity := min(max(prog.TailCapacity, minTail), maxTail)
	l := &loadedRun{storedState: storedState{tail: make([]byte, 0, capacity)}, key: in.key, prog: prog, run: machine.NewRun(prog.Machine()), start: in.start}
	l.head = store.Head{Key: in.key, Recipe: in.start.recipe, Version: in.start.version, PlanHash: prog.Key(), Created: c.now}
	l.setPlace(in.m.Start)
	if l.place != nil {
		l.head.Root, l.head.Parent = l.place.Root, l.place.Parent
	} else {
		l.head.Labels = in.start.labels
	}
	l.limited = in.start.limited
	terms := in.m.Start.Credits
	if terms != nil && l.place == nil {
		if err := c.purses.Readable(in.key.Account); err != nil {
			return answer{run: in.key.Run, err: err}
		}
	}
	c.residency.add(l)
	if terms != nil && in.start.idem != nil {
		if free, by := c.purses.Offer(in.key.Account, terms.Key); terms.Reserved > free {
			l.claim.Unpaid = by.Refuse(terms.Reserved, free)
		}
	}
	err := c.decide(l, &in.m)
	if err != nil {
		c.residency.drop(l)
	}
	return answer{run: in.key.Run, status: l.run.Status(), err: err}
}

// deliver passes an input to its run.
func (c *core) deliver(in *input) error {
	l := in.loaded
	if l == nil || l.dropped {
		l = c.residency.runs[in.key]
	}
	if l == nil && in.m.Kind == machine.InProgress && in.m.Mark == nil { // of a job, the run is often not in memory
		c.countLate(in)
		return nil
	}
	var err error
	if l == nil {
		if l, err = c.residency.get(in.key); err != nil && in.reply == nil && !store.Permanent(err) && !c.recovery.inherited[in.key].suspect { // a suspect has lost its attempts
			c.tree.comeBack(in.key, c.now+maxBackoff)
			return err
		}
	}
	report := in.m.Kind == machine.InResult && in.m.Outcome != machine.Preview ||
		in.m.Kind == machine.InWorkerLost && !in.m.All
	if report {
		c.settleLimits(l, in)
		switch attempt := c.attempts.finish(l, in.task()); {
		case attempt != nil && in == &attempt.report:
			c.attempts.tasks.Return(attempt.task) // its goroutine is done with it
			attempt.task = nil
		case attempt == nil && in.m.Source == journal.FromWorker && in.m.Fence != (journal.Fence{}):
			c.countLate(in) // its attempt was cancelled, or was lost when the run was loaded again
		}
	}
	if err == nil {
		err = c.decideInput(l, in, report)
	}
	if report && !in.holding {
		c.attempts.Free(in.task(), false) // after the turn: its slots may be those of the job that it has submitted
	}
	return err
}

// decideInput decides on an input, which may report how an attempt has ended.
func (c *core) decideInput(l *loadedRun, in *input, report bool) error {
	if l.head.Deleted != 0 && in.reply != nil {
		return reads.ErrDeleted(in.key.Run)
	}
	if in.holding && !in.held {
		in.held = true
		c.attempts.Return(&l.requests, in.task())
	}
	before := l.run.Last()
	err := c.decide(l, &in.m)
	if b := c.pipeline.building; in.m.Kind != machine.InProgress && l.run.Last() != before {
		b.urgent = true
	} else if in.m.Progress != nil && in.m.Progress.Kind == machine.ProgressDelta {
		b.due = min(b.due, c.now+textTick)
	}
	// If the run's uncommitted changes are lost, the report is handled again. This
	// includes a report that had no effect because of a cancel that is not durable yet.
	if report && in.reply == nil && (l.dirty || l.committing) {
		c.pipeline.building.inputs = append(c.pipeline.building.inputs, in)
	}
	return err
}

// countLate counts a report that arrived too late to change anything.
func (c *core) countLate(in *input) {
	c.attempts.ignored++
	c.cfg.Logger.Debug("a report came too late", "run", in.key.Run, "attempt", in.m.Fence.Attempt, "ignored", c.attempts.ignored)
}

// decide runs one turn of the machine and handles its events and commands, and those of
// the runs that are told of it.
func (c *core) decide(l *loadedRun, in *machine.Input) error {
	err := c.turnOf(l, in)
	if len(c.tree.mail) > 0 && !c.tree.delivering {
		c.deliverMail()
	}
	return err
}

// turnOf runs one turn of the machine.
func (c *core) turnOf(l *loadedRun, in *machine.Input) error {
	if err := c.needParents(l); err != nil {
		return err
	}
	if l.interrupted {
		// The run must first record that its attempts are lost. Once the run has new
		// events and is loaded again, the lost attempts would look like attempts of this
		// process.
		if c.recovery.recoverRun(l); l.dropped {
			return store.QuarantinedError(l.key.Run, c.recovery.quarantined[l.key])
		}
	}
	in.At = c.now
	if err := c.offer(l, in); err != nil {
		return err
	}
	t := &c.turn
	if err := c.protect(l, func() {
		if c.observer != nil {
			c.observer.Before(l.key, l.run, in)
		}
		l.run.Decide(in, t)
		if t.Err == nil && len(t.Events) > 0 {
			c.pipeline.touch(l, t.Events[0].Seq)
			before := len(l.tail)
			l.tail = journal.AppendFrame(l.tail, t.Events)
			c.pipeline.building.bytes += len(l.tail) - before
		}
	}); err != nil {
		return err
	}
	if c.observer != nil {
		c.observer.After(l.key, l.run, in, t)
	}
	if t.Short && c.rootOf(l).place != nil {
		return c.recovery.cutOff(l, t.Err)
	}
	if t.Err != nil {
		return t.Err
	}
	if len(t.Jobs) > 0 {
		c.noteJobs(l, t.Jobs)
	}
	for i := range t.Events {
		c.trackEvent(l, &t.Events[i])
	}
	for i := range t.Commands {
		c.enqueueCommand(l, &t.Commands[i])
	}
	if l.limited {
		c.reclassify(l, admission.ClassOfRun(l.run.Last(), l.run.Status()))
	}
	c.residency.arm(l)
	return nil
}

// offer tells the machine what the account of a run can pay, and whether it must be queued.
func (c *core) offer(l *loadedRun, in *machine.Input) error {
	if l.place != nil {
		in.Room = c.room(l)
	}
	switch in.Kind {
	case machine.InStart, machine.InRetry, machine.InEdit:
		if err := c.admit(l, in); err != nil {
			return err
		}
	case machine.InGranted, machine.InChildExtended:
	default:
		return nil
	}
	start := l.run.Start()
	if in.Kind == machine.InStart {
		start = in.Start
	}
	if start == nil || start.Credits == nil {
		return nil
	}
	l.claim.Key = start.Credits.Key
	if l.claim.Unpaid != nil {
		in.Available = math.MaxInt64 // the store refuses it, unless its key has started a run
		return nil
	}
	if in.Kind != machine.InGranted && in.Kind != machine.InChildExtended && start.Child == nil {
		if err := c.purses.Readable(l.key.Account); err != nil {
			return err
		}
	}
	n, by := c.available(l)
	if in.Available, in.Bound = n, nil; by.Source() != "account" {
		in.Bound = new(by)
	}
	return nil
}

// inject is decide for an input that the core itself makes.
func (c *core) inject(l *loadedRun, in machine.Input) error {
	c.injected = in
	return c.decide(l, &c.injected)
}

// protect calls fn, which runs code of one run. A panic in fn drops that run from
// memory and quarantines it; other runs are not affected (I16).
func (c *core) protect(l *loadedRun, fn func()) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		text := view.PanicText(l.run.Plan(), v)
		c.cfg.Logger.Error("the machine panicked", "run", l.key.Run, "panic", text, "stack", string(debug.Stack()))
		reason := fmt.Sprintf("the machine panicked after event %d: %s", l.run.Last(), text)
		if l.root != "" {
			err = c.recovery.takeBack(l, reason)
			return
		}
		c.residency.drop(l)
		c.unstored(l)
		err = store.QuarantinedError(l.key.Run, reason)
		for _, in := range c.pipeline.building.inputs {
			if in.key == l.key {
				in.out = answer{run: l.key.Run, err: err} // what its answer depends on will not be written
			}
		}
		if l.start == nil || l.committing { // otherwise its start was never sent to the store
			c.recovery.quarantineLoaded(l, reason)
		}
	}()
	fn()
	return nil
}

// trackEvent records what the engine itself must know of an event.
func (c *core) trackEvent(l *loadedRun, ev *journal.Event) {
	switch ev.Kind {
	case journal.EvNodeRetried, journal.EvNodeLost, journal.EvNodeFallback, journal.EvNodeCompleted,
		journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled, journal.EvNodeInvalidated:
		if ev.Kind == journal.EvNodeCompleted && ev.Cost() > 0 {
			c.spend(l, ev.Ref(), ledger.Whole(ev.Cost()))
		}
		if req := l.requests.Get(ev.Ref()); req != nil && (ev.Kind != journal.EvNodeLost || !c.attempts.Arbiter.Again(req)) {
			if c.attempts.End(&l.requests, req) {
				c.pipeline.building.commands = append(c.pipeline.building.commands, pendingCommand{l: l, cmd: machine.Command{Kind: cmdFree, Ref: req.Ref, Fence: req.Fence}})
			}
		}
		c.purses.Freed(l.key.Account, &c.rootOf(l).claim)
	case journal.EvNodeStarted:
		if req := l.requests.Get(ev.Ref()); req != nil {
			req.Fence = journal.Fence{Gen: l.run.Generation(), Attempt: ev.Attempt}
		}
	case journal.EvNodeCharged:
		c.spend(l, ev.Ref(), ev.Amount())
	case journal.EvNodeSubmitted:
		c.attempts.Park(&l.requests, taskID{Key: l.key, Ref: ev.Ref(), Fence: journal.Fence{Gen: l.run.Generation(), Attempt: ev.Attempt}})
	case journal.EvChildEnded:
		c.purses.Freed(l.key.Account, &c.rootOf(l).claim)
	case journal.EvRunExtended:
		c.tell(l, machine.Input{Kind: machine.InChildExtended, Resource: ev.Resource(), N: ev.Added()})
	case journal.EvRunUnpaused:
		if l.root != "" {
			c.askAgain(l.root)
		}
	case journal.EvCreditsReserved, journal.EvCreditsExtended, journal.EvCreditsSettled:
		c.purses.Note(l.key.Account, &l.claim, l.run.Generation(), ev)
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		l.ended = ev.At
		if l.place != nil && !mutation.ChildEnd {
			c.tell(l, machine.Input{Kind: machine.InChildEnded, End: l.run.ChildEnd(ev)})
		}
	case journal.EvRunRetried:
		l.ended = 0
	case journal.EvRunResumed:
		l.place, l.orphan = l.run.Start().Child, false
	case journal.EvRunStatus:
		if ev.Status() == journal.RunQueued {
			l.queuedAt = ev.At
		}
	}
}

// enqueueCommand queues a command of a run. Effects on the world wait for the batch.
// Internal commands are done in this pass, so that completed(i), queued(i+1) and
// started(i+1) share one commit.
func (c *core) enqueueCommand(l *loadedRun, cmd *machine.Command) {
	if c.discardFor == l {
		return
	}
	switch cmd.Kind {
	case machine.CmdAcquire:
		c.acquire(l, cmd.Ref)
	case machine.CmdChild: // it is started in this batch
	case machine.CmdCancelChild:
		c.tree.cancels = append(c.tree.cancels, store.Key{Account: l.key.Account, Run: cmd.Child})
	case machine.CmdAdmit:
		c.queues.Add(l.key, l.queuedAt)
	case machine.CmdContinue:
		if !l.continueDue {
			l.continueDue = true
			c.continues = append(c.continues, l)
		}
	default:
		if mutation.CommitFirst {
			c.pipeline.emit(&pendingCommand{l: l, cmd: *cmd})
		}
		c.pipeline.building.commands = append(c.pipeline.building.commands, pendingCommand{l: l, cmd: *cmd})
		c.pipeline.building.urgent = true
	}
}

// acquire requests an attempt for a step: a slot, or a child run.
func (c *core) acquire(l *loadedRun, ref journal.Ref) {
	switch kind, _ := l.run.Calls(ref.Step); {
	case l.place != nil && c.pausedAbove(l): // asked again by askAgain
	case kind == plan.Recipe:
		c.requestChild(l, ref)
	default:
		route, demand := c.routeOf(l, ref)
		c.attempts.Request(&l.requests, l.key, ref, holder{loaded: l}, route, demand)
	}
}

// asked reports whether there are child runs to be started in the batch under construction:
// during a commit, too.
func (c *core) asked() bool {
	return !c.closing && len(c.tree.asked) > 0 && len(c.pipeline.building.dirty) < maxChildren && !c.pipeline.full()
}

// advance grants free slots and continues long turns until nothing more follows or the
// batch is full. Then it reports which steps are blocked, and why.
func (c *core) advance() {
	for !c.pipeline.full() {
		switch {
		case !c.closing && c.queues.Serve(): // before anything else of the accounts
		case !c.closing && c.attempts.Arbiter.Granted():
			c.attempts.Arbiter.EachGranted(c.grant)
		case !c.closing && c.purses.Serve():
		case c.asked():
			c.serveAsked()
		case len(c.tree.cancels) > 0:
			c.cancelNext()
		case len(c.continues) > 0:
			l := c.continues[0]
			c.continues = c.continues[1:]
			l.continueDue = false
			if !l.dropped {
				_ = c.inject(l, machine.Input{Kind: machine.InContinue})
				c.pipeline.building.urgent = true
			}
		default:
			c.reportBlocked()
			return
		}
	}
}

// grant starts the attempt of a step whose request was granted.
func (c *core) grant(req *slotRequest) {
	if req.Withdrawn() {
		return
	}
	l := req.Holder.loaded
	if !c.pausedAbove(l) {
		err := c.inject(l, machine.Input{Kind: machine.InGranted, Ref: req.Ref})
		c.pipeline.building.urgent = true
		if err != nil || req.Withdrawn() || req.Fence != (journal.Fence{}) {
			return
		}
	}
	l.requests.Remove(req) // the step no longer wants an attempt, or its account cannot pay it
	c.attempts.Arbiter.Withdraw(req)
	if l.run.CreditsMissing(req.Ref) > 0 {
		c.purses.Wait(l.key.Account, &c.rootOf(l).claim, waiter{l, req.Ref})
	}
}

// reportBlocked tells runs that a step of theirs is blocked, if the reason is new.
func (c *core) reportBlocked() {
	c.attempts.Arbiter.EachBlocked(func(req *slotRequest, reason string) {
		_ = c.inject(req.Holder.loaded, machine.Input{Kind: machine.InHeld, Ref: req.Ref, Text: reason})
		c.pipeline.building.urgent = true
	})
}

var errStopping = fault.New(fault.Stopping, "the engine is stopping and takes no new work; try again after it has started")
