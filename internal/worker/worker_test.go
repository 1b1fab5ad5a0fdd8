// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder records the results and reports of a pool.
type recorder struct {
	mu      sync.Mutex
	order   []string // "done X" and "freed X"
	results map[ID]Result
	reports []Report
	log     bytes.Buffer
	done    chan Result
}

func (w *recorder) config() Config {
	w.results = map[ID]Result{}
	w.done = make(chan Result, 10_000)
	return Config{
		Done: func(r Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if _, twice := w.results[r.ID]; twice {
				panic(fmt.Sprintf("a second result for %v", r.ID))
			}
			w.results[r.ID] = r
			w.order = append(w.order, "done "+r.ID.Run)
			w.done <- r
		},
		Freed: func(id ID, _ Owner) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.order = append(w.order, "freed "+id.Run)
		},
		Report: func(r Report) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, r)
		},
		Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
}

func (w *recorder) recorded() (order []string, reports []Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.order...), append([]Report(nil), w.reports...)
}

func task(name string, fn action.Func) Task {
	return Task{
		ID:     ID{Run: name, Attempt: 1, Gen: 1},
		Action: &action.Action{Name: name, Version: "1.0.0", Cost: 3, Run: fn},
		Task:   action.Task{Run: name, Step: "s", Attempt: 1, Input: json.RawMessage(`{"n":1}`)},
	}
}

func run(t *testing.T, p *Pool, w *recorder, tk Task) Result {
	t.Helper()
	if err := p.Run(tk); err != nil {
		t.Fatalf("Run: %v", err)
	}
	return <-w.done
}

func TestSuccess(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	tk := task("ok", func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct{ N int }
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		return action.Result{Output: map[string]any{"z": in.N, "a": []string{"x"}}}, nil
	})
	r := run(t, p, w, tk)
	if r.Err != nil || string(r.Output) != `{"a":["x"],"z":1}` || r.Cost != 3 || r.Holding {
		t.Errorf("result = %+v, output %s", r, r.Output)
	}
	if n := p.Stop(context.Background()); n != 0 {
		t.Errorf("Stop abandoned %d", n)
	}
	if err := p.Run(tk); !errors.Is(err, fault.Stopping) {
		t.Errorf("Run after Stop = %v, want STOPPING", err)
	}
}

func TestOutcomes(t *testing.T) {
	five, negative := int64(5), int64(-1)
	big := strings.Repeat("x", MaxOutput)
	for _, tt := range []struct {
		name string
		out  any
		cost *int64
		err  error
		code fault.Code
		want string

		price, paid string
	}{
		{name: "nil is null", want: "null"},
		{name: "a struct is encoded by its tags", out: struct {
			B int `json:"b"`
			A int `json:"a"`
		}{1, 2}, want: `{"a":2,"b":1}`},
		{name: "raw JSON is made canonical", out: json.RawMessage(` {"b": 1.0, "a":9007199254740993}`), want: `{"a":9007199254740993,"b":1}`},
		{name: "cost is overridden", out: true, cost: &five, want: "true"},
		{name: "a negative cost is refused", out: true, cost: &negative, code: fault.StepFailed},                                                       // A26
		{name: "an output over 1 MiB where there are no files", out: big, code: fault.OutputTooLarge},                                                  // I16
		{name: "raw JSON far over 1 MiB is not decoded", out: json.RawMessage(strings.Repeat("[", rawFactor*MaxOutput+1)), code: fault.OutputTooLarge}, // I15
		{name: "broken raw JSON", out: json.RawMessage(`{"a":1,"a":2}`), code: fault.StepFailed},
		{name: "a price is told", out: true, price: "0.25", want: "true", paid: "0.25"},
		{name: "a price that is none", out: true, price: "-1", code: fault.StepFailed}, // A26
		{name: "what a failed call cost", price: "0.25", err: errors.New("boom"), code: fault.StepFailed, paid: "0.25"},
		{name: "what a call cost whose output is refused", out: big, price: "0.25", code: fault.OutputTooLarge, paid: "0.25"},
		{name: "a channel is no JSON", out: make(chan int), code: fault.StepFailed},
		{name: "an integer beyond 64 bits", out: json.RawMessage("18446744073709551616"), code: fault.StepFailed},
		{name: "a fault keeps its code", err: fmt.Errorf("call: %w", fault.New(fault.RateLimited, "slow down")), code: fault.RateLimited},
		{name: "a provider's own code passes", err: fault.New("ACME_DOWN", "no"), code: "ACME_DOWN"},
		{name: "any other error is STEP_FAILED", err: errors.New("boom"), code: fault.StepFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &recorder{}
			p := New(w.config())
			r := run(t, p, w, task("x", func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{Output: tt.out, Cost: tt.cost, Price: tt.price}, tt.err
			}))
			if got := codeOf(r.Err); got != tt.code {
				t.Fatalf("code = %q (%v), want %q", got, r.Err, tt.code)
			}
			if tt.want != "" && string(r.Output) != tt.want {
				t.Errorf("output = %s, want %s", r.Output, tt.want)
			}
			if got := fmt.Sprint(r.Price); tt.paid == "" && r.Price != nil || tt.paid != "" && (r.Price == nil || r.Price.String() != tt.paid) {
				t.Errorf("the price is %s, want %q", got, tt.paid)
			}
			if tt.cost == &five && r.Cost != 5 {
				t.Errorf("cost = %d, want 5", r.Cost)
			}
			p.Stop(context.Background())
		})
	}
}

