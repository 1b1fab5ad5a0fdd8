// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// remoteWorkers are those of a world. They get the tasks of some actions from the real
// manager of leases, and stall, die, come back, and report late, twice, or what is not theirs. It
// has books of its own of who was given what.
type remoteWorkers struct {
	dice          *rand.Rand // its own, so that a world without remote workers is the same as before there were any
	actions       []lease.Remote
	workers       []*remoteWorker
	tasksByID     map[string]*remoteTask
	forgotten     map[string]bool // tasks that a process did not know after a start, by id
	tasks         []*remoteTask   // in the order of their submission
	processStarts uint64          // of processes
	grantCount    int
	expiredGrants []*grant // that count no more, as far as their workers know
}

// A remoteWorker is one program somewhere else.
type remoteWorker struct {
	account     string   // that its key is of; "" = the operator's
	grants      []*grant // tasks that are under way
	silentUntil int64    // of the world's clock: before, it is silent
}

// A remoteTask is what the farm knows of a task.
type remoteTask struct {
	id          string
	run         store.Key
	effectKey   string // of the effect
	action      string
	fence       journal.Fence // of the last attempt that submitted it
	atMostOnce  bool          // at_most_once
	lease       int64         // µs
	timeout     int64         // µs
	killsWorker bool          // every worker that gets it dies
	attempt     *machine.Task // that attempt
	// cancelled is set while the keeper of jobs is about to cancel it.
	cancelled bool
}

// A grant is a task in the hands of a worker.
type grant struct {
	task       *remoteTask
	number     int                 // in the order of all grants
	start      uint64              // of the process that granted it; one that was replaced may grant more
	token      string              // "" = its worker was never told
	input      []byte              // what the worker was given
	result     *lease.WorkerResult // as it is reported; nil = it works
	reportedAt int64               // when the result was last reported
}

// hasRemoteWorkers reports whether a world has remote workers. Like maxTurn it depends on the seed alone, and
// no kept seed is one of these.
func hasRemoteWorkers(seed uint64) bool {
	switch seed % 41 {
	case 4, 19, 28, 29, 34, 38, 40:
		return true
	}
	return false
}

// newRemoteWorkers returns the remote workers of a world; nil = it has none.
func newRemoteWorkers(w *World) *remoteWorkers {
	if !hasRemoteWorkers(w.seed) {
		return nil
	}
	f := &remoteWorkers{dice: rand.New(rand.NewPCG(w.seed, 0x6c65617365)), tasksByID: map[string]*remoteTask{}, forgotten: map[string]bool{}}
	known := map[string]bool{}
	for _, root := range append([]*plan.Plan{w.c.Plan}, w.c.Others...) {
		for _, p := range family(root) {
			for _, ref := range p.Actions {
				a := w.c.Actions.Find(ref.Name, ref.Version)
				if a == nil || known[a.Name+"@"+a.Version] {
					continue
				}
				known[a.Name+"@"+a.Version] = true
				if a.Waits != "" || len(a.Streams) > 0 || f.dice.IntN(3) == 0 {
					continue
				}
				f.actions = append(f.actions, f.drawTerms(a, w.faults.longest))
			}
		}
	}
	if len(f.actions) == 0 {
		return nil
	}
	for range 1 + f.dice.IntN(4) {
		f.workers = append(f.workers, &remoteWorker{account: pick(f.dice, "", "", accounts[0], accounts[1])})
	}
	f.workers[0].account = "" // somebody does the tasks of each account
	return f
}

// drawTerms draws on what terms remote workers carry out an action. longest is the longest time that
// passes at once.
func (f *remoteWorkers) drawTerms(a *action.Action, longest int64) lease.Remote {
	µs := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return lease.Remote{
		Action: *a, Queue: "q", Providers: []string{provider},
		Lease:   µs(pick(f.dice, longest/8, longest, 4*longest)),
		Timeout: µs(pick(f.dice, 20*longest, 24*3_600_000_000)),
	}
}

// terms returns the terms of an action; nil = it is not carried out by remote workers.
func (f *remoteWorkers) terms(name, version string) *lease.Remote {
	if f == nil {
		return nil
	}
	for i := range f.actions {
		if a := &f.actions[i].Action; a.Name == name && a.Version == version {
			return &f.actions[i]
		}
	}
	return nil
}

// submitRemote makes an attempt a task of remote workers, and reports whether it is one.
func (p *process) submitRemote(k *task) bool {
	w := p.w
	pin := k.ef.Task.Pin
	r := w.remote.terms(pin.Name, pin.Version)
	if r == nil || k.fail != nil {
		return false
	}
	var run action.Func
	for _, a := range p.leases.manager.Actions() {
		if a.Name == pin.Name && a.Version == pin.Version {
			run = a.Run
		}
	}
	res, err := run(w.ctx(), &action.Task{Account: k.ef.Key.Account, EffectKey: k.ef.Task.EffectKey, Input: k.input})
	if err != nil {
		w.fail("a task of run %s, step %s, is refused: %v", k.ef.Key.Run, k.ef.Task.StepPath, err)
	}
	p.leases.submitted[res.Job.ID] = true
	w.remote.recordTask(k, r, res.Job.ID)
	p.reportSubmission(k, &machine.Submission{Job: journal.Job{Provider: jobs.Workers, ID: res.Job.ID}, TTLMS: res.Job.TTL.Milliseconds()})
	return true
}

// recordTask notes a task.
func (f *remoteWorkers) recordTask(k *task, r *lease.Remote, id string) {
	t := f.tasksByID[id]
	if t == nil {
		t = &remoteTask{id: id, run: k.ef.Key, effectKey: k.ef.Task.EffectKey, action: r.Action.Name, killsWorker: f.dice.IntN(15) == 0}
		f.tasksByID[id], f.tasks = t, append(f.tasks, t)
	}
	t.fence, t.attempt, t.atMostOnce = k.ef.Fence, k.ef.Task, r.Action.Delivery == action.AtMostOnce
	t.lease, t.timeout = r.Lease.Microseconds(), r.Timeout.Microseconds()
}

// reportSubmission reports that an attempt has become a job, as a worker in the process does.
func (p *process) reportSubmission(k *task, job *machine.Submission) {
	w := p.w
	in := machine.Input{Kind: machine.InResult, Outcome: machine.Submitted, InputHash: k.hash, Job: job}
	w.moderate(k.ef.Task, &in, false)
	if w.happens(AttemptLost) { // the service has accepted the job, and nobody hears of it (F15)
		p.report(p.stage.Report(&k.ef, machine.Input{Kind: machine.InWorkerLost}, false))
	} else {
		p.report(p.stage.Report(&k.ef, in, false))
	}
	for n := 0; n < 2 && w.happens(ReportDoubled); n++ {
		p.report(p.stage.Report(&k.ef, in, false))
	}
	if len(w.zombies) < 20 && w.happens(ReportLate) {
		k.reported = &in
		w.zombies = append(w.zombies, k)
	}
}

// String implements fmt.Stringer.
func (t *remoteTask) String() string {
	return fmt.Sprintf("task %.8s (%s, attempt %d.%d) of run %s", t.id, t.action, t.fence.Gen, t.fence.Attempt, t.run.Run)
}
