// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

// A Stage is an engine without goroutines: the caller is the clock, the inbox, the
// committer and every worker. It decides what an Engine decides, by the same code; only
// the calls and their times are the caller's. It is used to simulate failures: one
// goroutine and one seed give one history.
//
//	Handle(now, messages)     handles what has arrived; nothing leaves yet
//	EncodeBatch()             returns what to commit; empty if only answers wait
//	Committed(verdicts, err)  takes the store's answer
//	Effects()                 returns what to do in the world now
//	Wakeup()                  returns when to call Handle again at the latest
//
// To simulate a killed process, forget the Stage.
type Stage struct {
	e         *Engine
	clock     int64 // UTC µs, set by the caller
	fileRefs  retention.References
	effects   []Effect
	ahead     *batch          // encoded by Committed, for the next EncodeBatch
	cancelled context.Context // already cancelled: a wait with it returns at once
}

// OpenStage opens an engine over cfg.Store at time now (UTC µs), as Open does.
// cfg.Now is not used. Stages that share programs need not prepare a plan again after a
// restart; nil = programs of its own.
func OpenStage(ctx context.Context, cfg Config, programs *program.Cache, now int64) (*Stage, error) {
	s := &Stage{clock: now}
	cfg.Now = func() time.Time { return time.UnixMicro(s.clock) }
	e, err := assemble(cfg)
	if err != nil {
		return nil, err
	}
	e.cancel() // nothing runs in the background
	e.ctx, s.cancelled = ctx, e.ctx
	e.core.ctx = ctx
	if programs != nil {
		e.core.programs, e.resolver.Programs = programs, programs
	}
	s.e = e
	if err := e.core.recovery.open(e.now()); err != nil {
		return nil, err
	}
	e.tellJobs()
	e.cleaner.Epoch = e.core.epoch
	e.clock.AtLeast(e.core.now)
	return s, nil
}

// A turnObserver is called before and after every turn of every run in memory. It must
// neither change nor keep its arguments.
type turnObserver interface {
	Before(key store.Key, run *machine.Run, in *machine.Input)
	After(key store.Key, run *machine.Run, in *machine.Input, t *machine.Turn)
}

// Observe calls w before and after every turn of a run from now on.
func (s *Stage) Observe(w turnObserver) { s.e.core.observer = w }

// A Message is one thing that arrives: a request, or the report of a worker.
type Message struct {
	in          *input
	wantsAnswer bool
}

// An Answer is what a request returns.
type Answer struct {
	Run      string
	Existing bool // the idempotency key had already started this run
	Err      error
}

// Key returns the run that the message is for; for a start, the run that it would
// create.
func (m *Message) Key() store.Key { return m.in.key }

// Answer returns the answer to the request, and whether there is one yet.
func (m *Message) Answer() (Answer, bool) {
	if !m.wantsAnswer || m.in.reply != nil {
		return Answer{}, false
	}
	return Answer{m.in.out.run, m.in.out.existing, m.in.out.err}, true
}

// withReply turns an input into a message that waits for an answer.
func withReply(in *input, err error) (*Message, error) {
	if err != nil {
		return nil, err
	}
	in.reply = make(chan answer, 1)
	return &Message{in, true}, nil
}

// Start is Engine.Start as a message. With an error the request is refused at once.
func (s *Stage) Start(req *StartRequest) (*Message, error) {
	if s.e.stopping.Load() {
		return nil, errStopping
	}
	return withReply(s.e.startInput(s.e.ctx, req))
}

// Cancel is Engine.Cancel as a message.
func (s *Stage) Cancel(key store.Key, reason string) (*Message, error) {
	return withReply(s.e.cancelInput(s.e.ctx, key.Account, key.Run, reason))
}

// Pause is Engine.Pause, or Engine.Unpause, as a message.
func (s *Stage) Pause(key store.Key, pause bool) (*Message, error) {
	kind := machine.InUnpause
	if pause {
		kind = machine.InPause
	}
	return withReply(s.e.unendedInput(s.e.ctx, key.Account, key.Run, "it can neither be paused nor go on", machine.Input{Kind: kind}))
}

// Signal is Engine.Signal as a message.
func (s *Stage) Signal(key store.Key, name string, data any) (*Message, error) {
	return withReply(s.e.signalInput(s.e.ctx, key.Account, key.Run, name, data))
}

// Retry is Engine.Retry as a message.
func (s *Stage) Retry(key store.Key, req RetryRequest) (*Message, error) {
	if s.e.stopping.Load() {
		return nil, errStopping
	}
	return withReply(s.e.retryInput(s.e.ctx, key.Account, key.Run, req))
}

// Release is Engine.Release as a message.
func (s *Stage) Release(key store.Key) (*Message, error) {
	return withReply(&input{kind: inRelease, key: key}, nil)
}

