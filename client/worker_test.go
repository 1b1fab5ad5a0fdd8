// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// The server is away at first and in between: tasks are carried out once, and results arrive.
func TestWorkerOutlastsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"))
		s.fail = func(_ string, n int, w http.ResponseWriter) bool {
			if n <= 3 {
				cut(w, nil)
			}
			return false
		}
		ran := 0
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			ran++
			task.Report.Log("info", "a line")
			time.Sleep(time.Minute)
			return done(ctx, task)
		}, nil)
		pass(2 * time.Minute)
		if got := s.sent("a"); ran != 1 || len(got) != 1 || got[0].Error != nil || len(s.reports) != 1 || s.heartbeats() < 4 {
			t.Errorf("ran %d times, results %v, reports %v, %d heartbeats", ran, got, s.reports, s.heartbeats())
		}
		w.drain(t)
	})
}

// A result whose answer was lost is sent again as it was.
func TestWorkerSendsResultsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"))
		s.after = func(op string, n int) bool { return op == "results" && n == 1 }
		s.outcome = func(_ string, n int) string {
			if n == 1 {
				return client.OutcomeRecorded
			}
			return client.OutcomeEnded
		}
		w := startWorker(t, s, done, nil)
		pass(time.Minute)
		if got := s.sent("a"); len(got) != 2 || string(got[0].Output) != string(got[1].Output) {
			t.Errorf("%+v", got)
		}
		w.drain(t)
	})
}

// A result that cannot be recorded is sent again, and holds no other one up.
func TestWorkerSendsFailedResultsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("bad"))
		s.outcome = func(lease string, n int) string {
			if lease == "bad" && n < 10 {
				return client.OutcomeFailed
			}
			return client.OutcomeRecorded
		}
		w := startWorker(t, s, done, nil)
		pass(20 * time.Second) // the pause is 5 to 10 s now
		before := len(s.sent("bad"))
		begin := time.Now()
		s.add(task("good"))
		synctest.Wait()
		if len(s.sent("good")) != 1 || time.Since(begin) > 0 || before < 4 {
			t.Errorf("another result waits for one that fails: %v, %d", s.sent("good"), before)
		}
		pass(2 * time.Minute)
		if n := len(s.sent("bad")); n != 10 {
			t.Errorf("it was sent %d times", n)
		}
		w.drain(t)
	})
}

// 503 with Retry-After is waited for, by every loop.
func TestWorkerHonoursRetryAfter(t *testing.T) {
	for _, op := range []string{"lease", "heartbeat", "results"} {
		synctest.Test(t, func(t *testing.T) {
			s := newQueueServer(task("a"))
			var at []time.Time
			refuse := refusing(op, 503, fault.ServerUnreachable, 1, 1, "Retry-After", "90")
			s.fail = func(operation string, n int, w http.ResponseWriter) bool {
				if operation == op {
					at = append(at, time.Now())
				}
				return refuse(operation, n, w)
			}
			w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
				task.Report.Log("info", "a line")
				return done(ctx, task)
			}, nil)
			pass(5 * time.Minute)
			if len(at) < 2 || at[1].Sub(at[0]) < 90*time.Second || len(s.sent("a")) != 1 {
				t.Errorf("%s: %v", op, at)
			}
			w.drain(t)
		})
	}
}

// A result that the server refuses is replaced by a failure; if that is refused, too, the task is given up.
func TestWorkerReplacesRefusedResults(t *testing.T) {
	for _, code := range []fault.Code{fault.RequestTooLarge, fault.RequestInvalid} {
		synctest.Test(t, func(t *testing.T) {
			s := newQueueServer(task("a"), task("b"))
			s.fail = refusing("results", 422, code, 1, 3) // both, then a, then the failure of a
			w := startWorker(t, s, done, nil)
			pass(time.Minute)
			if a, b := s.sent("a"), s.sent("b"); len(a)+len(b) != 1 || s.requests("results") != 4 {
				t.Errorf("%v, %v, %d requests", a, b, s.requests("results"))
			}
			s.mu.Lock()
			s.fail = refusing("results", 413, code, 5, 5)
			s.mu.Unlock()
			s.add(task("c"))
			pass(time.Minute)
			if got := s.sent("c"); len(got) != 1 || got[0].Error == nil || got[0].Output != nil || !strings.Contains(got[0].Error.Message, "did not take the result") {
				t.Errorf("%+v", got)
			}
			beats := s.heartbeats()
			if pass(time.Minute); s.heartbeats() != beats {
				t.Error("the lease of a task that was given up is extended")
			}
			w.drain(t)
		})
	}
}

