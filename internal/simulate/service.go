// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A service is an outside service that carries out jobs, with books of its own. It accepts a
// job once under each effect key, finishes it once, and says so in webhooks and when it is
// asked: early, late, twice, in any order.
type service struct {
	dice *rand.Rand // its own, so that a world without jobs is the same as before there were any
	rate int        // per 100 attempts: how many become jobs
	jobs []*job     // in the order of their submission
}

// A job is what the service knows of a job.
type job struct {
	id        string
	result    machine.Input // how it ends
	output    uint64        // hash of that
	remote    bool          // a remote worker has submitted it
	done      bool
	cancelled bool
	said      int   // how often it has said that it is done
	saidAt    int64 // when it last did, in the time of the world
	webhooks  int   // that were sent to the keeper of jobs
}

const provider = "acme"

// newService returns the service of a world. It depends on the seed alone.
func newService(seed uint64) service {
	s := service{dice: rand.New(rand.NewPCG(seed, 0x6a6f6273))}
	if s.dice.IntN(3) == 0 {
		s.rate = 5 + s.dice.IntN(70)
	}
	return s
}

func (s *service) chance(percent int) bool { return s.rate > 0 && s.dice.IntN(100) < percent }

// submit makes an attempt submit its work as a job, and reports whether it does.
func (p *process) submit(k *task) bool {
	w := p.w
	s := &w.service
	if w.noFaults || k.fail != nil || !s.chance(s.rate) {
		return false
	}
	id := "job-" + k.ef.Task.EffectKey
	i := slices.IndexFunc(s.jobs, func(j *job) bool { return j.id == id })
	if i < 0 {
		j := &job{id: id, result: w.outcome(k)}
		if j.result.Outcome == machine.Success {
			j.output = hashBytes(1, j.result.Output)
		}
		i, s.jobs = len(s.jobs), append(s.jobs, j)
	}
	j := s.jobs[i]
	w.ends(k.ef.Key.Run, k.ef.Task, j.result.Err) // the same job, if it has the same key
	if j.result.Outcome == machine.Success {
		k.run.reported[report{k.ef.Ref, k.ef.Fence}] = j.output
	}
	p.reportSubmission(k, &machine.Submission{
		Job: journal.Job{Provider: provider, ID: id}, TTLMS: pick[int64](s.dice, 0, 0, 1_000, 60_000, 3_600_000),
	})
	return true
}

// serve lets the service do something, and reports whether it could. It reads what is synced
// of its jobs, as the keeper of jobs does.
func (p *process) serve() (moved bool) {
	w := p.w
	s := &w.service
	if len(s.jobs) == 0 || p.dead {
		return false
	}
	moved = p.actUpon()
	if p.dead {
		return moved
	}
	if w.noFaults {
		for _, j := range s.jobs {
			moved = p.tell(j) || moved
		}
		return moved
	}
	return p.tell(s.jobs[s.dice.IntN(len(s.jobs))]) || moved
}

// tell lets the service do something about one job.
func (p *process) tell(j *job) bool {
	w := p.w
	s := &w.service
	if ended, ok := w.jobRecord(jobs.KindEnded, provider, j.id); ok && !j.done {
		w.fail("X131: job %s has ended for run %s, and the service has neither finished it nor been told", j.id, ended.Run)
	}
	if !j.done && (w.noFaults || s.dice.IntN(4) == 0) {
		j.done = !j.cancelled
	}
	known, waits := w.jobRecord(jobs.KindJob, provider, j.id)
	if _, cancel := w.jobRecord(jobs.KindCancel, provider, j.id); cancel {
		if !w.noFaults && s.dice.IntN(3) > 0 {
			return false
		}
		j.cancelled = !j.done
		w.dropJob(p, provider, j.id)
		return true
	}
	if p.webhook(j, waits) {
		return true
	}
	if !waits {
		if known, waits = w.jobRecord(jobs.KindEnded, provider, j.id); !waits || w.noFaults || j.said == 0 || j.said > 3 {
			return false // a job that is not known yet: the delivery waits for its id
		}
	}
	if !j.done || w.noFaults && j.saidAt == w.mono {
		return false // its run may take nothing now
	}
	j.said++
	j.saidAt = w.mono
	source := pick(s.dice, journal.FromWebhook, journal.FromPoll)
	m := p.stage.Settle(&known, source, byService)
	if w.noFaults {
		p.inbox = append(p.inbox, m)
	} else {
		p.report(m)
	}
	if !w.noFaults && s.dice.IntN(3) == 0 { // the other way, too
		p.report(p.stage.Settle(&known, journal.FromWebhook+journal.FromPoll-source, byService))
	}
	return true
}

// byService stands for the answer of the service, which is in its books.
func byService(context.Context, *action.Task) (action.Result, error) {
	return action.Result{}, errByService
}

var errByService = errors.New("the service knows")

