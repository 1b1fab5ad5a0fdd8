// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// A Worker carries out tasks of a queue of a server: those of actions that the operator has named
// under `workers` in the configuration. Client, Queue and Actions are required.
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

// The rhythm of a worker.
const (
	leaseWait    = 20 * time.Second
	reportEvery  = 100 * time.Millisecond
	atMostBeat   = 10 * time.Second // between two heartbeats
	maxBatch     = 256              // results of a request
	maxReports   = 1000             // reports of a request
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// Run carries out tasks until ctx ends and those that are under way have ended and are reported.
// It goes on while the server is away. The error is one that will not pass: the server does not
// accept the key, or has no such queue.
func (w *Worker) Run(ctx context.Context) error {
	r := &working{Worker: w, log: w.Logger, running: map[string]*workerTask{}, results: make(chan WorkerResult, maxBatch), beat: atMostBeat, news: make(chan struct{}, 1)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.free = make(chan struct{}, max(w.Concurrency, 1))
	if w.Concurrency <= 0 {
		r.free = make(chan struct{}, 4)
	}
	return r.run(ctx)
}

// working is a worker that runs.
type working struct {
	*Worker
	log     *slog.Logger
	free    chan struct{} // has an element for each task that is under way
	tasks   sync.WaitGroup
	results chan WorkerResult
	news    chan struct{} // there are reports, or a shorter lease

	mu      sync.Mutex
	running map[string]*workerTask // by lease
	reports []WorkerReport
	beat    time.Duration // between two heartbeats
}

// A workerTask is a task that is under way.
type workerTask struct {
	cancel context.CancelCauseFunc
}

var errLeaseOver = errors.New("the step waits for the task no longer, or another worker has it")

func (r *working) run(ctx context.Context) error {
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var helpers sync.WaitGroup
	beats, stopBeats := context.WithCancel(lasting)
	helpers.Go(func() { r.beats(beats) })
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		r.send(lasting)
	}()
	err := r.take(ctx, lasting)
	r.drain()
	close(r.results)
	<-sent
	stopBeats()
	helpers.Wait()
	return err
}

// take leases tasks and begins them, until ctx ends.
func (r *working) take(ctx, lasting context.Context) error {
	req := LeaseRequest{Queue: r.Queue, Labels: r.Labels, WaitMS: leaseWait.Milliseconds()}
	for i := range r.Actions {
		name := r.Actions[i].Name
		if v := r.Actions[i].Version; v != "" {
			name += "@" + v
		}
		req.Actions = append(req.Actions, name)
	}
	wait := firstBackoff
	for {
		select {
		case <-ctx.Done():
			return nil
		case r.free <- struct{}{}: // one is free
		}
		<-r.free
		req.Max = min(cap(r.free)-len(r.free), maxBatch)
		tasks, err := r.Client.Workers.Lease(ctx, req)
		switch {
		case ctx.Err() != nil:
			r.begin(lasting, tasks)
			return nil
		case err != nil && !passes(err):
			return err
		case err != nil:
			r.log.Warn("the server gives no tasks; trying again", "err", err, "in", wait)
			if pause(ctx, wait) != nil {
				return nil
			}
			wait = min(2*wait, lastBackoff)
		default:
			wait = firstBackoff
			r.begin(lasting, tasks)
		}
	}
}

// passes reports whether an error may pass while nobody changes the worker.
func passes(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unauthorized, fault.Forbidden, fault.AccountDisabled, fault.NotFound, fault.RequestInvalid, fault.RequestMalformed:
		return false
	}
	return true
}

// pause waits for about so long.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// begin begins tasks.
func (r *working) begin(ctx context.Context, tasks []WorkerTask) {
	for i := range tasks {
		t := &tasks[i]
		run, cancel := context.WithCancelCause(ctx)
		r.mu.Lock()
		r.running[t.Lease] = &workerTask{cancel}
		if beat := time.Duration(t.LeaseMS) * time.Millisecond / 3; beat > 0 && beat < r.beat {
			r.beat = beat
			r.nudge()
		}
		r.mu.Unlock()
		r.free <- struct{}{}
		r.tasks.Go(func() {
			defer cancel(nil)
			res := r.perform(run, t)
			<-r.free
			r.results <- res
		})
	}
}

func (r *working) nudge() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// perform carries out a task.
func (r *working) perform(ctx context.Context, t *WorkerTask) (res WorkerResult) {
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
	files := &leaseFiles{c: r.Client.leased(t.Lease)}
	defer files.close()
	out, err := r.Actions[i].Run(ctx, &action.Task{
		Run: t.Run, Step: t.Step, Attempt: t.Attempt, Account: t.Account, EffectKey: t.EffectKey, Input: t.Input,
		Files: files, TraceParent: t.TraceParent, Report: &leaseReporter{r, t.Lease},
	})
	res.Price = out.Price
	if err == nil && out.Job != nil {
		err = fault.New(fault.StepFailed, "a remote worker cannot submit a job")
	}
	if err == nil {
		res.Output, err = json.Marshal(out.Output)
	}
	if err != nil {
		res.Output, res.Error = nil, failureOf(err)
	}
	return res
}

