// SPDX-License-Identifier: Apache-2.0

// Package lease hands out the tasks of remote workers.
//
// It decides which worker gets which task and for how long, whose result of a task counts, and when
// a worker counts as lost. A task is an external job of its step: the journal of its run has it, and the
// store a record of it while the run is not in memory. So tasks survive a restart, and workers continue
// with theirs.
//
// It never decides whether a step is tried again, stores nothing itself, and knows neither HTTP nor
// API keys.
package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/clock"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
)

// A Remote is an action that remote workers carry out.
type Remote struct {
	Action action.Action // its Run is ignored
	Queue  string        // the one that workers name
	// Labels are those that a worker must have, all of them.
	Labels map[string]string
	// Lease is how long a worker may be silent.
	Lease time.Duration
	// Timeout bounds a task, with all workers that are lost meanwhile.
	Timeout time.Duration
	// Providers are those whose jobs may end a task: a worker has submitted the work there.
	Providers []string
}

// A Host executes the runs that the tasks belong to.
type Host struct {
	// Settle records how a task has ended; see engine.Engine.BeginSettle.
	Settle func(ctx context.Context, job *jobs.Job, source journal.Source, result action.Func) (wait func() error)
	// HandOn records that a task ends with a job that its worker has submitted; see
	// engine.Engine.HandOn.
	HandOn func(ctx context.Context, task *jobs.Job, job *action.Job) error
	// Check reports why the step of a task cannot wait for a job; see jobs.Keeper.Check.
	Check func(ctx context.Context, task *jobs.Job, job *action.Job) error
	// Key signs leases. It belongs to the data directory, because leases outlive a restart.
	Key []byte
	// Epoch grows with every start, so that leases have larger numbers than those of earlier
	// processes, whatever the clocks say. It is below 2^23.
	Epoch  uint64
	Logger *slog.Logger // default: discarded

	// Now is the time in UTC µs. Default: the wall clock at the start, and the time since then, so
	// that no lease expires because the wall clock jumps (I10).
	Now func() int64
	// Go begins work, and the work that another one waits for is done by that itself. Simulations
	// have one. Default: everything has a goroutine of its own.
	Go func(work func())
}

const (
	// MaxLosses is how many workers may be lost with a task before its step fails.
	MaxLosses = 3
	// MaxInput bounds the input of a task, in bytes.
	MaxInput = 8 << 20

	maxKept          = 64 << 20         // bytes of inputs in memory; others are rendered again
	submissionExpiry = 10 * time.Minute // after that a submission that has not become durable is forgotten
	epochShift       = 40               // a process grants fewer leases than 2^40
)

// A Manager hands out tasks. It is safe for concurrent use. That a task is cancelled, its worker is told
// in the answer to its next heartbeat.
type Manager struct {
	jobs.Part

	remotes []Remote
	specs   map[string]Spec // by the name of the action
	host    Host
	serial  bool          // nothing has a goroutine
	wake    chan struct{} // 1 slot: the first expiry has changed
	work    sync.WaitGroup

	mu       sync.Mutex
	byAction map[string]*pending // by name@version
	tasks    map[string]*task    // by the id of the job
	unstored map[string]*task    // those of them that have no record
	expiries []expiry            // a heap
	ended    endedTasks
	claims   map[string]bool // jobs that are being made those of steps
	kept     int             // bytes of inputs in memory
	last     int64           // number of the last lease
	hash     hash.Hash       // with the key; nil = not made yet
	clock    clock.Clock

	refused [refusals]atomic.Int64
}

// pending are the tasks of an action that no worker has.
type pending struct {
	*Remote
	*queue
}

