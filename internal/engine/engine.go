// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/internal/clock"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/inbox"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/loops"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/reads"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/slots"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/watchdog"
	"github.com/roux-engine/roux/internal/worker"
)

// ErrHangs is that of package watchdog.
var ErrHangs = watchdog.ErrHangs

// Engine is the driver: it owns the clock, the inbox, the committer and the workers,
// and calls the core from one goroutine at a time.
type Engine struct {
	reads.Reader
	cfg      Config
	core     *core // used only by the loop, after Open
	pool     *worker.Pool
	feed     *feed.Feed
	cleaner  retention.Cleaner
	ids      *journal.IDs
	watchdog watchdog.Watchdog // the loop's
	executor worker.Executor
	jobs     []worker.Job // released and not yet given to the executor
	cursors  loops.Cursors
	cache    *resultcache.Cache

	ctx    context.Context // of all background work
	cancel context.CancelFunc
	clock  clock.Clock

	inbox    inbox.Inbox[*input]
	signal   chan struct{} // 1 slot: the inbox or a flag changed
	alarm    *time.Timer   // wakes the loop, as an input does
	commits  chan []store.Transition
	results  chan commitResult
	fileRefs retention.References // used only by the committer
	actions  program.Actions      // of the configuration
	inline   inlineCalls
	pending  atomic.Int64 // requests waiting for an answer

	readSlots, collectSlots chan struct{} // semaphores, see withSlot
	resolver                program.Resolver

	stopping   atomic.Bool
	drained    atomic.Bool // no attempt will report again
	crashed    atomic.Bool // tests only: end at once, write nothing
	done       chan struct{}
	failure    error // why the loop ended on its own; read after done
	background sync.WaitGroup
}

type commitResult struct {
	verdicts []store.Verdict
	err      error
}

// Open returns a running engine that owns the store's runs. It continues those that
// were interrupted.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	e, err := assemble(cfg)
	if err != nil {
		return nil, err
	}
	e.pool = worker.New(worker.Config{
		Done: e.taskDone, Freed: e.taskFreed, Report: e.taskReport, Logger: e.cfg.Logger, Grace: e.cfg.Grace, Secrets: e.cfg.Secrets, Workspaces: e.cfg.Workspaces,
	})
	e.core.ctx = ctx
	if err := e.core.recovery.open(e.now()); err != nil {
		e.cancel()
		return nil, err
	}
	e.tellJobs()
	e.core.ctx = e.ctx
	e.cleaner.Epoch = e.core.epoch
	e.background.Go(e.commitLoop)
	e.background.Go(e.feed.Run)
	if e.cfg.Blobs != nil {
		e.background.Go(func() { e.cleaner.Run(e.ctx) })
	}
	e.inline.init(e.checkCommit)
	e.alarm = time.AfterFunc(time.Hour, e.wake)
	go e.loop()
	return e, nil
}

// assemble returns an engine that does not own its store yet and has no goroutines.
func assemble(cfg Config) (*Engine, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:     cfg,
		signal:  make(chan struct{}, 1),
		commits: make(chan []store.Transition, 1),
		results: make(chan commitResult, 1),
		done:    make(chan struct{}),

		readSlots:    make(chan struct{}, maxReading),
		collectSlots: make(chan struct{}, maxCollecting),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.clock.Start(cfg.Now)
	e.ids = journal.NewIDs(cfg.Rand, cfg.Now)
	e.actions = program.Actions{Finder: cfg.Actions}
	e.core = newCore(e.ctx, &e.cfg)
	r := &e.resolver
	r.Programs, r.Resolve, r.Actions, r.Moderators = e.core.programs, cfg.Resolve, cfg.Actions, cfg.Moderators
	e.Reader = reads.Reader{Store: cfg.Store, Programs: e.core.programs}
	e.cleaner.Store, e.cleaner.Blobs, e.cleaner.Policy = cfg.Store, cfg.Blobs, cfg.Retention
	e.cleaner.Now, e.cleaner.Wall, e.cleaner.Logger = e.now, cfg.Now, cfg.Logger
	e.feed = feed.New(cfg.Store, func(ctx context.Context, key string) (*plan.Plan, error) {
		return e.core.programs.Plan(ctx, cfg.Store, key)
	})
	e.cleaner.Deleted = e.feed.Changed
	cached := resultcache.Config{Records: cfg.Store, Put: e.PutRecords, Now: e.now, Logger: cfg.Logger}
	if cfg.Blobs != nil {
		cached.Touch = cfg.Blobs.Touch
	}
	e.cache = resultcache.New(cached)
	return e, nil
}

