// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A Change is a change of the records of jobs.
type Change struct {
	store.RecordChange
	// Job is the one that a record of KindJob is about; nil = the record is deleted, or of another kind.
	Job *Job
	// Unstored is set if the store has not been told: the run has the job, and is in memory.
	Unstored bool
	// Found is set if the job is from before a start: a worker may have it.
	Found bool
}

// MayBeUnstored reports whether a job of an attempt may have no record: the task of a remote worker, which
// is the first of its step, so that there are no records of earlier ones.
func MayBeUnstored(provider string, f journal.Fence) bool {
	return provider == Workers && f.Gen <= 1 && f.Attempt == 1
}

// Unstored are the jobs of a run in memory that have no record, by the id that it would have. A worker
// carries out a task that is known by its lease, to this process alone, and after a crash runs in
// memory are loaded before anything else. So such a task needs a record only when its run leaves memory.
type Unstored map[string]*Job

// Take returns which records the store has to change for changes of the jobs of a run. When the run
// leaves memory that includes those of jobs that had none so far, which are appended to the changes.
func (u *Unstored) Take(changes []Change, leaving bool) (all []Change, records []store.RecordChange) {
	for i := range changes {
		c := &changes[i]
		_, is := (*u)[c.ID]
		switch ends := c.Delete && c.Kind == KindJob || !c.Delete && c.Kind == KindCancel; {
		case c.Job != nil && c.Data == nil:
			c.Unstored = true
			u.Add(c.Job)
		case is && ends: // if it is cancelled, there is no service that has to be told
			delete(*u, c.ID)
			c.Kind, c.Delete, c.Unstored = KindJob, true, true
		default:
			records = append(records, c.RecordChange)
		}
	}
	if leaving && len(*u) > 0 {
		for _, id := range slices.Sorted(maps.Keys(*u)) {
			c := put((*u)[id])
			changes, records = append(changes, c), append(records, c.RecordChange)
		}
		*u = nil
	}
	return changes, records
}

// Add adds a job.
func (u *Unstored) Add(j *Job) {
	if *u == nil {
		*u = Unstored{}
	}
	(*u)[recordKey(KindJob, j.Provider, j.ID).ID] = j
}

// Has reports whether a job has no record.
func (u Unstored) Has(provider, id string) bool {
	return len(u) > 0 && u[recordKey(KindJob, provider, id).ID] != nil
}

// put is the change that writes the record of a job.
func put(j *Job) Change {
	return Change{Job: j, RecordChange: store.RecordChange{Record: store.Record{
		RecordKey: recordKey(KindJob, j.Provider, j.ID), Revision: store.AnyRevision, Name: nameOf(j, j.Submitted), Data: j.encode(),
	}}}
}

// A Source says what the store must keep of a job beyond what the machine knows of it.
type Source struct {
	store.Key
	Name, Action, Version, Service, Pinned string // as in Job
	Limits                                 map[string]string
}

// Job returns a job that was submitted at a time, UTC µs.
func (of *Source) Job(c *journal.JobChange, at int64) *Job {
	return &Job{
		Provider: c.Job.Provider, ID: c.Job.ID, Account: of.Account, Run: of.Run, Path: []byte(c.Ref.Path), Step: c.Ref.Step, Submitted: at,
		Gen: c.Fence.Gen, Attempt: c.Fence.Attempt, Name: of.Name, Action: of.Action, Version: of.Version, Handle: c.Job.Handle, Expires: c.Expires,
		Service: of.Service, Pinned: of.Pinned, Limits: of.Limits,
	}
}

// Ended is the change that a step no longer waits for a job, which is all for a job of the server's own.
func Ended(c *journal.JobChange) Change { return erase(KindJob, c) }

func erase(kind string, c *journal.JobChange) Change {
	return Change{RecordChange: store.RecordChange{Delete: true, Record: store.Record{
		RecordKey: recordKey(kind, c.Job.Provider, c.Job.ID), Revision: store.AnyRevision,
	}}}
}

// AppendChanges appends the changes of records that a change of a job makes at a time, UTC µs.
func AppendChanges(changes []Change, c *journal.JobChange, of *Source, at int64) []Change {
	job := of.Job(c, at)
	note := func(kind string, until int64, data []byte) {
		changes = append(changes, Change{RecordChange: store.RecordChange{Record: store.Record{
			RecordKey: recordKey(kind, c.Job.Provider, c.Job.ID), Revision: store.AnyRevision, Until: until, Data: data,
		}}})
	}
	switch {
	case c.Kind == journal.JobSubmitted || c.Kind == journal.JobCancelled && c.Unknown:
		if c.Kind == journal.JobSubmitted && MayBeUnstored(job.Provider, c.Fence) {
			changes = append(changes, Change{Job: job, RecordChange: store.RecordChange{Record: store.Record{RecordKey: recordKey(KindJob, job.Provider, job.ID)}}})
		} else {
			changes = append(changes, put(job))
		}
		if !Within(job.Provider) || c.Fence.Attempt > 1 {
			changes = append(changes, erase(KindCancel, c)) // an earlier attempt of the step may have had the same job
		}
	case c.Kind == journal.JobEnded:
		if changes = append(changes, Ended(c)); !Within(job.Provider) {
			changes = append(changes, Change{RecordChange: ended(job, at)})
		}
	}
	switch c.Kind {
	case journal.JobCancelled:
		note(KindCancel, 0, nil)
	case journal.JobPreviewed:
		note(KindPreview, c.Mark.Until, c.Mark.Data)
	}
	return changes
}