// settle reports how a job has ended that a step waits for.
func (p *process) settle(ef *engine.Effect) {
	p.settlingCall = nil
	if _, err := ef.Settles(p.w.ctx(), nil); !errors.Is(err, errByService) {
		p.settleCall(ef)
		return
	}
	id := "job-" + ef.Task.EffectKey
	i := slices.IndexFunc(p.w.service.jobs, func(j *job) bool { return j.id == id })
	if i < 0 {
		p.w.fail("X128: run %s: step %s waits for a job that nobody has submitted", ef.Key.Run, ef.Task.StepPath)
	}
	j := p.w.service.jobs[i]
	if !j.done {
		p.w.fail("X128: run %s: step %s is given the result of job %s, which has none", ef.Key.Run, ef.Task.StepPath, id)
	}
	in := j.result
	in.InputHash = nil
	if at := (report{ef.Ref, ef.Fence}); j.remote && in.Outcome == machine.Success {
		of := p.w.checker.record(ef.Key).remote
		of[at] = append(of[at], j.output)
	}
	p.w.moderate(ef.Task, &in, true)
	m := p.stage.Report(ef, in, false)
	if c := p.settlingCall; c != nil {
		c.message = m // that the keeper waits for
	}
	p.report(m)
}

// jobRecord reads a record of a job.
func (w *World) jobRecord(kind, provider, id string) (j jobs.Job, ok bool) {
	r, err := w.mem.Record(w.ctx(), store.RecordKey{Kind: kind, ID: provider + "/" + id})
	if errors.Is(err, fault.RecordNotFound) {
		return j, false
	}
	if err == nil && kind != jobs.KindCancel {
		j, err = jobs.Decode(&r)
	}
	if err != nil {
		w.fail("X128: the record of job %s cannot be read: %v", id, err)
	}
	return j, true
}

// dropJob removes the records of a job that was cancelled. A process that is not the owner
// cannot.
func (w *World) dropJob(p *process, provider, id string) {
	erase := func(key store.RecordKey) store.RecordChange {
		return store.RecordChange{Delete: true, Record: store.Record{RecordKey: key, Revision: store.AnyRevision}}
	}
	var err error
	p.call(func() {
		_, err = p.stage.PutRecords(w.ctx(), erase(jobs.CancelKey(provider, id)), erase(jobs.Key(provider, id)))
	})
	if err != nil {
		w.tracef("job %s could not be forgotten: %v", id, err)
	}
}

// waitingJobs counts the jobs of an action that steps wait for, by the synced events.
func (w *World) waitingJobs(action, account string) (n int) {
	if len(w.service.jobs) == 0 && w.remote == nil {
		return 0
	}
	w.noteForgotten()
	for _, t := range w.checker.all {
		if t.deleted || t.replica == nil || t.replica.Start() == nil || account != "" && t.key.Account != account {
			continue
		}
		t.replica.EachJob(func(j *machine.OpenJob) {
			if _, k := t.replica.Calls(j.Ref.Step); k >= 0 && t.replica.Start().Pins[k].Name == action && (w.remote == nil || !w.remote.forgotten[j.ID]) {
				n++
			}
		})
	}
	return n
}

// noteForgotten notes the tasks that the process does not know: they have no record, and
// their runs are quarantined, because a process has crashed with them or they cannot be read. Their workers
// are told to stop, and they hold no slots until their runs are released, when there may be none left.
func (w *World) noteForgotten() {
	if w.remote == nil {
		return
	}
	for _, t := range w.checker.all {
		if t.deleted || t.replica == nil {
			continue
		}
		if head, err := w.mem.Head(w.ctx(), t.key); err != nil || head.Quarantine == "" {
			continue
		}
		t.replica.EachJob(func(j *machine.OpenJob) {
			if _, kept := w.jobRecord(jobs.KindJob, j.Provider, j.ID); !kept && jobs.MayBeUnstored(j.Provider, j.Fence) {
				w.remote.forgotten[j.ID] = true
				w.tracef("  task %s of run %s is not known", j.ID, t.key.Run)
			}
		})
	}
}

// suspended reports whether a run is not in memory.
func (w *World) suspended(key store.Key) bool {
	saved, err := w.mem.Load(w.ctx(), key)
	return err == nil && saved.Suspension != nil
}

// checkJobs asserts that the store keeps exactly the jobs that steps wait for, by the synced
// events of their runs, and those that are to be cancelled (X128).
func (w *World) checkJobs() {
	type named struct{ provider, id string }
	var all []named
	for _, j := range w.service.jobs {
		all = append(all, named{provider, j.id})
	}
	if w.remote != nil {
		for _, t := range w.remote.tasks {
			all = append(all, named{jobs.Workers, t.id})
		}
	}
	if len(all) == 0 {
		return
	}
	waiting := map[named]store.Key{}
	unstored := map[named]bool{} // tasks that may have no record, as long as their run is in memory
	for _, t := range w.checker.all {
		if t.deleted || t.replica == nil {
			continue
		}
		t.replica.EachJob(func(j *machine.OpenJob) {
			n := named{j.Provider, j.ID}
			waiting[n], unstored[n] = t.key, jobs.MayBeUnstored(j.Provider, j.Fence)
		})
	}
	for _, j := range all {
		known, kept := w.jobRecord(jobs.KindJob, j.provider, j.id)
		_, cancel := w.jobRecord(jobs.KindCancel, j.provider, j.id)
		key, waits := waiting[j]
		switch {
		case waits && !kept && unstored[j] && !w.suspended(key):
			w.stats.TasksUnstored++
		case waits && (!kept || cancel || known.Key() != key):
			w.fail("X128: run %s waits for job %s, of which the store keeps %+v, cancelled %t", key.Run, j.id, known, cancel)
		case !waits && kept && !cancel:
			w.fail("X128: the store keeps job %s, for which run %s does not wait", j.id, known.Run)
		case cancel && !kept:
			w.fail("X128: job %s is to be cancelled, and the store does not keep it", j.id)
		}
	}
}