func codeOf(e *fault.Error) fault.Code {
	if e == nil {
		return ""
	}
	return e.Code
}

func TestContractsAreCheckedOnce(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	tk := task("c", func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"ok": true}}, nil
	})
	in, out := 0, 0
	tk.CheckInput = func(v any) error { in++; return nil }
	tk.CheckOutput = func(v any) error {
		out++
		if v.(map[string]any)["ok"] != true {
			t.Errorf("the validator saw %v", v)
		}
		return errors.New("/ok: want false")
	}
	r := run(t, p, w, tk)
	if codeOf(r.Err) != fault.OutputContractViolation || in != 1 || out != 1 {
		t.Errorf("result %v after %d and %d checks", r.Err, in, out)
	}
	tk.ID.Attempt, tk.CheckOutput = 2, nil
	tk.CheckInput = func(any) error { return fault.New(fault.InputInvalid, "file is missing") }
	called := false
	tk.Action.Run = func(context.Context, *action.Task) (action.Result, error) { called = true; return action.Result{}, nil }
	if r := run(t, p, w, tk); codeOf(r.Err) != fault.InputInvalid || called {
		t.Errorf("result %v, action called: %v", r.Err, called)
	}
	p.Stop(context.Background())
}

// A panic ends one attempt; its stack and its value appear only in the log.
func TestI16_F19_Panic(t *testing.T) {
	const secret = "hunter2-in-a-panic"
	for name, fn := range map[string]action.Func{
		"panic": func(context.Context, *action.Task) (action.Result, error) { panic(secret) },
		"nil map": func(context.Context, *action.Task) (action.Result, error) {
			var m map[string]int
			m[secret] = 1 //nolint:staticcheck // SA5000: the panic is the point
			return action.Result{}, nil
		},
		"goexit": func(context.Context, *action.Task) (action.Result, error) {
			runtime.Goexit()
			return action.Result{}, nil
		},
		"in its encoder": func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Output: panicsWhenEncoded{}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &recorder{}
			p := New(w.config())
			r := run(t, p, w, task("bad", fn))
			if codeOf(r.Err) != fault.StepFailed || !fault.OutcomeUnknown(r.Err) { // I4: it may have had its effect
				t.Fatalf("result = %+v, want STEP_FAILED with an unknown outcome", r)
			}
			if msg := r.Err.Error(); strings.Contains(msg, secret) || strings.Contains(msg, "goroutine ") || strings.Contains(msg, ".go:") {
				t.Errorf("the message shows what belongs into the log: %s", msg)
			}
			p.Stop(context.Background())
			if log := w.log.String(); name == "panic" && (!strings.Contains(log, secret) || !strings.Contains(log, "worker_test.go")) {
				t.Errorf("the log lacks value or stack: %s", log)
			}
			// The pool still works (F19).
			p = New(w.config())
			if r := run(t, p, w, task("good", func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil })); r.Err != nil {
				t.Errorf("the next attempt failed: %v", r.Err)
			}
			p.Stop(context.Background())
		})
	}
}