func failureOf(err error) *WorkerFailure {
	f := &WorkerFailure{Message: fault.Message(err)}
	var e *fault.Error
	if errors.As(err, &e) {
		f.Code, f.RetryAfterMS = string(e.Code), e.RetryAfterMS
	}
	if text := []rune(f.Message); len(text) > 1000 {
		f.Message = string(text[:1000]) + "…"
	}
	return f
}

// drain waits for the tasks that are under way, and ends them after the grace.
func (r *working) drain() {
	done := make(chan struct{})
	go func() {
		r.tasks.Wait()
		close(done)
	}()
	grace := r.Grace
	if grace <= 0 {
		grace = 30 * time.Second
	}
	select {
	case <-done:
		return
	case <-time.After(grace):
	}
	r.mu.Lock()
	for _, t := range r.running {
		t.cancel(errors.New("the worker stops"))
	}
	r.mu.Unlock()
	<-done
}

// send sends results, several at once, until there are no more. One that the server could not
// record is sent again.
func (r *working) send(ctx context.Context) {
	for first := range r.results {
		batch := []WorkerResult{first}
		for more := true; more && len(batch) < maxBatch; {
			select {
			case res, ok := <-r.results:
				if more = ok; ok {
					batch = append(batch, res)
				}
			default:
				more = false
			}
		}
		for wait := firstBackoff; len(batch) > 0; wait = min(2*wait, lastBackoff) {
			if batch = r.deliver(ctx, batch); len(batch) > 0 && pause(ctx, wait) != nil {
				return
			}
		}
	}
}

// deliver sends results once and returns those that are to be sent again. A result that the server
// refuses, because it is too large or is none, is replaced by an error.
func (r *working) deliver(ctx context.Context, batch []WorkerResult) (again []WorkerResult) {
	outcomes, err := r.Client.Workers.Results(ctx, batch)
	switch {
	case err == nil && len(outcomes) == len(batch):
	case err != nil && !refuses(err):
		r.log.Warn("results are not reported; trying again", "results", len(batch), "err", err)
		return batch
	case len(batch) > 1: // one of them is refused
		for i := range batch {
			again = append(again, r.deliver(ctx, batch[i:i+1])...)
		}
		return again
	case batch[0].Error != nil && batch[0].Error.Message == notTaken:
		r.forget(batch[0].Lease) // its lease lapses
		return nil
	default:
		r.log.Error("a result is refused", "err", err)
		return []WorkerResult{{Lease: batch[0].Lease, Error: &WorkerFailure{Message: notTaken}}}
	}
	for i := range outcomes {
		switch outcomes[i].Status {
		case OutcomeFailed:
			r.log.Warn("a result is not recorded; trying again", "detail", outcomes[i].Detail)
			again = append(again, batch[i])
			continue
		case OutcomeEnded:
			r.log.Info("a result does not count: its lease is over")
		}
		r.forget(batch[i].Lease)
	}
	return again
}

const notTaken = "the server did not take the result of the worker: it is too large, or not as the interface says"

// refuses reports whether a request will be refused again.
func refuses(err error) bool {
	switch fault.CodeOf(err) {
	case fault.RequestInvalid, fault.RequestMalformed, fault.RequestTooLarge:
		return true
	}
	return false
}

func (r *working) forget(lease string) {
	r.mu.Lock()
	delete(r.running, lease)
	r.mu.Unlock()
}

// beats sends heartbeats and reports.
func (r *working) beats(ctx context.Context) {
	last := time.Now()
	for ctx.Err() == nil {
		r.mu.Lock()
		wait := r.beat - time.Since(last)
		if len(r.reports) > 0 {
			wait = min(wait, reportEvery)
		}
		r.mu.Unlock()
		t := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-r.news:
			t.Stop()
			continue
		case <-t.C:
		}
		if due := time.Since(last) >= r.heartbeat(ctx, last); due {
			last = time.Now()
		}
	}
}

// heartbeat sends what is due and returns the time between two extensions.
func (r *working) heartbeat(ctx context.Context, last time.Time) time.Duration {
	r.mu.Lock()
	beat := r.beat
	var leases []string
	if time.Since(last) >= beat {
		for lease := range r.running {
			leases = append(leases, lease)
		}
	}
	n := min(len(r.reports), maxReports)
	reports := slices.Clone(r.reports[:n])
	r.reports = r.reports[n:]
	r.mu.Unlock()
	for part := range slices.Chunk(leases, maxReports) {
		r.extend(ctx, part, reports)
		reports = nil
	}
	if len(reports) > 0 {
		r.extend(ctx, nil, reports)
	}
	return beat
}

// extend sends a heartbeat. Tasks whose leases are over are stopped.
func (r *working) extend(ctx context.Context, leases []string, reports []WorkerReport) {
	ended, err := r.Client.Workers.Heartbeat(ctx, leases, reports)
	if err != nil {
		r.log.Warn("the server takes no heartbeat", "err", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, lease := range ended {
		if t := r.running[lease]; t != nil {
			t.cancel(errLeaseOver)
		}
	}
}