// What will not pass ends Run.
func TestWorkerEndsWithWhatWillNotPass(t *testing.T) {
	for code, status := range map[fault.Code]int{fault.Unauthorized: 401, fault.Forbidden: 403, fault.NotFound: 404, fault.AccountDisabled: 403} {
		synctest.Test(t, func(t *testing.T) {
			s := newQueueServer(task("a"))
			s.fail = func(op string, n int, w http.ResponseWriter) bool {
				if op == "lease" && n == 1 {
					return false
				}
				problem(status, code, false)(w, nil) // for results as well, so they are given up
				return true
			}
			begin := time.Now()
			w := startWorker(t, s, done, nil)
			if err := <-w.ended; fault.CodeOf(err) != code {
				t.Errorf("%v", err)
			}
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// When its context ends a worker asks for no more tasks; those under way end and are reported, as do
// those of an answer that was under way.
func TestWorkerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"))
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			time.Sleep(20 * time.Second)
			return done(ctx, task)
		}, nil)
		pass(time.Second)
		w.stop()
		s.add(task("b")) // the request for it is still under way
		pass(2 * time.Second)
		s.add(task("c"))
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		if got := append(s.sent("a"), s.sent("b")...); len(got) != 2 || got[0].Error != nil || got[1].Error != nil || s.left() != 1 || s.heartbeats() == 0 {
			t.Errorf("%+v, %d tasks, %d heartbeats", got, s.left(), s.heartbeats())
		}
	})
}

// After the grace contexts end, with a cause, and the failures are reported.
func TestWorkerGracePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"))
		var cause error
		w := startWorker(t, s, func(ctx context.Context, _ *action.Task) (action.Result, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return action.Result{}, ctx.Err()
		}, func(w *client.Worker) { w.Grace = 5 * time.Second })
		pass(time.Second)
		begin := time.Now()
		w.drain(t)
		if got := s.sent("a"); time.Since(begin) > 6*time.Second || cause == nil || !strings.Contains(cause.Error(), "stops") || len(got) != 1 || got[0].Error == nil {
			t.Errorf("%s, %v, %+v", time.Since(begin), cause, got)
		}
	})
}

// A worker whose server is gone ends nevertheless.
func TestWorkerGivesResultsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"))
		s.fail = func(op string, _ int, w http.ResponseWriter) bool {
			if op != "lease" {
				cut(w, nil)
			}
			return false
		}
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			task.Report.Log("info", "a line that the server never gets")
			return done(ctx, task)
		}, func(w *client.Worker) { w.Grace = time.Second })
		pass(time.Second)
		begin := time.Now()
		w.drain(t)
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// The context of a task whose lease has ended is cancelled with a cause; nothing is sent of it any more.
func TestWorkerStopsTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"), task("b"))
		s.ended = []string{"a"}
		causes := map[string]error{}
		var mu sync.Mutex
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			select {
			case <-ctx.Done():
				task.Report.Log("info", "too late")
			case <-time.After(time.Minute):
			}
			mu.Lock()
			defer mu.Unlock()
			causes[task.Run] = context.Cause(ctx)
			return done(ctx, task)
		}, nil)
		pass(2 * time.Minute)
		if c := causes["run_a"]; c == nil || !strings.Contains(c.Error(), "waits for the task no longer") || causes["run_b"] != nil {
			t.Errorf("%v", causes)
		}
		if len(s.sent("a")) != 0 || len(s.reports) != 0 || len(s.sent("b")) != 1 {
			t.Errorf("%v, %v", s.results, s.reports)
		}
		w.drain(t)
	})
}

