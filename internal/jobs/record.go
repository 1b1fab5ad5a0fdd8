// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
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
	// KindPreview: which preview of the job was shown last; kept until the job would have expired.
	KindPreview = "job-preview"
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
	// Mark is what is remembered with a preview. A settlement of a job that has one shows what it
	// reports, and settles nothing.
	Mark *journal.Mark `json:"-"`

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

	// Service, Pinned and Limits are what package slots has to know of the attempt: what it calls,
	// and the keys of the limits of the configuration that it has passed, by name.
	Service string            `json:"service,omitempty"`
	Pinned  string            `json:"pinned,omitempty"` // the provider of the action
	Limits  map[string]string `json:"limits,omitempty"`
}

// Class tells which slots the job holds.
func (j *Job) Class() *Class {
	return &Class{Account: j.Account, Provider: j.Provider, Action: j.Action, Version: j.Version, Pinned: j.Pinned, Service: j.Service}
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

// Providers that are parts of the server, which no configured provider can be called.
const (
	Workers = journal.Workers // the tasks of remote workers (package lease)
	People  = journal.People  // what people are asked (package approval)
)

// Within reports whether a provider is a part of the server. Such a one is never asked about its
// jobs, because it ends them by itself, and no webhook about one comes late.
func Within(provider string) bool { return strings.HasPrefix(provider, "@") }

// A Part is what a part of the server is as the service of its jobs: it says by itself how they end,
// and learns from their records that one is cancelled.
type Part struct{}

// Poll implements [action.Service].
func (Part) Poll(context.Context, *action.SubmittedJob) (action.JobState, error) {
	return action.JobState{}, nil
}

// Read implements [action.Service].
func (Part) Read(context.Context, *action.SubmittedJob, []byte) (action.JobState, error) {
	return action.JobState{}, nil
}

// Receive implements [action.Service].
func (Part) Receive(http.Header, []byte) (action.Webhook, error) {
	return action.Webhook{}, errors.New("a part of the server sends no webhooks")
}

// Cancel implements [action.Service].
func (Part) Cancel(context.Context, *action.SubmittedJob) error { return nil }

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
	was.Handle, was.Limits = nil, nil
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
	if n, ok := ParseName(r.Name); ok {
		j.Submitted = n.Submitted // what polls follow, to the microsecond
	}
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

func short(s string) string { return digest(s).String() }

// Each calls fn for each job with a record that a step waits for, of the providers that are wanted. The
// records of other providers are not read. A damaged record is left out.
func Each(ctx context.Context, records Records, wanted func(provider string) bool, fn func(*Job)) error {
	cancelled := map[string]bool{}
	err := store.EachRecord(ctx, records, store.RecordQuery{Kind: KindCancel, KeysOnly: true}, func(r *store.Record) error {
		cancelled[r.ID] = true
		return nil
	})
	if err != nil {
		return err
	}
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
				if err == nil && !cancelled[r.ID] {
					fn(&j)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		q.After = provider + "/\U0010FFFF" // behind all jobs of the provider
	}
}
