// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"time"

	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

// A Stage is an engine without goroutines: whoever holds it is the clock, the
// inbox, the committer and every worker. What it decides is what an Engine
// decides, by the same code; only who calls it, and when, is the holder's. It is
// how disasters are rehearsed: one goroutine and one seed give one history.
//
//	Handle(now, messages)     what arrived; nothing leaves yet
//	batch, ok := EncodeBatch()       what to commit; ok and empty: nothing to write, but answers wait
//	Committed(verdicts, err)  what the store said
//	Effects()                 what to do in the world now
//	Wakeup()                  when to call Handle again at the latest
//
// A holder that forgets a Stage has killed the process.
type Stage struct {
	e         *Engine
	clock     int64 // UTC µs, as told
	fileRefs  retention.References
	effects   []Effect
	ahead     *batch          // encoded, and not asked for yet
	cancelled context.Context // is over: who waits with it does not wait
}

// Plans keeps prepared plans. Stages that share them need not prepare a plan
// again after a restart.
type Plans struct{ p *programs }

// NewPlans returns a cache of at most limit plans.
func NewPlans(limit int) *Plans { return &Plans{newPrograms(limit)} }

// OpenStage opens an engine over cfg.Store at time now (UTC µs), as Open does.
// cfg.Now is not used. plans may be nil.
func OpenStage(ctx context.Context, cfg Config, plans *Plans, now int64) (*Stage, error) {
	s := &Stage{clock: now}
	cfg.Now = func() time.Time { return time.UnixMicro(s.clock) }
	e, err := assemble(cfg)
	if err != nil {
		return nil, err
	}
	e.cancel() // nothing runs in the background
	e.ctx, s.cancelled = ctx, e.ctx
	e.core.ctx = ctx
	if plans != nil {
		e.core.programs = plans.p
	}
	s.e = e
	if err := e.core.recovery.open(e.now()); err != nil {
		return nil, err
	}
	e.cleaner.Epoch = e.core.epoch
	e.clock.atLeast(e.core.now)
	return s, nil
}

// A turnObserver sees every turn of every run in memory, before and after. It must
// neither change what it is given nor keep it.
type turnObserver interface {
	Before(key store.Key, run *machine.Run, in *machine.Input)
	After(key store.Key, run *machine.Run, in *machine.Input, t *machine.Turn)
}

// Observe has w called around every turn of a run from now on.
func (s *Stage) Observe(w turnObserver) { s.e.core.observer = w }

// A Message is one thing that arrives: a request, or the report of a worker.
type Message struct {
	in          *input
	wantsAnswer bool
}

// An Answer is what a request is told.
type Answer struct {
	Run      string
	Existing bool // the idempotency key had already started this run
	Err      error
}

// Key names the run the message is for; of a start, the run it would begin.
func (m *Message) Key() store.Key { return m.in.key }

// Answer is what the request was told, and whether it was told anything yet.
func (m *Message) Answer() (Answer, bool) {
	if !m.wantsAnswer || m.in.reply != nil {
		return Answer{}, false
	}
	return Answer{m.in.out.run, m.in.out.existing, m.in.out.err}, true
}

// withReply makes an input one that somebody waits for.
func withReply(in *input, err error) (*Message, error) {
	if err != nil {
		return nil, err
	}
	in.reply = make(chan answer, 1)
	return &Message{in, true}, nil
}

// Start is Engine.Start as a message. An error refuses it before it arrives.
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

// Sync is Engine.Sync as a message.
func (s *Stage) Sync() (*Message, error) { return withReply(&input{kind: inBarrier}, nil) }

// An Effect is something to do in the world, now that its cause is durable.
type Effect struct {
	Kind   machine.CommandKind
	Key    store.Key
	Ref    journal.Ref
	Fence  journal.Fence
	Task   *machine.Task // CmdDispatch
	effect effect
	stage  *Stage
}

// Report is what a worker says of the attempt of ef: m.Kind and its content; the
// rest is filled in. holding says that the action still runs, until Freed.
func (s *Stage) Report(ef *Effect, m machine.Input, holding bool) *Message {
	m.Ref, m.Fence = ef.Ref, ef.Fence
	in := &input{kind: inRun, key: ef.Key, m: m, holding: holding}
	if ef.stage == s && ef.effect.attempt != nil {
		in.loaded = ef.effect.attempt.loaded // another process would not know it
	}
	return &Message{in: in}
}

// Freed says that the action of an attempt has returned after all.
func (s *Stage) Freed(ef *Effect) *Message {
	return &Message{in: &input{kind: inFreed, key: ef.Key, m: machine.Input{Ref: ef.Ref, Fence: ef.Fence}}}
}

// Perform answers an effect that the engine carries out by itself: items of a
// loop to read (CmdNeedItems), outputs to collect (CmdCollect).
func (s *Stage) Perform(ef *Effect) *Message {
	switch ef.Kind {
	case machine.CmdNeedItems:
		s.e.readItems(&ef.effect)
	case machine.CmdCollect:
		s.e.collect(&ef.effect)
	}
	inputs := s.e.inbox.take()
	if len(inputs) == 0 {
		return nil
	}
	in := inputs[0]
	clear(inputs)
	return &Message{in: in}
}

