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
	"github.com/roux-engine/roux/internal/ledger"
)

// attempt is one call of an action. It is also the call's context and its reporter,
// so that a task costs few allocations.
//
// Three events race to end it: the action returns, the deadline passes, or the
// grace period after a cancellation passes. The first one settles the attempt and
// reports the result; the others only free what is still held (first result wins).
type attempt struct {
	pool     *Pool
	task     Task
	files    action.Files    // those of the task; the action gets them guarded
	secrets  *accountSecrets // those that its input has; nil if it has none
	deadline time.Time
	links    deadlineLinks              // in the pool's deadlines
	grace    atomic.Pointer[time.Timer] // set when the attempt was cancelled or timed out

	mu       sync.Mutex
	settled  bool // a result was reported, or the goroutine that set this is about to report it
	returned bool
	aborted  bool // Cancel was called
	freed    bool // the slot was freed before the action returned
	// reporting is set while the timeout is being reported. Freed is not called
	// meanwhile, so that it never precedes the result; freeAfterReport asks
	// expire to call it afterwards.
	reporting, freeAfterReport bool

	cancelled cancelState

	limiter reportLimiter
	gate    *gated     // nil = nothing is moderated
	space   *workspace // nil = the run has none
}

func (a *attempt) timeout() time.Duration { return time.Duration(a.task.TimeoutMS) * time.Millisecond }

func (a *attempt) run() {
	var res Result // not a part of the attempt: it stays on the stack
	a.settle(&res)
	a.finish(&res)
}

// settle calls the action and sets res. It is a function of its own, so that the attempt is
// settled even if the action calls runtime.Goexit.
func (a *attempt) settle(res *Result) {
	normal := false
	defer func() {
		if normal {
			return
		}
		if v := recover(); v != nil {
			*res = Result{Err: a.panicked(v)}
			return
		}
		*res = Result{Err: unsure(fault.New(fault.StepFailed, "action %s called runtime.Goexit instead of returning", a.task.Action.Name))}
		a.finish(res)
	}()
	if a.begin(res) {
		out, err := a.task.Action.Run(a, &a.task.Task)
		a.take(res, &out, err)
	}
	res.Verdicts = a.verdicts()
	normal = true
}

// panicked writes the stack to the log. The error that leaves the process only says that
// the action panicked, because values and paths in a stack may be secret (I16, I18).
func (a *attempt) panicked(v any) *fault.Error {
	t, known := &a.task, a.known()
	text := known.String(fmt.Sprint(v))
	a.pool.cfg.Logger.Error("action panicked", "run", t.Task.Run, "step", t.Task.Step, "attempt", t.Task.Attempt,
		"action", t.Action.Name, "panic", text, "stack", known.String(string(debug.Stack())))
	return unsure(fault.Wrap(fault.StepFailed, fmt.Errorf("panic: %s", text),
		"action %s panicked; the log has the details", t.Action.Name))
}

// begin prepares the call, and reports whether there is to be one; otherwise res is set.
func (a *attempt) begin(res *Result) bool {
	t := &a.task
	if err := a.resolveInput(); err != nil {
		res.Err = a.redacted(err)
		return false
	}
	if err := a.moderateInput(); err != nil {
		a.review(res, err, t.Task.Input, &action.Result{})
		return false
	}
	if hit := a.cached(); hit != nil {
		a.reuse(res, hit)
		return false
	}
	t.Task.Report = a
	a.giveWorkspace()
	if a.files = t.Task.Files; a.files != nil {
		t.Task.Files = guardedFiles{a}
	}
	if err := failpoint.Hit(failpoint.ActionBefore); err != nil {
		res.Err = a.failed(err)
		return false
	}
	return true
}

// reuse sets res to an earlier one.
func (a *attempt) reuse(res *Result, hit *Hit) {
	if err := a.moderateOutput(hit.Output, false); err != nil {
		a.review(res, err, nil, &action.Result{Cost: new(int64), Price: "0"}) // nothing was called
		return
	}
	res.Output, res.Cached = hit.Output, &hit.From
}

// take sets res to what the action has returned.
func (a *attempt) take(res *Result, out *action.Result, err error) {
	t := &a.task
	if err == nil {
		err = failpoint.Hit(failpoint.ActionAfter)
	}
	if err == nil && out.Job != nil {
		a.submitted(res, out.Job)
		return
	}
	price, perr := reportedPrice(out)
	res.Price, res.Tokens = price, max(out.Tokens, 0)
	if err != nil {
		res.Err = a.moderateFailure(a.failed(err)) // also with a price that cannot be read
		return
	}
	res.Cost = t.Action.Cost
	if out.Cost != nil {
		res.Cost = *out.Cost
	}
	if perr != nil || res.Cost < 0 {
		a.unaccountable(res, perr)
		return
	}
	decided := a.reviewed(out)
	data, ferr := a.encodeOutput(out.Output, decided)
	if ferr != nil {
		res.Cost = 0
		a.review(res, unused(ferr), nil, out)
		return
	}
	// What a person has decided is not what the action makes of its input, nor is what it makes of a workspace.
	if !decided && !a.space.used() {
		a.keep(data)
	}
	res.Output = data
}

