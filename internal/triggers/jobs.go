// SPDX-License-Identifier: Apache-2.0

//go:build !small

package triggers

import (
	"context"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/rest"
)

// registerJobs registers what is said and done about external jobs.
func registerJobs(rt *rest.Router, keeper *jobs.Keeper) {
	h := &jobServer{rt, keeper}
	list := rest.Op("providers-jobs-list", http.MethodGet, "/v1/jobs", "List the external jobs that steps of the account wait for, those of a provider together, the oldest first")
	list.Description = "A page reads a bounded number of jobs, so with a filter it may have fewer than its limit, or none, while hasMore is true."
	rest.Handle(rt, list, rest.Needs(access.RunsRead), h.list)
	get := rest.Op("providers-jobs-get", http.MethodGet, "/v1/jobs/{provider}/{job}", "Get an external job that has not ended, with what its service has delivered")
	rest.Handle(rt, get, rest.Needs(access.RunsRead), h.get)
	poll := rest.Op("providers-jobs-poll", http.MethodPost, "/v1/jobs/{provider}/{job}/poll", "Ask the service of an external job now, and act upon its answer")
	rest.Handle(rt, poll, rest.Needs(access.RunsControl), h.poll)
}

// An ExternalJob is work of an outside service, or a task of a remote worker, that a step waits for.
type ExternalJob struct {
	Provider    string        `json:"provider" doc:"A name under providers of the configuration; @workers = a task of a remote worker."`
	Job         string        `json:"job" doc:"Its id at the provider."`
	State       string        `json:"state" enum:"waiting,cancelling,ended" doc:"waiting: its step waits. cancelling: nobody waits any more, and the service has not heard of it yet. ended: it has ended with this poll."`
	ExecutionID string        `json:"executionId"`
	Step        string        `json:"step" example:"pages[3].draw"`
	Action      string        `json:"action"`
	Attempt     uint32        `json:"attempt"`
	SubmittedAt time.Time     `json:"submittedAt"`
	ExpiresAt   time.Time     `json:"expiresAt" doc:"When the step fails with JOB_EXPIRED."`
	NextPollAt  *time.Time    `json:"nextPollAt,omitempty" doc:"When the service is asked next. Absent: it is not asked by this process."`
	PausedUntil *time.Time    `json:"pausedUntil,omitempty" doc:"Until when the service wants to be asked nothing."`
	LastPoll    *JobPoll      `json:"lastPoll,omitempty" doc:"Absent: this process has not asked, or does not remember."`
	Detail      string        `json:"detail,omitempty" doc:"Of a task of a remote worker: who has it."`
	Deliveries  []JobDelivery `json:"deliveries,omitempty" doc:"What the service has delivered and is still kept, up to 100; not in lists."`
}

// A JobPoll is how a service was asked about a job.
type JobPoll struct {
	At      time.Time `json:"at"`
	Outcome string    `json:"outcome" enum:"underway,failed" doc:"underway: the job had not ended. failed: the service could not be asked, or its answer not be used."`
	Code    string    `json:"code,omitempty"`
	Detail  string    `json:"detail,omitempty"`
}

// A JobDelivery is a webhook about a job.
type JobDelivery struct {
	ID         string    `json:"id" doc:"That the service has given it."`
	ReceivedAt time.Time `json:"receivedAt"`
	Outcome    string    `json:"outcome" enum:"open,recorded,late,nothing" doc:"open: it is not acted upon yet. recorded: it has ended the job. late: the job had ended. nothing: it said nothing of the end."`
	Bytes      int       `json:"bytes"`
}

type jobServer struct {
	rest   *rest.Router
	keeper *jobs.Keeper
}

type jobQuery struct {
	rest.Paging
	Provider string `query:"provider" maxLength:"64" doc:"Only jobs of this provider."`
	State    string `query:"state" enum:"waiting,cancelling" doc:"Only jobs in this state."`
}

func (s *jobServer) list(ctx context.Context, in *jobQuery) (*rest.Listed[ExternalJob], error) {
	account := rest.Account(ctx)
	name := "jobs " + account + " " + in.Provider
	place, err := s.rest.Place(name, in.Cursor)
	if err != nil {
		return nil, err
	}
	page, next, err := s.keeper.List(ctx, &jobs.ListQuery{Account: account, Provider: in.Provider, State: in.State, After: place, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	data := make([]ExternalJob, len(page))
	for i := range page {
		data[i] = *externalJob(&page[i])
	}
	return rest.PageOf(ctx, s.rest, name, next, data), nil
}

type jobPath struct {
	Provider string `path:"provider" maxLength:"64" doc:"A name under providers of the configuration, or @workers."`
	Job      string `path:"job" maxLength:"400" doc:"Its id at the provider."`
}

type jobFound struct{ Body *ExternalJob }

func (s *jobServer) get(ctx context.Context, in *jobPath) (*jobFound, error) {
	st, err := s.keeper.Find(ctx, rest.Account(ctx), in.Provider, in.Job)
	return s.found(ctx, st, err)
}

func (s *jobServer) poll(ctx context.Context, in *jobPath) (*jobFound, error) {
	st, err := s.keeper.Poll(ctx, rest.Account(ctx), in.Provider, in.Job)
	return s.found(ctx, st, err)
}

// found adds what was delivered of a job.
func (s *jobServer) found(ctx context.Context, st *jobs.Status, err error) (*jobFound, error) {
	if err != nil {
		return nil, err
	}
	delivered, err := s.keeper.Deliveries(ctx, &st.Job)
	if err != nil {
		return nil, err
	}
	out := externalJob(st)
	for i := range delivered {
		d := &delivered[i]
		one := JobDelivery{ID: d.ID, ReceivedAt: rest.Stamp(d.Received), Outcome: d.Outcome, Bytes: d.Size}
		if one.Outcome == "" {
			one.Outcome = "open"
		}
		out.Deliveries = append(out.Deliveries, one)
	}
	return &jobFound{out}, nil
}

func externalJob(s *jobs.Status) *ExternalJob {
	out := &ExternalJob{
		Provider: s.Provider, Job: s.ID, State: s.State, ExecutionID: s.Run, Step: s.Name, Action: s.Action, Attempt: s.Attempt, SubmittedAt: rest.Stamp(s.Submitted),
		ExpiresAt: rest.Stamp(s.Expires), NextPollAt: rest.StampOr(s.NextPoll), PausedUntil: rest.StampOr(s.PausedUntil), Detail: s.Detail,
	}
	if s.LastPoll != 0 {
		out.LastPoll = &JobPoll{At: rest.Stamp(s.LastPoll), Outcome: "underway"}
		if err := s.LastError; err != nil {
			out.LastPoll.Outcome, out.LastPoll.Code, out.LastPoll.Detail = "failed", string(fault.CodeOf(err)), fault.Message(err)
		}
	}
	return out
}
