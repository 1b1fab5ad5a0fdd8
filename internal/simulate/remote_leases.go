// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/lease"
)

// leases are the leases of a process: the real manager, and what must be true of it by the books of
// the workers.
type leases struct {
	p           *process
	manager     *lease.Manager
	views       map[string]*taskView // by the id of the task: those that a step waits for
	pendingWork []func()             // work that the manager has begun
	submitted   map[string]bool      // tasks that steps have submitted in this process
	start       uint64               // which start of a process it is
}

// A taskView is a task that a step waits for, by what has been said to the process.
type taskView struct {
	task   *remoteTask
	ref    journal.Ref
	fence  journal.Fence
	holder *grant // nil = nobody has it, or that is not known
	// adopted is set after a start, until the task is handed out: somebody may have it.
	adopted     bool
	expires     int64 // when the lease does, in the time of the process; 0 = it waits for a worker
	losses      int
	settlement  *call // it is being settled
	interrupted bool  // so often that its step is to fail
}

// startLeases makes the manager of a process that is about to open its engine.
func (p *process) startLeases() {
	w := p.w
	if w.remote == nil {
		return
	}
	l := &leases{p: p, manager: lease.New(w.remote.actions, nil), views: map[string]*taskView{}, submitted: map[string]bool{}}
	w.remote.processStarts++
	l.start = w.remote.processStarts
	l.manager.Attach(lease.Host{
		Settle: p.beginTask, HandOn: p.handOnTask, Check: func(context.Context, *jobs.Job, *action.Job) error { return nil },
		Key: []byte("a key"), Epoch: w.remote.processStarts, Now: p.now, Logger: w.logger,
		Go: func(work func()) { l.pendingWork = append(l.pendingWork, work) },
	})
	p.leases = l
}

// load reads the tasks that there are. Each of them may be in the hands of a worker.
func (l *leases) load() {
	w := l.p.w
	if err := l.manager.Load(w.ctx(), l.p.disk); err != nil {
		w.fail("the tasks of remote workers cannot be read: %v", err)
	}
	for _, t := range w.remote.tasks {
		j, kept := w.jobRecord(jobs.KindJob, jobs.Workers, t.id)
		if _, cancel := w.jobRecord(jobs.KindCancel, jobs.Workers, t.id); kept && !cancel {
			l.views[t.id] = &taskView{task: t, ref: j.Ref(), fence: j.Fence(), adopted: true, expires: l.p.now() + t.lease}
			w.stats.TasksAdopted++
		}
	}
}

// changed is engine.Config.Jobs.
func (l *leases) changed(changes []jobs.Change) {
	l.manager.Changed(changes)
	for i := range changes {
		c := &changes[i]
		id, ok := jobs.IDOf(c.Kind, c.ID, jobs.Workers)
		switch {
		case !ok, c.Delete && c.Kind == jobs.KindCancel:
		case c.Delete, c.Kind == jobs.KindCancel:
			if v := l.views[id]; v != nil {
				l.p.w.tracef("  %s: no step waits for it", v.task)
			}
			delete(l.views, id)
		default:
			j, v := c.Job, l.views[id]
			if v != nil && v.fence == j.Fence() && v.ref == j.Ref() {
				continue
			}
			is := &taskView{task: l.p.w.remote.tasksByID[id], ref: j.Ref(), fence: j.Fence()}
			if l.views[id] = is; v == nil && c.Found && !l.submitted[id] { // a task from before the start
				is.adopted, is.expires = true, l.p.now()+is.task.lease
				l.p.w.stats.TasksAdopted++
			}
			l.p.w.tracef("  %s waits for a worker, adopted %t", is.task, is.adopted)
		}
	}
}

// available reports whether nobody has a task and anybody may get it.
func (v *taskView) available() bool {
	return v.holder == nil && !v.adopted && v.expires == 0 && v.settlement == nil
}

// availableTask returns a task that a worker with a key of an account ought to get; nil = there is none.
func (l *leases) availableTask(account string) *taskView {
	for _, t := range l.p.w.remote.tasks {
		if v := l.views[t.id]; v != nil && v.available() && (account == "" || t.run.Account == account) {
			return v
		}
	}
	return nil
}

// expireLeases lets leases expire, and reports whether one has.
func (l *leases) expireLeases() (moved bool) {
	p, now := l.p, l.p.now()
	l.manager.Expire(p.w.ctx())
	for _, t := range p.w.remote.tasks {
		v := l.views[t.id]
		if v == nil || v.expires == 0 || v.expires > now || v.settlement != nil {
			continue
		}
		moved = true
		if v.holder != nil || v.adopted && t.atMostOnce {
			v.losses++
			p.w.stats.TasksLost++
		}
		p.w.tracef("  %s: its lease expires, losses %d", t, v.losses)
		v.holder, v.adopted, v.expires = nil, false, 0
		if v.interrupted = v.losses >= lease.MaxLosses || v.losses > 0 && t.atMostOnce; v.interrupted {
			v.settlement = &call{} // the manager is about to settle it
		}
	}
	begun := l.pendingWork
	l.pendingWork = nil
	for _, work := range begun {
		c := &call{kind: callLost}
		p.startCall(c, func() {
			if work(); p.dead || c.view == nil {
				return
			}
			l.recordSettled(c.view, c.err)
		})
	}
	for _, t := range p.w.remote.tasks {
		if v := l.views[t.id]; v != nil && v.interrupted && v.settlement != nil && v.settlement.yield == nil {
			p.w.fail("%s was lost %d times, and its step does not fail", t, v.losses)
		}
	}
	return moved
}