// unaccountable makes the attempt fail, because its action has reported a price or a cost that is none.
func (a *attempt) unaccountable(res *Result, price error) {
	name, cost := a.task.Action.Name, res.Cost
	if price != nil {
		*res = Result{Err: a.redacted(unused(fault.Wrap(fault.StepFailed, price, "action %s reported an invalid price: %s", name, fault.Message(price))))}
		return
	}
	*res = Result{Err: unused(fault.New(fault.StepFailed, "action %s reported a cost of %d credits: want 0 or more", name, cost))}
}

// unused returns the failure of an attempt whose action has succeeded. The effect has happened,
// so that the next attempt must not ask for another one (I4), unless what it has made is no good.
func unused(f *fault.Error) *fault.Error {
	switch f.Code {
	case fault.OutputContractViolation, fault.OutputTooLarge, fault.ModerationFlagged:
		return f
	}
	return unsure(f)
}

// unsure returns the failure of an attempt that may have had its effect.
func unsure(f *fault.Error) *fault.Error {
	out := *f
	out.OutcomeUnknown = true
	return &out
}

// submitted checks a job that the action has submitted. What names it becomes part of the journal
// (I18).
func (a *attempt) submitted(res *Result, job *action.Job) {
	if known := a.known(); known != nil && known.String(job.ID+"\n"+string(job.Handle)) != job.ID+"\n"+string(job.Handle) {
		res.Err = unsure(fault.New(fault.ProviderError, "action %s has submitted a job whose id or handle contains a secret", a.task.Action.Name))
		return
	}
	res.Job = job
}

// reportedPrice returns what the action says that its call cost, if it says so.
func reportedPrice(out *action.Result) (*ledger.Amount, error) {
	if out.Price == "" {
		return nil, nil
	}
	amount, err := ledger.ParseAmount(out.Price)
	if err != nil {
		return nil, err
	}
	return &amount, nil
}

// resolveInput replaces the references in the input by the contents of their files,
// so that the action sees plain values. The contract is checked on the whole input.
func (a *attempt) resolveInput() *fault.Error {
	t := &a.task
	if jsonx.Reserved(t.Task.Input) {
		if err := a.fillSecrets(); err != nil {
			return err
		}
	}
	if !jsonx.Reserved(t.Task.Input) {
		return a.checkInput(t.Task.Input, nil)
	}
	rest, lists, err := takeLists(t.Action.Streams, t.Task.Input)
	if err != nil {
		return a.failed(err)
	}
	if t.CheckInput != nil && lists != nil {
		// Check the contract on the whole input, unless that is too large for
		// memory.
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

// checkInput checks an input against its contract. lists are the lists that were
// removed from the input; only their type is checked.
func (a *attempt) checkInput(input []byte, lists map[string]jsonx.Large) *fault.Error {
	validate := a.task.CheckInput
	if validate == nil {
		return nil
	}
	if lists != nil {
		validate = func(v any) error { return a.task.CheckInput(restoreLists(v, lists)) }
	}
	return check(validate, input, fault.InputContractViolation, fault.ValueTooLarge)
}

// encodeOutput encodes an output, has it moderated unless people have reviewed it, checks the whole of
// it against the contract, and stores in files what does not fit into an event.
func (a *attempt) encodeOutput(v any, reviewed bool) ([]byte, *fault.Error) {
	t := &a.task
	most := MaxLarge
	if t.NoFiles || a.files == nil {
		most = MaxOutput
	}
	data, decoded, err := encode(t.Action.Name, v, most)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxOutput {
		// One at a time, because each may need hundreds of MiB for a moment (I15).
		select {
		case a.pool.large <- struct{}{}:
			defer func() { <-a.pool.large }()
		case <-a.Done():
			return nil, a.failed(a.Err())
		}
	}
	if err := a.moderateOutput(data, reviewed); err != nil { // before the contract, whose violations quote it (X169)
		return nil, err
	}
	switch {
	case t.CheckOutput == nil:
	case decoded != nil:
		err = checkDecoded(t.CheckOutput, decoded, fault.OutputContractViolation)
	default:
		err = check(t.CheckOutput, data, fault.OutputContractViolation, fault.OutputTooLarge)
	}
	if err != nil {
		return nil, err
	}
	if known := a.known(); known != nil {
		if data = redactOutput(known, data); len(data) > most {
			return nil, outputTooLarge(t.Action.Name, most)
		}
	}
	if len(data) <= MaxOutput {
		return data, nil
	}
	out, serr := spill(a, a.files, t.Task.Step, data)
	switch {
	case errors.Is(serr, errTooLarge):
		return nil, fault.New(fault.OutputTooLarge, "action %s returned %d bytes, and not enough of them are in texts or lists that could go to files: return a file instead", t.Action.Name, len(data))
	case serr != nil:
		return nil, a.failed(serr)
	}
	return out, nil
}

// failed returns the failure for an error that the action returned. If the action
// only returned its context's error, the failure is the reason why the context ended.
func (a *attempt) failed(err error) *fault.Error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if cause := a.cause(); cause != nil {
			err = cause
		}
	}
	return failure(err, a.redacted)
}

