// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

// The bounds of what workers report of a task, as for an action in the process (I15).
const (
	maxLogs     = 1_000
	maxReported = 4 << 20 // bytes
)

// A WorkerReport is what a worker says of a task that goes on.
type WorkerReport struct {
	Lease    string          `json:"lease"`
	Seq      int64           `json:"seq,omitempty" minimum:"0" doc:"A number that grows from report to report of a lease: one that is sent again, because its answer was lost, is ignored. 0: it is not recognized."`
	Fraction *float64        `json:"fraction,omitempty" minimum:"0" maximum:"1" doc:"How much is done."`
	Text     string          `json:"text,omitempty" maxLength:"1000" doc:"What is being done."`
	Level    string          `json:"level,omitempty" enum:"debug,info,warn,error" doc:"Of the log line. Default info."`
	Log      string          `json:"log,omitempty" maxLength:"65536" doc:"A log line."`
	Delta    string          `json:"delta,omitempty" maxLength:"1048576" doc:"A piece of a text that is streamed."`
	Preview  json.RawMessage `json:"preview,omitempty" doc:"A value that is shown before the result."`
}

// reported are the reports of one task.
type reported struct {
	job  jobs.Job
	list []*WorkerReport
}

// Report passes reports on to those who watch the runs, and extends the leases. Reports beyond the
// bounds are dropped. It returns the leases that have ended.
func (m *Manager) Report(ctx context.Context, reports []WorkerReport, account string) (ended []string) {
	all, ended := m.accept(reports, account)
	// Those that are accepted are passed on even if the worker has gone, because it sends them again in vain.
	ctx = context.WithoutCancel(ctx)
	// Settlements that settle nothing. After an error nobody watches: the step has ended, or the engine does.
	m.settleAll(ctx, len(all), func(i int) (*jobs.Job, action.Func) {
		return &all[i].job, func(_ context.Context, call *action.Task) (action.Result, error) {
			to := cmp.Or(call.Report, action.Discard)
			for _, r := range all[i].list {
				r.send(to)
			}
			return action.Result{}, action.ErrUnsettled
		}
	})
	return ended
}

