// SPDX-License-Identifier: Apache-2.0

// Package workers is the protocol of remote workers over HTTP: they lease tasks, extend leases, and
// report results.
//
// It decides what requests look like and how much one may contain. Package lease decides what a lease
// is and whose result counts, package access who may be a worker.
package workers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/rest"
)

const maxBody = 32 << 20 // bytes of a request

// Register registers the operations. m is nil if no action is carried out by workers.
func Register(rt *rest.Router, m *lease.Manager) {
	s := &server{m: m}
	work := rest.Needs(access.Work)
	work.Once = rest.OnceNot
	get := rest.Op("workers-lease", http.MethodPost, "/v1/workers/lease", "Get tasks of a queue, or wait until there are some")
	get.Description = "A worker gets each task for a time, its lease. It says that it goes on with heartbeats; otherwise another worker gets the task. " +
		"A key gets tasks of its own account, and only those of its queues and actions if its scopes name some; the operator's gets those of all accounts."
	rest.Handle(rt, get, work, s.lease)
	extend := rest.Op("workers-heartbeat", http.MethodPost, "/v1/workers/heartbeat", "Say that tasks go on, and how")
	extend.Description = "It extends the leases. Stop the tasks whose leases have ended: their steps no longer wait for them, or other workers have them."
	extend.MaxBodyBytes = maxBody
	rest.Handle(rt, extend, work, s.heartbeat)
	report := rest.Op("workers-results", http.MethodPost, "/v1/workers/results", "Say how tasks have ended")
	report.Description = "It is answered when the results are durable. One that is sent again is `ended`, and changes nothing."
	report.MaxBodyBytes = maxBody
	work.Unread = s.unread
	rest.Handle(rt, report, work, s.results)
}

type server struct{ m *lease.Manager }

// account is the account whose tasks a worker may have; "" = all.
func account(ctx context.Context) string {
	if access.From(ctx).Allows(access.ServerAdmin) {
		return ""
	}
	return rest.Account(ctx)
}

// A FileLease is the lease with which the operator's worker reads and writes files of the account
// whose task it has. Other workers have the files of their own account.
type FileLease struct {
	Lease string `header:"Roux-Lease" maxLength:"200" doc:"The lease of a task, of a worker with a key of the operator: the files are those of its account."`
}

// Account returns the account of the files.
func (l *FileLease) Account(ctx context.Context, m *lease.Manager) (string, error) {
	if l.Lease == "" || m == nil || !access.From(ctx).Allows(access.ServerAdmin) {
		return rest.Account(ctx), nil
	}
	return m.AccountOf(l.Lease)
}

func (s *server) manager() (*lease.Manager, error) {
	if s.m == nil {
		return nil, fault.New(fault.NotFound, "no action is carried out by workers: name some under `workers` in the configuration (docs/workers.md)")
	}
	return s.m, nil
}

// A LeaseRequest is what a worker asks for.
type LeaseRequest struct {
	Queue   string            `json:"queue" minLength:"1" maxLength:"64" example:"default"`
	Actions []string          `json:"actions,omitempty" maxItems:"100" doc:"Names of actions, or name@version, that the worker carries out. Default: all of the queue."`
	Labels  map[string]string `json:"labels,omitempty" doc:"What the worker has. An action with labels is for workers that have all of them."`
	Max     int               `json:"max,omitempty" minimum:"1" maximum:"256" doc:"How many tasks at most. Default 1."`
	WaitMS  int64             `json:"waitMs,omitempty" minimum:"0" maximum:"30000" doc:"How long to wait for the first. Default 0."`
}

// WorkerTasks are tasks that a worker has got.
type WorkerTasks struct {
	Tasks []lease.WorkerTask `json:"tasks" doc:"None if there were none for as long as the request waited."`
}

type leaseIn struct{ Body LeaseRequest }

type leaseOut struct{ Body WorkerTasks }

