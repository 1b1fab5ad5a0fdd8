// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/crashes"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

func TestRunEndToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e := openEngine(t, st, Config{}, noop())
		p := planOf(t, chain(3), noop())
		run := start(t, e, p, nil)
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("run is %s (%s %s), want completed", head.Status, head.Code, head.Message)
		}
		h, err := e.History(t.Context(), acc, run, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if steps, _ := h.Steps(); steps["s2"] == nil || steps["s2"].Status != "completed" {
			t.Errorf("history: %+v", steps)
		}
		state, err := e.State(t.Context(), acc, run, 0)
		if err != nil || state.Last() != h.Events {
			t.Errorf("state at event %d, history at %d (%v)", state.Last(), h.Events, err)
		}
		early, err := e.State(t.Context(), acc, run, 4)
		if err != nil || early.Last() != 4 {
			t.Errorf("state at event 4 is at %d (%v)", early.Last(), err)
		}
	})
}

func TestStartChecksItsInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openEngine(t, memory.New(memory.Options{}), Config{}, noop())
		p := planOf(t, "name: x\ninputSchema: {type: object, required: [n], properties: {n: {type: integer}}}\nsteps:\n  - {id: a, action: {name: noop}}\n", noop())
		for _, params := range []map[string]any{nil, {"n": "1"}} {
			_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Parameters: params})
			wantCode(t, err, fault.InputInvalid)
		}
		if _, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Parameters: map[string]any{"n": int64(1)}}); err != nil {
			t.Error(err)
		}
		_, err := e.Start(t.Context(), StartRequest{Plan: p})
		wantCode(t, err, fault.Usage)
		missing := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: other}}\n", newAction("other", noop().Run))
		_, err = e.Start(t.Context(), StartRequest{Account: acc, Plan: missing})
		wantCode(t, err, fault.ActionNotFound)
	})
}

// Every reader sees the same dense sequence: from the start, from a cursor, in
// the middle, slowly, and after the end (I14).
func TestI14_WatchHasNoGapAndNoDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		chatty := newAction("chatty", func(_ context.Context, task *action.Task) (action.Result, error) {
			for i := range 20 {
				task.Report.Delta(strings.Repeat("x", 8<<10) + fmt.Sprint(i))
			}
			return action.Result{}, nil
		})
		e := openEngine(t, st, Config{}, chatty)
		p := planOf(t, strings.ReplaceAll(chain(30), "noop", "chatty"), chatty)
		run := start(t, e, p, nil)
		var wg sync.WaitGroup
		read := make([][]uint64, 6)
		for i := range read {
			wg.Go(func() {
				after := uint64(i * 7)
				for ev, err := range e.Watch(t.Context(), acc, run, after) {
					if err != nil {
						t.Errorf("reader %d: %v", i, err)
						return
					}
					read[i] = append(read[i], ev.Seq)
					if i%2 == 1 && len(read[i])%100 == 0 {
						time.Sleep(50 * time.Millisecond) // falls behind and reads the journal
					}
				}
			})
		}
		waitForEnd(t, e, run)
		wg.Wait()
		head, err := st.Load(t.Context(), store.Key{Account: acc, Run: run})
		if err != nil {
			t.Fatal(err)
		}
		for i, seqs := range read {
			want := uint64(i*7) + 1
			for _, seq := range seqs {
				if seq != want {
					t.Fatalf("reader %d: event %d where %d was due", i, seq, want)
				}
				want++
			}
			if want != head.Last+1 {
				t.Errorf("reader %d ended before event %d of %d", i, want, head.Last)
			}
		}
		for range e.Watch(t.Context(), acc, run, head.Last) {
			t.Error("an event after the last one")
		}
		for _, err := range e.Watch(t.Context(), "other", run, 0) {
			wantCode(t, err, fault.RunNotFound)
		}
	})
}

// Progress waits for a commit to share, at most a tenth of a second.
func TestProgressRidesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		slow := newAction("slow", func(ctx context.Context, task *action.Task) (action.Result, error) {
			for i := range 50 {
				task.Report.Log("info", fmt.Sprint("line ", i))
				time.Sleep(10 * time.Millisecond)
			}
			return action.Result{}, nil
		})
		e := openEngine(t, st, Config{}, slow)
		run := start(t, e, planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: slow}}\n", slow), nil)
		before, _ := st.Stats(t.Context())
		lines, began := 0, time.Now()
		for ev, err := range e.Watch(t.Context(), acc, run, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Name() == "node.log" {
				lines++
				if age := time.Since(time.UnixMicro(ev.At)); age > 110*time.Millisecond {
					t.Errorf("line %d came %s after it was logged", lines, age)
				}
			}
		}
		after, _ := st.Stats(t.Context())
		if lines != 50 {
			t.Errorf("%d lines, want 50", lines)
		}
		if n := after.Commits - before.Commits; n > 7 {
			t.Errorf("50 lines in %s took %d commits", time.Since(began), n)
		}
	})
}