// expire is called at the deadline: the attempt has failed, whatever the action still
// does (soft limit of X115). Its slot stays occupied during the grace period.
func (a *attempt) expire() {
	a.mu.Lock()
	if a.settled {
		a.mu.Unlock()
		return
	}
	a.settled, a.reporting = true, true
	a.grace.Store(time.AfterFunc(a.pool.cfg.Grace, a.giveUp))
	a.mu.Unlock()
	dropped := a.closeReports()
	a.end(errTimeout)
	a.done(&Result{Err: a.timeoutFault(), Dropped: dropped, Holding: true})
	a.mu.Lock()
	a.reporting = false
	free := a.freeAfterReport
	a.mu.Unlock()
	if free {
		a.free()
	}
}

func (a *attempt) timeoutFault() *fault.Error {
	return fault.New(fault.StepTimeout, "action %s did not return within %s", a.task.Action.Name, a.timeout())
}

// abort cancels the context and starts the grace period.
func (a *attempt) abort() {
	a.mu.Lock()
	if a.settled || a.aborted {
		a.mu.Unlock()
		return
	}
	a.aborted = true
	a.grace.Store(time.AfterFunc(a.pool.cfg.Grace, a.giveUp))
	a.mu.Unlock()
	a.pool.removeDeadline(a) // the grace period replaces it
	a.end(errCancelled)
}

// giveUp frees the slot of an action that did not return within its grace period. Its
// goroutine cannot be killed; it is counted as abandoned until it ends by itself.
func (a *attempt) giveUp() {
	a.mu.Lock()
	if a.returned || a.freed {
		a.mu.Unlock()
		return
	}
	report, later := !a.settled, a.reporting
	a.settled, a.freed, a.freeAfterReport = true, true, later
	a.mu.Unlock()
	dropped := a.closeReports()
	a.pool.countAbandoned(1)
	a.pool.cfg.Logger.Warn("action did not return after it was cancelled", "run", a.task.Task.Run, "step", a.task.Task.Step,
		"attempt", a.task.Task.Attempt, "action", a.task.Action.Name)
	if report {
		a.doneAndRelease(&Result{Err: errCancelled, Dropped: dropped})
		return
	}
	if !later {
		a.free()
	}
}

// finish is called when the action has returned. The result counts unless the
// attempt was settled before.
func (a *attempt) finish(res *Result) {
	a.mu.Lock()
	if a.returned {
		a.mu.Unlock()
		return
	}
	a.returned = true
	report, freed, later := !a.settled, a.freed, a.reporting
	a.settled = true
	a.freeAfterReport = a.freeAfterReport || later
	a.mu.Unlock()
	a.space.close()
	res.Dropped = a.closeReports()
	a.stopTimer()
	a.end(context.Canceled)
	if !report && res.Job != nil {
		res.Late = true
		a.done(res)
	}
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

// done reports a result; the pool keeps the attempt while it holds its slot.
func (a *attempt) done(res *Result) {
	if !a.pool.beginCallback() {
		return
	}
	res.ID, res.Owner = a.task.ID, a.task.Owner
	a.pool.cfg.Done(*res)
	a.pool.endCallback()
}

func (a *attempt) doneAndRelease(res *Result) {
	if !a.pool.beginCallback() {
		a.pool.release(a, 0)
		return
	}
	res.ID, res.Owner = a.task.ID, a.task.Owner
	a.pool.cfg.Done(*res)
	a.pool.release(a, 1)
}

func (a *attempt) free() {
	calls := 0
	if a.pool.cfg.Freed != nil && a.pool.beginCallback() {
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
