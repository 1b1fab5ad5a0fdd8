// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptrace"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// A Worker carries out tasks of a queue of a server: those of actions that the operator has named
// under `workers` in the configuration. Client, Queue and Actions are required. An action may return
// a job (action.Result.Job) of a provider that the operator permits there.
//
//	w := client.Worker{Client: c, Queue: "audio", Actions: []action.Action{{Name: "transcribe", Run: transcribe}}}
//	err := w.Run(ctx)
type Worker struct {
	Client *Client
	Queue  string
	// Actions are what the worker carries out: their Name, Version ("" = any) and Run count.
	Actions []action.Action
	Labels  map[string]string // that the worker has
	// Concurrency is how many tasks are under way at once. Default 4.
	Concurrency int
	// Grace is how long tasks may take to end when ctx of Run has ended; then their contexts end.
	// Default 30 s.
	Grace  time.Duration
	Logger *slog.Logger // default: none
}

// Bounds and times of a worker. Those of requests are bounds of the server.
const (
	leaseWait         = 20 * time.Second // for the first task
	leaseTimeout      = leaseWait + 10*time.Second
	resultTimeout     = time.Minute
	maxHeartbeatEvery = 10 * time.Second // between two heartbeats, and for one
	minHeartbeatTime  = time.Second      // for one
	reportEvery       = 100 * time.Millisecond
	lastAnswer        = time.Second      // for tasks when the worker ends
	lastResults       = 10 * time.Second // for results when the worker ends
	maxBatch          = 256              // tasks or results of a request
	senders           = 3                // requests with results at once: while the server writes one batch, it reads the next
	maxPerHeartbeat   = 1000             // leases, and reports
	maxBatchBytes     = 1 << 20          // of a request with several results or reports
)

// Run carries out tasks until ctx ends and those that are under way have ended and are reported. An
// action that ignores the end of its context keeps Run from returning. What the server has not taken
// 10 s after the last task has ended is given up: when its lease has expired, another worker gets the
// task.
//
// Run goes on while the server is away. The error is one that will not pass: the server does not
// accept the key, or has no such queue.
func (w *Worker) Run(ctx context.Context) error {
	concurrency := w.Concurrency
	if concurrency <= 0 {
		concurrency = 4
	}
	once := *w.Client
	once.cfg.Attempts = 1
	once.Workers = &Workers{&once}
	r := &workerRun{
		Worker: w, client: &once, log: w.Logger, slots: make(chan struct{}, concurrency), begun: make(chan begunTask, concurrency), results: make(chan WorkerResult, maxBatch),
		changed: make(chan struct{}, 1), hurry: make(chan struct{}), running: map[string]*workerTask{}, heartbeatEvery: maxHeartbeatEvery,
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r.run(ctx)
}

// A workerRun is a worker that runs.
type workerRun struct {
	*Worker
	// client sends each request once: when it is sent again is decided here.
	client  *Client
	log     *slog.Logger
	slots   chan struct{}  // has an element for each task that is under way
	begun   chan begunTask // never blocks: it has as many slots
	tasks   sync.WaitGroup // goroutines that carry out what has begun, as many as there are slots at most
	results chan WorkerResult
	started int           // of those goroutines
	changed chan struct{} // 1 slot: there are reports, or a shorter lease
	hurry   chan struct{} // closed when results no longer wait for reports

	mu             sync.Mutex
	running        map[string]*workerTask // by lease, until the result is recorded
	reports        []*WorkerReport        // that the server has not got yet, in their order
	flushing       int                    // tasks that wait for their reports to be sent
	seq            int64                  // of the last report
	busySince      time.Time              // since when running has not been empty
	heartbeatEvery time.Duration
}

var (
	errLeaseEnded = errors.New("the step waits for the task no longer, or another worker has it")
	errStopping   = errors.New("the worker stops")
)

func (r *workerRun) run(ctx context.Context) error {
	// What goes on after ctx has ended.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var heartbeats, results sync.WaitGroup
	heartbeats.Go(func() { r.sendHeartbeats(lasting) })
	for range senders {
		results.Go(func() { r.sendResults(lasting) })
	}
	err := r.leaseTasks(ctx, lasting)
	r.drain()
	close(r.results)
	last := time.AfterFunc(lastResults, stop)
	results.Wait()
	last.Stop()
	stop()
	heartbeats.Wait()
	return err
}

// leaseTasks leases tasks and begins them, until ctx ends.
func (r *workerRun) leaseTasks(ctx, lasting context.Context) error {
	req := LeaseRequest{Queue: r.Queue, Labels: r.Labels, WaitMS: leaseWait.Milliseconds()}
	for i := range r.Actions {
		name := r.Actions[i].Name
		if v := r.Actions[i].Version; v != "" {
			name += "@" + v
		}
		req.Actions = append(req.Actions, name)
	}
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case r.slots <- struct{}{}: // one is free
		}
		<-r.slots
		req.Max = min(cap(r.slots)-len(r.slots), maxBatch)
		tasks, err := r.lease(ctx, &req)
		switch {
		case ctx.Err() != nil:
			r.begin(lasting, tasks)
			return nil
		case err != nil && permanent(err):
			return err
		case err != nil:
			failures++
			wait := r.client.delay(failures, err)
			r.log.Warn("the server gives no tasks; trying again", "err", err, "in", wait)
			if r.client.cfg.Sleep(ctx, wait) != nil {
				return nil
			}
		default:
			failures = 0
			r.begin(lasting, tasks)
		}
	}
}

