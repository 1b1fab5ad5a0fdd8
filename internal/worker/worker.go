// SPDX-License-Identifier: Apache-2.0

// Package worker carries out attempts inside this process.
//
// A [Pool] takes a task, calls the action's function, on a new goroutine or on its
// caller's, and reports one [Result]. It decides when an attempt has timed out, what a
// panic means, whether an output is well formed, which parts of a large output are
// stored in files, and how much an action may report while it runs (I15, I16).
//
// It never decides whether to try again, never orders or queues work, and knows nothing
// of runs, only the task. A panic in a goroutine that the action started itself ends the
// process, because Go offers no way to contain it.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

// The bounds of one attempt.
const (
	MaxOutput   = 1 << 20 // bytes of canonical JSON in a result; larger outputs are partly stored in files
	MaxLogs     = 1_000   // log lines
	MaxReported = 4 << 20 // bytes of logs, deltas, previews and progress texts
)

// An ID identifies an attempt. The pool only compares it and returns it.
type ID struct {
	Run     string
	Path    string
	Step    int32
	Gen     uint32
	Attempt uint32
}

// A Task is one attempt to carry out.
type Task struct {
	ID     ID
	Action *action.Action
	// Task is what the action sees; the pool sets its Report.
	Task action.Task
	// NoFiles means that Task.Files does not keep files, so a large output is an
	// error.
	NoFiles bool
	// TimeoutMS is how long the attempt may take, in milliseconds; 0 = no limit
	// of its own.
	TimeoutMS int64
	// CheckInput and CheckOutput validate the decoded value; nil accepts all. A
	// *fault.Error they return is the attempt's failure, any other becomes a
	// contract violation.
	CheckInput, CheckOutput func(v any) error
	// Gate has moderators look at what the attempt gets and gives; nil = nobody does.
	Gate *Gate
	// Cache has results of earlier attempts that this one may have; nil = its action is called.
	Cache Cache
	// Workspace is the path of the run's workspace in what is the run's alone; "" = it has none.
	Workspace string
	// Owner, when set, is part of everything that the attempt reports.
	Owner Owner
}

// An Owner is the caller that dispatched a task.
type Owner interface {
	// Withdrawn reports whether the task was cancelled, perhaps before the pool knew the
	// attempt. The pool calls it after registering the attempt, so no cancel is lost.
	Withdrawn() bool
}

// A Result is how an attempt ended.
type Result struct {
	ID     ID
	Owner  Owner
	Output []byte // canonical JSON, at most MaxOutput; nil when Err or Job is set
	// Job is the external job that the action has submitted; nil = it has done its work.
	Job *action.Job
	// Late is true for a job that was submitted after the attempt had ended. The attempt has
	// had its result before; nobody waits for the job.
	Late bool
	Cost int64 // whole credits of a success
	// Price is what the action says that the call cost, also of a failed one; nil = it
	// says nothing.
	Price *ledger.Amount
	// Tokens is how many the action says that the call used, also a failed one; 0 = it does not
	// know.
	Tokens int64
	Err    *fault.Error // nil = success
	// Verdicts are what moderators have said, in the order of the phases.
	Verdicts []journal.Verdict
	// Cached is set if Output is an earlier result; the action was not called.
	Cached *journal.Cached
	// Dropped is how many reports of the attempt exceeded its bounds.
	Dropped int64
	// Holding means that the action's goroutine has not returned yet: its slot becomes
	// free only when [Config.Freed] is called.
	Holding bool
}

// ReportKind is the kind of a Report.
type ReportKind uint8

// The kinds of reports.
const (
	Progress ReportKind = iota // Fraction, Text
	Log                        // Level, Text
	Delta                      // Text
	Preview                    // Value
)

// A Report is progress, a log line, text or a preview from a running attempt.
type Report struct {
	ID       ID
	Owner    Owner
	Kind     ReportKind
	Fraction float64 // 0..1
	Level    string  // debug, info, warn or error
	Text     string  // valid UTF-8
	Value    []byte  // canonical JSON
	Passed   bool    // moderators have passed it, of an attempt whose output they look at
}

// Workspaces are the directories of runs.
type Workspaces interface {
	// Open opens that of a run, and makes it if there is none. path is that of the directory in what
	// is the run's alone. It is not removed before release is called; the caller closes root before.
	Open(ctx context.Context, account, run, path string) (root *os.Root, release func(), err error)
}