func (s *server) lease(ctx context.Context, in *leaseIn) (*leaseOut, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	rest.Waits(ctx)
	b := &in.Body
	actions, err := access.From(ctx).Tasks(b.Queue, b.Actions)
	if err != nil {
		return nil, err
	}
	list, err := m.Lease(ctx, &lease.Want{
		Account: account(ctx), Queue: b.Queue, Actions: actions, Labels: b.Labels,
		Max: b.Max, Wait: time.Duration(b.WaitMS) * time.Millisecond,
	})
	if list == nil {
		list = []lease.WorkerTask{}
	}
	return &leaseOut{WorkerTasks{list}}, err
}

// A WorkerHeartbeat says that tasks go on.
type WorkerHeartbeat struct {
	Leases  []string             `json:"leases,omitempty" maxItems:"1000"`
	Reports []lease.WorkerReport `json:"reports,omitempty" maxItems:"1000" doc:"What those who watch the runs are told, in their order. A report also extends its lease."`
}

// EndedLeases are leases that have ended.
type EndedLeases struct {
	Ended []string `json:"ended" doc:"Leases that have ended: stop those tasks."`
}

type heartbeatIn struct{ Body WorkerHeartbeat }

type heartbeatOut struct{ Body EndedLeases }

func (s *server) heartbeat(ctx context.Context, in *heartbeatIn) (*heartbeatOut, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	ended := append([]string{}, m.Extend(in.Body.Leases, account(ctx))...)
	ended = append(ended, m.Report(ctx, in.Body.Reports, account(ctx))...)
	return &heartbeatOut{EndedLeases{ended}}, nil
}

// WorkerResults say how tasks have ended.
type WorkerResults struct {
	Results []lease.WorkerResult `json:"results" minItems:"1" maxItems:"256"`
}

// WorkerOutcomes say what became of results.
type WorkerOutcomes struct {
	Results []WorkerOutcome `json:"results" doc:"In the order of the request."`
}

// A WorkerOutcome is what became of a result.
type WorkerOutcome struct {
	Lease  string `json:"lease"`
	Status string `json:"status" enum:"recorded,ended,failed" doc:"recorded: it is durable. ended: the lease has ended, and the result does not count. failed: send it again."`
	Detail string `json:"detail,omitempty"`
}

type resultsIn struct{ Body WorkerResults }

type resultsOut struct{ Body WorkerOutcomes }

func (s *server) results(ctx context.Context, in *resultsIn) (*resultsOut, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	for i := range in.Body.Results {
		r, given := &in.Body.Results[i], 0
		for _, has := range []bool{r.Output != nil, r.Error != nil, r.Submitted != nil} {
			if has {
				given++
			}
		}
		if given != 1 {
			m.Refuse(lease.Malformed)
			return nil, fault.New(fault.RequestInvalid, "result %d: want one of output, error and submitted", i)
		}
	}
	rest.Waits(ctx)
	out := make([]WorkerOutcome, len(in.Body.Results))
	for i, err := range m.FinishAll(ctx, in.Body.Results, account(ctx)) {
		out[i] = outcome(in.Body.Results[i].Lease, err)
	}
	return &resultsOut{WorkerOutcomes{out}}, nil
}

// unread counts a request with results that is not taken.
func (s *server) unread(status int) {
	switch {
	case s.m == nil:
	case status == http.StatusRequestEntityTooLarge:
		s.m.Refuse(lease.TooLarge)
	case status < http.StatusInternalServerError:
		s.m.Refuse(lease.Malformed)
	}
}

func outcome(token string, err error) WorkerOutcome {
	switch {
	case err == nil:
		return WorkerOutcome{Lease: token, Status: "recorded"}
	case errors.Is(err, lease.ErrStale):
		return WorkerOutcome{Lease: token, Status: "ended", Detail: fault.Message(err)}
	}
	return WorkerOutcome{Lease: token, Status: "failed", Detail: fault.Message(err)}
}
