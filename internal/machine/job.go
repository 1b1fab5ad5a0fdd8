// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
)

// jobName is what a run keeps of an external job that a step waits for.
type jobName struct{ provider, id string }

func (j jobName) bytes() int64 { return errorBytes + int64(len(j.provider)+len(j.id)) }

// attemptOpen reports whether an attempt of the step is with a worker, or goes on as an
// external job. A step that owns scopes while it runs has no attempt of its own.
func (s *scope) attemptOpen(i int32) bool {
	switch s.steps[i].status {
	case journal.Running:
		return true
	case journal.Waiting:
		_, ok := s.jobs[i]
		return ok
	}
	return false
}

// submit records that the live attempt goes on as an external job (X128). Its fence stays
// live until the job ends, by a webhook or a poll, is cancelled, or expires (X127). If a remote
// worker has submitted it, the job takes the place of the worker's task.
func (r *Run) submit(s *scope, i int32, in *Input) {
	st := &s.steps[i]
	switch have, ok := s.jobs[i]; {
	case !ok, in.Job.Task != "" && have == jobName{journal.Workers, in.Job.Task}:
	case have != nameOf(&in.Job.Job):
		r.cancelJob(in) // an attempt has one job
		return
	default:
		return
	}
	r.emitRunning()
	if f := checkJob(&in.Job.Job); f != nil {
		r.failStep(s, i, f, in.InputHash)
		return
	}
	expires := r.clock + min(cmp.Or(in.Job.TTLMS, DefaultJobTTL), maxWaitMS)*1000
	ev, err := in.Job.Event(st.attempt, expires, in.InputHash)
	if err != nil {
		r.failStep(s, i, &Failure{Code: fault.ProviderError, Msg: fmt.Sprintf("the job %q is described by no JSON: %v", in.Job.ID, err)}, in.InputHash)
		return
	}
	r.emitStep(s, i, ev)
}

// checkJob returns a failure when a job cannot be recorded.
func checkJob(j *journal.Job) *Failure {
	switch {
	case j.Provider == "" || len(j.Provider) > journal.MaxProvider:
		return &Failure{Code: fault.ProviderError, Msg: fmt.Sprintf("a job was submitted to a provider whose name has %d bytes: want 1 to %d", len(j.Provider), journal.MaxProvider)}
	case j.ID == "" || len(j.ID) > journal.MaxJobID:
		return &Failure{Code: fault.ProviderError, Msg: fmt.Sprintf("provider %s gave a job an id of %d bytes: want 1 to %d", j.Provider, len(j.ID), journal.MaxJobID)}
	case !utf8.ValidString(j.ID) || strings.ContainsFunc(j.ID, unicode.IsControl):
		return &Failure{Code: fault.ProviderError, Msg: fmt.Sprintf("provider %s gave a job the id %q, which is no text", j.Provider, j.ID)}
	case len(j.Handle) > journal.MaxJobHandle || len(j.Handle) > 0 && !json.Valid(j.Handle):
		return &Failure{Code: fault.ProviderError, Msg: fmt.Sprintf("the handle of job %q is no JSON value of at most %d bytes", j.ID, journal.MaxJobHandle)}
	}
	return nil
}

func nameOf(j *journal.Job) jobName { return jobName{j.Provider, j.ID} }

// disown handles a job that was submitted by an attempt which has ended meanwhile. A later
// attempt of the step may get the same job, because it has the same effect key; if there is
// none, the service is told that nobody waits for the job.
func (r *Run) disown(s *scope, i int32, in *Input) {
	if s.steps[i].status.Begun() || in.Fence.Attempt == 0 || in.Fence.Attempt > s.steps[i].attempt {
		return
	}
	r.cancelJob(in)
}

// cancelJob tells the service that nobody waits for a job, unless it is none.
func (r *Run) cancelJob(in *Input) {
	if checkJob(&in.Job.Job) != nil {
		return
	}
	r.turn.Jobs = append(r.turn.Jobs, journal.JobChange{Kind: journal.JobCancelled, Ref: in.Ref, Fence: in.Fence, Job: in.Job.Job, Unknown: true, Expires: r.clock + DefaultJobTTL*1000})
}

// mark has the store remember what was shown of the step's job, in the commit that shows it.
func (r *Run) mark(s *scope, i int32, in *Input) {
	if j, ok := s.jobs[i]; ok && in.Mark != nil {
		r.turn.Jobs = append(r.turn.Jobs, journal.JobChange{Kind: journal.JobPreviewed, Ref: in.Ref, Fence: in.Fence, Job: journal.Job{Provider: j.provider, ID: j.id}, Mark: in.Mark})
	}
}

