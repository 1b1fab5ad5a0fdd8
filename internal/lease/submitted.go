// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

// A WorkerJob is a job that a worker has submitted to a service, as which its task goes on.
type WorkerJob struct {
	Provider string          `json:"provider" minLength:"1" maxLength:"64" doc:"Its name in the configuration. The action names those that its workers may use." example:"farm"`
	JobID    string          `json:"jobId" minLength:"1" maxLength:"512" doc:"The id that the service has given the job."`
	Handle   json.RawMessage `json:"handle,omitempty" doc:"What the provider needs to ask about the job beyond its id: JSON, at most 4 KiB, without secrets. Of one in the configuration it is {\"model\": NAME}, and without it the job is one of its default model."`
	TTLMS    int64           `json:"ttlMs,omitempty" minimum:"1000" maximum:"2592000000" doc:"How long the job may take; after that the step fails with JOB_EXPIRED. Default 24 h."`
}

func (j *WorkerJob) job() *action.Job {
	return &action.Job{Provider: j.Provider, ID: j.JobID, Handle: j.Handle, TTL: time.Duration(j.TTLMS) * time.Millisecond}
}

// handOn ends a task with the job that its worker has submitted. A job that its step cannot wait for
// fails the step.
func (m *Manager) handOn(ctx context.Context, t *task, job *jobs.Job, s *WorkerJob) error {
	to := s.job()
	name := jobs.Key(to.Provider, to.ID).ID
	err := m.claim(name)
	if err != nil {
		return m.settled(t, job, err)
	}
	defer m.release(name)
	err = m.check(ctx, t.action, job, to)
	var refused *fault.Error
	switch {
	case err == nil:
		err = m.host.HandOn(ctx, job, to)
	case errors.As(err, &refused):
		failed := *refused
		failed.OutcomeUnknown = true // the service works: the next attempt gets the same effect key, and the same job
		return m.settle(ctx, t, job, func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, &failed })
	}
	return m.settled(t, job, err)
}

// check reports why the step of a task cannot wait for a job. The error is a *fault.Error, unless it could
// not be found out.
func (m *Manager) check(ctx context.Context, p *pending, task *jobs.Job, job *action.Job) error {
	if !slices.Contains(p.Providers, job.Provider) {
		return fault.New(fault.ProviderNotConfigured, "workers of %s may not submit jobs to %.64q: name it under `workers.%s.providers` in the configuration", p.Action.Name, job.Provider, p.Action.Name)
	}
	return m.host.Check(ctx, task, job)
}

// claim makes sure that a job becomes that of one step. Two workers cannot name it at once.
func (m *Manager) claim(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims[name] {
		return fault.New(fault.Conflict, "another task ends with the same job at the moment")
	}
	m.claims[name] = true
	return nil
}

func (m *Manager) release(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, name)
}

// maxEnded bounds the tasks that are remembered.
const maxEnded = 4096

// endedTasks are tasks for which no step waits any more and that workers had when that was found, the
// oldest first. What such a worker has submitted meanwhile is cancelled at its service.
type endedTasks struct {
	byID  map[string]endedTask
	order []string
}

type endedTask struct {
	job    jobs.Job
	action *pending
	number int64 // of its lease
}

func (e *endedTasks) add(id string, t *task) {
	if e.byID == nil {
		e.byID = map[string]endedTask{}
	}
	if _, again := e.byID[id]; !again {
		if len(e.order) >= maxEnded {
			delete(e.byID, e.order[0])
			e.order = e.order[1:]
		}
		e.order = append(e.order, id)
	}
	e.byID[id] = endedTask{t.job, t.action, t.number}
}

// disown takes a result whose lease has ended. If it is a job, and no step waits for the task any more, the
// engine has the service told; stale is the answer in any case, unless that has to be tried again.
func (m *Manager) disown(ctx context.Context, r *WorkerResult, account string, stale error) error {
	if r.Submitted == nil {
		return stale
	}
	to := r.Submitted.job()
	m.mu.Lock()
	id, number, ok := m.read(r.Lease)
	t, known := m.ended.byID[id]
	waits := m.tasks[id] != nil // another attempt has the effect key, and gets the same job
	m.mu.Unlock()
	if !ok || !known || waits || t.number != number || account != "" && t.job.Account != account || m.check(ctx, t.action, &t.job, to) != nil {
		return stale
	}
	if err := m.host.HandOn(ctx, &t.job, to); err != nil && !errors.Is(err, fault.RunNotFound) {
		return err
	}
	return stale
}
