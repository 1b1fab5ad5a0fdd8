// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/worker"
)

// A settlement is what an outside service says of a job that a step waits for. It is made
// into a result as the result of a worker is, with the same limits and contracts.
type settlement struct {
	run   action.Func
	reply chan answer // capacity 1
	// unsettled is set if run could not find out how the job has ended. It may return after
	// its timeout.
	unsettled atomic.Bool
}

// Settle records how an external job has ended: run returns its result, or why it failed,
// and may read what the service keeps of it. It returns nil when the result is durable, or
// when the attempt that submitted the job has ended already, which changes nothing. If run
// returns an error that wraps [action.ErrUnsettled], nothing is recorded, and that is the
// answer.
func (e *Engine) Settle(ctx context.Context, job *jobs.Job, source journal.Source, run action.Func) error {
	s := &settlement{reply: make(chan answer, 1)}
	s.run = func(ctx context.Context, t *action.Task) (action.Result, error) {
		res, err := run(ctx, t)
		if err == nil && res.Job != nil {
			err = fault.New(fault.ProviderError, "provider %q says that job %q has ended as another job", job.Provider, job.ID)
		}
		s.unsettled.Store(errors.Is(err, action.ErrUnsettled))
		return res, err
	}
	if err := e.post(s.input(job, source)); err != nil {
		return err
	}
	select {
	case out := <-s.reply:
		return out.err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.done:
		return errStopping
	}
}

// input is a settlement as it arrives. It has no outcome, because that is read only if it is
// not too late.
func (s *settlement) input(job *jobs.Job, source journal.Source) *input {
	return &input{kind: inSettle, key: job.Key(), reply: s.reply, settle: s, m: machine.Input{
		Kind: machine.InResult, Source: source, Ref: job.Ref(), Fence: job.Fence(),
	}}
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

// jobOf is a job that an action has submitted.
func jobOf(j *action.Job) *machine.Submission {
	return &machine.Submission{Job: journal.Job{Provider: j.Provider, ID: j.ID, Handle: j.Handle}, TTLMS: j.TTL.Milliseconds()}
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
		of := jobs.Source{Key: l.key, Name: journal.StepPath(l.run.Plan(), ch.Ref)}
		if _, k := l.run.Calls(ch.Ref.Step); k >= 0 && int(k) < len(l.run.Start().Pins) {
			pin := &l.run.Start().Pins[k]
			of.Action, of.Version = pin.Name, pin.Version
		}
		l.jobs = jobs.AppendChanges(l.jobs, ch, of, c.now)
	}
}

// park frees the slot of the engine that an attempt held which goes on as an external job.
// Those of its action and its provider stay taken until it ends.
func (a *attempts) park(l *loadedRun, ref journal.Ref) {
	if req := l.requests.Get(ref); req != nil && !a.arbiter.Part(req) {
		l.requests.Remove(req)
	}
}

// adoptJobs counts the slots of the jobs that a run waits for which comes into memory.
func (c *core) adoptJobs(l *loadedRun) {
	l.run.EachJob(func(ref journal.Ref, fence journal.Fence, _, _ string) {
		if limits := c.limitsOf(l, ref); len(limits) > 1 {
			c.attempts.holdSlot(l, taskID{l.key, ref, fence}, limits[:len(limits)-1])
		}
	})
}

// countJobs counts the slots that external jobs of runs hold which are not in memory.
func (r *recovery) countJobs() error {
	limited := func(provider string) bool { return r.c.cfg.ProviderSlots[provider] > 0 || r.c.cfg.JobSlots[provider] }
	return jobs.Each(r.c.ctx, r.c.cfg.Store, limited, func(j *jobs.Job) {
		a, id := r.c.cfg.Actions.Find(j.Action, j.Version), taskID{j.Key(), j.Ref(), j.Fence()}
		if a == nil || r.c.residency.runs[id.key] != nil || r.c.attempts.orphans[id] != nil {
			return
		}
		if limits := r.c.attempts.arbiter.Limits(a.Name, a.Provider, a.Slots, r.c.cfg.ProviderSlots[a.Provider]); len(limits) > 1 {
			req := &slotRequest{Account: j.Account, Ref: id.ref, Fence: id.fence}
			r.c.attempts.arbiter.Count(req, limits[:len(limits)-1])
			r.c.attempts.orphans[id] = req
		}
	})
}
