// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
)

// stepRemoteWorkers lets remote workers do something while faults occur.
func (p *process) stepRemoteWorkers() {
	f := p.w.remote
	if f == nil || p.dead {
		return
	}
	p.leases.expireLeases()
	p.cancelTasks()
	for range 1 + f.dice.IntN(4) {
		if wk := f.workers[f.dice.IntN(len(f.workers))]; wk.silentUntil <= p.w.mono {
			p.stepWorker(wk)
		}
	}
}

// stepWorker lets one worker do one thing.
func (p *process) stepWorker(wk *remoteWorker) {
	f, l := p.w.remote, p.leases
	var g *grant
	if n := len(wk.grants); n > 0 {
		g = wk.grants[f.dice.IntN(n)]
	}
	switch n := f.dice.IntN(24); {
	case n < 8:
		if len(wk.grants) < 4 {
			p.requestTask(wk)
		}
	case n < 11:
		l.heartbeat(wk)
	case n < 15 || g == nil:
		if n := len(f.expiredGrants); n > 0 && f.dice.IntN(2) == 0 {
			p.reportAgain(f.expiredGrants[f.dice.IntN(n)])
		}
	case n < 16:
		l.reportProgress(wk, g)
	case n < 21:
		if g.result == nil {
			g.result = p.w.drawResult(g)
		}
		if f.dice.IntN(8) == 0 {
			p.reportForged(g)
		}
		l.reportResult(g, wk.account, g.token)
	case n < 23: // it stalls, beyond its lease or not
		wk.silentUntil = p.w.mono + f.dice.Int64N(3*g.task.lease+1)
	default:
		p.workerDies(wk)
	}
}

// requestTask lets a worker ask for a task. It may not get the answer, or be gone before there is one.
func (p *process) requestTask(wk *remoteWorker) {
	w, f, l := p.w, p.w.remote, p.leases
	aborted := !w.noFaults && f.dice.IntN(12) == 0
	lost := !w.noFaults && f.dice.IntN(12) == 0
	ctx, end := context.WithCancel(context.Background())
	if aborted {
		end()
	}
	c, waits, answered := &call{kind: callLease}, l.availableTask(wk.account), false
	p.startCall(c, func() {
		defer end()
		list, err := l.manager.Lease(ctx, &lease.Want{Account: wk.account, Queue: "q", Max: 1})
		if p.dead {
			return
		}
		answered = true
		if err != nil {
			w.fail("a worker that asks for a task is answered %v", err)
		}
		g := l.handleLeaseAnswer(c, wk, list, aborted)
		switch {
		case g == nil:
		case lost:
			w.stats.TaskAnswersLost++
		case g.task.killsWorker && !w.noFaults:
			p.workerDies(wk)
		default:
			wk.grants = append(wk.grants, g)
		}
	})
	if answered && waits != nil && c.view == nil && !aborted && p == w.owner { // one that was replaced is not told what its successor does
		w.fail("I6: %s waits for a worker, and one that asks gets nothing", waits.task)
	}
}

// workerDies ends a worker, and another one takes its place. Some are only believed to be dead, and report
// later.
func (p *process) workerDies(wk *remoteWorker) {
	f := p.w.remote
	for _, g := range wk.grants {
		if f.dice.IntN(2) == 0 {
			f.recordExpired(g)
		}
	}
	wk.grants, wk.silentUntil = nil, p.w.mono+f.dice.Int64N(p.w.faults.longest)
}

// recordExpired remembers a task for a late report.
func (f *remoteWorkers) recordExpired(g *grant) {
	if len(f.expiredGrants) >= 20 {
		f.expiredGrants = slices.Delete(f.expiredGrants, 0, 1)
	}
	f.expiredGrants = append(f.expiredGrants, g)
}

// releaseGrant notes that a worker knows that its result counts, or does not.
func (f *remoteWorkers) releaseGrant(g *grant) {
	for _, wk := range f.workers {
		if i := slices.Index(wk.grants, g); i >= 0 {
			wk.grants = slices.Delete(wk.grants, i, i+1)
			f.recordExpired(g)
		}
	}
}

// reportAgain lets a worker report a result that is late, or was reported before. It may contradict
// itself, but it does not know later what it did not know of what the service has done.
func (p *process) reportAgain(g *grant) {
	before := g.result
	if another := before == nil || p.w.remote.dice.IntN(3) == 0; another && (before == nil || before.Error == nil || !before.Error.OutcomeUnknown) {
		g.result = p.w.drawResult(g)
	}
	p.leases.reportResult(g, "", g.token)
}

// reportForged lets somebody report a result with what is no lease of a task, or with a key of another
// account.
func (p *process) reportForged(g *grant) {
	f, l := p.w.remote, p.leases
	id, rest, _ := strings.Cut(g.token, ".")
	number, mac, _ := strings.Cut(rest, ".")
	other := f.tasks[f.dice.IntN(len(f.tasks))].id
	if other == id {
		other = strings.Repeat("0", len(id))
	}
	account := accounts[0]
	if g.task.run.Account == account {
		account = accounts[1]
	}
	switch f.dice.IntN(4) {
	case 0:
		l.reportResult(g, account, g.token)
	case 1:
		l.reportResult(g, "", other+"."+rest)
	case 2:
		l.reportResult(g, "", id+"."+number+"0."+mac)
	default:
		l.reportResult(g, "", id+"."+number+"."+strings.ToUpper(mac)+"x")
	}
}