// An attempt past its timeout is cancelled through its context and fails; a
// late answer is ignored, and the retry policy decides what follows.
func TestX115_AttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		var calls atomic.Int32
		stuck := newAction("stuck", func(ctx context.Context, task *action.Task) (action.Result, error) {
			if calls.Add(1) == 2 {
				return action.Result{Output: map[string]any{"second": true}}, nil
			}
			<-ctx.Done()
			return action.Result{}, context.Cause(ctx)
		})
		e := openEngine(t, st, Config{}, stuck)
		p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: stuck}, timeout: 2s, retryPolicy: {maxAttempts: 2, initialDelay: 1s}}\n", stuck)
		began := time.Now()
		run := start(t, e, p, nil)
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
		if d := time.Since(began); d < 2*time.Second || d > 4*time.Second {
			t.Errorf("the run took %s", d)
		}
		if lines := trace(t, st, p, acc, run); countPrefix(lines, "node.retried a attempt=1 STEP_TIMEOUT") != 1 {
			t.Errorf("the journal:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// Cancel reaches the action through its context, and what Cancel returns is what happens
// to the run (I8).
func TestF17_CancelReachesTheAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		began, stopped := make(chan struct{}), make(chan error, 1)
		stuck := newAction("stuck", func(ctx context.Context, task *action.Task) (action.Result, error) {
			close(began)
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return action.Result{}, nil
		})
		e := openEngine(t, st, Config{}, stuck)
		p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: stuck}}\n  - {id: b, action: {name: stuck}}\n", stuck)
		run := start(t, e, p, nil)
		<-began
		if err := e.Cancel(t.Context(), acc, run, "enough"); err != nil {
			t.Fatal(err)
		}
		if head := waitForEnd(t, e, run); head.Status != "cancelled" {
			t.Errorf("run is %s", head.Status)
		}
		wantCode(t, <-stopped, fault.ExecutionCancelled)
		wantCode(t, e.Cancel(t.Context(), acc, run, "again"), fault.TooLate)
		wantCode(t, e.Signal(t.Context(), acc, run, "x", nil), fault.TooLate)
		synctest.Wait()
		if lines := trace(t, st, p, acc, run); countPrefix(lines, "node.started") != 1 || countPrefix(lines, "node.ignored") != 0 {
			t.Errorf("the journal:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// An action that stops when it is told to causes no event; one that returns a result
// nevertheless causes one node.ignored event (I3, X82).
func TestI3_AnswerOfACancelledAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, obeys := range []bool{true, false} {
			st := memory.New(memory.Options{})
			slow := newAction("slow", func(ctx context.Context, _ *action.Task) (action.Result, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				if obeys {
					return action.Result{}, ctx.Err()
				}
				return action.Result{Output: "done all the same"}, nil
			})
			e := openEngine(t, st, Config{}, slow)
			p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: slow}, total_timeout: 2s, continue_on_error: true}\n  - {id: w, wait: {duration: 10s}}\n", slow)
			run := start(t, e, p, nil)
			if head := waitForEnd(t, e, run); head.Status != "completed" {
				t.Errorf("run is %s (%s)", head.Status, head.Message)
			}
			want := 0
			if !obeys {
				want = 1
			}
			if lines := trace(t, st, p, acc, run); countPrefix(lines, "node.ignored a") != want {
				t.Errorf("obeys=%v: the journal:\n%s", obeys, strings.Join(lines, "\n"))
			}
		}
	})
}

// A graceful stop lets attempts finish for its grace, then abandons them: they stay
// open, are no failures, and continue after the next start (F45).
func TestF45_GracefulStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		quick := newAction("quick", func(ctx context.Context, task *action.Task) (action.Result, error) {
			time.Sleep(time.Second)
			return action.Result{}, nil
		})
		slow := newAction("slow", func(ctx context.Context, task *action.Task) (action.Result, error) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return action.Result{}, ctx.Err()
		})
		src := "name: x\norder: none\nsteps:\n  - {id: q, action: {name: quick}}\n  - {id: s, action: {name: slow}}\n  - {id: after, action: {name: quick}, dependsOn: [q]}\n"
		p := planOf(t, src, quick, slow)
		e := openEngine(t, st, Config{}, quick, slow)
		run := start(t, e, p, nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		abandoned, err := e.Stop(ctx)
		if err != nil || abandoned != 1 {
			t.Errorf("%d attempts were given up (%v), want 1", abandoned, err)
		}
		if d := time.Since(began); d > 11*time.Second {
			t.Errorf("the stop took %s", d)
		}
		_, err = e.Start(t.Context(), StartRequest{Account: acc, Plan: p})
		wantCode(t, err, fault.Stopping)
		wantCode(t, e.Cancel(t.Context(), acc, run, ""), fault.Stopping)
		for _, err := range e.Watch(t.Context(), acc, run, 1000) {
			wantCode(t, err, fault.Stopping)
		}
		lines := trace(t, st, p, acc, run)
		if countPrefix(lines, "node.completed q") != 1 || countPrefix(lines, "node.failed") != 0 || countPrefix(lines, "node.started after") != 0 {
			t.Errorf("the journal at the stop:\n%s", strings.Join(lines, "\n"))
		}

		st = st.Reopen()
		note, err := st.Note(t.Context(), crashes.Note)
		if h, damaged := crashes.Read(note); err != nil || damaged != nil || h.Running || len(h.Crashes) != 0 {
			t.Errorf("a clean stop was recorded as %s (%v)", note, err)
		}
		fast := newAction("slow", quick.Run)
		e = openEngine(t, st, Config{}, quick, fast)
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
	})
}