// now returns the engine's time, UTC µs.
func (e *Engine) now() int64 { return e.clock.Now() }

// post puts an input into the inbox and wakes the loop. After the engine has ended it
// returns an error. Reports of workers are never refused for want of room, because
// their number is bounded by the attempts in flight.
func (e *Engine) post(in *input) error {
	err := e.inbox.Put(in)
	if err == nil {
		e.wake()
	}
	return err
}

func (e *Engine) wake() {
	select {
	case e.signal <- struct{}{}:
	default:
	}
	e.inline.Wake()
}

// loop drives the core until it is stopped or can no longer acknowledge anything.
func (e *Engine) loop() {
	c := e.core
	for !e.crashed.Load() {
		e.inline.Rested()
		c.closing = e.stopping.Load() || e.cfg.Idle
		c.handle(e.now(), e.inbox.Take())
		e.clock.AtLeast(e.core.now)
		inline := false
		if b := c.pipeline.encodeBatch(); b != nil {
			switch {
			case len(b.transitions) == 0:
				c.pipeline.committed(nil, nil)
				c.pipeline.releaseCommitted()
			case e.canCommitInline(b):
				if !e.commitInline(b) {
					return // checkCommit has ended the engine
				}
				inline = true
			default:
				e.send(b)
			}
		}
		e.releaseEffects()
		if e.watchdog.Hangs(c.pipeline.committing != nil, c.now) {
			c.recovery.commitHung()
		}
		if c.recovery.dead != nil || e.drained.Load() && (c.recovery.stalled != nil || e.flushed()) {
			break
		}
		more := c.pipeline.committing == nil && (c.busy() || c.recovery.stalled == nil && c.pipeline.building.urgent && !c.pipeline.building.empty()) || c.asked()
		if !more {
			e.setAlarm()
		}
		if inline && !more && len(e.jobs) == 1 {
			if e.runInline() {
				continue
			}
			return // the standby goroutine runs the loop now
		}
		e.startJobs()
		if more {
			continue
		}
		select {
		case <-e.signal:
		case r := <-e.results:
			c.pipeline.committed(r.verdicts, r.err)
			ahead := e.commitAhead()
			c.pipeline.releaseCommitted()
			e.releaseEffects()
			e.startJobs()
			if !ahead {
				e.awaitReports()
			}
		}
	}
	e.alarm.Stop()
	e.finish()
}

// send passes a batch to the committer.
func (e *Engine) send(b *batch) {
	e.watchdog.Sent++
	e.commits <- b.transitions
}

// commitAhead sends a large batch that was built during the last commit, and reports
// whether there was one.
func (e *Engine) commitAhead() bool {
	b := e.core.pipeline.encodeAhead()
	switch {
	case b == nil:
		return false
	case len(b.transitions) == 0:
		e.core.pipeline.committed(nil, nil)
		return false
	}
	e.send(b)
	return true
}

// setAlarm sets the timer that wakes the loop when the core has something to do on its
// own.
func (e *Engine) setAlarm() {
	at := e.core.wakeup()
	if nextCheck := e.watchdog.NextCheck; nextCheck != 0 && (at == 0 || nextCheck < at) {
		at = nextCheck
	}
	if at != 0 {
		// A timer below one millisecond costs more than it saves.
		e.alarm.Reset(max(time.Duration(at-e.now())*time.Microsecond, time.Millisecond))
	}
}

// releaseEffects carries out what the core has released. Attempts are left to startJobs
// or runInline.
func (e *Engine) releaseEffects() {
	c := e.core
	if len(c.watched) > 0 { // first: who waits for a run may read afterwards what was observed of it
		e.cfg.Observer.Durable(c.watched)
		clear(c.watched)
		c.watched = c.watched[:0]
	}
	if len(c.effects) > 0 {
		failpoint.Pass(failpoint.EffectsBefore)
		for i := range c.effects {
			e.perform(&c.effects[i])
		}
		failpoint.Pass(failpoint.EffectsAfter)
		clear(c.effects)
		c.effects = c.effects[:0]
	}
	if len(c.frames) > 0 {
		e.feed.Publish(c.frames)
		clear(c.frames)
		c.frames = c.frames[:0]
	}
	e.tellJobs()
}

// tellJobs passes on what has become durable of external jobs.
func (e *Engine) tellJobs() {
	if len(e.core.jobs) > 0 {
		e.cfg.Jobs(e.core.jobs)
		e.core.jobs = nil
	}
}

// startJobs gives the executor the attempts that were released.
func (e *Engine) startJobs() {
	if len(e.jobs) > 0 {
		e.executor.Add(e.jobs...)
		clear(e.jobs)
		e.jobs = e.jobs[:0]
	}
}