// Grant is Engine.Grant as a message.
func (s *Stage) Grant(req GrantRequest) (*Message, error) {
	return withReply(creditsInput(req.Account, req.Change()), nil)
}

// VoidLot is Engine.VoidLot as a message.
func (s *Stage) VoidLot(account, lot string) (*Message, error) {
	return withReply(creditsInput(account, &purse.Change{Void: true, Lot: lot}), nil)
}

// Sync is Engine.Sync as a message.
func (s *Stage) Sync() (*Message, error) { return withReply(&input{kind: inBarrier}, nil) }

// An Effect is something to do in the world, now that its cause is durable.
type Effect struct {
	Kind  machine.CommandKind
	Key   store.Key
	Ref   journal.Ref
	Fence journal.Fence
	Task  *machine.Task // CmdDispatch
	// Settles returns how the external job of the attempt has ended; nil = it has not ended.
	Settles action.Func
	effect  effect
	stage   *Stage
}

// Report is a worker's report about the attempt of ef: m has Kind and content; the rest
// is filled in. holding means that the action is still running, until Freed.
func (s *Stage) Report(ef *Effect, m machine.Input, holding bool) *Message {
	m.Ref, m.Fence = ef.Ref, ef.Fence
	in := &input{kind: inRun, key: ef.Key, m: m, holding: holding}
	if ef.Settles != nil {
		in.m.Source = ef.effect.attempt.report.m.Source
	}
	if ef.Settles != nil && m.Kind == machine.InResult && m.Outcome != machine.Preview {
		in.reply, in.m.Job = ef.effect.attempt.report.reply, ef.effect.attempt.report.m.Job
	}
	if ef.stage == s && ef.effect.attempt != nil {
		in.loaded = ef.effect.attempt.report.loaded // a report from another process does not know it
	}
	return &Message{in, in.reply != nil}
}

// Settle is Engine.Settle as a message. It leads to an effect with run as its Settles, whose
// report is how the job has ended and gets the answer, unless it is too late.
func (s *Stage) Settle(job *jobs.Job, source journal.Source, run action.Func) *Message {
	return &Message{(&settlement{job: job, run: run, reply: make(chan answer, 1)}).input(job, source), true}
}

// HandOn is Engine.HandOn as a message. It leads to an effect whose Settles returns the job.
func (s *Stage) HandOn(task *jobs.Job, job *action.Job) *Message {
	return &Message{handOn(task, job).input(task, journal.FromWorker), true}
}

// Freed reports that the action of an attempt has returned late.
func (s *Stage) Freed(ef *Effect) *Message {
	return &Message{in: &input{kind: inFreed, key: ef.Key, m: machine.Input{Ref: ef.Ref, Fence: ef.Fence}}}
}

// Perform carries out an effect that the engine carries out itself: reading the items
// of a loop (CmdNeedItems), collecting outputs (CmdCollect) or resolving a recipe (CmdResolve).
func (s *Stage) Perform(ef *Effect) *Message {
	switch ef.Kind {
	case machine.CmdNeedItems:
		s.e.readItems(&ef.effect)
	case machine.CmdCollect:
		s.e.collect(&ef.effect)
	case CmdResolve:
		s.e.resolve(&ef.effect)
	}
	inputs := s.e.inbox.Take()
	if len(inputs) == 0 {
		return nil
	}
	return &Message{in: inputs[0]}
}

// Handle handles what has arrived. now is UTC µs by a clock that has advanced evenly
// since the Stage was opened.
func (s *Stage) Handle(now int64, messages ...*Message) {
	s.clock = now
	inputs := make([]*input, len(messages))
	for i, m := range messages {
		inputs[i] = m.in
	}
	s.e.core.closing = s.e.stopping.Load() || s.e.cfg.Idle
	s.e.core.handle(s.e.now(), inputs)
	s.e.clock.AtLeast(s.e.core.now)
	s.releaseEffects()
}

// EncodeBatch returns the batch to commit next; ok reports whether there is one. The
// batch is empty when only answers wait: then call Committed(nil, nil) at once.
func (s *Stage) EncodeBatch() (batch []store.Transition, ok bool) {
	b := s.ahead
	s.ahead = nil
	if b == nil {
		b = s.e.core.pipeline.encodeBatch()
	}
	if b == nil {
		return nil, false
	}
	if len(b.transitions) > 0 {
		s.fileRefs.SetFiles(b.transitions)
	}
	return b.transitions, true
}

// Committed takes the store's answer to the batch of the last EncodeBatch. Before it
// releases what waited for that batch it may encode the next one, which EncodeBatch
// then returns.
func (s *Stage) Committed(verdicts []store.Verdict, err error) {
	c := s.e.core
	if err == nil && len(verdicts) > 0 {
		s.fileRefs.Committed(verdicts, c.pipeline.committing.transitions)
	}
	c.pipeline.committed(verdicts, err)
	s.ahead = c.pipeline.encodeAhead()
	c.pipeline.releaseCommitted()
	s.releaseEffects()
}

