// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

// Offline is what becomes of a request that nobody is asked, because its run is one of a test:
// the job that its step waits for, when that ends, and what it gives then. answer is what a person
// says after some time; nil = nobody answers. It is checked as that of a person is. now is the
// time of the request, UTC µs. later is 0 if the step waits for an answer that never comes.
func Offline(t *action.Task, answer *Answer, after time.Duration, now int64) (job *action.Job, later time.Duration, result action.Func, err error) {
	r, err := requestOf(t)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, 0, nil, err
	}
	ttl := MaxTimeout
	if r.Timeout > 0 {
		ttl = r.Timeout
	}
	job = &action.Job{Provider: jobs.People, ID: requestID(t.Account, t.EffectKey, r.Kind), TTL: ttl + grace}
	if answer != nil && (r.Timeout == 0 || after < r.Timeout) {
		a, err := checkAnswer(answer, r.Decisions, r.Form)
		if err != nil {
			return nil, 0, nil, err
		}
		return job, after, r.gives(a, now+after.Microseconds()), nil
	}
	if r.Default != nil {
		a := *r.Default
		a.By = ByDefault
		return job, r.Timeout, r.gives(&a, now+r.Timeout.Microseconds()), nil
	}
	due := stamp(now + r.Timeout.Microseconds())
	return job, r.Timeout, func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, fault.New(fault.WaitTimeout, "%q was not answered until %s", r.Title, due)
	}, nil
}

// gives is the result of a request that is answered at a time.
func (r *Request) gives(a *Answer, at int64) action.Func {
	answered := *a
	answered.At = at
	return func(ctx context.Context, t *action.Task) (action.Result, error) {
		return approvalResult(ctx, r, &answered, t)
	}
}
