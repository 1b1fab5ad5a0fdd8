// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
)

// The result of a task comes after what it has reported, also when that has to be sent again; what is
// sent again has the same numbers.
func TestWorkerReportsBeforeTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"), task("b"))
		s.after = func(op string, n int) bool { return op == "heartbeat" && n <= 2 } // it has the reports, but the worker does not know
		var reporting sync.WaitGroup                                                 // neither ends, which sends reports, before the other has reported
		reporting.Add(2)
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			task.Report.Progress(0.1, "begun")
			task.Report.Delta("one ")
			task.Report.Delta("two ")
			task.Report.Log("warn", "a line")
			task.Report.Delta("three")
			task.Report.Progress(0.9, "nearly done")
			task.Report.Preview(map[string]any{"so": "far"})
			reporting.Done()
			reporting.Wait()
			return done(ctx, task)
		}, nil)
		pass(time.Minute)
		w.drain(t)
		for _, lease := range []string{"a", "b"} {
			i := slices.Index(s.order, "result "+lease)
			if i < 0 || slices.Contains(s.order[i:], "report "+lease) {
				t.Fatalf("%v", s.order)
			}
			var text string
			kinds := map[int64]client.WorkerReport{}
			var seqs []int64
			for _, r := range s.reports {
				if _, again := kinds[r.Seq]; r.Lease == lease && !again {
					kinds[r.Seq], seqs, text = r, append(seqs, r.Seq), text+r.Delta
				}
			}
			if text != "one two three" || len(seqs) != 5 || !slices.IsSorted(seqs) || *kinds[seqs[0]].Fraction != 0.9 || kinds[seqs[2]].Log != "a line" || kinds[seqs[4]].Preview == nil {
				t.Errorf("%s: %q, %v, %+v", lease, text, seqs, s.reports)
			}
		}
		if n := len(s.reports); n != 30 {
			t.Errorf("%d reports", n)
		}
	})
}

// A result waits for its reports no longer than they take.
func TestWorkerSendsReportsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"))
		begin := time.Now()
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			task.Report.Log("info", "a line")
			return done(ctx, task)
		}, nil)
		synctest.Wait()
		if len(s.sent("a")) != 1 || time.Since(begin) > 0 {
			t.Errorf("%v after %s", s.sent("a"), time.Since(begin))
		}
		w.drain(t)
	})
}

// I15: what a task reports is bounded, and what the server would refuse is made to fit.
func TestI15_WorkerReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueServer(task("a"), task("b"))
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			to := task.Report
			if task.Run == "run_b" {
				for range 500_000 {
					to.Delta("123456789ä")
				}
				return done(ctx, task)
			}
			to.Progress(math.NaN(), strings.Repeat("ä", 5000))
			to.Progress(7, strings.Repeat("ä", 5000))
			to.Log("loud", strings.Repeat("ä", 100_000))
			to.Log("info", "")
			to.Delta("")
			to.Delta(strings.Repeat("ä", 100_000))
			to.Preview(math.Inf(1)) // no JSON
			for range 5000 {
				to.Log("debug", "a line")
			}
			return done(ctx, task)
		}, nil)
		pass(time.Minute)
		w.drain(t)
		logs, deltas := 0, map[string]*strings.Builder{"a": {}, "b": {}}
		for _, r := range s.reports {
			if r.Log != "" {
				logs++
			}
			if deltas[r.Lease].WriteString(r.Delta); len([]rune(r.Text)) > 1000 || len([]rune(r.Log)) > 65536 || len(r.Delta) > 1<<16 || r.Fraction != nil && (*r.Fraction < 0 || *r.Fraction > 1) || r.Log == "" && r.Level != "" || r.Level == "loud" {
				t.Errorf("%.100s", fmt.Sprint(r))
			}
		}
		if logs != 1000 || deltas["a"].String() != strings.Repeat("ä", 100_000) {
			t.Errorf("%d lines, %d bytes of text", logs, deltas["a"].Len())
		}
		if n := deltas["b"].Len(); n > 4<<20 || n < 4<<20-20 || len(s.reports) > 10_000 {
			t.Errorf("%d bytes of text in %d reports", n, len(s.reports))
		}
	})
}

