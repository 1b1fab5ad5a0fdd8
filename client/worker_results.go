// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"

	"github.com/roux-engine/roux/fault"
)

// sendResults sends results, several in a request, until there are no more. Those that the server could
// not record are sent again. When ctx has ended it gives up what is left.
func (r *workerRun) sendResults(ctx context.Context) {
	var again []WorkerResult
	var due <-chan time.Time // when again is sent; nil = it is empty
	open, failures := true, 0
	for open || len(again) > 0 {
		var batch []WorkerResult
		results := r.results
		if !open || len(again) >= maxBatch {
			results = nil // what waits is sent first
		}
		select {
		case res, ok := <-results:
			if open = ok; !ok {
				continue
			}
			batch = r.fillBatch(res)
		case <-due:
			batch, again, due = again, nil, nil
		case <-ctx.Done():
			r.giveUp(len(again))
			return
		}
		failed, err := r.deliver(ctx, batch)
		if failures++; len(failed) == 0 {
			failures = 0
			continue
		}
		again = append(again, failed...)
		wait := r.client.delay(failures, err)
		if err != nil { // the server is away, for other results as well
			_ = r.client.cfg.Sleep(ctx, wait) // the end of ctx is seen above
			wait = 0
		}
		due = time.After(wait)
	}
}

// giveUp discards results, so that no task waits for them to be sent.
func (r *workerRun) giveUp(count int) {
	for range r.results {
		count++
	}
	r.log.Warn("results are given up; other workers get the tasks when their leases have expired", "results", count)
}

// fillBatch returns a result with those that wait to be sent.
func (r *workerRun) fillBatch(first WorkerResult) []WorkerResult {
	batch, size := []WorkerResult{first}, len(first.Output)
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case res, ok := <-r.results:
			if !ok {
				return batch // the next receive says so, too
			}
			batch, size = append(batch, res), size+len(res.Output)
		default:
			return batch
		}
	}
	return batch
}

// deliver sends results once and returns those that are to be sent again. err says that the server
// did not take the request. A result that it refuses, because it is too large or is none, is replaced
// by a failure.
func (r *workerRun) deliver(ctx context.Context, batch []WorkerResult) (again []WorkerResult, err error) {
	batch = r.expected(batch)
	if len(batch) == 0 {
		return nil, nil
	}
	outcomes, err := r.sendBatch(ctx, batch)
	switch {
	case err == nil && len(outcomes) == len(batch):
		return r.settle(batch, outcomes), nil
	case err != nil && !refuses(err):
		r.log.Warn("results are not reported; trying again", "results", len(batch), "err", err)
		return batch, err
	case len(batch) > 1: // one of them is refused
		for i := range batch {
			failed, ferr := r.deliver(ctx, batch[i:i+1])
			if again = append(again, failed...); ferr != nil {
				return append(again, batch[i+1:]...), ferr
			}
		}
		return again, nil
	case batch[0].Error != nil && batch[0].Error.Message == refusedResult:
		r.log.Error("a failure is refused, too: the task is given up", "err", err)
		r.release(batch[0].Lease) // its lease expires
		return nil, nil
	}
	r.log.Error("a result is refused: the task fails", "err", err)
	return r.deliver(ctx, []WorkerResult{{Lease: batch[0].Lease, Error: &WorkerFailure{Message: refusedResult}}})
}

const refusedResult = "the server did not take the result of the worker: it is too large, or not as the interface says"

func (r *workerRun) sendBatch(ctx context.Context, batch []WorkerResult) ([]WorkerOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, resultTimeout)
	defer cancel()
	return r.client.Workers.Results(ctx, batch)
}

// expected returns the results of a batch whose leases have not ended.
func (r *workerRun) expected(batch []WorkerResult) (list []WorkerResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range batch {
		if r.running[batch[i].Lease] != nil {
			list = append(list, batch[i])
		}
	}
	return list
}

// settle notes the outcomes of results, and returns those that are to be sent again.
func (r *workerRun) settle(batch []WorkerResult, outcomes []WorkerOutcome) (again []WorkerResult) {
	for i := range outcomes {
		switch outcomes[i].Status {
		case OutcomeFailed:
			r.log.Warn("a result is not recorded; trying again", "detail", outcomes[i].Detail)
			again = append(again, batch[i])
			continue
		case OutcomeEnded:
			r.log.Info("a result does not count: its lease has ended")
		}
		r.release(batch[i].Lease)
	}
	return again
}

// refuses reports whether the server refuses a request because of what it contains.
func refuses(err error) bool {
	switch fault.CodeOf(err) {
	case fault.RequestInvalid, fault.RequestMalformed, fault.RequestTooLarge:
		return true
	}
	return false
}

// release forgets a task whose lease the worker needs no longer.
func (r *workerRun) release(lease string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, lease)
}