// awaitReports yields so that the workers released by the last commit can report before
// the next batch is encoded. Without it two busy runs fall into two groups that commit
// alternately. It stops as soon as nothing more arrives and never delays an idle
// engine.
func (e *Engine) awaitReports() {
	const most = 40 * time.Microsecond
	began := time.Now()
	for n := e.inbox.Len(); ; {
		runtime.Gosched()
		m := e.inbox.Len()
		if m == n || time.Since(began) > most {
			return
		}
		n = m
	}
}

func (e *Engine) commitLoop() {
	for batch := range e.commits {
		e.results <- e.commit(batch)
	}
}

// commit makes a batch durable. Only one commit runs at a time, in the committer or in
// the loop.
func (e *Engine) commit(batch []store.Transition) commitResult {
	failpoint.Pass(failpoint.SendBefore)
	e.fileRefs.SetFiles(batch)
	began := time.Now()
	verdicts, err := e.cfg.Store.Commit(e.ctx, batch)
	took := time.Since(began)
	e.feed.Committed(took, e.pool.Finished(), err)
	if e.cfg.Observer != nil {
		e.cfg.Observer.Commit(len(batch), took, err)
	}
	if err == nil {
		e.fileRefs.Committed(verdicts, batch)
	}
	return commitResult{verdicts, err}
}

// finish ends the background goroutines and answers all waiting callers.
func (e *Engine) finish() {
	c := e.core
	e.failure = c.recovery.dead
	if c.recovery.stalled != nil && e.failure == nil {
		// Only a running server waits for the disk to recover; a stop must not. What
		// was not acknowledged is done again after the next start.
		e.failure = c.recovery.stalled
		c.recovery.answerAll(c.recovery.stalled)
	}
	err := cmp.Or[error](e.failure, errStopping)
	for _, in := range e.inbox.Close(err) {
		in.out = answer{run: in.key.Run, err: err}
		in.sendAnswer()
	}
	close(e.commits)
	e.cancel()
	if c.recovery.dead != nil {
		e.pool.Stop(e.ctx) // their results could not be recorded
	}
	e.feed.Close(err)
	if !errors.Is(err, ErrHangs) { // otherwise the committer may never return
		e.background.Wait()
	}
	e.cursors.Close()
	close(e.done)
}

// flushed compacts and suspends what is in memory, and reports whether nothing is left
// to be written. Only then may the history record a clean stop.
func (e *Engine) flushed() bool {
	c := e.core
	if c.pipeline.committing != nil || c.busy() || c.recovery.stalled != nil || e.inbox.Len() > 0 {
		return false
	}
	if !c.residency.compactAll() || !c.pipeline.building.empty() {
		return false
	}
	failpoint.Pass(failpoint.StopBefore)
	since := c.recovery.cleanSince
	if len(c.recovery.suspects)+len(c.tree.returning) > 0 { // a crash may have lost attempts of theirs
		since = 0
	}
	c.recovery.history.Stop(since, c.now)
	if err := c.recovery.saveHistory(); err != nil {
		c.cfg.Logger.Warn("the clean stop could not be recorded", "err", err)
	}
	return true
}

// Stop ends the engine in order. It accepts no new work and lets attempts in flight
// finish until ctx ends. The remaining attempts are abandoned: they stay open in the
// journal, so that the next start repeats them and no failure is counted (F45). Stop
// returns how many were abandoned.
func (e *Engine) Stop(ctx context.Context) (abandoned int, err error) {
	e.stopping.Store(true)
	e.wake()
	abandoned = e.pool.Stop(ctx)
	e.drained.Store(true)
	e.wake()
	<-e.done
	return abandoned, e.failure
}

// Done returns a channel that is closed when the engine has ended, by Stop or because
// its store failed. Err then returns the reason.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns why the engine ended on its own, or nil after a clean stop or while it
// runs.
func (e *Engine) Err() error {
	select {
	case <-e.done:
		return e.failure
	default:
		return nil
	}
}

// Load returns what the engine has to do. It does not wait for the engine.
func (e *Engine) Load() feed.Load {
	m := &e.core.residency
	m.runsMu.RLock()
	defer m.runsMu.RUnlock()
	return feed.Load{Loaded: len(m.runs), Attempts: e.pool.Running(), Finished: e.pool.Finished(), ByAction: e.pool.ByAction(),
		Requests: e.pending.Load(), Inputs: e.inbox.Len(), Lag: e.feed.Lag()}
}

// Slots returns the limits of attempts that are in use. It does not wait for the engine.
func (e *Engine) Slots() []slots.Usage { return e.core.attempts.Arbiter.Usage() }
