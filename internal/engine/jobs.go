// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/limits"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/worker"
)

// A settlement is what an outside service says of a job that a step waits for. It is made
// into a result as the result of a worker is, with the same limits and contracts.
type settlement struct {
	job   *jobs.Job
	run   action.Func
	to    *action.Job // that a remote worker has submitted, and run returns; nil = the job has ended
	reply chan answer // capacity 1
	// unsettled is set if run could not find out how the job has ended. It may return after its timeout.
	unsettled atomic.Bool
}

// Settle records how an external job has ended: run returns its result, or why it failed, and may read what the
// service keeps of it. It returns nil when the result is durable, or when the attempt that submitted the job has
// ended already, which changes nothing. If run returns an error that wraps [action.ErrUnsettled], or the job has a
// Mark, nothing is recorded but what run reports, and the error is the answer.
func (e *Engine) Settle(ctx context.Context, job *jobs.Job, source journal.Source, run action.Func) error {
	return e.BeginSettle(ctx, job, source, run)()
}

// BeginSettle is Settle of one of several jobs, whose results share a commit: it returns at once, and wait when Settle does.
func (e *Engine) BeginSettle(ctx context.Context, job *jobs.Job, source journal.Source, run action.Func) (wait func() error) {
	s := &settlement{job: job, reply: make(chan answer, 1)}
	s.run = func(ctx context.Context, t *action.Task) (action.Result, error) {
		res, err := run(ctx, t)
		if err == nil && res.Job != nil {
			err = fault.New(fault.ProviderError, "provider %q says that job %q has ended as another job", job.Provider, job.ID)
		}
		s.unsettled.Store(errors.Is(err, action.ErrUnsettled))
		return res, err
	}
	return e.settle(ctx, s.input(job, source))
}

// answer is the error of a settlement that settles nothing. One from which a secret was removed wraps nothing.
func (s *settlement) answer(err *fault.Error) error {
	if s.unsettled.Load() && !errors.Is(err, action.ErrUnsettled) {
		return fmt.Errorf("%w: %s", action.ErrUnsettled, fault.Message(err))
	}
	return err
}

// HandOn records that a remote worker has submitted the work of its task as a job: the attempt goes on, and its step
// waits for the job. It returns as Settle does. If nobody waits for the task any more, the job is cancelled.
func (e *Engine) HandOn(ctx context.Context, task *jobs.Job, job *action.Job) error {
	return e.settle(ctx, handOn(task, job).input(task, journal.FromWorker))()
}

func handOn(task *jobs.Job, job *action.Job) *settlement {
	run := func(context.Context, *action.Task) (action.Result, error) { return action.Result{Job: job}, nil }
	return &settlement{job: task, run: run, to: job, reply: make(chan answer, 1)}
}

func (e *Engine) settle(ctx context.Context, in *input) (wait func() error) {
	s := in.settle
	if err := e.post(in); err != nil {
		s.reply <- answer{err: err}
	}
	return func() error {
		select {
		case out := <-s.reply:
			return out.err
		case <-ctx.Done():
			return ctx.Err()
		case <-e.done:
			return errStopping
		}
	}
}

// input is a settlement as it arrives. It has no outcome unless that is a job, because it is read only
// if it is not too late.
func (s *settlement) input(job *jobs.Job, source journal.Source) *input {
	in := &input{kind: inSettle, key: job.Key(), reply: s.reply, settle: s, m: machine.Input{Kind: machine.InResult, Source: source, Ref: job.Ref(), Fence: job.Fence()}}
	switch {
	case s.to != nil:
		in.m.Outcome, in.m.Job = machine.Submitted, program.Submission(s.to, job.ID)
	case job.Mark != nil:
		in.m.Outcome = machine.Preview // too late, it is not recorded
	}
	return in
}

// settle hands a settlement to a worker, or answers it if its attempt has ended.
func (c *core) settle(in *input) {
	l, err := c.residency.get(in.key)
	if err != nil {
		in.out.err = err
		return
	}
	attempt := &inFlight{task: new(machine.Task), prog: l.prog, settle: in.settle}
	live := false
	if in.out.err = c.protect(l, func() { live = l.run.JobTask(attempt.task, in.m.Ref, in.m.Fence) }); in.out.err != nil {
		return
	}
	if !live || c.closing {
		if in.out.err = errStopping; !live {
			in.out.err = c.deliver(in) // too late
		}
		return
	}
	attempt.report = input{kind: inRun, key: in.key, loaded: l, m: in.m, reply: in.reply}
	in.reply = nil
	c.effects = append(c.effects, effect{kind: machine.CmdDispatch, id: in.task(), attempt: attempt, task: attempt.task, prog: l.prog})
}