// drawResult draws how a task ends.
func (w *World) drawResult(g *grant) *lease.WorkerResult {
	f, t := w.remote, g.task.attempt
	r := &lease.WorkerResult{}
	if !w.noFaults && f.dice.IntN(5) == 0 {
		r.Submitted = w.submitOfWorker(g)
		return r
	}
	if t.Pin.Price > 0 && f.dice.IntN(3) == 0 {
		r.Price = ledger.Amount(f.dice.IntN(500_000)).String()
	}
	switch {
	case !w.noFaults && f.dice.IntN(10_000) < w.faults.rate[AttemptFailed]:
		r.Error = &lease.WorkerFailure{Message: "no", Code: string(pick(f.dice, fault.StepFailed, fault.RateLimited, fault.ServiceUnavailable, fault.FileInvalid))}
		r.Error.OutcomeUnknown = w.deeds.dice.IntN(3) == 0
		if r.Error.Code == string(fault.RateLimited) {
			r.Error.RetryAfterMS = int64(f.dice.IntN(120_000))
		}
	case w.c.Answer != nil:
		r.Output = w.c.Answer(f.dice, t, g.input)
	default:
		r.Output = []byte(outputs[f.dice.IntN(len(outputs))])
	}
	var fail *machine.Failure
	if r.Error != nil {
		fail = &machine.Failure{Code: fault.Code(r.Error.Code), Unknown: r.Error.OutcomeUnknown}
	}
	w.ends(g.task.run.Run, t, fail)
	return r
}

// submitOfWorker lets a worker submit a job to the service, under the effect key of its task.
func (w *World) submitOfWorker(g *grant) *lease.WorkerJob {
	f, t, s := w.remote, g.task.attempt, &w.service
	id := "job-" + g.task.effectKey
	if !slices.ContainsFunc(s.jobs, func(j *job) bool { return j.id == id }) {
		j := &job{id: id, remote: true, result: machine.Input{Kind: machine.InResult, Outcome: machine.Success}}
		switch {
		case f.dice.IntN(6) == 0:
			j.result.Outcome, j.result.Err = machine.Failed, &machine.Failure{Code: fault.ProviderError, Msg: "the job has failed"}
		case w.c.Answer != nil:
			j.result.Output = w.c.Answer(f.dice, t, g.input)
		default:
			j.result.Output = []byte(outputs[f.dice.IntN(len(outputs))])
		}
		j.output = hashBytes(1, j.result.Output)
		s.jobs = append(s.jobs, j)
	}
	return &lease.WorkerJob{Provider: provider, JobID: id, TTLMS: pick[int64](f.dice, 0, 0, 1_000, 60_000, 3_600_000)}
}

// cancelTasks tells the manager of tasks for which no step waits any more, as the keeper of jobs
// does: at once, or when it no longer matters.
func (p *process) cancelTasks() (moved bool) {
	w, f := p.w, p.w.remote
	for _, t := range f.tasks {
		j, kept := w.jobRecord(jobs.KindJob, jobs.Workers, t.id)
		_, cancel := w.jobRecord(jobs.KindCancel, jobs.Workers, t.id)
		told := p.leases.views[t.id] == nil
		if (!cancel || !told) && f.dice.IntN(40) > 0 || !w.noFaults && f.dice.IntN(3) > 0 {
			continue
		}
		if t.cancelled = t.cancelled || cancel && told; !t.cancelled {
			continue
		}
		if err := p.leases.manager.Cancel(w.ctx(), j.Public()); err != nil {
			w.fail("%s cannot be cancelled: %v", t, err)
		}
		if t.cancelled = false; cancel && kept && told {
			w.dropJob(p, jobs.Workers, t.id)
			moved = true
		}
		if p.dead {
			return moved
		}
	}
	return moved
}

// drainRemoteWorkers lets all remote workers do what they can, without faults, and reports whether there was
// anything.
func (p *process) drainRemoteWorkers() (moved bool) {
	w, f := p.w, p.w.remote
	if f == nil || p.dead {
		return false
	}
	moved = p.leases.expireLeases()
	moved = p.cancelTasks() || moved
	for _, wk := range f.workers {
		for _, g := range slices.Clone(wk.grants) {
			if g.result == nil {
				g.result = w.drawResult(g)
			} else if g.reportedAt == w.mono {
				continue // its run may take nothing now
			}
			p.leases.reportResult(g, wk.account, g.token)
			moved = true
		}
		for n := 0; n < 100 && !p.dead && p.leases.availableTask(wk.account) != nil; n++ {
			p.requestTask(wk)
			moved = true
		}
	}
	return moved
}