// nextLeaseExpiry is when the next lease expires, in the time of the process; 0 = none does.
func (p *process) nextLeaseExpiry() (first int64) {
	if p.leases == nil {
		return 0
	}
	for _, v := range p.leases.views {
		if v.expires != 0 && v.settlement == nil && (first == 0 || v.expires < first) {
			first = v.expires
		}
	}
	return first
}

// checkSettle checks that a call may settle, or ask about, a task.
func (l *leases) checkSettle(c *call, job *jobs.Job) {
	w, v := l.p.w, l.views[job.ID]
	switch c.kind {
	case callLease:
		if v == nil {
			break // its step has ended meanwhile
		}
		l.recordGrant(c, v)
	case callLost:
		if v == nil || !v.interrupted {
			w.fail("%s is ended as lost, and it was lost %d times", w.remote.tasksByID[job.ID], lossesOf(v))
		}
		c.view, v.settlement = v, c
		w.stats.TasksInterrupted++
	case callFinish:
		if c.view == nil {
			w.fail("%s is settled by a worker that does not have it", w.remote.tasksByID[job.ID])
		}
	}
}

// checkHandOn checks that a call may end a task with a job: its worker has the task, or no step waits for
// the task any more, and the job is to be cancelled.
func (l *leases) checkHandOn(c *call, job *jobs.Job) {
	if c.kind != callFinish || c.view == nil && l.views[job.ID] != nil {
		l.p.w.fail("%s ends with a job of a worker that does not have it", l.p.w.remote.tasksByID[job.ID])
	}
}

func lossesOf(v *taskView) int {
	if v == nil {
		return 0
	}
	return v.losses
}

// recordSettled notes how a settlement has ended.
func (l *leases) recordSettled(v *taskView, err error) {
	v.settlement = nil
	switch {
	case l.views[v.task.id] != v: // its step has ended meanwhile, or begun again
	case err == nil:
		delete(l.views, v.task.id)
	default:
		v.expires = l.p.now() + v.task.lease
	}
}

// recordGrant notes that a task is handed out, and checks that it may be.
func (l *leases) recordGrant(c *call, v *taskView) {
	w := l.p.w
	switch {
	case v.adopted:
		w.fail("%s is handed out %d µs before it had a full lease after a start", v.task, v.expires-l.p.now())
	case v.holder != nil && v.expires != 0:
		w.fail("%s is handed out, and a worker has it for %d µs more", v.task, v.expires-l.p.now())
	case v.interrupted:
		w.fail("%s is handed out after %d losses", v.task, v.losses)
	case !v.available():
		w.fail("%s is handed out while it does not wait: %+v", v.task, *v)
	}
	w.remote.grantCount++
	w.stats.TasksGranted++
	c.view, c.grant = v, &grant{task: v.task, number: w.remote.grantCount, start: l.start}
	w.tracef("  %s: worker %d has it", v.task, c.grant.number)
	v.holder, v.expires = c.grant, l.p.now()+v.task.lease
}

// heldBy returns the task of a grant if its lease is not over, for a key of an account.
func (l *leases) heldBy(g *grant, account string) *taskView {
	v := l.views[g.task.id]
	if v == nil || account != "" && g.task.run.Account != account {
		return nil
	}
	if h := v.holder; v.adopted && (h == nil || g.start > h.start || g.start == h.start && g.number > h.number) {
		v.holder = g // of those that show a lease after a start, that of the latest start has the task
	}
	if v.holder != g || v.expires == 0 {
		return nil
	}
	return v
}

// handleLeaseAnswer takes the answer to a worker that has asked for a task.
func (l *leases) handleLeaseAnswer(c *call, wk *remoteWorker, list []lease.WorkerTask, aborted bool) *grant {
	w := l.p.w
	if len(list) == 0 {
		if v := c.view; v != nil && v.holder == c.grant {
			v.holder = nil // nobody has it: its input could not be made
			if aborted {
				v.expires = 0
			}
		}
		return nil
	}
	t := &list[0]
	id, _, _ := strings.Cut(t.Lease, ".")
	v := l.views[id]
	switch {
	case len(list) > 1 || w.remote.tasksByID[id] == nil:
		w.fail("a worker is given %d tasks, the first is %+v", len(list), *t)
	case v == nil:
		w.fail("%s is handed out, and no step waits for it", w.remote.tasksByID[id])
	case c.view == nil:
		l.recordGrant(c, v)
	case c.view != v || v.holder != c.grant:
		w.fail("%s is handed out with a lease that is over", v.task)
	}
	g := c.grant
	g.token, g.input = t.Lease, t.Input
	l.checkTask(v, wk, t)
	return g
}

