// SPDX-License-Identifier: Apache-2.0

// Package workers is what remote workers ask a server, over HTTP: tasks, more time for them, and
// that their results are recorded.
//
// It decides what a worker's request looks like and how much one may ask at once. What a lease is
// and whose result counts is decided by package lease; who may be a worker, by package access.
package workers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/rest"
)

// The bounds of a request.
const (
	maxTasks = 256
	maxWait  = 30 * time.Second
	maxBody  = 32 << 20
	atOnce   = 64 // results of one request that are recorded side by side
)

// Register registers the operations. m is nil if no action is carried out by workers.
func Register(rt *rest.Router, m *lease.Manager) {
	s := &server{m: m}
	work := rest.Needs(access.Work)
	work.Once = rest.OnceNot
	get := rest.Op("workers-lease", http.MethodPost, "/v1/workers/lease", "Get tasks of a queue, or wait until there are some")
	get.Description = "A worker gets each task for a time, its lease. It says that it goes on with heartbeats; otherwise another worker gets the task. " +
		"A key gets tasks of its own account; the operator's gets those of all accounts."
	rest.Handle(rt, get, work, s.lease)
	beat := rest.Op("workers-heartbeat", http.MethodPost, "/v1/workers/heartbeat", "Say that tasks go on, and how")
	beat.Description = "It extends the leases. Tasks whose leases are over are to be stopped: their runs wait for them no longer, or other workers have them."
	beat.MaxBodyBytes = maxBody
	rest.Handle(rt, beat, work, s.heartbeat)
	end := rest.Op("workers-results", http.MethodPost, "/v1/workers/results", "Say how tasks have ended")
	end.Description = "It is answered when the results are durable. One that is sent again is `ended`, and changes nothing."
	end.MaxBodyBytes = maxBody
	rest.Handle(rt, end, work, s.results)
}

type server struct{ m *lease.Manager }

// account is whose tasks a worker may have; "" = of all.
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

// Account is whose files they are.
func (l *FileLease) Account(ctx context.Context, m *lease.Manager) (string, error) {
	if l.Lease == "" || m == nil || !access.From(ctx).Allows(access.ServerAdmin) {
		return rest.Account(ctx), nil
	}
	return m.Holds(l.Lease, "")
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
	list, err := m.Lease(ctx, &lease.Want{
		Account: account(ctx), Queue: b.Queue, Actions: b.Actions, Labels: b.Labels,
		Max: min(max(b.Max, 1), maxTasks), Wait: min(time.Duration(b.WaitMS)*time.Millisecond, maxWait),
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

// EndedLeases are leases that are over.
type EndedLeases struct {
	Ended []string `json:"ended" doc:"Leases that are over: stop those tasks."`
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
	Status string `json:"status" enum:"recorded,ended,failed" doc:"recorded: it is durable. ended: the lease is over, and the result does not count. failed: send it again."`
	Detail string `json:"detail,omitempty"`
}

type resultsIn struct{ Body WorkerResults }

type resultsOut struct{ Body WorkerOutcomes }

func (s *server) results(ctx context.Context, in *resultsIn) (*resultsOut, error) {
	m, err := s.manager()
	if err != nil {
		return nil, err
	}
	rest.Waits(ctx)
	out := make([]WorkerOutcome, len(in.Body.Results))
	places := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i := range in.Body.Results {
		r := &in.Body.Results[i]
		if (r.Output == nil) == (r.Error == nil) {
			return nil, fault.New(fault.RequestInvalid, "result %d: want output or error, and not both", i)
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			out[i] = outcome(r.Lease, m.Finish(ctx, r, account(ctx)))
		})
	}
	group.Wait()
	return &resultsOut{WorkerOutcomes{out}}, nil
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
