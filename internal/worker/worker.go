// SPDX-License-Identifier: Apache-2.0

// Package worker carries out attempts inside this process.
//
// A [Pool] takes a task, calls the action's function, on a goroutine of its own or
// on its caller's, and reports one [Result]. It decides when an attempt has run out
// of time, what a panic means, whether an output is well formed, what of a large one
// goes to files, and how much an action may say while it works (I15, I16).
//
// It never decides whether to try again, never orders or queues work, and knows
// nothing of runs: the task is its whole world. A panic in a goroutine that the
// action started itself ends the process; Go offers no way to contain it.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// The bounds of one attempt.
const (
	MaxOutput   = 1 << 20 // bytes of canonical JSON that a result carries; more goes to files
	MaxLogs     = 1_000   // log lines
	MaxReported = 4 << 20 // bytes of logs, deltas, previews and progress texts
)

// An ID names an attempt. The pool compares it and hands it back; it never
// looks inside.
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
	// NoFiles says that Task.Files keeps nothing: a large output has nowhere to go.
	NoFiles bool
	// TimeoutMS is how long the attempt may take, in milliseconds; 0 = no limit
	// of its own.
	TimeoutMS int64
	// CheckInput and CheckOutput validate the decoded value; nil accepts all. A
	// *fault.Error they return is the attempt's failure, any other becomes a
	// contract violation.
	CheckInput, CheckOutput func(v any) error
	// Owner, when set, is handed back with everything the attempt reports.
	Owner Owner
}

// An Owner is who handed out a task.
type Owner interface {
	// Withdrawn says that the task was cancelled, perhaps before the pool knew
	// it. The pool asks when it knows the attempt, so no cancel falls between.
	Withdrawn() bool
}

// A Result is how an attempt ended.
type Result struct {
	ID     ID
	Owner  Owner
	Output []byte       // canonical JSON, at most MaxOutput; nil when Err is set
	Cost   int64        // whole credits of a success
	Err    *fault.Error // nil = success
	// Dropped is how many reports of the attempt exceeded its bounds.
	Dropped int64
	// Holding says that the action's goroutine has not returned yet: its slot is
	// free only when [Config.Freed] is called.
	Holding bool
}

// ReportKind tells what a Report carries.
type ReportKind uint8

// The kinds of reports.
const (
	Progress ReportKind = iota // Fraction, Text
	Log                        // Level, Text
	Delta                      // Text
	Preview                    // Value
)

// A Report is what an attempt says while it works.
type Report struct {
	ID       ID
	Owner    Owner
	Kind     ReportKind
	Fraction float64 // 0..1
	Level    string  // debug, info, warn or error
	Text     string  // valid UTF-8
	Value    []byte  // canonical JSON
}

// Config is what a Pool is made of. The callbacks are called from goroutines of
// the pool, several at a time; they must be quick, and must not call Stop.
type Config struct {
	// Done receives the result of every attempt, once. Required. After Stop has
	// returned it is not called again.
	Done func(Result)
	// Freed is called for each Result with Holding set, when the goroutine has
	// returned or the grace has passed. Optional.
	Freed func(ID, Owner)
	// Report receives what attempts say, in the order they say it. Optional.
	Report func(Report)
	// Logger receives panics with their stacks. Default: discarded.
	Logger *slog.Logger
	// Grace is how long a cancelled attempt may take to return before its slot
	// is given away (X115). Default 5 s.
	Grace time.Duration
	// MaxAbandoned bounds the goroutines that never returned: past it the pool
	// takes no more work, since each of them still holds memory (I15). Default 1,000.
	MaxAbandoned int
}

// A Pool carries out attempts. It starts no goroutine until it has work.
type Pool struct {
	cfg Config

	mu        sync.Mutex
	attempts  map[ID]*attempt // not settled, or settled and still running
	due       deadlines
	abandoned int  // goroutines past their grace
	calls     int  // callbacks under way
	stopping  bool // Run refuses
	stopped   bool // callbacks are over
	// large is held while a large output is checked and put into files.
	large chan struct{}
	// idle, when set, is closed once no attempt runs and no callback is under way.
	idle chan struct{}
}

