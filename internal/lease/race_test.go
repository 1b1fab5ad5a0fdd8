// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

// hold makes settlements wait until the function that it returns is called.
func (h *fixture) hold() (release func()) {
	gate := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = gate
	return func() {
		h.mu.Lock()
		h.gate = nil
		h.mu.Unlock()
		close(gate)
	}
}

// reload restarts the fixture with the tasks that there are, and returns once each has lapsed.
func (h *fixture) reload() {
	h.t.Helper()
	h.reboot()
	time.Sleep(31 * time.Second)
	synctest.Wait()
}

// reboot restarts the fixture with the tasks that there are.
func (h *fixture) reboot() {
	h.t.Helper()
	st := recordsOf(h)
	h.restart(h.remotes)
	h.work()
	if err := h.Load(h.t.Context(), st); err != nil {
		h.t.Fatal(err)
	}
}

// A task whose lease expires while its input is rendered is the one of whoever gets it next, and not
// of the worker that had asked for it before, which may be gone by then.
func TestLeaseExpiresWhileItIsGranted(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t, nil)
			h.submit("x", "a", "1.0.0", `{"n":1}`)
			h.reload()
			release := h.hold()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			answers := make(chan []WorkerTask, 2)
			ask := func(ctx context.Context) {
				list, err := h.Lease(ctx, &Want{Queue: "q"})
				if err != nil {
					t.Error(err)
				}
				answers <- list
			}
			go ask(ctx)
			synctest.Wait()
			time.Sleep(31 * time.Second)
			synctest.Wait()
			go ask(t.Context())
			synctest.Wait()
			if gone {
				leave()
			}
			release()
			all := append(<-answers, <-answers...)
			if len(all) != 1 {
				t.Fatalf("%d workers have the task", len(all))
			}
			if more := h.lease(Want{}); len(more) != 0 {
				t.Error("a third worker has it, too")
			}
			if err := h.Finish(t.Context(), output(all[0].Lease, `1`), ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// The next attempt of a step may submit the same task while the result of the last one is being
// recorded: it waits for a worker, whatever becomes of that result.
func TestSubmittedAgainMeanwhile(t *testing.T) {
	for _, fail := range []error{nil, fault.New(fault.StoreFailed, "the disk is away")} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t, nil)
			h.work()
			id := h.submit("x", "a", "1.0.0", `{}`)
			task := h.lease(Want{})[0]
			release := h.hold()
			h.mu.Lock()
			h.fail = fail
			h.mu.Unlock()
			answer := make(chan error, 1)
			go func() { answer <- h.Finish(t.Context(), output(task.Lease, `1`), "") }()
			synctest.Wait()
			h.mu.Lock()
			delete(h.inputs, id) // the first attempt has timed out
			h.mu.Unlock()
			h.written("x", "a", "1.0.0", id, 2)
			release()
			if err := <-answer; fault.CodeOf(err) != fault.CodeOf(fail) {
				t.Error(err)
			}
			h.mu.Lock()
			h.fail, h.inputs[id] = nil, `{}`
			h.mu.Unlock()
			got := h.lease(Want{Max: 2})
			if len(got) != 1 || got[0].Attempt != 2 {
				t.Fatalf("%+v", got)
			}
			for range 3 {
				time.Sleep(20 * time.Second)
				synctest.Wait()
				h.Extend([]string{got[0].Lease}, "")
			}
			if more := h.lease(Want{}); len(more) != 0 {
				t.Error("another worker has it, too")
			}
		})
	}
}

// The keeper of jobs may be late with a cancellation: the task that has the same id by then stays.
func TestLateCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		id := h.submit("x", "a", "1.0.0", `{}`)
		if err := h.Cancel(t.Context(), &action.SubmittedJob{ID: id}); err != nil {
			t.Fatal(err)
		}
		if got := h.lease(Want{}); len(got) != 1 {
			t.Error("the task is gone")
		}
	})
}

// That the input of a task cannot be rendered for a while is no loss: no worker has had it.
func TestInputThatCannotBeRendered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, func(r *Remote) {
			if r.Action.Name == "a" {
				r.Action.Delivery = action.AtMostOnce
			}
		})
		id := h.submit("x", "a", "1.0.0", `{}`)
		h.work()
		h.Manager.mu.Lock()
		h.keep(h.tasks[id], nil)
		h.Manager.mu.Unlock()
		h.mu.Lock()
		h.fail = fault.New(fault.StoreFailed, "the disk is away")
		h.mu.Unlock()
		for range MaxLosses + 1 {
			if got := h.lease(Want{}); len(got) != 0 {
				t.Fatal("it has an input")
			}
			time.Sleep(31 * time.Second)
			synctest.Wait()
		}
		h.mu.Lock()
		h.fail = nil
		h.mu.Unlock()
		got := h.lease(Want{})
		if len(got) != 1 {
			t.Fatalf("%d tasks, results %v", len(got), h.all())
		}
		if err := h.Finish(t.Context(), output(got[0].Lease, `1`), ""); err != nil || !slices.Equal(h.all(), []string{"x 1"}) {
			t.Error(err, h.all())
		}
	})
}