// A task waits for a worker, or a worker has it.
type task struct {
	job     jobs.Job // its zero value until the submission is durable
	action  *pending
	written bool
	// input is nil if it has to be rendered again.
	input                  json.RawMessage
	effectKey, traceParent string
	number                 int64  // of its lease; 0 = no worker has it, or the worker is not known
	token                  string // that its worker was given; "" = none yet
	// expires is when the lease expires, UTC µs; of a task whose submission is not durable, when
	// it is forgotten. 0 = it waits.
	expires int64
	since   int64 // when it began to wait for a worker, UTC µs; 0 = it does not wait
	losses  int
	// adopted is set for a task from before a restart until its next lease: who has it is not known.
	adopted bool
	// shared is set if another worker may have begun the task under the same effect key.
	shared         bool
	ending         bool  // a result is being recorded
	dropped        bool  // its step no longer waits for it
	logs, reported int   // log lines and bytes that workers have reported
	lastSeq        int64 // of the reports under this lease
}

// An expiry is when a lease may expire.
type expiry struct {
	at     int64 // UTC µs
	id     string
	number int64 // of the lease
}

func earlier(a, b *expiry) bool { return a.at < b.at }

// New returns a manager of actions. specs say which accounts may call them. Attach must be called
// before a worker asks for a task.
func New(remotes []Remote, specs map[string]Spec) *Manager {
	m := &Manager{remotes: remotes, specs: specs, wake: make(chan struct{}, 1), byAction: map[string]*pending{}, tasks: map[string]*task{}, unstored: map[string]*task{}, claims: map[string]bool{}}
	m.clock.Start(time.Now)
	m.host.Now = m.clock.Now
	for i := range remotes {
		r := &remotes[i]
		m.byAction[nameOf(r.Action.Name, r.Action.Version)] = &pending{r, newQueue()}
	}
	return m
}

// Attach sets the host.
func (m *Manager) Attach(h Host) {
	if h.Logger == nil {
		h.Logger = slog.New(slog.DiscardHandler)
	}
	if h.Now == nil {
		h.Now = m.clock.Now
	}
	m.serial = h.Go != nil
	if h.Go == nil {
		h.Go = m.work.Go
	}
	m.mu.Lock() // steps may have submitted tasks already
	defer m.mu.Unlock()
	m.host, m.last = h, int64(h.Epoch)<<epochShift
}

// Permits reports whether the recipes of an account may call an action. Actions that are not carried
// out by workers are permitted.
func (m *Manager) Permits(account, name string) bool {
	if m == nil {
		return true
	}
	s, ok := m.specs[name]
	return !ok || s.permits(account)
}

// Queue returns the queue of the workers that carry out an action; "" = it is carried out here.
func (m *Manager) Queue(name, version string) string {
	if m == nil {
		return ""
	}
	if p := m.byAction[nameOf(name, version)]; p != nil {
		return p.Queue
	}
	return ""
}

func nameOf(action, version string) string { return action + "@" + version }

// Actions returns the actions of remote workers. A call of one submits a task.
func (m *Manager) Actions() (list []action.Action) {
	for i := range m.remotes {
		a := m.remotes[i].Action
		p := m.byAction[nameOf(a.Name, a.Version)]
		a.Provider = jobs.Workers
		a.Run = func(_ context.Context, t *action.Task) (action.Result, error) { return m.submit(p, t) }
		list = append(list, a)
	}
	return list
}

// submit takes a task. Workers get it once that is durable.
func (m *Manager) submit(p *pending, call *action.Task) (action.Result, error) {
	if len(call.Input) > MaxInput {
		return action.Result{}, fault.New(fault.ValueTooLarge, "the input has %d bytes: a remote worker gets at most %d; pass what is larger as a file", len(call.Input), MaxInput)
	}
	sum := sha256.Sum256([]byte(call.Account + "\n" + call.EffectKey))
	id := hex.EncodeToString(sum[:16])
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[id]
	if t == nil {
		t = &task{action: p, expires: m.host.Now() + submissionExpiry.Microseconds()}
		m.tasks[id] = t
		m.watch(expiry{t.expires, id, 0})
	}
	t.effectKey, t.traceParent = call.EffectKey, call.TraceParent
	if t.input == nil && m.kept+len(call.Input) <= maxKept {
		m.keep(t, call.Input)
	}
	return action.Result{Job: &action.Job{Provider: jobs.Workers, ID: id, TTL: p.Timeout}}, nil
}

// keep sets the input of a task, or with nil forgets it.
func (m *Manager) keep(t *task, input json.RawMessage) {
	m.kept += len(input) - len(t.input)
	t.input = input
}

