// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/jsonx"
)

// attempt is one call of an action, its context and its reporter in one piece,
// so that a task costs few allocations.
//
// Three parties race to end it: the action returns, the deadline passes, the
// grace after a cancellation passes. The first settles it and reports; the
// others only free what is still held (first result wins).
type attempt struct {
	pool     *Pool
	task     Task
	deadline time.Time
	place    place                      // among the deadlines of the pool
	grace    atomic.Pointer[time.Timer] // set once the context has ended early

	mu       sync.Mutex
	settled  bool // a result was reported, or will be by whoever set this
	returned bool
	aborted  bool // Cancel was called
	freed    bool // the slot was given away before the action returned
	// announcing holds Freed back while the timeout is being reported, so that
	// nobody hears of a free slot before the result; freeLater hands it on.
	announcing, freeLater bool

	ended ending

	limiter reportLimiter
}

func (a *attempt) timeout() time.Duration { return time.Duration(a.task.TimeoutMS) * time.Millisecond }

func (a *attempt) run() {
	var res Result
	func() {
		// A second function, so that the attempt is settled also when the
		// action leaves by runtime.Goexit.
		normal := false
		defer func() {
			if normal {
				return
			}
			if v := recover(); v != nil {
				res = Result{Err: a.panicked(v)}
				return
			}
			a.finish(Result{Err: fault.New(fault.StepFailed, "action %s called runtime.Goexit instead of returning", a.task.Action.Name)})
		}()
		res = a.call()
		normal = true
	}()
	a.finish(res)
}

// panicked writes the stack to the log; what leaves the process says only that
// it happened, since values and paths in a stack may be secret (I16, I18).
func (a *attempt) panicked(v any) *fault.Error {
	t := &a.task
	a.pool.cfg.Logger.Error("action panicked", "run", t.Task.Run, "step", t.Task.Step, "attempt", t.Task.Attempt,
		"action", t.Action.Name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return fault.Wrap(fault.StepFailed, fmt.Errorf("panic: %v", v),
		"action %s panicked; the log has the details", t.Action.Name)
}

func (a *attempt) call() Result {
	t := &a.task
	if err := a.takeInput(); err != nil {
		return Result{Err: err}
	}
	t.Task.Report = a
	if err := failpoint.Hit(failpoint.ActionBefore); err != nil {
		return Result{Err: a.failed(err)}
	}
	out, err := t.Action.Run(a, &t.Task)
	if err == nil {
		err = failpoint.Hit(failpoint.ActionAfter)
	}
	if err != nil {
		return Result{Err: a.failed(err)}
	}
	cost := t.Action.Cost
	if out.Cost != nil {
		cost = *out.Cost
	}
	if cost < 0 {
		return Result{Err: fault.New(fault.StepFailed, "action %s reported a cost of %d credits: want 0 or more", t.Action.Name, cost)}
	}
	data, ferr := a.giveOutput(out.Output)
	if ferr != nil {
		return Result{Err: ferr}
	}
	return Result{Output: data, Cost: cost}
}

// takeInput gives the action plain values: what its input refers to is read from
// files first, and the contract is about the whole.
func (a *attempt) takeInput() *fault.Error {
	t := &a.task
	if !jsonx.Reserved(t.Task.Input) {
		return a.checkInput(t.Task.Input, nil)
	}
	rest, lists, err := takeLists(t.Action.Streams, t.Task.Input)
	if err != nil {
		return a.failed(err)
	}
	if t.CheckInput != nil && lists != nil {
		// The contract sees the whole where that may be held at all.
		whole, err := fetch(a, t.Task.Files, t.Task.Input)
		switch {
		case err == nil:
			if err := a.checkInput(whole, nil); err != nil {
				return err
			}
		case !errors.Is(err, fault.ValueTooLarge):
			return a.failed(err)
		}
	}
	if t.Task.Input, err = fetch(a, t.Task.Files, rest); err != nil {
		return a.failed(err)
	}
	if err := a.checkInput(t.Task.Input, lists); err != nil {
		return err
	}
	for name, ref := range lists {
		if t.Task.Lists == nil {
			t.Task.Lists = map[string]action.List{}
		}
		t.Task.Lists[name] = &list{files: t.Task.Files, ref: ref}
	}
	return nil
}

// checkInput holds an input to its contract; lists are those that it lacks, of which
// only the type is checked.
func (a *attempt) checkInput(input []byte, lists map[string]jsonx.Large) *fault.Error {
	validate := a.task.CheckInput
	if validate == nil {
		return nil
	}
	if lists != nil {
		validate = func(v any) error { return a.task.CheckInput(withLists(v, lists)) }
	}
	return check(validate, input, fault.InputContractViolation, fault.ValueTooLarge)
}

// giveOutput encodes an output, checks the whole of it, and puts into files what
// does not fit into an event.
func (a *attempt) giveOutput(v any) ([]byte, *fault.Error) {
	t := &a.task
	most := MaxLarge
	if t.NoFiles || t.Task.Files == nil {
		most = MaxOutput
	}
	data, err := encode(t.Action.Name, v, most)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxOutput {
		// One after the other: each may take hundreds of MiB for a moment (I15).
		select {
		case a.pool.large <- struct{}{}:
			defer func() { <-a.pool.large }()
		case <-a.Done():
			return nil, a.failed(a.Err())
		}
	}
	if t.CheckOutput != nil {
		if err := check(t.CheckOutput, data, fault.OutputContractViolation, fault.OutputTooLarge); err != nil {
			return nil, err
		}
	}
	if len(data) <= MaxOutput {
		return data, nil
	}
	out, serr := spill(a, t.Task.Files, t.Task.Step, data)
	switch {
	case errors.Is(serr, errTooLarge):
		return nil, fault.New(fault.OutputTooLarge, "action %s returned %d bytes, and not enough of them are in texts or lists that could go to files: return a file instead", t.Action.Name, len(data))
	case serr != nil:
		return nil, a.failed(serr)
	}
	return out, nil
}

// failed names the failure of an action that returned an error. One that only
// passes on the end of its context failed for the reason the context ended.
func (a *attempt) failed(err error) *fault.Error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if cause := a.cause(); cause != nil {
			err = cause
		}
	}
	return failure(err)
}