// applySubmitted makes a step wait for its job.
func (r *Run) applySubmitted(s *scope, i int32, ev *journal.Event) error {
	job, err := ev.Job()
	if err != nil {
		return err
	}
	st := &s.steps[i]
	if st.status != journal.Running && s.jobs[i].provider != journal.Workers || s.comps[i] != nil {
		return errImpossible(ev, "its step has no attempt with a worker")
	}
	r.endJob(s, i, journal.JobEnded) // the task of a remote worker, which has submitted this one
	st.status = journal.Waiting
	due := ev.Due()
	if mutation.JobExpiry {
		due -= (due - ev.At) / 2
	}
	r.arm(s, i, due)
	r.keepJob(s, i, nameOf(&job))
	if r.turn != nil {
		r.turn.Jobs = append(r.turn.Jobs, journal.JobChange{Kind: journal.JobSubmitted, Ref: s.ref(i), Fence: journal.Fence{Gen: r.gen, Attempt: st.attempt}, Job: job, Expires: ev.Due()})
	}
	return nil
}

func (r *Run) keepJob(s *scope, i int32, j jobName) {
	if s.jobs == nil {
		s.jobs = make(map[int32]jobName, 1)
	}
	s.jobs[i] = j
	if s.parent != nil {
		r.structMem += j.bytes()
	}
}

// trackAttempt is called before an event is applied to its step.
func (r *Run) trackAttempt(s *scope, i int32, ev *journal.Event) {
	r.trackCeiling(s, i, ev.Kind)
	if s.jobs != nil {
		r.trackJob(s, i, ev)
	}
}

// trackJob ends the job of a step with the attempt that submitted it.
func (r *Run) trackJob(s *scope, i int32, ev *journal.Event) {
	kind := journal.JobEnded
	switch ev.Kind {
	case journal.EvNodeCancelled:
		kind = journal.JobCancelled
	case journal.EvNodeRetried, journal.EvNodeFallback, journal.EvNodeFailed, journal.EvNodeSkipped:
		if fault.CauseOf(ev.Code) == fault.CauseTimeout {
			kind = journal.JobCancelled // by the machine's own clock: the service does not know
		}
	case journal.EvNodeCompleted:
	default:
		return
	}
	r.endJob(s, i, kind)
}

// endJob ends the job of a step, if it has one.
func (r *Run) endJob(s *scope, i int32, kind journal.JobChangeKind) {
	j, ok := s.jobs[i]
	if !ok {
		return
	}
	delete(s.jobs, i)
	if s.parent != nil {
		r.structMem -= j.bytes()
	}
	if mutation.JobCancel {
		kind = journal.JobEnded
	}
	if r.turn != nil && (!mutation.JobEnd || kind != journal.JobEnded) {
		r.turn.Jobs = append(r.turn.Jobs, journal.JobChange{Kind: kind, Ref: s.ref(i), Fence: journal.Fence{Gen: r.gen, Attempt: s.steps[i].attempt}, Job: journal.Job{Provider: j.provider, ID: j.id}})
	}
}

// JobTask captures the attempt that waits for an external job, so that what the service says
// of it can be taken as a worker's result is. It reports false when the attempt is no longer
// live, or does not wait for a job.
func (r *Run) JobTask(t *Task, ref journal.Ref, fence journal.Fence) bool {
	s, i := r.at(ref)
	if s == nil {
		return false
	}
	if _, ok := s.jobs[i]; !ok || s.steps[i].attempt != fence.Attempt || fence.Gen != r.gen {
		return false
	}
	r.capture(t, s, i, fence)
	return true
}

// An OpenJob is an external job that an attempt waits for.
type OpenJob struct {
	Ref            journal.Ref
	Fence          journal.Fence
	Provider, ID   string
	Since, Expires int64 // UTC µs
}

// EachJob visits the external jobs that attempts wait for, in order.
func (r *Run) EachJob(fn func(*OpenJob)) {
	var waiting []*scope
	if r.root != nil && len(r.root.jobs) > 0 {
		waiting = append(waiting, r.root)
	}
	for _, s := range r.scopes {
		if len(s.jobs) > 0 {
			waiting = append(waiting, s)
		}
	}
	slices.SortFunc(waiting, byPath)
	for _, s := range waiting {
		for _, i := range slices.Sorted(maps.Keys(s.jobs)) {
			st, j := &s.steps[i], s.jobs[i]
			fn(&OpenJob{s.ref(i), journal.Fence{Gen: r.gen, Attempt: st.attempt}, j.provider, j.id, st.at, st.due})
		}
	}
}