// lease asks for tasks. When ctx ends, an answer that is under way still arrives: its tasks would
// otherwise wait until their leases have expired.
func (r *workerRun) lease(ctx context.Context, req *LeaseRequest) ([]WorkerTask, error) {
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	var conn atomic.Pointer[net.Conn]
	request = httptrace.WithClientTrace(request, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn.Store(&i.Conn) }})
	stop := context.AfterFunc(ctx, func() {
		if c := conn.Load(); c != nil {
			closeWrite(*c)
		}
		time.AfterFunc(lastAnswer, cancel)
	})
	defer stop()
	return r.client.Workers.Lease(request, *req)
}

// closeWrite tells a server that the request of a connection has ended, so that it answers at once.
func closeWrite(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok && secure.ConnectionState().NegotiatedProtocol == "h2" {
		return // other requests use it, too
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the request may have ended by itself
	}
}

// permanent reports whether an error stays until somebody changes the worker, its key or the server.
func permanent(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unauthorized, fault.Forbidden, fault.AccountDisabled, fault.NotFound, fault.RequestInvalid, fault.RequestMalformed:
		return true
	}
	return false
}

// delay returns how long to wait after so many failures, the last of which was err.
func (c *Client) delay(failures int, err error) time.Duration {
	return max(c.backoff(failures), serverDelay(err))
}

// serverDelay returns how long the server asks to wait.
func serverDelay(err error) time.Duration {
	var p *Problem
	if errors.As(err, &p) {
		return p.RetryAfter
	}
	return 0
}

// A begunTask is a task that waits for a goroutine, or has one.
type begunTask struct {
	*WorkerTask
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// begin begins tasks.
func (r *workerRun) begin(ctx context.Context, tasks []WorkerTask) {
	for i := range tasks {
		t := tasks[i] // a copy, so that one task does not keep the inputs of the others
		run, cancel := context.WithCancelCause(ctx)
		r.mu.Lock()
		if len(r.running) == 0 {
			r.busySince = time.Now()
			r.wake()
		}
		r.running[t.Lease] = &workerTask{cancel: cancel}
		if every := time.Duration(t.LeaseMS) * time.Millisecond / 3; every > 0 && every < r.heartbeatEvery {
			r.heartbeatEvery = every
			r.wake()
		}
		r.mu.Unlock()
		r.slots <- struct{}{}
		r.begun <- begunTask{&t, run, cancel}
		if len(r.slots) > r.started { // those that have no task take what has begun
			r.started++
			r.tasks.Go(r.work)
		}
	}
}

// work carries out tasks, one after the other. Goroutines stay for the tasks that follow: a new one would
// have to grow its stack.
func (r *workerRun) work() {
	for t := range r.begun {
		res := r.perform(t.ctx, t.WorkerTask)
		r.flush(t.Lease)
		// The slot is free afterwards, so results that cannot be sent hold tasks up.
		r.results <- res
		t.cancel(nil)
		<-r.slots
	}
}

// perform carries out a task.
func (r *workerRun) perform(ctx context.Context, t *WorkerTask) (res WorkerResult) {
	res.Lease = t.Lease
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("an action panicked", "action", t.Action, "run", t.Run, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			res = WorkerResult{Lease: t.Lease, Error: &WorkerFailure{Message: "the action panicked; the log of the worker has the details"}}
		}
	}()
	i := slices.IndexFunc(r.Actions, func(a action.Action) bool {
		return a.Name == t.Action && (a.Version == "" || a.Version == t.Version)
	})
	if i < 0 {
		res.Error = &WorkerFailure{Message: "this worker does not carry out " + t.Action + "@" + t.Version}
		return res
	}
	files := &leaseFiles{client: r.Client, lease: t.Lease}
	defer files.close()
	out, err := r.Actions[i].Run(ctx, &action.Task{
		Run: t.Run, Step: t.Step, Attempt: t.Attempt, Account: t.Account, EffectKey: t.EffectKey, Input: t.Input,
		Files: files, TraceParent: t.TraceParent, Report: &leaseReporter{r, t.Lease},
	})
	res.Price = out.Price
	if j := out.Job; err == nil && j != nil {
		res.Price, res.Submitted = "", &WorkerJob{Provider: j.Provider, JobID: j.ID, Handle: j.Handle, TTLMS: j.TTL.Milliseconds()}
		return res
	}
	if err == nil {
		res.Output, err = json.Marshal(out.Output)
	}
	if err != nil {
		res.Output, res.Error = nil, failureOf(err)
	}
	return res
}

const (
	maxFailure    = 1000 // characters of the message of a failure
	maxCode       = 60
	maxRetryAfter = time.Hour
)

func failureOf(err error) *WorkerFailure {
	f := &WorkerFailure{Message: clip(fault.Message(err), maxFailure)}
	var e *fault.Error
	if errors.As(err, &e) {
		f.Code, f.RetryAfterMS = clip(string(e.Code), maxCode), min(max(e.RetryAfterMS, 0), maxRetryAfter.Milliseconds())
		f.OutcomeUnknown = e.OutcomeUnknown
	}
	return f
}

// clip returns the first characters of a text.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i]
		}
	}
	return text
}

// drain waits for the tasks that are under way. After the grace their contexts end, and a little
// later what they have reported is waited for no longer.
func (r *workerRun) drain() {
	grace := r.Grace
	if grace <= 0 {
		grace = 30 * time.Second
	}
	last := time.AfterFunc(grace, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, t := range r.running {
			t.cancel(errStopping)
		}
	})
	defer last.Stop()
	hurry := time.AfterFunc(grace+lastResults, func() { close(r.hurry) })
	defer hurry.Stop()
	close(r.begun)
	r.tasks.Wait()
}