// A task that may be attempted once and was lost is ended as soon as that can be recorded, and not
// handed out again.
func TestLostTaskThatCannotBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, func(r *Remote) { r.Action.Delivery = action.AtMostOnce })
		h.work()
		h.submit("x", "a", "1.0.0", `{}`)
		task := h.lease(Want{})[0]
		h.mu.Lock()
		h.fail = errors.New("away")
		h.mu.Unlock()
		time.Sleep(65 * time.Second)
		synctest.Wait()
		h.mu.Lock()
		h.fail = nil
		h.mu.Unlock()
		if got := h.lease(Want{}); len(got) != 0 {
			t.Errorf("it is attempted again: %+v", got)
		}
		if err := h.Finish(t.Context(), output(task.Lease, `1`), ""); !errors.Is(err, ErrStale) {
			t.Error(err)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := h.all(); !slices.Equal(got, []string{"x INTERRUPTED"}) {
			t.Error(got)
		}
	})
}

// A worker that is woken takes one task of several. The others are not left until a poll ends while
// workers wait that could have them.
func TestWokenWorkerLeavesTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		both, one := make(chan int, 1), make(chan int, 1)
		wait := func(to chan int, names ...string) {
			list, err := h.Lease(t.Context(), &Want{Queue: "q", Actions: names, Labels: map[string]string{"gpu": "yes"}, Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			to <- len(list)
		}
		go wait(both, "a", "b")
		synctest.Wait()
		go wait(one, "b")
		synctest.Wait()
		began := time.Now()
		b, a := h.call("x", "b", `{}`), h.call("x", "a", `{}`)
		h.Changed([]jobs.Change{h.record("x", "b", "2.0.0", b, 1), h.record("x", "a", "1.0.0", a, 1)}) // in one commit
		if n, m := <-both, <-one; n != 1 || m != 1 || time.Since(began) != 0 {
			t.Errorf("%d and %d tasks after %s, want one each at once", n, m, time.Since(began))
		}
	})
}

// endingContext ends when it is first asked whether it has.
type endingContext struct {
	context.Context
	end func()
}

func (c endingContext) Err() error {
	c.end()
	return c.Context.Err()
}

// A worker that is woken after it has gone passes that on to the next one.
func TestWokenWorkerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		first, leave := context.WithCancel(t.Context())
		var once sync.Once
		answer := make(chan int, 1)
		list, err := h.Lease(endingContext{first, func() {
			once.Do(func() {
				go func() {
					list, err := h.Lease(t.Context(), &Want{Queue: "q", Wait: time.Minute})
					if err != nil {
						t.Error(err)
					}
					answer <- len(list)
				}()
				synctest.Wait()
				h.submit("x", "a", "1.0.0", `{}`) // it wakes the first
				leave()
			})
		}}, &Want{Queue: "q", Wait: time.Minute})
		if err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		began := time.Now()
		if n := <-answer; n != 1 || time.Since(began) != 0 {
			t.Errorf("the other worker has %d tasks after %s, want one at once", n, time.Since(began))
		}
	})
}

// F08: a worker that dies costs its task one lease, not more: one that waits then gets it at once.
func TestF08_DeadWorkerCostsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.work()
		h.submit("x", "a", "1.0.0", `{}`)
		began := time.Now()
		dead := h.lease(Want{})
		if len(dead) != 1 {
			t.Fatalf("%d tasks", len(dead))
		}
		var again []WorkerTask
		for len(again) == 0 {
			var err error
			if again, err = h.Lease(t.Context(), &Want{Queue: "q", Labels: map[string]string{"gpu": "yes"}, Wait: 20 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		lasts := time.Duration(dead[0].LeaseMS) * time.Millisecond
		if after := time.Since(began); after < lasts || after > lasts+time.Second {
			t.Errorf("another worker has it after %s; the lease lasts %s", after, lasts)
		}
		if again[0].EffectKey != dead[0].EffectKey || again[0].Attempt != dead[0].Attempt {
			t.Errorf("%+v, was %+v", again[0], dead[0])
		}
	})
}

// I4: a failure says nothing of what another worker has begun under the same effect key, unless the
// service has said it, or no other worker can have the task.
func TestI4_FailureOfASharedTask(t *testing.T) {
	silent := func(h *fixture) { time.Sleep(31 * time.Second); synctest.Wait() }
	for _, tt := range []struct {
		name, action, code, want string
		meanwhile                func(h *fixture)
	}{
		{"one worker", "a", "STEP_FAILED", "x STEP_FAILED", nil},
		{"a worker was lost", "a", "STEP_FAILED", "x STEP_FAILED?", silent},
		{"a worker was lost, and the service answers", "a", "PROVIDER_ERROR", "x PROVIDER_ERROR", silent},
		{"after a restart", "a", "STEP_FAILED", "x STEP_FAILED?", (*fixture).reboot},
		{"after a restart, at most once", "c", "STEP_FAILED", "x STEP_FAILED", (*fixture).reboot},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t, nil)
			h.work()
			h.submit("x", tt.action, "1.0.0", `{}`)
			want := Want{}
			if tt.action == "c" {
				want.Queue = "other"
			}
			tasks := h.lease(want)
			if tt.meanwhile != nil {
				tt.meanwhile(h)
				tasks = append(h.lease(want), tasks...)
			}
			if err := h.Finish(t.Context(), &WorkerResult{Lease: tasks[0].Lease, Error: &WorkerFailure{Code: tt.code}}, ""); err != nil {
				t.Fatal(err)
			}
			if len(h.results) != 1 || h.results[0] != tt.want {
				t.Errorf("%s: %q, want %s", tt.name, h.results, tt.want)
			}
		})
	}
}
