// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
)

// A call is a call of the manager of leases, or of the scheduler. It may wait for the engine while the world goes on: it
// is a coroutine, so that one goroutine is enough.
type call struct {
	kind  callKind
	view  *taskView   // what it is about, as the books of the workers have it; nil = nothing that may be settled
	grant *grant      // of callLease: whose input is rendered
	job   *action.Job // of callFinish: as which the task goes on; nil = it has ended otherwise

	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool

	message  *engine.Message // whose answer it waits for; nil = none
	answer   engine.Answer
	err      error // of the answer
	answered bool  // there is one
}

type callKind uint8

const (
	callLease callKind = iota
	callReport
	callFinish
	callLost // the manager itself ends a task
	callSchedule
	callDelivery
)

var errProcessGone = errors.New("the process has ended")

// startCall makes a call, until it waits or ends.
func (p *process) startCall(c *call, fn func()) {
	c.resume, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		fn()
	})
	p.resumeCall(c)
}

// resumeCall continues a call.
func (p *process) resumeCall(c *call) {
	before := p.currentCall
	p.currentCall = c
	_, waits := c.resume()
	p.currentCall = before
	if waits {
		p.calls = append(p.calls, c)
	}
}

// abortCalls ends the calls of a process that is gone.
func (p *process) abortCalls() {
	calls := p.calls
	p.calls = nil
	for _, c := range calls {
		c.stop()
	}
}

// resumeAnswered continues the calls whose answers have come.
func (p *process) resumeAnswered() {
	for again := true; again && !p.dead; {
		again = false
		for i, c := range p.calls {
			if !c.answered {
				out, ok := c.message.Answer()
				if !ok {
					continue
				}
				c.answer, c.err, c.answered = out, out.Err, true
			}
			p.calls = slices.Delete(p.calls, i, i+1)
			p.resumeCall(c)
			again = true
			break
		}
	}
}

// beginTask implements lease.Host. A call settles one task after another.
func (p *process) beginTask(ctx context.Context, job *jobs.Job, source journal.Source, run action.Func) (wait func() error) {
	err := p.settleTask(ctx, job, source, run)
	return func() error { return err }
}

func (p *process) settleTask(_ context.Context, job *jobs.Job, source journal.Source, run action.Func) error {
	c := p.currentCall
	if p.dead || c == nil {
		return errProcessGone
	}
	p.leases.checkSettle(c, job)
	c.answered = false
	c.message = p.stage.Settle(job, source, func(ctx context.Context, t *action.Task) (action.Result, error) {
		if p.settlingCall = c; t == nil {
			return action.Result{}, nil
		}
		return run(ctx, t)
	})
	p.report(c.message)
	if !c.yield(struct{}{}) {
		return errProcessGone
	}
	return c.err
}

// handOnTask implements lease.Host.
func (p *process) handOnTask(_ context.Context, task *jobs.Job, job *action.Job) error {
	c := p.currentCall
	if p.dead || c == nil {
		return errProcessGone
	}
	p.leases.checkHandOn(c, task)
	c.answered, c.job = false, job
	c.message = p.stage.HandOn(task, job)
	p.report(c.message)
	if !c.yield(struct{}{}) {
		return errProcessGone
	}
	return c.err
}

// handOn carries out an effect that ends a task with a job.
func (p *process) handOn(ef *engine.Effect, job *action.Job) {
	i := slices.IndexFunc(p.calls, func(c *call) bool { return c.job == job })
	if i < 0 {
		p.w.fail("run %s: step %s: a task ends with a job that nobody has named", ef.Key.Run, ef.Task.StepPath)
	}
	in := machine.Input{Kind: machine.InResult, Outcome: machine.Submitted}
	if _, hash, fail := ef.Task.Render(); fail != nil {
		in.Outcome, in.Err = machine.Failed, fail
	} else {
		in.InputHash = hash
		p.w.stats.TasksHandedOn++
	}
	p.calls[i].message = p.stage.Report(ef, in, false)
	p.report(p.calls[i].message)
}

// settleCall carries out an effect that settles a task: it calls what the manager has given for
// it, and reports what that returns.
func (p *process) settleCall(ef *engine.Effect) {
	w := p.w
	p.settlingCall = nil
	named, err := ef.Settles(w.ctx(), nil) // asks whose it is
	if named.Job != nil {
		p.handOn(ef, named.Job)
		return
	}
	if err != nil || p.settlingCall == nil {
		w.fail("run %s: step %s: an effect settles nothing that is known: %v", ef.Key.Run, ef.Task.StepPath, err)
	}
	c := p.settlingCall
	in := machine.Input{Kind: machine.InResult, Outcome: machine.Success}
	input, _, fail := ef.Task.Render()
	var res action.Result
	if fail == nil {
		res, err = ef.Settles(w.ctx(), &action.Task{
			Run: ef.Key.Run, Step: ef.Task.StepPath, Account: ef.Key.Account, EffectKey: ef.Task.EffectKey, Input: input, Report: &settlingReporter{p, ef},
		})
	}
	if res.Price != "" {
		price, perr := ledger.ParseAmount(res.Price)
		if perr != nil {
			w.fail("price %q: %v", res.Price, perr)
		}
		in.Price = &price
	}
	switch {
	case errors.Is(err, action.ErrUnsettled):
		c.err, c.answered = err, true
		return
	case fail != nil:
		in.Outcome, in.Err = machine.Failed, fail
	case err != nil:
		f := new(fault.Error)
		if !errors.As(err, &f) {
			w.fail("%v is no error of Roux", err)
		}
		in.Outcome, in.Err = machine.Failed, program.FailureOf(f)
	default:
		in.Output = res.Output.(json.RawMessage)
		of := w.checker.record(ef.Key).remote
		of[report{ef.Ref, ef.Fence}] = append(of[report{ef.Ref, ef.Fence}], hashBytes(1, in.Output))
	}
	w.moderate(ef.Task, &in, true)
	c.message = p.stage.Report(ef, in, false)
	p.report(c.message)
}

// A settlingReporter reports what a remote worker says of a task that goes on.
type settlingReporter struct {
	p  *process
	ef *engine.Effect
}

func (r *settlingReporter) report(in machine.Input) {
	r.p.report(r.p.stage.Report(r.ef, r.p.w.moderateReport(r.ef.Task, in), false))
}

// Progress implements action.Reporter.
func (r *settlingReporter) Progress(fraction float64, _ string) {
	in := machine.Input{Kind: machine.InProgress, Progress: &machine.Progress{Kind: machine.ProgressFraction, Fraction: fraction}}
	r.report(in)
}

// Log implements action.Reporter.
func (r *settlingReporter) Log(level, text string) {
	in := machine.Input{Kind: machine.InProgress, Progress: &machine.Progress{Kind: machine.ProgressLog, Level: level, Text: text}}
	r.report(in)
}

// Delta implements action.Reporter.
func (*settlingReporter) Delta(string) {}

// Preview implements action.Reporter.
func (r *settlingReporter) Preview(any) { r.report(preview()) }
