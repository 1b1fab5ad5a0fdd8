// SPDX-License-Identifier: Apache-2.0

// Package lease hands the tasks of remote workers out.
//
// It decides which worker gets which task and for how long, whose result of a task counts, and when
// a worker is taken for lost. A task is an external job of its step: its record in the store is
// written with the submission and goes with its end, so after a restart the tasks are there, and
// their workers go on.
//
// It never decides whether a step is tried again, keeps no task in the store itself, and knows
// neither HTTP nor keys of accounts.
package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A Remote is an action that remote workers carry out.
type Remote struct {
	Action action.Action // its Run is ignored
	Queue  string        // that workers name
	// Labels are those that a worker must have, all of them.
	Labels map[string]string
	// Lease is how long a worker may be silent. Default 30 s.
	Lease time.Duration
	// Timeout is how long a task may take with all that is tried. Default 24 h.
	Timeout time.Duration
}

// A Host is what carries the runs of tasks on.
type Host struct {
	// Settle records how a task has ended; see engine.Engine.Settle.
	Settle func(ctx context.Context, job *jobs.Job, source journal.Source, result action.Func) error
	// Key signs leases. It is that of the data directory: leases outlive a restart.
	Key    []byte
	Logger *slog.Logger
	Now    func() time.Time // default: time.Now
}

// The bounds of a manager.
const (
	// MaxLosses is how often a task is lost with its worker before its step fails.
	MaxLosses = 3
	// MaxInput bounds the input of a task, in bytes.
	MaxInput = 8 << 20

	maxKept      = 64 << 20         // bytes of inputs that are kept; others are rendered again
	unknownAfter = 10 * time.Minute // a submission that was not written is forgotten
	defaultLease = 30 * time.Second
	defaultTime  = 24 * time.Hour
)

// A Manager hands tasks out. It is safe for concurrent use.
type Manager struct {
	list    []Remote
	specs   map[string]Spec
	host    Host
	remotes map[string]*Remote // by name@version
	wake    chan struct{}

	mu      sync.Mutex
	tasks   map[string]*task  // by the id of the job
	shelves map[string]*shelf // by name@version
	lapses  []lapse           // a heap
	kept    int               // bytes of inputs
	last    int64             // number of the last lease
}

// A task is one that waits for a worker, or that a worker has.
type task struct {
	job    jobs.Job
	remote *Remote
	known  bool  // its record is written
	since  int64 // when it came, UTC µs
	// input is nil if it is to be rendered again.
	input             json.RawMessage
	effectKey, parent string // parent is the trace context
	number            int64  // of its lease; 0 = it waits, or nobody knows who has it
	until             int64  // when the lease lapses, UTC µs; 0 = it waits
	losses            int
	loaded            bool // it is from before a restart, and nobody knows who has it
	ending            bool // a result is being recorded
	gone              bool // its step waits for it no longer
	logs, reported    int  // log lines and bytes that its workers have reported
}

// A lapse is when a lease may end.
type lapse struct {
	at   int64
	id   string
	that int64 // number of the lease
}

func sooner(a, b *lapse) bool { return a.at < b.at }

// New returns a manager of some actions. accounts says who may call them; nil = anybody. Attach
// comes before anything else but Actions and Permits.
func New(remotes []Remote, specs map[string]Spec) *Manager {
	m := &Manager{list: remotes, specs: specs, remotes: map[string]*Remote{}, wake: make(chan struct{}, 1), tasks: map[string]*task{}, shelves: map[string]*shelf{}}
	for i := range remotes {
		r := remotes[i]
		name := nameOf(r.Action.Name, r.Action.Version)
		m.remotes[name], m.shelves[name] = &r, newShelf()
	}
	return m
}

// Attach sets the host.
func (m *Manager) Attach(h Host) {
	if h.Now == nil {
		h.Now = time.Now
	}
	if h.Logger == nil {
		h.Logger = slog.New(slog.DiscardHandler)
	}
	m.host = h
}

// Permits reports whether the recipes of an account may call an action. Those that no worker
// carries out are none of its business.
func (m *Manager) Permits(account, name string) bool {
	if m == nil {
		return true
	}
	s, ok := m.specs[name]
	return !ok || s.permits(account)
}

func nameOf(action, version string) string { return action + "@" + version }

func (m *Manager) now() int64 { return m.host.Now().UnixMicro() }

// Actions returns the actions of remote workers: a call submits a task.
func (m *Manager) Actions() (list []action.Action) {
	if m == nil {
		return nil
	}
	for i := range m.list {
		a := m.list[i].Action
		r := m.remotes[nameOf(a.Name, a.Version)]
		a.Provider = jobs.Workers
		a.Run = func(_ context.Context, t *action.Task) (action.Result, error) { return m.submit(r, t) }
		list = append(list, a)
	}
	return list
}

// submit takes a task. It is handed out when its record is written.
func (m *Manager) submit(r *Remote, t *action.Task) (action.Result, error) {
	if len(t.Input) > MaxInput {
		return action.Result{}, fault.New(fault.ValueTooLarge, "the input has %d bytes: a remote worker gets at most %d; pass what is larger as a file", len(t.Input), MaxInput)
	}
	sum := sha256.Sum256([]byte(t.Account + "\n" + t.EffectKey))
	id := hex.EncodeToString(sum[:16])
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.tasks[id]
	if w == nil {
		w = &task{since: m.now(), remote: r}
		m.tasks[id] = w
		m.watch(lapse{w.since + unknownAfter.Microseconds(), id, 0})
	}
	m.keep(w, t)
	return action.Result{Job: &action.Job{Provider: jobs.Workers, ID: id, TTL: r.Timeout}}, nil
}