// setClock moves the clock.
func (s *Stage) setClock(now int64) int64 {
	s.clock = now
	return s.e.now()
}

// Handle takes what arrived. now is UTC µs by a clock that went on evenly since
// the Stage was opened.
func (s *Stage) Handle(now int64, messages ...*Message) {
	at := s.setClock(now)
	inputs := make([]*input, len(messages))
	for i, m := range messages {
		inputs[i] = m.in
	}
	s.e.core.closing = s.e.stopping.Load()
	s.e.core.handle(at, inputs)
	s.e.clock.atLeast(s.e.core.now)
	s.releaseEffects()
}

// EncodeBatch returns the batch to commit next; ok says that there is one. It is empty
// when only answers wait: then Committed(nil, nil) follows at once.
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

// Committed takes the store's word on the batch of the last EncodeBatch. Before what
// waited for it goes out the next one may be encoded, for EncodeBatch to return.
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

// releaseEffects takes what the core released.
func (s *Stage) releaseEffects() {
	c := s.e.core
	for i := range c.effects {
		ef := &c.effects[i]
		s.effects = append(s.effects, Effect{Kind: ef.kind, Key: ef.id.key, Ref: ef.id.ref, Fence: ef.id.fence, Task: ef.task, effect: *ef, stage: s})
	}
	clear(c.effects)
	c.effects = c.effects[:0]
	s.e.feed.Deliver(c.frames)
	clear(c.frames)
	c.frames = c.frames[:0]
}

// Effects takes what was let out since the last call.
func (s *Stage) Effects() []Effect {
	effects := s.effects
	s.effects = nil
	return effects
}

// Busy says that Handle has more to do at this moment.
func (s *Stage) Busy() bool {
	c := s.e.core
	return c.pipeline.committing == nil && (c.busy() || c.recovery.stalled == nil && c.recovery.dead == nil && c.pipeline.building.urgent && !c.pipeline.building.empty())
}

// Wakeup is when Handle must be called again at the latest, by the caller's
// clock; 0 = not before something arrives.
func (s *Stage) Wakeup() int64 {
	at := s.e.core.wakeup()
	if at == 0 {
		return 0
	}
	return max(1, at-(s.e.now()-s.clock))
}

// Now is the engine's time: the caller's clock, or the journal's where it is ahead.
func (s *Stage) Now() int64 { return s.e.now() }

// Dead is why no commit will ever succeed again; nil while one may.
func (s *Stage) Dead() error { return s.e.core.recovery.dead }

// Stalled is why commits fail until the store answers again; nil when they do not.
func (s *Stage) Stalled() error { return s.e.core.recovery.stalled }

// Stop begins an orderly end: no new work is taken and no attempt handed out.
// Once every attempt has reported or was given up, Stopped says whether all is
// written.
func (s *Stage) Stop() { s.e.stopping.Store(true) }

// Stopped compacts and suspends what is in memory, and says that nothing is left to
// be written.
func (s *Stage) Stopped() bool { return s.e.flushed() }

// Clean is Engine.Clean at time now.
func (s *Stage) Clean(ctx context.Context, now int64) (retention.Removed, error) {
	s.setClock(now)
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
	for l := c.residency.recent.front(); l != nil; l = c.residency.recent.after(&l.age) {
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

// Held is how many attempts are handed out, and how many slots are taken by
// those that are and by those that were given up but have not returned (I22).
func (s *Stage) Held() (attempts, slots int) {
	c := s.e.core
	attempts = len(c.attempts.orphans)
	for _, req := range c.attempts.overdue {
		if req.Holder.attempt != nil {
			attempts++
		}
	}
	for _, l := range c.residency.runs {
		l.requests.Each(func(req *slotRequest) {
			if req.Holder.attempt != nil {
				attempts++
			}
		})
	}
	return attempts, c.attempts.arbiter.InUse()
}

// Loaded is how many runs are in memory.
func (s *Stage) Loaded() int { return len(s.e.core.residency.runs) }

// A Reader is Engine.Watch without waiting: a subscriber that reads when it is
// polled, and not before.
type Reader struct {
	s *Stage
	w *feed.Watcher
}

// Watch begins to read a run's events after number `after`; fn is called with
// each of them by Poll.
func (s *Stage) Watch(key store.Key, after uint64, fn func(feed.Event)) (*Reader, error) {
	w, err := s.e.feed.Follow(s.e.ctx, key, after, func(ev feed.Event, _ error) bool { fn(ev); return true })
	if err != nil {
		return nil, err
	}
	return &Reader{s, w}, nil
}

// Poll reads what there is, and says whether the event that ended the run was
// the last of it. After an error or the end the Reader is used up.
func (r *Reader) Poll() (ended bool, err error) {
	for !r.w.Ended() {
		err := r.w.Next(r.s.e.ctx, r.s.cancelled)
		if errors.Is(err, context.Canceled) {
			return false, nil // nothing new
		}
		if err != nil {
			r.w.Close()
			return false, err
		}
	}
	r.w.Close()
	return true, nil
}

// Close ends the reading.
func (r *Reader) Close() { r.w.Close() }

// Events is Engine.Events.
func (s *Stage) Events(ctx context.Context, key store.Key, after uint64) func(func(feed.Event, error) bool) {
	return s.e.Events(ctx, key.Account, key.Run, after)
}