// accept groups the reports by task, in their order, without those beyond the bounds.
func (m *Manager) accept(reports []WorkerReport, account string) (all []*reported, ended []string) {
	byTask := map[*task]*reported{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range reports {
		r := &reports[i]
		t, err := m.find(r.Lease, account)
		if err != nil {
			ended = append(ended, r.Lease)
			continue
		}
		m.extend(t)
		if r.Seq > 0 {
			if r.Seq <= t.lastSeq {
				continue // it was sent again
			}
			t.lastSeq = r.Seq
		}
		if r.Log != "" {
			t.logs++
		}
		t.reported += len(r.Text) + len(r.Log) + len(r.Delta) + len(r.Preview)
		if t.reported > maxReported || r.Log != "" && t.logs > maxLogs {
			continue
		}
		of := byTask[t]
		if of == nil {
			of = &reported{job: t.job}
			byTask[t], all = of, append(all, of)
		}
		of.list = append(of.list, r)
	}
	return all, ended
}

func (r *WorkerReport) send(to action.Reporter) {
	if r.Fraction != nil || r.Text != "" {
		to.Progress(*cmp.Or(r.Fraction, new(float64)), r.Text)
	}
	if r.Log != "" {
		to.Log(cmp.Or(r.Level, "info"), r.Log)
	}
	if r.Delta != "" {
		to.Delta(r.Delta)
	}
	if len(r.Preview) > 0 {
		to.Preview(r.Preview)
	}
}

// A WorkerResult is how a task has ended.
type WorkerResult struct {
	Lease     string          `json:"lease"`
	Output    json.RawMessage `json:"output,omitempty" doc:"The output of the action, if it succeeded."`
	Error     *WorkerFailure  `json:"error,omitempty" doc:"Why it failed."`
	Submitted *WorkerJob      `json:"submitted,omitempty" doc:"The job as which the work goes on at a service: the step waits for that, and the task has ended."`
	Price     string          `json:"price,omitempty" maxLength:"30" pattern:"^[0-9]+(\\.[0-9]{1,6})?$" doc:"What the call cost, of an action with a price, at most that."`
}

// A WorkerFailure is why a task failed.
type WorkerFailure struct {
	Code         string `json:"code,omitempty" maxLength:"60" doc:"One of the codes that the action declares, or STEP_FAILED, which is the default." example:"RATE_LIMITED"`
	Message      string `json:"message" maxLength:"4096"`
	RetryAfterMS int64  `json:"retryAfterMs,omitempty" minimum:"0" maximum:"3600000" doc:"When to try again at the earliest."`
	// OutcomeUnknown is that of fault.Error.
	OutcomeUnknown bool `json:"outcomeUnknown,omitempty" doc:"The effect of the task may have happened although it failed, for example because a connection broke after a request was sent: the next attempt has the same effectKey, and there is none if the action has delivery at_most_once."`
}

// Finish records how a task has ended. It returns when the result is durable; ErrStale means that it
// does not count. A failure leaves the outcome unknown if another worker may have begun the task, unless
// it is the answer of the service to both.
func (m *Manager) Finish(ctx context.Context, r *WorkerResult, account string) error {
	return m.FinishAll(ctx, []WorkerResult{*r}, account)[0]
}

// FinishAll is Finish for several results, which share commits. The errors have their order.
func (m *Manager) FinishAll(ctx context.Context, results []WorkerResult, account string) []error {
	errs, endings := make([]error, len(results)), make([]ending, len(results))
	var ended, submitted []int
	for i := range results {
		r, e := &results[i], &endings[i]
		switch e.task, errs[i] = m.begin(e, r, account); {
		case r.Submitted != nil:
			submitted = append(submitted, i)
		case e.task != nil:
			ended = append(ended, i)
		}
	}
	done := m.settleAll(ctx, len(ended), func(n int) (*jobs.Job, action.Func) {
		e := &endings[ended[n]]
		return &e.job, e.result(&results[ended[n]])
	})
	for n, i := range ended {
		errs[i] = m.settled(endings[i].task, &endings[i].job, done[n])
	}
	m.each(len(submitted), submissions, func(n int) {
		i := submitted[n]
		if e, r := &endings[i], &results[i]; e.task != nil {
			errs[i] = m.handOn(ctx, e.task, &e.job, r.Submitted)
		} else {
			errs[i] = m.disown(ctx, r, account, errs[i])
		}
	})
	return errs
}

// An ending is a task whose result is being recorded.
type ending struct {
	task   *task // nil: the result does not count
	job    jobs.Job
	faults []fault.Code
	shared bool
}

// begin finds the task of a result. The error is ErrStale if it does not count.
func (m *Manager) begin(e *ending, r *WorkerResult, account string) (*task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, why := m.locate(r.Lease, account)
	if t != nil && t.ending {
		t, why = nil, EndedLease // another result of the same lease is being recorded
	}
	if t == nil {
		m.Refuse(why)
		return nil, ErrStale
	}
	t.ending = true
	e.job, e.faults, e.shared = t.job, t.action.Action.Faults, t.shared
	return t, nil
}

// result is what the worker has said.
func (e *ending) result(r *WorkerResult) action.Func {
	return func(context.Context, *action.Task) (action.Result, error) {
		if r.Error != nil {
			failed := r.Error.fault(e.faults)
			failed.OutcomeUnknown = failed.OutcomeUnknown || e.shared && !fault.Answers(failed.Code)
			return action.Result{Price: r.Price}, failed
		}
		return action.Result{Output: r.Output, Price: r.Price}, nil
	}
}

// commonFaults are the codes that every worker may use.
var commonFaults = []fault.Code{fault.StepFailed, fault.InputInvalid, fault.RateLimited, fault.ServiceUnavailable, fault.ProviderError}

// fault is a failure as an error of a step whose action declares the codes.
func (f *WorkerFailure) fault(declared []fault.Code) *fault.Error {
	code := fault.Code(f.Code)
	if !slices.Contains(commonFaults, code) && !slices.Contains(declared, code) {
		code = fault.StepFailed
	}
	err := fault.New(code, "%s", f.Message)
	err.RetryAfterMS, err.OutcomeUnknown = f.RetryAfterMS, f.OutcomeUnknown
	return err
}