// Leases are extended at a third of the shortest one, until the result is recorded.
func TestWorkerHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := task("short")
		short.LeaseMS = 3000
		s := newQueueServer()
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			time.Sleep(25 * time.Second)
			return done(ctx, task)
		}, nil)
		pass(9 * time.Second)
		s.add(task("long"))
		if pass(9 * time.Second); s.heartbeats() != 0 {
			t.Error("a heartbeat is sent although the oldest lease has begun 9 s ago")
		}
		pass(3 * time.Second)
		if s.heartbeats() != 1 {
			t.Errorf("%d heartbeats in 12 s with a lease of 30 s", s.heartbeats())
		}
		s.add(short)
		pass(time.Minute)
		w.drain(t)
		for i := 2; i < s.heartbeats(); i++ {
			if every := s.at[i].Sub(s.at[i-1]); every > time.Second {
				t.Errorf("%s between two heartbeats with a lease of 3 s", every)
			}
		}
		if n := s.heartbeats(); n < 25 || n > 30 {
			t.Errorf("%d heartbeats", n)
		}
		if last := s.beats[len(s.beats)-1]; !slices.Equal(last, []string{"short"}) {
			t.Errorf("the last heartbeat extends %v", last)
		}
	})
}

// A stalled heartbeat does not keep later ones from being sent in time.
func TestWorkerHeartbeatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := task("a")
		short.LeaseMS = 9000
		s := newQueueServer(short)
		s.fail = func(op string, n int, _ http.ResponseWriter) bool {
			if op != "heartbeat" || n > 1 {
				return false
			}
			time.Sleep(time.Hour)
			return true
		}
		begin := time.Now()
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			time.Sleep(15 * time.Second)
			return done(ctx, task)
		}, nil)
		pass(20 * time.Second)
		w.drain(t)
		if s.heartbeats() == 0 || s.at[0].Sub(begin) > 9*time.Second {
			t.Errorf("the first heartbeat that arrives is of %v", s.at)
		}
		time.Sleep(2 * time.Hour) // the stalled request ends
	})
}

// I15: tasks under way and results that cannot be sent are bounded.
func TestI15_WorkerTasksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks []client.WorkerTask
		for i := range 3000 {
			tasks = append(tasks, task(fmt.Sprint(i)))
		}
		s := newQueueServer(tasks...)
		s.outcome = func(string, int) string { return client.OutcomeFailed }
		var mu sync.Mutex
		now, most := 0, 0
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return done(ctx, task)
		}, func(w *client.Worker) { w.Concurrency = 8 })
		pass(5 * time.Minute)
		if taken := 3000 - s.left(); most != 8 || s.most != 8 || taken > 2000 {
			t.Errorf("%d at once, %d asked for, %d taken while no result is recorded", most, s.most, taken)
		}
		s.mu.Lock()
		s.outcome = nil
		s.mu.Unlock()
		pass(5 * time.Minute)
		w.drain(t)
		if s.left() != 0 {
			t.Errorf("%d tasks are left", s.left())
		}
	})
}

// A thousand tasks cost a goroutine and a few kilobytes each.
func TestI15_ThousandTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		var tasks []client.WorkerTask
		for i := range n {
			tasks = append(tasks, task(fmt.Sprint(i)))
		}
		s := newQueueServer(tasks...)
		release := make(chan struct{})
		var before, during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		w := startWorker(t, s, func(ctx context.Context, task *action.Task) (action.Result, error) {
			<-release
			return done(ctx, task)
		}, func(w *client.Worker) { w.Concurrency = n })
		pass(time.Second)
		if s.left() != 0 {
			t.Fatalf("%d tasks are not under way", s.left())
		}
		more := runtime.NumGoroutine() - goroutines
		runtime.GC()
		runtime.ReadMemStats(&during)
		each := (int64(during.HeapAlloc+during.StackInuse) - int64(before.HeapAlloc+before.StackInuse)) / n
		if more > n+20 || each > 16<<10 {
			t.Errorf("%d goroutines and %d bytes a task", more, each)
		}
		t.Logf("%d goroutines, %d bytes a task", more, each)
		close(release)
		w.drain(t)
		if len(s.results) != n {
			t.Errorf("%d results", len(s.results))
		}
	})
}
