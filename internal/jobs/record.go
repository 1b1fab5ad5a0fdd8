// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// The kinds of records. Those of a job have the id "provider/id of the job".
const (
	// KindJob: a step waits for the job, unless there is a record of KindCancel, too.
	KindJob = "job"
	// KindCancel: the service is to be told that nobody waits for the job.
	KindCancel = "job-cancel"
	// KindEnded: the job has ended for its run.
	KindEnded = "job-ended"
	// KindOpen: a delivery that has not been acted upon.
	KindOpen = "delivery-open"
	// KindDelivery: a delivery that has been acted upon.
	KindDelivery = "delivery"
)

// A Job is an external job of a run as it is stored.
type Job struct {
	Provider  string `json:"-"`
	ID        string `json:"-"`
	Submitted int64  `json:"-"` // UTC µs

	Account string `json:"account"`
	Run     string `json:"run"`
	Path    []byte `json:"path,omitempty"` // journal.Path of the step instance
	Step    int32  `json:"step"`
	Gen     uint32 `json:"gen"` // the fence of its attempt
	Attempt uint32 `json:"attempt"`

	Name    string          `json:"name"`   // of the step instance, for people: pages[3].draw
	Action  string          `json:"action"` // that submitted it
	Version string          `json:"version"`
	Handle  json.RawMessage `json:"handle,omitempty"`
	Expires int64           `json:"expires"` // UTC µs
}

// Public is the job as its service sees it.
func (j *Job) Public() *action.SubmittedJob {
	return &action.SubmittedJob{Provider: j.Provider, ID: j.ID, Handle: j.Handle, Account: j.Account, Run: j.Run, Step: j.Name, Until: time.UnixMicro(j.Expires).UTC()}
}

// Key is the run.
func (j *Job) Key() store.Key { return store.Key{Account: j.Account, Run: j.Run} }

// Ref is the step instance that waits for the job.
func (j *Job) Ref() journal.Ref { return journal.Ref{Path: journal.Path(j.Path), Step: j.Step} }

// Fence is that of the attempt that submitted the job.
func (j *Job) Fence() journal.Fence { return journal.Fence{Gen: j.Gen, Attempt: j.Attempt} }

// recordKey is the key of a record about a job.
func recordKey(kind, provider, id string) store.RecordKey {
	return store.RecordKey{Kind: kind, ID: provider + "/" + id}
}

// Workers is the provider of the tasks of remote workers (package lease). They are never asked
// about, and no webhook of theirs comes late.
const Workers = "worker"

// IDOf returns the id of the job of a provider that a record with this kind and id is about.
func IDOf(kind, id, provider string) (job string, ok bool) {
	if kind != KindJob && kind != KindCancel {
		return "", false
	}
	of, job := split(id)
	return job, of == provider
}

// Key is the key of the record of a job.
func Key(provider, id string) store.RecordKey { return recordKey(KindJob, provider, id) }

// CancelKey is the key of the record that says that a job is to be cancelled.
func CancelKey(provider, id string) store.RecordKey { return recordKey(KindCancel, provider, id) }

// A Source says what the store must keep of a job beyond what the machine knows of it.
type Source struct {
	store.Key
	Name, Action, Version string // as in Job
}

// AppendChanges appends the changes of records that a change of a job makes at a time, UTC µs.
func AppendChanges(changes []store.RecordChange, c *journal.JobChange, of Source, at int64) []store.RecordChange {
	job := Job{
		Provider: c.Job.Provider, ID: c.Job.ID, Account: of.Account, Run: of.Run, Path: []byte(c.Ref.Path), Step: c.Ref.Step,
		Gen: c.Fence.Gen, Attempt: c.Fence.Attempt, Name: of.Name, Action: of.Action, Version: of.Version, Handle: c.Job.Handle, Expires: c.Expires,
	}
	put := func(kind string, data []byte, until int64) {
		changes = append(changes, store.RecordChange{Record: store.Record{
			RecordKey: recordKey(kind, c.Job.Provider, c.Job.ID), Revision: store.AnyRevision, Data: data, Until: until,
		}})
	}
	drop := func(kind string) {
		changes = append(changes, store.RecordChange{Delete: true, Record: store.Record{
			RecordKey: recordKey(kind, c.Job.Provider, c.Job.ID), Revision: store.AnyRevision,
		}})
	}
	switch {
	case c.Kind == journal.JobSubmitted || c.Kind == journal.JobCancelled && c.Unknown:
		put(KindJob, job.encode(), 0)
		drop(KindCancel) // an earlier attempt of the step may have had the same job
	case c.Kind == journal.JobEnded:
		if drop(KindJob); job.Provider != Workers {
			changes = append(changes, ended(&job, at))
		}
	}
	if c.Kind == journal.JobCancelled {
		put(KindCancel, nil, 0)
	}
	return changes
}

// encode returns the data of the record of a job.
func (j *Job) encode() []byte {
	data, err := json.Marshal(j)
	if err != nil {
		panic(fmt.Sprintf("jobs: a job that the machine accepted is no JSON: %v", err))
	}
	return data
}

// ended is the change that remembers which run a job belonged to.
func ended(j *Job, at int64) store.RecordChange {
	was := *j
	was.Handle = nil
	return store.RecordChange{Record: store.Record{
		RecordKey: recordKey(KindEnded, j.Provider, j.ID), Revision: store.AnyRevision, Until: at + keptEnded, Data: was.encode(),
	}}
}

// Decode reads the record of a job.
func Decode(r *store.Record) (Job, error) {
	j, err := store.DecodeRecord[Job](r)
	if err != nil {
		return Job{}, err
	}
	j.Provider, j.ID = split(r.ID)
	j.Submitted = r.Updated
	return *j, nil
}

// split returns the provider and the id that a record's id has.
func split(id string) (provider, job string) {
	for i := range len(id) {
		if id[i] == '/' {
			return id[:i], id[i+1:]
		}
	}
	return id, ""
}

// deliveries is the beginning of the ids of the deliveries for a job. It is a hash, because
// ids of records are shorter than those of a job and a delivery may be together.
func deliveries(provider, job string) string { return provider + "/" + short(job) + "/" }

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// Each calls fn for each job that a step waits for, of the providers that are wanted. The
// records of other providers are not read. A damaged record is left out.
func Each(ctx context.Context, records Records, wanted func(provider string) bool, fn func(*Job)) error {
	q := store.RecordQuery{Kind: KindJob, KeysOnly: true, Limit: 1}
	for {
		page, _, err := records.Records(ctx, q)
		if err != nil || len(page) == 0 {
			return err
		}
		provider, _ := split(page[0].ID)
		if wanted(provider) {
			err = store.EachRecord(ctx, records, store.RecordQuery{Kind: KindJob, Prefix: provider + "/"}, func(r *store.Record) error {
				j, err := Decode(r)
				if err != nil {
					return nil
				}
				if _, err = records.Record(ctx, CancelKey(j.Provider, j.ID)); errors.Is(err, fault.RecordNotFound) {
					fn(&j)
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		q.After = provider + "/\U0010FFFF" // behind all jobs of the provider
	}
}