// settling makes the call of an action that of a settlement, whose result is checked as well.
func (a *inFlight) settling(task *worker.Task) {
	if a.settle != nil {
		act := *task.Action
		act.Run, act.Streams, task.CheckInput = a.settle.run, nil, nil
		task.Action = &act
	}
}

// noteJobs notes what the store keeps of external jobs after a turn.
func (c *core) noteJobs(l *loadedRun, changes []journal.JobChange) {
	if !l.dirty {
		c.pipeline.touch(l, l.run.Last()+1)
	}
	c.pipeline.building.urgent = true
	for i := range changes {
		ch := &changes[i]
		if ch.Kind == journal.JobEnded && jobs.Within(ch.Job.Provider) { // nothing is kept of it
			l.jobs = append(l.jobs, jobs.Ended(ch))
			continue
		}
		var route *route
		if ch.Kind == journal.JobSubmitted {
			route, _ = c.routeOf(l, ch.Ref)
		}
		l.jobs = jobs.AppendChanges(l.jobs, ch, l.jobSource(ch.Ref, route), c.now)
	}
}

// jobSource is what is known of a job that a step waits for, with the limits that it has passed.
func (l *loadedRun) jobSource(ref journal.Ref, passed *route) *jobs.Source {
	of := &jobs.Source{Key: l.key, Name: journal.StepPath(l.run.Plan(), ref)}
	if _, k := l.run.Calls(ref.Step); k >= 0 && int(k) < len(l.run.Start().Pins) {
		pin := &l.run.Start().Pins[k]
		of.Action, of.Version, of.Pinned = pin.Name, pin.Version, pin.Provider
		if passed != nil {
			of.Service, of.Limits = passed.Service(), limits.Named(passed.Keys())
		}
	}
	return of
}

// publishJobs has Config.Jobs told what has become durable of the jobs of a run.
func (c *core) publishJobs(l *loadedRun) {
	if c.cfg.Jobs != nil {
		c.jobs = append(c.jobs, l.told...)
	}
	l.told = nil
}

// findUnstored finds those jobs of a run that have no record; adoptJobs completes them. A run that is
// suspended has none.
func (m *residency) findUnstored(l *loadedRun) (err error) {
	l.run.EachJob(func(j *machine.OpenJob) {
		if key := jobs.Key(j.Provider, j.ID); err == nil && jobs.MayBeUnstored(j.Provider, j.Fence) {
			_, failed := m.c.cfg.Store.Record(m.c.ctx, key)
			switch {
			case errors.Is(failed, fault.RecordNotFound):
				l.tasks.Add(&jobs.Job{Provider: j.Provider, ID: j.ID})
			case store.Transient(failed):
				err = failed
			}
		}
	})
	return err
}

// adoptJobs counts the slots of the jobs that a run waits for which comes into memory, and tells of those
// that have no record. With found another process may have told of them before.
func (c *core) adoptJobs(l *loadedRun, found bool) {
	l.run.EachJob(func(j *machine.OpenJob) {
		route, demand := c.routeOf(l, j.Ref)
		unstored := l.tasks.Has(j.Provider, j.ID)
		if route.Bounded() {
			c.attempts.hold(l, taskID{Key: l.key, Ref: j.Ref, Fence: j.Fence}, route, demand, true, !unstored)
		}
		if unstored {
			ch := journal.JobChange{Kind: journal.JobSubmitted, Ref: j.Ref, Fence: j.Fence, Job: journal.Job{Provider: j.Provider, ID: j.ID}, Expires: j.Expires}
			l.told, _ = l.tasks.Take(jobs.AppendChanges(l.told, &ch, l.jobSource(j.Ref, route), j.Since), false)
		}
	})
	for i := range l.told {
		l.told[i].Found = found
	}
	c.publishJobs(l)
}

// countJobs counts the slots that external jobs hold. Those of runs in memory are found again when
// their runs are loaded.
func (r *recovery) countJobs() error {
	cfg := r.c.cfg
	return limits.Recount(r.c.ctx, cfg.Store, &r.c.attempts.attemptTable, cfg.Limits, cfg.Actions.Find, cfg.ProviderSlots, func(provider string) bool {
		return cfg.ProviderSlots[provider] > 0 || cfg.JobSlots[provider] || cfg.Limits.Concurrent()
	})
}