// drop forgets a task.
func (m *Manager) drop(id string) {
	if t := m.tasks[id]; t != nil {
		delete(m.tasks, id)
		delete(m.unstored, id)
		m.keep(t, nil)
		t.action.forget(t)
		t.dropped = true
	}
}

// Changed tells the manager which jobs commits have changed, and which without a record the engine has
// found in runs that it has read. It does not block.
func (m *Manager) Changed(changes []jobs.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		id, ok := jobs.IDOf(c.Kind, c.ID, jobs.Workers)
		switch {
		case !ok, c.Delete && c.Kind == jobs.KindCancel:
		case c.Delete, c.Kind == jobs.KindCancel:
			if t := m.tasks[id]; t != nil && t.number != 0 && !t.ending {
				m.ended.add(id, t) // its worker may be submitting a job
			}
			m.drop(id)
		default:
			m.enqueue(c.Job, c.Unstored, c.Found)
		}
	}
}

// enqueue makes a task pending that is durable, unless a worker may have it since before a restart.
func (m *Manager) enqueue(j *jobs.Job, unstored, found bool) {
	p := m.byAction[nameOf(j.Action, j.Version)]
	if p == nil {
		return // the action is no longer configured: the job expires
	}
	t := m.tasks[j.ID]
	switch {
	case t == nil && found:
		t = m.adopt(p, j)
	case t == nil:
		t = &task{action: p}
		m.tasks[j.ID] = t
	case t.written && (t.job.Fence() != j.Fence() || t.job.Ref() != j.Ref()):
		m.drop(j.ID) // it belonged to an attempt whose outcome is unknown
		t = &task{action: p}
		m.tasks[j.ID] = t
	}
	if unstored {
		m.unstored[j.ID] = t
	} else {
		delete(m.unstored, j.ID)
	}
	if !t.written {
		t.job, t.written, t.expires = *j, true, 0
		p.push(t, m.waitsSince(t))
	}
}

// adopt takes a task from before a restart. A worker may have it, so it has one full lease, whose number
// is not known yet.
func (m *Manager) adopt(p *pending, j *jobs.Job) *task {
	t := &task{job: *j, action: p, written: true, adopted: true, shared: p.Action.Delivery != action.AtMostOnce}
	m.tasks[j.ID] = t
	if m.extend(t); mutation.Adopt {
		t.expires = m.host.Now()
	}
	m.watch(expiry{t.expires, j.ID, 0})
	return t
}

// Unstored returns the tasks of an account that have no record. Their runs are in memory.
func (m *Manager) Unstored(account string) (list []jobs.Job) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.unstored {
		if t.job.Account == account {
			list = append(list, t.job)
		}
	}
	return list
}

// waitsSince returns since when a task waits that is to wait for a worker: since its submission, unless a
// worker has been lost with it.
func (m *Manager) waitsSince(t *task) int64 {
	if now := m.host.Now(); t.losses > 0 || t.job.Submitted == 0 || t.job.Submitted > now {
		return now
	}
	return t.job.Submitted
}

// Load reads the records of the tasks that exist at start-up. The others are those of runs that were in
// memory, which the engine has told of when it has read them.
func (m *Manager) Load(ctx context.Context, records jobs.Records) error {
	workers := func(provider string) bool { return provider == jobs.Workers }
	return jobs.Each(ctx, records, workers, func(j *jobs.Job) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if p := m.byAction[nameOf(j.Action, j.Version)]; p != nil && m.tasks[j.ID] == nil {
			m.adopt(p, j)
		}
	})
}

// Run expires leases until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	defer m.work.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(m.Expire(ctx))
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// extend gives the worker of a task a full lease from now on.
func (m *Manager) extend(t *task) { t.expires = m.host.Now() + t.action.Lease.Microseconds() }