// Config configures a Pool. The callbacks are called from goroutines of the pool, several
// at a time; they must return quickly and must not call Stop.
type Config struct {
	// Done receives the result of every attempt, once, and a job that is submitted after that as
	// another one, see [Result.Late]. Required. It is not called after Stop has returned.
	Done func(Result)
	// Freed is called for each Result with Holding set, when the goroutine has
	// returned or the grace has passed. Optional.
	Freed func(ID, Owner)
	// Report receives the reports of attempts, in the order they were made.
	// Optional.
	Report func(Report)
	// Logger receives panics with their stacks. Default: discarded.
	Logger *slog.Logger
	// Secrets has the secrets that inputs refer to. Default: none.
	Secrets SecretSource
	// Workspaces are the directories of runs. Default: they have none.
	Workspaces Workspaces
	// DeltaWait is the least time between two reports of streamed text, which is collected
	// meanwhile (4 KiB are reported at once). Negative: every piece is reported as it was made.
	// Default 100 ms.
	DeltaWait time.Duration
	// Grace is how long a cancelled attempt may take to return before its slot is freed
	// (X115). Default 5 s.
	Grace time.Duration
	// MaxAbandoned bounds the abandoned goroutines. At the bound the pool accepts no more
	// work, because each of them still holds memory (I15). Default 1,000.
	MaxAbandoned int
}

// A Pool carries out attempts. It starts no goroutine until it has work.
type Pool struct {
	cfg Config

	mu        sync.Mutex
	attempts  map[ID]*attempt // not settled, or settled but still running
	finished  atomic.Uint64   // attempts that are no longer in the map
	deadlines deadlines
	abandoned int  // goroutines that did not return within the grace period
	calls     int  // running callbacks
	stopping  bool // Run refuses
	stopped   bool // no callback is started any more
	// large is held while a large output is checked and stored in files.
	large chan struct{}
	// idle, when set, is closed once no attempt and no callback is running.
	idle chan struct{}

	known knownSecrets
}

// New returns a pool. It panics if Config.Done is missing, which is a
// programming error.
func New(cfg Config) *Pool {
	if cfg.Done == nil {
		panic("worker: Config.Done is required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.DeltaWait == 0 {
		cfg.DeltaWait = 100 * time.Millisecond
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 5 * time.Second
	}
	if cfg.MaxAbandoned <= 0 {
		cfg.MaxAbandoned = 1_000
	}
	return &Pool{cfg: cfg, attempts: map[ID]*attempt{}, large: make(chan struct{}, 1)}
}

// The reasons for which an attempt's context ends, as context.Cause returns
// them.
var (
	errTimeout   = fault.New(fault.StepTimeout, "the attempt ran out of time")
	errCancelled = fault.New(fault.ExecutionCancelled, "the attempt was cancelled")
	errStopping  = fault.New(fault.Stopping, "the engine is stopping")
)

// Run starts an attempt and returns at once. An error means that nothing was started and
// that Done will not be called.
func (p *Pool) Run(t Task) error {
	a, err := p.admit(&t)
	if err != nil {
		return err
	}
	go a.run()
	return nil
}

// Do runs an attempt on the caller's goroutine and returns when the action has returned.
// An error means the same as for Run. If the action calls runtime.Goexit, it ends the
// caller's goroutine, and Do does not return.
func (p *Pool) Do(t *Task) error {
	a, err := p.admit(t)
	if err != nil {
		return err
	}
	a.run()
	return nil
}

func (p *Pool) admit(t *Task) (*attempt, error) {
	if t.Action == nil || t.Action.Run == nil {
		return nil, fault.New(fault.ActionNotFound, "the task of step %q names no action that can run", t.Task.Step)
	}
	a := &attempt{pool: p, task: *t}
	if t.Gate != nil {
		a.gate = &gated{Gate: t.Gate}
	}
	if t.TimeoutMS > 0 {
		a.deadline = time.Now().Add(a.timeout())
	}
	if err := p.register(a); err != nil {
		return nil, err
	}
	if t.Owner != nil && t.Owner.Withdrawn() {
		a.abort()
	}
	return a, nil
}

func (p *Pool) register(a *attempt) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopping:
		return errStopping
	case p.abandoned >= p.cfg.MaxAbandoned:
		return fault.New(fault.InternalError,
			"%d actions have not returned after they were cancelled; start Roux again to free what they hold", p.abandoned)
	case p.attempts[a.task.ID] != nil:
		return fault.New(fault.Conflict, "attempt %d of step %q is already running", a.task.ID.Attempt, a.task.Task.Step)
	}
	p.attempts[a.task.ID] = a
	if !a.deadline.IsZero() {
		p.deadlines.add(p, a)
	}
	return nil
}