// A panic is a failure, whose stack is for the log of the worker alone.
func TestWorkerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"), task("b"))
		var log bytes.Buffer
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			if task.Run == "run_a" {
				panic("with a secret")
			}
			return done(ctx, task)
		}, func(w *client.Worker) { w.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		pass(time.Second)
		w.drain(t)
		if got := s.sent("a"); len(got) != 1 || got[0].Error == nil || !strings.Contains(got[0].Error.Message, "panicked") || strings.Contains(fmt.Sprint(*got[0].Error), "secret") {
			t.Errorf("%+v", got)
		}
		if text := log.String(); !strings.Contains(text, "with a secret") || !strings.Contains(text, "worker_test.go") || len(s.sent("b")) != 1 {
			t.Error(text)
		}
	})
}

// Tasks of another action or version fail; a worker that names no version has all of them.
func TestWorkerActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, old := task("other"), task("old")
		other.Action, old.Version = "other", "0.9.0"
		s := newQueueServer(task("a"), other, old)
		w := startWorker(t, s, done, func(w *client.Worker) { w.Actions[0].Version = "1.0.0" })
		pass(time.Second)
		w.drain(t)
		for lease, want := range map[string]string{"a": "", "other": "does not carry out other@1.0.0", "old": "does not carry out do@0.9.0"} {
			got := s.sent(lease)
			if len(got) != 1 || (want == "") != (got[0].Error == nil) || want != "" && !strings.Contains(got[0].Error.Message, want) {
				t.Errorf("%s: %+v", lease, got)
			}
		}
		s = newQueueServer(old)
		w = startWorker(t, s, done, nil)
		pass(time.Second)
		w.drain(t)
		if got := s.sent("old"); len(got) != 1 || got[0].Error != nil {
			t.Errorf("any version: %+v", got)
		}
	})
}

// A job that an action has submitted ends its task.
func TestWorkerSubmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"))
		w := startWorker(t, s, func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Job: &action.Job{Provider: "farm", ID: "j1", Handle: []byte(`{"n":1}`), TTL: time.Hour}, Price: "1"}, nil
		}, nil)
		pass(time.Second)
		w.drain(t)
		got := s.sent("a")
		if len(got) != 1 || got[0].Submitted == nil || got[0].Output != nil || got[0].Error != nil || got[0].Price != "" {
			t.Fatalf("%+v", got)
		}
		if j := got[0].Submitted; j.Provider != "farm" || j.JobID != "j1" || string(j.Handle) != `{"n":1}` || j.TTLMS != 3_600_000 {
			t.Errorf("%+v", j)
		}
	})
}

// What an action returns that the interface does not allow is a failure of its task.
func TestWorkerResults(t *testing.T) {
	for name, tt := range map[string]struct {
		run  action.Func
		want client.WorkerFailure
	}{
		"no JSON": {func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Output: math.Inf(1)}, nil
		}, client.WorkerFailure{Message: "unsupported value"}},
		"a long message": {func(context.Context, *action.Task) (action.Result, error) {
			err := fault.New(fault.RateLimited, "%s", strings.Repeat("ä", 10_000))
			err.RetryAfterMS, err.OutcomeUnknown = math.MaxInt64, true
			return action.Result{}, err
		}, client.WorkerFailure{Code: "RATE_LIMITED", Message: strings.Repeat("ä", 1000), RetryAfterMS: 3_600_000, OutcomeUnknown: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newQueueServer(task("a"))
			w := startWorker(t, s, tt.run, nil)
			pass(time.Second)
			w.drain(t)
			got := s.sent("a")
			if len(got) != 1 || got[0].Error == nil || got[0].Output != nil || got[0].Error.Code != tt.want.Code || !strings.Contains(got[0].Error.Message, tt.want.Message) || got[0].Error.RetryAfterMS != tt.want.RetryAfterMS || got[0].Error.OutcomeUnknown != tt.want.OutcomeUnknown || len(got[0].Error.Message) > 4096 {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
}