// watch makes Run look at a lease when it may expire.
func (m *Manager) watch(e expiry) {
	m.expiries = heap.Push(m.expiries, e, earlier)
	if m.expiries[0] == e {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// Expire ends the leases that have expired, and returns how long no other one does. Run calls it.
func (m *Manager) Expire(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.expiries) > 0 {
		at := m.host.Now()
		if next := m.expiries[0].at; next > at {
			return time.Duration(next-at) * time.Microsecond
		}
		var e expiry
		e, m.expiries = heap.Pop(m.expiries, earlier)
		t := m.tasks[e.id]
		switch {
		case t == nil || t.expires == 0 || t.number != e.number || t.ending:
		case t.expires > at: // it was extended
			m.watch(expiry{t.expires, e.id, e.number})
		case !t.written:
			m.drop(e.id)
		default:
			m.lost(ctx, t)
		}
	}
	return time.Hour
}

// lost takes a task from a worker that was silent for too long. A task that was lost too often
// fails.
func (m *Manager) lost(ctx context.Context, t *task) {
	once := t.action.Action.Delivery == action.AtMostOnce
	if t.number != 0 || t.adopted && once {
		t.losses++
	}
	t.shared = t.shared || t.number != 0
	t.adopted, t.number, t.expires = false, 0, 0
	if t.losses == 0 || t.losses < MaxLosses && !once {
		t.action.push(t, m.waitsSince(t))
		return
	}
	t.ending = true
	job, losses := t.job, t.losses
	m.host.Go(func() {
		err := m.settle(ctx, t, &job, func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New(fault.Interrupted, "the worker that had the task was silent for longer than its lease, %d times", losses)
		})
		if err != nil {
			m.host.Logger.Warn("a lost task could not be ended; trying again", "run", job.Run, "step", job.Name, "err", err)
		}
	})
}

// settle records the result of a task that is ending. If that fails, its lease goes on.
func (m *Manager) settle(ctx context.Context, t *task, job *jobs.Job, result action.Func) error {
	return m.settled(t, job, m.settleOne(ctx, job, result))
}

func (m *Manager) settleOne(ctx context.Context, job *jobs.Job, result action.Func) error {
	return m.settleAll(ctx, 1, func(int) (*jobs.Job, action.Func) { return job, result })[0]
}

// settleAll has the engine settle n tasks, whose results share commits, after what their workers have said of
// them at the same moment.
func (m *Manager) settleAll(ctx context.Context, n int, of func(i int) (*jobs.Job, action.Func)) []error {
	errs, waits, open := make([]error, n), make([]func() error, n), make([]int, n)
	for i := range open {
		open[i] = i
	}
	_ = jobs.AfterOthers(ctx, func() (err error) { // that of each task is in errs
		for _, i := range open {
			job, result := of(i)
			waits[i] = m.host.Settle(ctx, job, journal.FromWorker, result)
		}
		again := open[:0]
		for _, i := range open {
			if errs[i] = waits[i](); errors.Is(errs[i], fault.Conflict) {
				again, err = append(again, i), errs[i]
			}
		}
		open = again
		return err
	})
	return errs
}

// settled notes whether the result of a task was recorded.
func (m *Manager) settled(t *task, job *jobs.Job, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.tasks[job.ID] != t: // it has ended, or the next attempt of its step has submitted it again
	case err == nil:
		m.drop(job.ID)
	default:
		t.ending = false
		m.extend(t)
		m.watch(expiry{t.expires, job.ID, t.number})
	}
	return err
}

// Describe implements jobs.Describer: it says who has a task.
func (m *Manager) Describe(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[id]
	if t == nil || !t.written {
		return "its action is no longer named under `workers` in the configuration"
	}
	text := "it waits for a worker of the queue " + t.action.Queue
	if len(t.action.Labels) > 0 {
		text += fmt.Sprintf(" with the labels %v", t.action.Labels)
	}
	switch until := time.UnixMicro(t.expires).UTC().Format(time.RFC3339); {
	case t.ending:
		text = "its result is being recorded"
	case t.adopted:
		text = "a worker may have it since before a restart, until " + until + " at least"
	case t.number != 0:
		text = "a worker has it, until " + until + " at least"
	}
	if t.losses > 0 {
		text += fmt.Sprintf("; workers were lost with it: %d of %d", t.losses, MaxLosses)
	}
	return text
}
