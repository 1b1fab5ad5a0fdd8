// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// A queueServer is what a worker sees of a server: three operations, any of which can fail. The tests
// run it in a bubble, where time passes at once; package conform has the worker use a real one.
type queueServer struct {
	mu      sync.Mutex
	changed chan struct{}
	pending []client.WorkerTask
	results []client.WorkerResult // all that were sent
	reports []client.WorkerReport
	beats   [][]string  // the leases of each heartbeat that has some
	at      []time.Time // of beats
	order   []string    // "result LEASE" or "report LEASE"
	most    int         // tasks that a worker has asked for at once
	ended   []string    // leases that heartbeats are told of

	// fail answers a request in place of the server if it returns true. n counts the requests of the
	// operation from 1.
	fail   func(operation string, n int, w http.ResponseWriter) bool
	counts map[string]int
	// outcome is the status of a result that is sent for the n-th time. Default: recorded.
	outcome func(lease string, n int) string
	after   func(operation string, n int) bool // the answer gets lost
}

func newQueueServer(tasks ...client.WorkerTask) *queueServer {
	return &queueServer{pending: tasks, changed: make(chan struct{}), counts: map[string]int{}}
}

// task is one of the action "do".
func task(lease string) client.WorkerTask {
	return client.WorkerTask{Lease: lease, Action: "do", Version: "1.0.0", Input: json.RawMessage(`{}`), Run: "run_" + lease, Attempt: 1, LeaseMS: 30_000}
}

// RoundTrip implements http.RoundTripper.
func (s *queueServer) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := make(chan *http.Response, 1)
	go func() {
		rec := httptest.NewRecorder()
		defer func() {
			if recover() != nil { // cut
				answer <- nil
			}
		}()
		s.serve(rec, req)
		answer <- rec.Result()
	}()
	select {
	case res := <-answer:
		if res == nil {
			return nil, errors.New("connection reset by peer")
		}
		return res, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

func (s *queueServer) serve(w http.ResponseWriter, req *http.Request) {
	op := path.Base(req.URL.Path)
	s.mu.Lock()
	s.counts[op]++
	n := s.counts[op]
	fail, after := s.fail, s.after
	s.mu.Unlock()
	if fail != nil && fail(op, n, w) {
		return
	}
	var out any
	switch op {
	case "lease":
		out = s.lease(req)
	case "heartbeat":
		out = s.heartbeat(req)
	case "results":
		out = s.finish(req)
	}
	if after != nil && after(op, n) {
		cut(w, req)
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *queueServer) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// add adds a task.
func (s *queueServer) add(t client.WorkerTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, t)
	s.tell()
}

func (s *queueServer) lease(req *http.Request) any {
	var in client.LeaseRequest
	_ = json.NewDecoder(req.Body).Decode(&in)
	over := time.After(time.Duration(in.WaitMS) * time.Millisecond)
	for {
		s.mu.Lock()
		s.most = max(s.most, in.Max)
		list := s.pending[:min(in.Max, len(s.pending))]
		s.pending = s.pending[len(list):]
		changed := s.changed
		s.mu.Unlock()
		if len(list) > 0 {
			return map[string]any{"tasks": list}
		}
		select {
		case <-changed:
		case <-over:
			return map[string]any{"tasks": list}
		case <-req.Context().Done():
			return nil
		}
	}
}

func (s *queueServer) heartbeat(req *http.Request) any {
	var in struct {
		Leases  []string
		Reports []client.WorkerReport
	}
	_ = json.NewDecoder(req.Body).Decode(&in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(in.Leases) > 0 {
		s.beats, s.at = append(s.beats, in.Leases), append(s.at, time.Now())
	}
	for _, r := range in.Reports {
		s.reports, s.order = append(s.reports, r), append(s.order, "report "+r.Lease)
	}
	ended := []string{}
	for _, l := range in.Leases {
		if slices.Contains(s.ended, l) {
			ended = append(ended, l)
		}
	}
	return map[string]any{"ended": ended}
}

func (s *queueServer) finish(req *http.Request) any {
	var in struct{ Results []client.WorkerResult }
	_ = json.NewDecoder(req.Body).Decode(&in)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	var out []client.WorkerOutcome
	for _, r := range in.Results {
		s.results, s.order = append(s.results, r), append(s.order, "result "+r.Lease)
		status := client.OutcomeRecorded
		if s.outcome != nil {
			status = s.outcome(r.Lease, len(s.sentLocked(r.Lease)))
		}
		out = append(out, client.WorkerOutcome{Lease: r.Lease, Status: status})
	}
	return map[string]any{"results": out}
}

func (s *queueServer) sentLocked(lease string) (list []client.WorkerResult) {
	for _, r := range s.results {
		if r.Lease == lease {
			list = append(list, r)
		}
	}
	return list
}

// sent returns how the result of a lease was sent, each time.
func (s *queueServer) sent(lease string) []client.WorkerResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sentLocked(lease)
}

// A workerOf is a worker of a queueServer.
type workerOf struct {
	*client.Worker
	stop  context.CancelFunc
	ended chan error
}

func startWorker(t *testing.T, s *queueServer, do action.Func, change func(*client.Worker)) *workerOf {
	t.Helper()
	c, err := client.New(client.Config{URL: "http://server", HTTP: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	w := &workerOf{Worker: &client.Worker{Client: c, Queue: "q", Actions: []action.Action{{Name: "do", Run: do}}}, ended: make(chan error, 1)}
	if change != nil {
		change(w.Worker)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() { w.ended <- w.Run(ctx) }()
	return w
}

// drain stops the worker, and fails the test if its Run returns an error.
func (w *workerOf) drain(t *testing.T) {
	t.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
}

func done(context.Context, *action.Task) (action.Result, error) {
	return action.Result{Output: map[string]any{"ok": true}}, nil
}

// pass lets time pass, and returns when nothing happens any more.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// refusing returns a fail that answers requests with a problem.
func refusing(op string, status int, code fault.Code, from, to int, headers ...string) func(string, int, http.ResponseWriter) bool {
	return func(operation string, n int, w http.ResponseWriter) bool {
		if operation != op || n < from || n > to {
			return false
		}
		problem(status, code, false, headers...)(w, nil)
		return true
	}
}

// heartbeats is how many heartbeats with leases there were.
func (s *queueServer) heartbeats() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// left is how many tasks no worker has asked for.
func (s *queueServer) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// requests is how many requests of an operation there were.
func (s *queueServer) requests(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}