// New returns a pool; it panics when Config.Done is missing, which no input can cause.
func New(cfg Config) *Pool {
	if cfg.Done == nil {
		panic("worker: Config.Done is required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 5 * time.Second
	}
	if cfg.MaxAbandoned <= 0 {
		cfg.MaxAbandoned = 1_000
	}
	return &Pool{cfg: cfg, attempts: map[ID]*attempt{}, large: make(chan struct{}, 1)}
}

// The reasons for which an attempt's context ends, as context.Cause gives them.
var (
	errTimeout   = fault.New(fault.StepTimeout, "the attempt ran out of time")
	errCancelled = fault.New(fault.ExecutionCancelled, "the attempt was cancelled")
	errStopping  = fault.New(fault.Stopping, "the engine is stopping")
)

// Run starts an attempt and returns at once. An error means that nothing was
// started and Done will not be called for it.
func (p *Pool) Run(t Task) error {
	a, err := p.admit(&t)
	if err != nil {
		return err
	}
	go a.run()
	return nil
}

// Do carries out an attempt on the caller's goroutine and returns when its action
// has. An error means the same as that of Run. An action may end the goroutine
// by runtime.Goexit: then Do never returns.
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
	if t.TimeoutMS > 0 {
		a.deadline = time.Now().Add(a.timeout())
	}
	if err := p.enter(a); err != nil {
		return nil, err
	}
	if t.Owner != nil && t.Owner.Withdrawn() {
		a.abort()
	}
	return a, nil
}

func (p *Pool) enter(a *attempt) error {
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
		p.due.add(p, a)
	}
	return nil
}

// Cancel ends the context of an attempt (X96). The attempt reports when its
// action returns, or when the grace has passed. It returns false when no such
// attempt runs.
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

// Running is how many attempts have not returned and still hold a slot.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.attempts)
}

// Stop takes no more work and waits until every attempt has returned. When ctx
// ends first it cancels what still runs and abandons it: such attempts never
// report, so that recovery finds them open, and their number is returned.
func (p *Pool) Stop(ctx context.Context) (abandoned int) {
	p.mu.Lock()
	p.stopping = true
	idle := p.idleLocked()
	p.mu.Unlock()
	select {
	case <-idle:
		p.mu.Lock()
		p.due.stop()
		p.mu.Unlock()
		return 0
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.stopped = true
	p.due.stop()
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
		a.limiter.close()
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

// waitForCalls returns when the callbacks that began before stopped was set
// have returned.
func (p *Pool) waitForCalls() {
	p.mu.Lock()
	p.signalIdleLocked()
	idle := p.idle
	p.mu.Unlock()
	<-idle
}

// begin admits a callback; false = the pool has stopped and nobody listens.
func (p *Pool) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.calls++
	return true
}

func (p *Pool) end() {
	p.mu.Lock()
	p.calls--
	p.signalIdleLocked()
	p.mu.Unlock()
}

// release forgets an attempt whose slot is free, and ends a callback.
func (p *Pool) release(a *attempt, calls int) {
	p.mu.Lock()
	delete(p.attempts, a.task.ID)
	p.due.remove(a)
	p.calls -= calls
	p.signalIdleLocked()
	p.mu.Unlock()
}

func (p *Pool) countAbandoned(n int) {
	p.mu.Lock()
	p.abandoned += n
	p.mu.Unlock()
}

// maxMessage bounds the text of a failure, which is journaled for ever.
const maxMessage = 4 << 10

// failure turns what an action returned into what leaves the process.
func failure(err error) *fault.Error {
	var f *fault.Error
	if !errors.As(err, &f) {
		var code fault.Code
		if !errors.As(err, &code) {
			code = fault.StepFailed
		}
		f = fault.Wrap(code, err, "%s", err.Error())
	}
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