// Requests beyond the bound are refused before they are accepted (I15).
func TestI15_PendingRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var slow atomic.Bool
		st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
			if slow.Load() {
				<-gate
			}
			return memory.OK
		}})
		e := openEngine(t, st, Config{MaxPending: 10}, noop())
		p := planOf(t, chain(1), noop())
		slow.Store(true)
		var refused, started atomic.Int32
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p})
				var f *fault.Error
				switch {
				case err == nil:
					started.Add(1)
				case errors.As(err, &f) && f.Code == fault.ServiceUnavailable && f.RetryAfterMS > 0:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		slow.Store(false)
		close(gate)
		wg.Wait()
		if started.Load() != 10 || refused.Load() != 90 {
			t.Errorf("%d started, %d refused; want 10 and 90", started.Load(), refused.Load())
		}
		synctest.Wait()
		heads, err := e.List(t.Context(), store.Query{Account: acc})
		if err != nil || len(heads) != 10 || slices.ContainsFunc(heads, func(h store.Head) bool { return h.Status != "completed" }) {
			t.Errorf("%d runs exist (%v)", len(heads), err)
		}
	})
}

// An engine whose store fails reports the failure and ends on its own.
func TestI21_EngineEndsWithItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
			if bad.Load() {
				return memory.SyncFailed
			}
			return memory.OK
		}})
		e := openEngine(t, st, Config{}, noop())
		p := planOf(t, waitRecipe, noop())
		run := start(t, e, p, nil)
		bad.Store(true)
		_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p})
		wantCode(t, err, fault.StoreFailed)
		<-e.Done()
		wantCode(t, e.Err(), fault.StoreFailed)
		_, err = e.Wait(t.Context(), acc, run)
		wantCode(t, err, fault.StoreFailed)
	})
}

// Contracts of steps and actions are checked before and after the call (X166, X167,
// X172).
func TestX166_Contracts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		typed := noop()
		typed.Input = []byte(`{"type":"object","properties":{"n":{"type":"integer","minimum":1}}}`)
		e := openEngine(t, st, Config{}, typed)
		for src, code := range map[string]fault.Code{
			`{id: a, action: {name: noop, parameters: {n: "{{ input.n }}"}}}`:                                           fault.InputContractViolation,
			`{id: a, action: {name: noop}, contracts: {output: {type: object, required: [missing]}}}`:                   fault.OutputContractViolation,
			`{id: a, action: {name: noop, parameters: {m: 1}}, contracts: {input: {type: object, required: [x]}}}`:      fault.InputContractViolation,
			`{id: a, action: {name: noop, parameters: {n: 1}}, contracts: {output: {properties: {ok: {const: true}}}}}`: "",
		} {
			p := planOf(t, "name: x\nsteps:\n  - "+src+"\n", typed)
			run := start(t, e, p, map[string]any{"n": int64(0)})
			head := waitForEnd(t, e, run)
			if head.Code != code {
				t.Errorf("%s: the run failed with %q (%s), want %q", src, head.Code, head.Message, code)
			}
			if lines := trace(t, st, p, acc, run); code != "" && countPrefix(lines, "contract.violated a") != 1 {
				t.Errorf("%s: the journal:\n%s", src, strings.Join(lines, "\n"))
			}
		}
	})
}

// A panic and a value that is too large end one step, not the process (F21).
func TestF21_OutputTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openEngine(t, memory.New(memory.Options{}), Config{}, noop(),
			newAction("big", func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{Output: map[string]any{"x": strings.Repeat("x", 1<<20)}}, nil
			}),
			newAction("panics", func(context.Context, *action.Task) (action.Result, error) { panic("ouch") }))
		for name, code := range map[string]fault.Code{"big": fault.OutputTooLarge, "panics": fault.StepFailed} {
			p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: "+name+"}}\n", newAction(name, noop().Run))
			if head := waitForEnd(t, e, start(t, e, p, nil)); head.Code != code {
				t.Errorf("%s: the run failed with %q, want %q", name, head.Code, code)
			}
		}
	})
}