type panicsWhenEncoded struct{}

func (panicsWhenEncoded) MarshalJSON() ([]byte, error) { panic("in the encoder") }

// X114, X115: at the soft limit the timeout is reported; the action may still clean up,
// and its late result is ignored.
func TestX115_TimeoutReportsAtTheDeadlineAndFreesOnReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		start := time.Now()
		tk := task("slow", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			if d, ok := ctx.Deadline(); !ok || d.Sub(start) != 2*time.Second {
				t.Errorf("the context's deadline is %v after the start", d.Sub(start))
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), fault.StepTimeout) {
				t.Errorf("cause = %v", context.Cause(ctx))
			}
			time.Sleep(time.Second) // cleaning up
			return action.Result{Output: "late"}, nil
		})
		tk.TimeoutMS = 2_000
		r := run(t, p, w, tk)
		if codeOf(r.Err) != fault.StepTimeout || !r.Holding || time.Since(start) != 2*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), r)
		}
		synctest.Wait()
		if order, _ := w.recorded(); len(order) != 1 || p.Running() != 1 {
			t.Errorf("before the action returned: %v, running %d", order, p.Running())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if order, _ := w.recorded(); fmt.Sprint(order) != "[done slow freed slow]" || p.Running() != 0 {
			t.Errorf("after the action returned: %v, running %d", order, p.Running())
		}
		p.Stop(context.Background())
	})
}

// Freed is called after Done, however slow the callbacks are.
func TestFreedComesAfterDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, lasts := range map[string]time.Duration{"returns soon": time.Second, "returns after the grace": time.Minute} {
			var mu sync.Mutex
			var order []string
			say := func(what string) { mu.Lock(); order = append(order, what); mu.Unlock() }
			p := New(Config{
				Done:  func(Result) { time.Sleep(20 * time.Second); say("done") },
				Freed: func(ID, Owner) { say("freed") },
			})
			tk := task("slow", func(ctx context.Context, _ *action.Task) (action.Result, error) {
				<-ctx.Done()
				time.Sleep(lasts)
				return action.Result{}, nil
			})
			tk.TimeoutMS = 1_000
			if err := p.Run(tk); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if n := p.Stop(context.Background()); n != 0 {
				t.Errorf("%s: %d abandoned", name, n)
			}
			mu.Lock()
			if fmt.Sprint(order) != "[done freed]" {
				t.Errorf("%s: %v", name, order)
			}
			mu.Unlock()
			p.mu.Lock()
			if p.abandoned != 0 {
				t.Errorf("%s: %d still counted as abandoned", name, p.abandoned)
			}
			p.mu.Unlock()
		}
	})
}

// An action that ignores its context loses its slot after the grace period
// (F19).
func TestF19_RunawayGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		cfg := w.config()
		cfg.MaxAbandoned = 1
		p := New(cfg)
		release := make(chan struct{})
		tk := task("runaway", func(_ context.Context, task *action.Task) (action.Result, error) {
			<-release
			task.Report.Log("info", "still here")
			return action.Result{Output: "much too late"}, nil
		})
		tk.TimeoutMS = 1_000
		if r := run(t, p, w, tk); codeOf(r.Err) != fault.StepTimeout || !r.Holding {
			t.Fatalf("result = %+v", r)
		}
		time.Sleep(5*time.Second - time.Nanosecond)
		synctest.Wait()
		if p.Running() != 1 {
			t.Error("the slot was given away before the grace of 5 s had passed")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if order, _ := w.recorded(); fmt.Sprint(order) != "[done runaway freed runaway]" || p.Running() != 0 {
			t.Errorf("after the grace: %v, running %d", order, p.Running())
		}
		// I15: goroutines that never return are bounded.
		if err := p.Run(task("next", nil)); !errors.Is(err, fault.ActionNotFound) {
			t.Errorf("a task without function: %v", err)
		}
		next := task("next", func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil })
		if err := p.Run(next); err == nil || !strings.Contains(err.Error(), "1 actions have not returned") {
			t.Errorf("Run beside too many runaways = %v", err)
		}
		close(release)
		synctest.Wait()
		if _, reports := w.recorded(); len(reports) != 0 {
			t.Errorf("a runaway was heard: %v", reports)
		}
		if r := run(t, p, w, next); r.Err != nil {
			t.Errorf("after the runaway ended: %v", r.Err)
		}
		p.Stop(context.Background())
	})
}