// Cancel cancels the context of an attempt (X96) and reports whether such an attempt is
// running. The attempt's result is reported when its action returns, or when the grace
// period has passed.
func (p *Pool) Cancel(id ID) bool {
	p.mu.Lock()
	a := p.attempts[id]
	p.mu.Unlock()
	if a == nil {
		return false
	}
	a.abort()
	return true
}

// Running returns how many attempts have not returned and still hold a slot.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.attempts)
}

// Finished returns how many attempts have ended since the pool was made.
func (p *Pool) Finished() uint64 { return p.finished.Load() }

// ByAction returns how many attempts hold a slot, by the name of their action.
func (p *Pool) ByAction() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	running := map[string]int{}
	for _, a := range p.attempts {
		running[a.task.Action.Name]++
	}
	return running
}

// Stop accepts no more work and waits until every attempt has returned. If ctx ends
// first, it cancels the attempts that still run and abandons them: they never report a
// result, so that recovery finds them open. Stop returns their number.
func (p *Pool) Stop(ctx context.Context) (abandoned int) {
	p.mu.Lock()
	p.stopping = true
	idle := p.idleLocked()
	p.mu.Unlock()
	select {
	case <-idle:
		p.mu.Lock()
		p.deadlines.stop()
		p.mu.Unlock()
		return 0
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.stopped = true
	p.deadlines.stop()
	var left []*attempt
	for _, a := range p.attempts {
		if !a.isSettled() {
			left = append(left, a)
		}
	}
	calls := p.calls
	p.mu.Unlock()
	for _, a := range left {
		a.stopTimer()
		a.closeReports()
		a.end(errStopping)
	}
	if calls > 0 {
		p.waitForCalls()
	}
	return len(left)
}

func (p *Pool) idleLocked() chan struct{} {
	if p.idle == nil {
		p.idle = make(chan struct{})
		p.signalIdleLocked()
	}
	return p.idle
}

func (p *Pool) signalIdleLocked() {
	done := len(p.attempts) == 0 || p.stopped
	if p.idle == nil || !done || p.calls > 0 {
		return
	}
	select {
	case <-p.idle:
	default:
		close(p.idle)
	}
}

// waitForCalls waits for the callbacks that started before stopped was set.
func (p *Pool) waitForCalls() {
	p.mu.Lock()
	p.signalIdleLocked()
	idle := p.idle
	p.mu.Unlock()
	<-idle
}

// beginCallback reports whether a callback may be made; it returns false once the pool
// has stopped.
func (p *Pool) beginCallback() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.calls++
	return true
}

func (p *Pool) endCallback() {
	p.mu.Lock()
	p.calls--
	p.signalIdleLocked()
	p.mu.Unlock()
}

// release removes an attempt whose slot is free, and ends that number of callbacks.
func (p *Pool) release(a *attempt, calls int) {
	p.mu.Lock()
	delete(p.attempts, a.task.ID)
	p.finished.Add(1)
	p.deadlines.remove(a)
	p.calls -= calls
	p.signalIdleLocked()
	p.mu.Unlock()
}

func (p *Pool) countAbandoned(n int) {
	p.mu.Lock()
	p.abandoned += n
	p.mu.Unlock()
}

// maxMessage bounds the text of a failure, because it stays in the journal.
const maxMessage = 4 << 10

// failure converts an error that an action returned into one that may leave the
// process. redacted removes secrets before the text is cut, because a part of a secret
// is not recognised everywhere.
func failure(err error, redacted func(*fault.Error) *fault.Error) *fault.Error {
	var f *fault.Error
	if !errors.As(err, &f) {
		var code fault.Code
		if !errors.As(err, &code) {
			code = fault.StepFailed
		}
		f = fault.Wrap(code, err, "%s", err.Error())
	}
	f = redacted(f)
	if len(f.Msg) <= maxMessage && utf8.ValidString(f.Msg) {
		return f
	}
	short := *f
	short.Msg = strings.ToValidUTF8(f.Msg[:min(len(f.Msg), maxMessage)], "\uFFFD")
	if len(f.Msg) > maxMessage {
		short.Msg += " …"
	}
	return &short
}