// Rolling restarts in the middle of an attempt are no failures of it (F45).
func TestF45_RollingRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const restarts = 20
		st := memory.New(memory.Options{})
		var calls atomic.Int32
		slow := newAction("slow", func(ctx context.Context, task *action.Task) (action.Result, error) {
			if calls.Add(1) <= restarts {
				<-ctx.Done()
			}
			return action.Result{}, ctx.Err()
		})
		p := planOf(t, "name: x\nsteps:\n  - {id: s, action: {name: slow}, retryPolicy: {maxAttempts: 1}}\n", slow)
		e := openEngine(t, st, Config{}, slow)
		run := start(t, e, p, nil)
		for range restarts {
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if abandoned, err := e.Stop(ctx); err != nil || abandoned != 1 {
				t.Fatalf("%d attempts were given up (%v), want 1", abandoned, err)
			}
			cancel()
			time.Sleep(10 * time.Second)
			st = st.Reopen()
			e = openEngine(t, st, Config{}, slow)
		}
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
		lines := trace(t, st, p, acc, run)
		if countPrefix(lines, "node.failed") != 0 || countPrefix(lines, "node.started s") != restarts+1 {
			t.Errorf("the journal:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// An engine that waits for space on its disk can be stopped, and waiting callers get an
// error.
func TestF31_StopWithAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
			if full.Load() {
				return memory.Refused
			}
			return memory.OK
		}})
		release := make(chan struct{})
		held := newAction("held", func(ctx context.Context, task *action.Task) (action.Result, error) {
			<-release
			return action.Result{}, nil
		})
		e := openEngine(t, st, Config{}, held)
		p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: held}}\n", held)
		run := start(t, e, p, nil)
		synctest.Wait()
		full.Store(true)
		close(release)
		time.Sleep(10 * time.Second)
		_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p})
		wantCode(t, err, fault.StoreFull)
		cancelled := make(chan error, 1)
		go func() { cancelled <- e.Cancel(t.Context(), acc, run, "") }()
		_, err = e.Stop(t.Context())
		wantCode(t, <-cancelled, fault.StoreFull)
		wantCode(t, err, fault.StoreFull)
		full.Store(false)
		e = openEngine(t, st.Reopen(), Config{}, held)
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
	})
}

// Callers that wait for a run or watch it learn that it was quarantined.
func TestI16_WaitersLearnOfQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		held := newAction("noop", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			if calls.Add(1) == 1 {
				<-release
				return action.Result{}, nil
			}
			<-ctx.Done() // after the release the run must not panic again
			return action.Result{}, ctx.Err()
		})
		e := openEngine(t, memory.New(memory.Options{}), Config{}, held)
		run := start(t, e, panickingPlan(t), nil)
		errs := make(chan error, 2)
		go func() {
			_, err := e.Wait(t.Context(), acc, run)
			errs <- err
		}()
		go func() {
			var last error
			for _, err := range e.Watch(t.Context(), acc, run, 0) {
				last = err
			}
			errs <- last
		}()
		synctest.Wait()
		close(release)
		wantCode(t, <-errs, fault.Quarantined)
		wantCode(t, <-errs, fault.Quarantined)
		_, err := e.Wait(t.Context(), acc, run)
		wantCode(t, err, fault.Quarantined)
		wantCode(t, e.Release(t.Context(), acc, "run_none"), fault.RunNotFound)
		if err := e.Release(t.Context(), acc, run); err != nil {
			t.Error(err)
		}
		wantCode(t, e.Release(t.Context(), acc, run), fault.Conflict)
	})
}

// A wall clock that was turned back by a day while the process was down neither delays
// a timer nor fires it early (I10).
func TestI10_ClockTurnedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e := openEngine(t, st, Config{}, noop())
		p := planOf(t, waitRecipe, noop())
		suspended := start(t, e, p, nil)
		time.Sleep(20 * time.Second)
		if _, err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = openEngine(t, st.Reopen(), Config{Now: func() time.Time { return time.Now().Add(-24 * time.Hour) }}, noop())
		run := start(t, e, p, nil) // its time is a day before the suspended run's
		if err := e.Signal(t.Context(), acc, suspended, "hello", nil); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if head := waitForEnd(t, e, suspended); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
		if d := time.Since(began); d < 39*time.Second || d > 41*time.Second {
			t.Errorf("the rest of its minute took %s, 40 seconds were left", d)
		}
		if waitForEnd(t, e, run); time.Since(began) < 59*time.Second {
			t.Errorf("the other run's minute took %s", time.Since(began))
		}
	})
}