// releaseEffects collects what the core has released.
func (s *Stage) releaseEffects() {
	c := s.e.core
	for i := range c.effects {
		ef := &c.effects[i]
		s.effects = append(s.effects, Effect{Kind: ef.kind, Key: ef.id.Key, Ref: ef.id.Ref, Fence: ef.id.Fence, Task: ef.task, effect: *ef, stage: s})
		if ef.attempt != nil && ef.attempt.settle != nil {
			s.effects[len(s.effects)-1].Settles = ef.attempt.settle.run
		}
	}
	s.e.feed.Deliver(c.frames)
	s.e.tellJobs()
	clear(c.effects)
	clear(c.frames)
	c.effects, c.frames = c.effects[:0], c.frames[:0]
}

// Effects returns what was released since the last call.
func (s *Stage) Effects() []Effect {
	effects := s.effects
	s.effects = nil
	return effects
}

// Busy reports whether Handle has more to do at this moment.
func (s *Stage) Busy() bool {
	c := s.e.core
	return c.pipeline.committing == nil && (c.busy() || c.recovery.stalled == nil && c.recovery.dead == nil && c.pipeline.building.urgent && !c.pipeline.building.empty())
}

// Wakeup returns when Handle must be called again at the latest, by the caller's clock;
// 0 = not before something arrives.
func (s *Stage) Wakeup() int64 {
	at := s.e.core.wakeup()
	if at == 0 {
		return 0
	}
	return max(1, at-(s.e.now()-s.clock))
}

// Now returns the engine's time: the caller's clock, or the journal's if it is ahead.
func (s *Stage) Now() int64 { return s.e.now() }

// Dead returns why no commit will ever succeed again, or nil.
func (s *Stage) Dead() error { return s.e.core.recovery.dead }

// Recovering reports whether runs are still to be loaded after a start, or again.
func (s *Stage) Recovering() bool {
	c := s.e.core
	return len(c.recovery.recovering)+len(c.recovery.suspects)+len(c.tree.returning) > 0
}

// Stalled returns why commits fail until the store responds again, or nil.
func (s *Stage) Stalled() error { return s.e.core.recovery.stalled }

// Stop begins a clean stop: no new work is accepted and no attempt handed out. Once
// every attempt has reported or was abandoned, Stopped reports whether everything is
// written.
func (s *Stage) Stop() { s.e.stopping.Store(true) }

// Stopped compacts and suspends what is in memory, and reports whether nothing is left
// to be written.
func (s *Stage) Stopped() bool { return s.e.flushed() }

// PutRecords is Engine.PutRecords.
func (s *Stage) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	return s.e.PutRecords(ctx, changes...)
}

// Clean is Engine.Clean at time now.
func (s *Stage) Clean(ctx context.Context, now int64) (retention.Removed, error) {
	s.clock = now
	return s.e.Clean(ctx, false)
}

// A LiveRun is a run in memory.
type LiveRun struct {
	Key   store.Key
	Run   *machine.Run
	Ahead bool // it has events that are not durable
}

// Live calls fn for the runs in memory, the longest untouched first.
func (s *Stage) Live(fn func(LiveRun)) {
	c := s.e.core
	for l := c.residency.recent.Front(); l != nil; l = c.residency.recent.After(&l.age) {
		fn(LiveRun{l.key, l.run, l.dirty || l.committing})
	}
}

// Find returns a run in memory.
func (s *Stage) Find(key store.Key) (LiveRun, bool) {
	l := s.e.core.residency.runs[key]
	if l == nil {
		return LiveRun{}, false
	}
	return LiveRun{l.key, l.run, l.dirty || l.committing}, true
}

// Held returns how many attempts are in flight, and how many slots of all limits are taken by
// those, by abandoned attempts that have not returned, and by external jobs (I22).
func (s *Stage) Held() (attempts, taken int) {
	c := s.e.core
	count := func(req *slotRequest) {
		if req.Holder.attempt != nil {
			attempts++
		}
	}
	c.attempts.EachAway(count)
	for _, l := range c.residency.runs {
		l.requests.Each(count)
	}
	for _, u := range c.attempts.Arbiter.Usage() {
		taken += u.InUse
	}
	return attempts, taken
}

// Loaded returns how many runs are in memory.
func (s *Stage) Loaded() int { return len(s.e.core.residency.runs) }

// Watch begins to read a run's events after number `after`; fn is called with
// each of them by Poll.
func (s *Stage) Watch(key store.Key, after uint64, fn func(feed.Event)) (*feed.Poller, error) {
	return s.e.feed.Poll(s.e.ctx, s.cancelled, key, after, fn)
}

// Events is feed.Feed.Events.
func (s *Stage) Events(ctx context.Context, key store.Key, after uint64) func(func(feed.Event, error) bool) {
	return s.e.feed.Events(ctx, key, after)
}