// checkTask checks a task as a worker gets it: the effect key is that of the attempt, also after
// losses, and it has a deadline (I4, I6).
func (l *leases) checkTask(v *taskView, wk *remoteWorker, t *lease.WorkerTask) {
	w, of := l.p.w, v.task
	record := w.checker.runs[of.run]
	want, known := record.journal.EffectKey(v.ref, v.fence)
	switch latest := l.p.stage.Now() + of.timeout; {
	case t.Run != of.run.Run || t.Account != of.run.Account || wk.account != "" && wk.account != t.Account:
		w.fail("I17: %s is given to a worker of account %q as one of run %s of account %s", of, wk.account, t.Run, t.Account)
	case t.EffectKey != of.effectKey || known && want != of.effectKey || t.Attempt != int(v.fence.Attempt):
		w.fail("I4: %s is handed out with attempt %d and effect key %q, its journal has %q", of, t.Attempt, t.EffectKey, want)
	case t.ExpiresAt.UnixMicro() <= 0 || t.ExpiresAt.UnixMicro() > latest:
		w.fail("I6: %s expires %s", of, t.ExpiresAt)
	case t.LeaseMS != of.lease/1000:
		w.fail("%s has a lease of %d ms, want %d µs", of, t.LeaseMS, of.lease)
	}
}

// heartbeat lets a worker say that its tasks go on.
func (l *leases) heartbeat(wk *remoteWorker) {
	var tokens []string
	for _, g := range wk.grants {
		tokens = append(tokens, g.token)
	}
	ended := l.manager.Extend(tokens, wk.account)
	wk.grants = slices.DeleteFunc(wk.grants, func(g *grant) bool {
		v := l.heldBy(g, wk.account)
		over := slices.Contains(ended, g.token)
		if over != (v == nil) {
			l.p.w.fail("%s: a heartbeat of worker %d is told that its lease is over: %t; by its books it has it: %t", g.task, g.number, over, v != nil)
		}
		if v == nil {
			l.p.w.remote.recordExpired(g)
			return true
		}
		v.expires = l.p.now() + v.task.lease
		return false
	})
}

// reportProgress lets a worker report progress of a task.
func (l *leases) reportProgress(wk *remoteWorker, g *grant) {
	p, half := l.p, 0.5
	r := lease.WorkerReport{Lease: g.token, Fraction: &half}
	switch p.w.remote.dice.IntN(3) {
	case 0:
		r.Log = "working"
	case 1:
		r.Preview = []byte(`{"half":true}`)
	}
	v := l.heldBy(g, wk.account)
	if v != nil {
		v.expires = p.now() + v.task.lease
	}
	p.startCall(&call{kind: callReport, view: v}, func() {
		ended := l.manager.Report(p.w.ctx(), []lease.WorkerReport{r}, wk.account)
		if !p.dead && (len(ended) > 0) != (v == nil) {
			p.w.fail("%s: a report of worker %d is told that its lease is over: %t; by its books it has it: %t", g.task, g.number, len(ended) > 0, v != nil)
		}
	})
}

// reportResult lets somebody report the result of a task: its worker with the lease that it has, or with
// another account or token somebody else. It must count only if the lease is not over.
func (l *leases) reportResult(g *grant, account, token string) {
	p, w := l.p, l.p.w
	var v *taskView
	if token == g.token {
		if v = l.heldBy(g, account); v != nil && v.settlement != nil {
			v = nil // another result of the same lease is being recorded
		}
	}
	c := &call{kind: callFinish, view: v}
	if v != nil {
		v.settlement = c
	}
	res := *g.result
	res.Lease = token
	g.reportedAt = w.mono
	p.startCall(c, func() {
		err := l.manager.Finish(context.Background(), &res, account)
		if !p.dead {
			w.tracef("  %s: the result of worker %d, which has it: %t, is answered %v", g.task, g.number, v != nil, err)
		}
		switch stale := errors.Is(err, lease.ErrStale); {
		case p.dead:
		case v == nil && !stale && c.job == nil: // otherwise it is sent again, so that its service is told
			w.fail("%s: the result of worker %d is answered %v, and it does not have the task", g.task, g.number, err)
		case v == nil:
			w.stats.LateResults++
			w.remote.releaseGrant(g)
		case stale:
			w.fail("%s: the result of worker %d does not count, and it has the task", g.task, g.number)
		default:
			if l.recordSettled(v, err); err == nil {
				w.remote.releaseGrant(g)
			}
		}
	})
}

// checkNoTasks asserts at the end, when no step waits, that no task is kept.
func (p *process) checkNoTasks() {
	if p.leases == nil {
		return
	}
	for _, v := range p.leases.views {
		p.w.fail("every run has ended, and %s is kept", v.task)
	}
}
