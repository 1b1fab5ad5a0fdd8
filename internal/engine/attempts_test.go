// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/store/memory"
)

// attemptTimes records when each attempt of an action began.
type attemptTimes struct {
	mu    sync.Mutex
	since time.Time
	began []time.Duration
}

// record records the start of an attempt and returns its number, from 1.
func (c *attemptTimes) record() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = time.Now()
	}
	c.began = append(c.began, time.Since(c.since))
	return len(c.began)
}

func (c *attemptTimes) want(t *testing.T, began ...time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.began, began) {
		t.Errorf("attempts began after %v, want %v", c.began, began)
	}
}

// X112: the Retry-After that an action reports reaches the retry policy, and the delays
// before and after it grow exponentially.
func TestX112_RetryAfterOfAnAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c attemptTimes
		a := newAction("provider", func(context.Context, *action.Task) (action.Result, error) {
			switch c.record() {
			case 1, 2:
				return action.Result{}, fault.New(fault.ServiceUnavailable, "away")
			case 3:
				return action.Result{}, &fault.Error{Code: fault.RateLimited, Msg: "slow down", RetryAfterMS: 60_000}
			}
			return action.Result{}, nil
		})
		e := openEngine(t, memory.New(memory.Options{}), Config{}, a)
		p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: provider}, retryPolicy: {maxAttempts: 4, initialDelay: 1s, maxDelay: 8s, jitter: 0}}\n", a)
		if head := waitForEnd(t, e, start(t, e, p, nil)); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
		c.want(t, 0, time.Second, 3*time.Second, 63*time.Second)
	})
}

// X113, X114, X116: a timeout ends the attempt and is a cause to retry; the next
// attempt has a context of its own, and the run's cancel reaches that one.
func TestX113_EachAttemptHasItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cancelled := range []bool{false, true} {
			var c attemptTimes
			st := memory.New(memory.Options{})
			a := newAction("slow", func(ctx context.Context, _ *action.Task) (action.Result, error) {
				n := c.record()
				if ctx.Err() != nil {
					t.Errorf("attempt %d begins with a context that has ended: %v", n, context.Cause(ctx))
				}
				if n == 1 || cancelled {
					<-ctx.Done()
				}
				return action.Result{}, ctx.Err()
			})
			e := openEngine(t, st, Config{}, a)
			p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: slow}, timeout: 2s, retryPolicy: {maxAttempts: 2, initialDelay: 1s, jitter: 0, retryableErrors: [timeout]}}\n", a)
			run, want := start(t, e, p, nil), "completed"
			if cancelled {
				time.Sleep(4 * time.Second) // attempt 2 began a second ago
				if err := e.Cancel(t.Context(), acc, run, "enough"); err != nil {
					t.Error(err)
				}
				want = "cancelled"
			}
			if head := waitForEnd(t, e, run); head.Status != want {
				t.Errorf("run is %s (%s), want %s", head.Status, head.Message, want)
			}
			c.want(t, 0, 3*time.Second)
			lines := trace(t, st, p, acc, run)
			if countPrefix(lines, "node.retried a") != 1 || cancelled != (countPrefix(lines, "node.cancelled a") == 1) {
				t.Errorf("the journal: %q", lines)
			}
		}
	})
}

// X115: five seconds after the soft limit the slot of an action that ignores its
// context is given away, unless the operator configures another grace.
func TestX115_Grace(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Minute: time.Minute} {
		cfg := Config{Store: memory.New(memory.Options{}), Actions: catalogue.New(), Grace: set}
		if err := cfg.defaults(); err != nil || cfg.Grace != want {
			t.Errorf("a grace of %v becomes %v, want %v (%v)", set, cfg.Grace, want, err)
		}
	}
}
func TestX115_HardLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c attemptTimes
		block := make(chan struct{})
		stuck := newAction("deaf", func(context.Context, *action.Task) (action.Result, error) {
			c.record()
			<-block
			return action.Result{}, nil
		})
		next := newAction("next", func(context.Context, *action.Task) (action.Result, error) { c.record(); return action.Result{}, nil })
		e := openEngine(t, memory.New(memory.Options{}), Config{Concurrency: 1}, stuck, next)
		p := planOf(t, "name: x\norder: none\nfailure_policy: drain\nsteps:\n  - {id: a, action: {name: deaf}, timeout: 2s}\n  - {id: b, action: {name: next}}\n", stuck, next)
		if head := waitForEnd(t, e, start(t, e, p, nil)); head.Status != "failed" || head.Code != fault.StepTimeout {
			t.Errorf("run is %s: %s (%s)", head.Status, head.Code, head.Message)
		}
		c.want(t, 0, 7*time.Second)
		close(block)
	})
}