func TestX96_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		obedient := task("obedient", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			<-ctx.Done()
			return action.Result{}, fmt.Errorf("reading: %w", ctx.Err())
		})
		deaf := task("deaf", func(context.Context, *action.Task) (action.Result, error) {
			time.Sleep(time.Minute)
			return action.Result{}, nil
		})
		done := task("done", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			<-ctx.Done()
			return action.Result{Output: 1}, nil // too late to stop
		})
		for _, tk := range []Task{obedient, deaf, done} {
			if err := p.Run(tk); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := p.Run(deaf); !errors.Is(err, fault.Conflict) {
			t.Errorf("the same attempt twice: %v", err)
		}
		start := time.Now()
		for _, tk := range []Task{obedient, deaf, done} {
			if !p.Cancel(tk.ID) || tk.ID == deaf.ID && !p.Cancel(tk.ID) {
				t.Errorf("Cancel(%v) found nothing", tk.ID)
			}
		}
		for range 3 {
			r := <-w.done
			switch {
			case r.ID == done.ID && (r.Err != nil || string(r.Output) != "1"):
				t.Errorf("a finished action lost its result: %+v", r)
			case r.ID == obedient.ID && (codeOf(r.Err) != fault.ExecutionCancelled || time.Since(start) != 0):
				t.Errorf("obedient after %v: %+v", time.Since(start), r)
			case r.ID == deaf.ID && (codeOf(r.Err) != fault.ExecutionCancelled || r.Holding || time.Since(start) != 5*time.Second):
				t.Errorf("deaf after %v: %+v", time.Since(start), r)
			}
		}
		synctest.Wait()
		if p.Cancel(deaf.ID) || p.Running() != 0 {
			t.Errorf("still known after the grace; running %d", p.Running())
		}
		time.Sleep(time.Minute)
		p.Stop(context.Background())
	})
}

// A context derived from the attempt's needs no goroutine.
func TestChildContextCostsNoGoroutine(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	r := run(t, p, w, task("child", func(ctx context.Context, _ *action.Task) (action.Result, error) {
		before := runtime.NumGoroutine()
		for range 50 {
			_, cancel := context.WithCancel(ctx)
			defer cancel()
		}
		return action.Result{Output: runtime.NumGoroutine() - before}, nil
	}))
	var n int
	if _ = json.Unmarshal(r.Output, &n); n >= 50 {
		t.Errorf("50 child contexts started %d goroutines", n)
	}
	p.Stop(context.Background())
}

// I15: logs, deltas and previews are bounded, and dropped reports are counted.
func TestI15_ReportsAreBounded(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	r := run(t, p, w, task("chatty", func(_ context.Context, task *action.Task) (action.Result, error) {
		for i := range 1_500 {
			task.Report.Log("INFO", fmt.Sprint(i))
		}
		for range 10 {
			task.Report.Delta(strings.Repeat("d", 1<<20))
		}
		task.Report.Preview(make(chan int))
		task.Report.Preview(map[string]any{"page": 1})
		task.Report.Log("info", "\xff")
		return action.Result{}, nil
	}))
	_, reports := w.recorded()
	kinds := map[ReportKind]int{}
	bytes := 0
	for _, rep := range reports {
		kinds[rep.Kind]++
		bytes += len(rep.Text) + len(rep.Value)
	}
	if kinds[Log] != MaxLogs || kinds[Delta] != 3 || kinds[Preview] != 1 || bytes > MaxReported {
		t.Errorf("passed on: %v, %d bytes", kinds, bytes)
	}
	if r.Dropped != 500+7+1+1 {
		t.Errorf("dropped = %d, want 509", r.Dropped)
	}
	p.Stop(context.Background())
}

