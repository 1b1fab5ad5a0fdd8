// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
)

// ExternalJobs are the work of outside services, and the tasks of remote workers, that steps of the
// account wait for.
type ExternalJobs struct{ c *Client }

// An ExternalJob is a job that has not ended, or has ended with a poll.
type ExternalJob struct {
	Provider    string        `json:"provider"` // @workers = a task of a remote worker
	Job         string        `json:"job"`      // its id at the provider
	State       string        `json:"state"`    // waiting, cancelling or ended
	ExecutionID string        `json:"executionId"`
	Step        string        `json:"step"`
	Action      string        `json:"action"`
	Attempt     uint32        `json:"attempt"`
	SubmittedAt time.Time     `json:"submittedAt"`
	ExpiresAt   time.Time     `json:"expiresAt"`
	NextPollAt  *time.Time    `json:"nextPollAt,omitempty"`  // nil = the server does not ask
	PausedUntil *time.Time    `json:"pausedUntil,omitempty"` // that the service has asked for
	LastPoll    *JobPoll      `json:"lastPoll,omitempty"`    // nil = not known
	Detail      string        `json:"detail,omitempty"`      // of a task of a remote worker: who has it
	Deliveries  []JobDelivery `json:"deliveries,omitempty"`  // not in lists
}

// A JobPoll is how a service was asked about a job.
type JobPoll struct {
	At      time.Time  `json:"at"`
	Outcome string     `json:"outcome"` // underway or failed
	Code    fault.Code `json:"code,omitempty"`
	Detail  string     `json:"detail,omitempty"`
}

// A JobDelivery is a webhook about a job.
type JobDelivery struct {
	ID         string    `json:"id"`
	ReceivedAt time.Time `json:"receivedAt"`
	Outcome    string    `json:"outcome"` // open, recorded, late or nothing
	Bytes      int       `json:"bytes"`
}

// A JobQuery selects jobs. Its zero fields do not restrict the selection.
type JobQuery struct {
	Provider string
	State    string // waiting or cancelling
}

// List returns jobs, those of a provider together, the oldest first.
func (j *ExternalJobs) List(ctx context.Context, q JobQuery) iter.Seq2[ExternalJob, error] {
	return list[ExternalJob](ctx, j.c, func() *call {
		return at(http.MethodGet, "v1", "jobs").with("provider", q.Provider).with("state", q.State)
	})
}

// Get returns a job that has not ended, with what its service has delivered.
func (j *ExternalJobs) Get(ctx context.Context, provider, job string) (*ExternalJob, error) {
	return j.one(ctx, at(http.MethodGet, "v1", "jobs", provider, job))
}

// Poll asks the service of a job now, and acts upon its answer.
func (j *ExternalJobs) Poll(ctx context.Context, provider, job string) (*ExternalJob, error) {
	return j.one(ctx, at(http.MethodPost, "v1", "jobs", provider, job, "poll"))
}

func (j *ExternalJobs) one(ctx context.Context, cl *call) (*ExternalJob, error) {
	out := new(ExternalJob)
	_, err := j.c.do(ctx, cl, out)
	return result(out, err)
}