// keep keeps the input of a task, if there is room.
func (m *Manager) keep(w *task, t *action.Task) {
	w.effectKey, w.parent = t.EffectKey, t.TraceParent
	if w.input != nil || m.kept+len(t.Input) > maxKept {
		return
	}
	w.input = t.Input
	m.kept += len(t.Input)
}

// drop forgets a task.
func (m *Manager) drop(id string) {
	w := m.tasks[id]
	if w == nil {
		return
	}
	delete(m.tasks, id)
	m.kept -= len(w.input)
	w.gone, w.input = true, nil
}

// Changed tells the manager which records of jobs a commit has changed. It does not block.
func (m *Manager) Changed(changes []store.RecordChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		id, ok := jobs.IDOf(c.Kind, c.ID, jobs.Workers)
		switch {
		case !ok, c.Delete && c.Kind == jobs.KindCancel:
		case c.Delete, c.Kind == jobs.KindCancel:
			m.drop(id)
		default:
			if j, err := jobs.Decode(&c.Record); err == nil {
				m.begin(&j, m.now())
			}
		}
	}
}

// begin hands a task out whose record is written.
func (m *Manager) begin(j *jobs.Job, now int64) {
	r := m.remotes[nameOf(j.Action, j.Version)]
	if r == nil {
		return // it is not configured any more: its job expires
	}
	w := m.tasks[j.ID]
	if w == nil {
		w = &task{since: now, remote: r}
		m.tasks[j.ID] = w
	}
	if w.known && w.job.Fence() == j.Fence() && w.job.Ref() == j.Ref() {
		return
	}
	if w.known { // of an attempt whose end is not known
		m.drop(j.ID)
		w = &task{since: now, remote: r}
		m.tasks[j.ID] = w
	}
	w.job, w.known = *j, true
	m.offer(w)
}

// Load reads the tasks that there are at a start. Each may be with a worker that goes on, so each
// has a lease of unknown number first.
func (m *Manager) Load(ctx context.Context, records jobs.Records) error {
	workers := func(provider string) bool { return provider == jobs.Workers }
	return jobs.Each(ctx, records, workers, func(j *jobs.Job) {
		m.mu.Lock()
		defer m.mu.Unlock()
		r, now := m.remotes[nameOf(j.Action, j.Version)], m.now()
		if r == nil || m.tasks[j.ID] != nil {
			return
		}
		w := &task{job: *j, remote: r, known: true, loaded: true, since: now, until: now + r.Lease.Microseconds()}
		m.tasks[j.ID] = w
		m.watch(lapse{w.until, j.ID, 0})
	})
}

// Run ends leases that lapse, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(m.lapse(ctx))
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// watch has Run look at a lease when it may lapse.
func (m *Manager) watch(l lapse) {
	m.lapses = heap.Push(m.lapses, l, sooner)
	if m.lapses[0] == l {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// lapse ends the leases whose time is over, and returns how long no other one is.
func (m *Manager) lapse(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.lapses) > 0 {
		now := m.now()
		if at := m.lapses[0].at; at > now {
			return time.Duration(at-now) * time.Microsecond
		}
		var l lapse
		l, m.lapses = heap.Pop(m.lapses, sooner)
		w := m.tasks[l.id]
		switch {
		case w == nil:
		case !w.known:
			if now >= w.since+unknownAfter.Microseconds() {
				m.drop(l.id)
			}
		case w.until == 0 || w.number != l.that || w.ending:
		case w.until > now: // it was extended
			m.watch(lapse{w.until, l.id, l.that})
		default:
			m.lost(ctx, w)
		}
	}
	return time.Hour
}

// lost takes a task from the worker that had it. One that was lost too often fails.
func (m *Manager) lost(ctx context.Context, w *task) {
	atMostOnce := w.remote.Action.Delivery == action.AtMostOnce
	known := w.number != 0
	w.loaded, w.number, w.until = false, 0, 0
	if known {
		w.losses++
	}
	if w.losses < MaxLosses && !atMostOnce {
		m.offer(w)
		return
	}
	w.ending = true
	job, losses := w.job, w.losses
	go func() {
		err := m.host.Settle(ctx, &job, journal.FromWorker, func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New(fault.Interrupted, "the worker that had the task was silent for as long as its lease, %d times", max(losses, 1))
		})
		m.ended(job.ID, err)
		if err != nil {
			m.host.Logger.Warn("a lost task could not be ended; trying again", "run", job.Run, "step", job.Name, "err", err)
		}
	}()
}

// ended takes note that a result was recorded, or that it could not be.
func (m *Manager) ended(id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.tasks[id]
	switch {
	case w == nil:
	case err == nil:
		m.drop(id)
	default:
		w.ending = false
		w.until = m.now() + w.remote.Lease.Microseconds()
		m.watch(lapse{w.until, id, w.number})
	}
}

// Poll implements action.Service: the workers report by themselves.
func (m *Manager) Poll(context.Context, *action.SubmittedJob) (action.JobState, error) {
	return action.JobState{}, nil
}

// Read implements action.Service.
func (m *Manager) Read(context.Context, *action.SubmittedJob, []byte) (action.JobState, error) {
	return action.JobState{}, nil
}

// Receive implements action.Service: nothing of workers comes as a webhook.
func (m *Manager) Receive(http.Header, []byte) (action.Webhook, error) {
	return action.Webhook{}, errors.New("workers send no webhooks")
}

// Cancel implements action.Service. The worker learns of it with the next heartbeat.
func (m *Manager) Cancel(_ context.Context, job *action.SubmittedJob) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(job.ID)
	return nil
}