// TestF21_LongLogLine: a log line of 10 MiB is dropped and counted; the lines around it
// are passed on, and the result is unaffected.
func TestF21_LongLogLine(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	r := run(t, p, w, task("long-winded", func(_ context.Context, task *action.Task) (action.Result, error) {
		task.Report.Log("info", "before")
		task.Report.Log("info", strings.Repeat("x", 10<<20))
		task.Report.Log("info", "after")
		return action.Result{Output: 1}, nil
	}))
	_, reports := w.recorded()
	var lines []string
	for _, rep := range reports {
		lines = append(lines, rep.Text[:min(len(rep.Text), 20)])
	}
	if !slices.Equal(lines, []string{"before", "after"}) || r.Dropped != 1 {
		t.Errorf("passed on %q, dropped %d", lines, r.Dropped)
	}
	if r.Err != nil || string(r.Output) != "1" {
		t.Errorf("the result is %+v", r)
	}
	p.Stop(context.Background())
}

func TestProgressIsThinnedOut(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	run(t, p, w, task("steps", func(_ context.Context, task *action.Task) (action.Result, error) {
		for i := range 100_000 {
			task.Report.Progress(float64(i+1)/100_000, "reading")
		}
		task.Report.Progress(1, "reading")
		task.Report.Progress(1, "done")
		task.Report.Progress(7, "done")
		return action.Result{}, nil
	}))
	_, reports := w.recorded()
	if n := len(reports); n < 100 || n > 210 {
		t.Errorf("%d progress reports of 100,000", n)
	}
	if last := reports[len(reports)-1]; last.Fraction != 1 || last.Text != "done" {
		t.Errorf("the last says %+v", last)
	}
	p.Stop(context.Background())
}

func TestStopWaitsThenAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		quick := task("quick", func(context.Context, *action.Task) (action.Result, error) {
			time.Sleep(time.Second)
			return action.Result{}, nil
		})
		slow := task("slow", func(ctx context.Context, task *action.Task) (action.Result, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), fault.Stopping) {
				t.Errorf("cause = %v, want STOPPING", context.Cause(ctx))
			}
			task.Report.Log("info", "too late to be heard")
			return action.Result{}, ctx.Err()
		})
		slow.TimeoutMS = 60_000
		for _, tk := range []Task{quick, slow} {
			if err := p.Run(tk); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if n := p.Stop(ctx); n != 1 || time.Since(start) != 3*time.Second {
			t.Errorf("Stop abandoned %d after %v", n, time.Since(start))
		}
		synctest.Wait()
		// The abandoned attempt stays open for recovery: it never reports.
		if order, reports := w.recorded(); fmt.Sprint(order) != "[done quick]" || len(reports) != 0 {
			t.Errorf("reported: %v, %v", order, reports)
		}
	})
}

// Deadlines, cancels and returns race; each attempt reports once and nothing leaks.
func TestI3_OneResultPerAttempt(t *testing.T) {
	w := &recorder{} // its Done panics on a second result
	cfg := w.config()
	cfg.Grace = time.Millisecond
	p := New(cfg)
	const n = 2_000
	for i := range n {
		tk := task(fmt.Sprint(i), func(ctx context.Context, _ *action.Task) (action.Result, error) {
			if i%3 == 0 {
				<-ctx.Done()
			}
			return action.Result{Output: i}, ctx.Err()
		})
		tk.TimeoutMS = int64(1 + i%3)
		if err := p.Run(tk); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 {
			p.Cancel(tk.ID)
		}
	}
	if left := p.Stop(context.Background()); left != 0 || len(w.results) != n {
		t.Errorf("%d results, %d abandoned, want %d and 0", len(w.results), left, n)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	r := run(t, p, w, task("long", func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, errors.New(strings.Repeat("\xff", 1<<20))
	}))
	if len(r.Err.Msg) > 2*maxMessage+10 {
		t.Errorf("a message of %d bytes", len(r.Err.Msg))
	}
	p.Stop(context.Background())
}