// expire is called at the deadline: the attempt has failed, whatever the action
// still does (soft limit of X115). Its slot stays taken for the grace.
func (a *attempt) expire() {
	a.mu.Lock()
	if a.settled {
		a.mu.Unlock()
		return
	}
	a.settled, a.announcing = true, true
	dropped := a.limiter.close()
	a.grace.Store(time.AfterFunc(a.pool.cfg.Grace, a.giveUp))
	a.mu.Unlock()
	a.end(errTimeout)
	a.done(Result{Err: a.timeoutFault(), Dropped: dropped, Holding: true})
	a.mu.Lock()
	a.announcing = false
	free := a.freeLater
	a.mu.Unlock()
	if free {
		a.free()
	}
}

func (a *attempt) timeoutFault() *fault.Error {
	return fault.New(fault.StepTimeout, "action %s did not return within %s", a.task.Action.Name, a.timeout())
}

// abort ends the context and starts the grace.
func (a *attempt) abort() {
	a.mu.Lock()
	if a.settled || a.aborted {
		a.mu.Unlock()
		return
	}
	a.aborted = true
	a.grace.Store(time.AfterFunc(a.pool.cfg.Grace, a.giveUp))
	a.mu.Unlock()
	a.pool.forgetDeadline(a) // the grace takes its place
	a.end(errCancelled)
}

// giveUp frees the slot of an action that did not return within its grace. The
// goroutine cannot be killed: it is counted until it ends by itself.
func (a *attempt) giveUp() {
	a.mu.Lock()
	if a.returned || a.freed {
		a.mu.Unlock()
		return
	}
	report, later := !a.settled, a.announcing
	a.settled, a.freed, a.freeLater = true, true, later
	dropped := a.limiter.close()
	a.mu.Unlock()
	a.pool.countAbandoned(1)
	a.pool.cfg.Logger.Warn("action did not return after it was cancelled", "run", a.task.Task.Run, "step", a.task.Task.Step,
		"attempt", a.task.Task.Attempt, "action", a.task.Action.Name)
	if report {
		a.doneAndRelease(Result{Err: errCancelled, Dropped: dropped})
		return
	}
	if !later {
		a.free()
	}
}

// finish is called when the action has returned. Its result counts unless the
// attempt was settled before.
func (a *attempt) finish(res Result) {
	a.mu.Lock()
	if a.returned {
		a.mu.Unlock()
		return
	}
	a.returned = true
	report, freed, later := !a.settled, a.freed, a.announcing
	a.settled = true
	a.freeLater = a.freeLater || later
	res.Dropped = a.limiter.close()
	a.mu.Unlock()
	a.stopTimer()
	a.end(context.Canceled)
	switch {
	case report:
		a.doneAndRelease(res)
	case freed:
		a.pool.countAbandoned(-1)
	case later:
	default:
		a.free()
	}
}

// done reports; the attempt stays known while it holds its slot.
func (a *attempt) done(res Result) {
	if !a.pool.begin() {
		return
	}
	res.ID, res.Owner = a.task.ID, a.task.Owner
	a.pool.cfg.Done(res)
	a.pool.end()
}

func (a *attempt) doneAndRelease(res Result) {
	if !a.pool.begin() {
		a.pool.release(a, 0)
		return
	}
	res.ID, res.Owner = a.task.ID, a.task.Owner
	a.pool.cfg.Done(res)
	a.pool.release(a, 1)
}

func (a *attempt) free() {
	calls := 0
	if a.pool.cfg.Freed != nil && a.pool.begin() {
		a.pool.cfg.Freed(a.task.ID, a.task.Owner)
		calls = 1
	}
	a.pool.release(a, calls)
}

func (a *attempt) isSettled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settled
}

func (a *attempt) stopTimer() {
	if t := a.grace.Load(); t != nil {
		t.Stop()
	}
}

var _ action.Reporter = (*attempt)(nil)
