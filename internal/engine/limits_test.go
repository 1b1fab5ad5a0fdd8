// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/limits"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

func limitsOf(t testing.TB, text string) *limits.Set {
	t.Helper()
	specs, err := limits.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	set, err := limits.New(specs)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A recorder is an outside service that knows how many calls it has at once, and when they began.
type recorder struct {
	mu       sync.Mutex
	now      int
	most     int
	began    []time.Duration
	since    time.Time
	finished map[string]int
}

func newRecorder() *recorder { return &recorder{since: time.Now(), finished: map[string]int{}} }

func (r *recorder) call(ctx context.Context, took time.Duration) error {
	r.mu.Lock()
	r.now++
	r.most = max(r.most, r.now)
	r.began = append(r.began, time.Since(r.since))
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.now--
		r.mu.Unlock()
	}()
	select {
	case <-time.After(took):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *recorder) calls() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Duration(nil), r.began...)
}

// fanOf returns a recipe of n steps of an action side by side.
func fanOf(n int, step string) string {
	var b strings.Builder
	b.WriteString("name: fan\norder: none\nlimits: {max_total_steps: 100000}\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {id: s%d, %s}\n", i, step)
	}
	return b.String()
}

// I22: with a limit of three and 500 steps the service never sees a fourth call at once, also when
// the process is killed again and again; and it is never idle for long.
func TestI22_LimitOfThreeNeverSeesFour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, st := newRecorder(), memory.New(memory.Options{})
		act := newAction("call", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			return action.Result{}, r.call(ctx, 10*time.Millisecond)
		})
		cfg := Config{Limits: limitsOf(t, `{"calls": {"key": "action + account", "concurrency": 3}}`)}
		p := planOf(t, fanOf(100, "action: {name: call}"), act)
		e := openEngine(t, st, cfg, act)
		var runs []string
		for range 5 {
			runs = append(runs, start(t, e, p, nil))
		}
		for range 4 {
			time.Sleep(200 * time.Millisecond)
			e.crash()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _ = e.Stop(ctx) // the calls of a killed process end with it
			synctest.Wait()
			e = openEngine(t, st, cfg, act)
		}
		began := time.Now()
		before := len(r.calls())
		for _, run := range runs {
			if head := waitForEnd(t, e, run); head.Status != "completed" {
				t.Errorf("run is %s: %s", head.Status, head.Message)
			}
		}
		n := len(r.calls())
		if ideal, took := time.Duration(n-before)*10*time.Millisecond/3, time.Since(began); took > ideal*10/9 {
			t.Errorf("%d calls took %v, ideal are %v", n-before, took, ideal)
		}
		if r.most != 3 || n < 500 {
			t.Errorf("at most %d calls at once, the limit is 3; %d calls", r.most, n)
		}
	})
}

// I22: a service may still do what attempts have asked of it that were lost with the process, such as a job
// whose submission was accepted and not recorded. Their slots are theirs until their steps have tried again:
// no other step begins before.
func TestI22_LostAttemptsKeepTheirSlots(t *testing.T) {
	t.Run("other runs wait", func(t *testing.T) { // for their second step, behind the first of those whose attempts are lost
		lostAttempts(t, "name: two\nsteps:\n  - {id: a, action: {name: call}}\n  - {id: b, action: {name: call}}\n", 12, 6)
	})
	t.Run("the same run waits", func(t *testing.T) { // with others of its steps
		lostAttempts(t, fanOf(4, "action: {name: call}"), 3, 3)
	})
}

// lostAttempts starts runs of a recipe, whose first calls succeed and whose others never return, and kills
// the process again and again: after the second time it is careful with the runs that were active.
func lostAttempts(t *testing.T, recipe string, runs, quick int) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		began := map[string]bool{}
		act := newAction("call", func(ctx context.Context, t *action.Task) (action.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			if quick--; quick >= 0 {
				return action.Result{}, nil
			}
			began[t.Run+" "+t.Step] = true
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			return action.Result{}, ctx.Err()
		})
		underWay := func() map[string]bool {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(began)
		}
		st := memory.New(memory.Options{})
		cfg := Config{Limits: limitsOf(t, `{"calls": {"key": "account", "concurrency": 3}, "rate": {"key": "account", "rate": "100/s"}}`)}
		p := planOf(t, recipe, act)
		e := openEngine(t, st, cfg, act)
		for range runs {
			start(t, e, p, nil)
			time.Sleep(time.Millisecond)
		}
		want := underWay()
		for n := range 3 {
			e.crash()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _ = e.Stop(ctx) // the calls of a killed process end with it
			synctest.Wait()
			clear(began)
			if n == 2 { // fewer slots by now: no more begin than there are
				cfg.Limits = limitsOf(t, `{"calls": {"key": "account", "concurrency": 2}}`)
			}
			e = openEngine(t, st, cfg, act)
			got := underWay()
			if n == 2 {
				if len(got) != 2 {
					t.Errorf("%d calls with a limit of two", len(got))
				}
			} else if !maps.Equal(got, want) {
				t.Errorf("after restart %d there are the calls %v, want those that were lost: %v", n+1, got, want)
			}
		}
	})
}

// I22: a key has its slots taken while its run is suspended and its job goes on outside, also after
// a restart, and with keys that come from labels and inputs.
func TestI22_KeysOfJobsAreRecounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newService(), memory.New(memory.Options{})
		cfg := Config{Limits: limitsOf(t, `{"per-team": {"key": "label.team + '/' + model", "concurrency": 1}}`)}
		o := openOutside(t, st, s, cfg)
		p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: submit, parameters: {model: '{{ input.model }}'}}}\n", s.submits())
		begin := func(team, model string) string {
			res, err := o.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "test", Labels: map[string]string{"team": team}, Parameters: map[string]any{"model": model}})
			if err != nil {
				t.Fatal(err)
			}
			return res.Run
		}
		first := begin("red", "m")
		time.Sleep(time.Minute) // it is suspended
		second := begin("red", "m")
		begin("blue", "m")
		begin("red", "n")
		time.Sleep(time.Second)
		if n := len(s.list()); n != 3 {
			t.Fatalf("%d jobs of three keys, want one each", n)
		}
		if _, err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.stop()
		o = openOutside(t, st.Reopen(), s, cfg)
		time.Sleep(time.Minute)
		if n := len(s.list()); n != 3 {
			t.Fatalf("%d jobs after a restart, want one for each key", n)
		}
		reason := firstEvent(t, o.Engine, second, func(ev *journal.Event) bool { return ev.Kind == journal.EvNodeBlocked })
		if want := `waits for one of the 1 slots of limit "per-team" for "red/m"`; reason != want {
			t.Errorf("blocked because it %q, want %q", reason, want)
		}
		standing, err := o.Waiting(t.Context(), acc, second, []journal.Ref{{}})
		if err != nil || standing[journal.Ref{}] == nil {
			t.Fatalf("it stands nowhere: %v", err)
		}
		if at := standing[journal.Ref{}]; len(at.Holders) != 1 || at.Holders[0].Run != first || at.Slots != 1 || at.Used != 1 || at.Ahead != 0 {
			t.Errorf("it stands %+v, want it behind run %s", at, first)
		}
		for _, id := range s.list() {
			o.deliver(id, "d"+id, "hello")
		}
		waitForEnd(t, o.Engine, first)
		time.Sleep(time.Second)
		if n := len(s.list()); n != 4 {
			t.Fatalf("%d jobs after the first has ended", n)
		}
		for i, id := range s.list() {
			o.deliver(id, fmt.Sprint("e", i), "hello")
		}
		waitForEnd(t, o.Engine, second)
		time.Sleep(time.Minute)
		o.wantFreeSlots()
	})
}

// A provider that asks to wait has all steps wait that call it for the account, not only the one
// that was told; those of another account go on.
func TestRetryAfterPausesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		refused := false
		act := newAction("call", func(ctx context.Context, task *action.Task) (action.Result, error) {
			if err := r.call(ctx, 0); err != nil {
				return action.Result{}, err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if !refused {
				refused = true
				return action.Result{}, &fault.Error{Code: fault.RateLimited, Msg: "slow down", RetryAfterMS: 30_000}
			}
			return action.Result{}, nil
		})
		act.Provider = "main"
		e := openEngine(t, memory.New(memory.Options{}), Config{Concurrency: 1}, act)
		run := start(t, e, planOf(t, fanOf(5, "action: {name: call}, retryPolicy: {maxAttempts: 3, initialDelay: 1s, jitter: 0}"), act), nil)
		other, err := e.Start(t.Context(), StartRequest{Account: "other", Plan: planOf(t, fanOf(1, "action: {name: call}"), act), Recipe: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Wait(t.Context(), "other", other.Run); err != nil {
			t.Fatal(err)
		}
		if n := len(r.calls()); n != 2 {
			t.Errorf("%d calls, want one of each account", n)
		}
		waitForEnd(t, e, run)
		for i, at := range r.calls()[2:] {
			if at < 30*time.Second || at > 31*time.Second {
				t.Errorf("call %d after %v, the provider asked to wait for 30 s", i+2, at)
			}
		}
		reason := firstEvent(t, e, run, func(ev *journal.Event) bool {
			return ev.Kind == journal.EvNodeBlocked && ev.Ref().Step == 4 && strings.Contains(ev.Text, "asked")
		})
		if want := `waits because provider "main" asked to wait until 2000-01-01T00:00:30Z`; reason != want {
			t.Errorf("blocked because it %q, want %q", reason, want)
		}
	})
}

// A rate holds across restarts: its bucket is empty when a process starts, so that one that
// is restarted again and again does not exceed it.
func TestRateHoldsAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, st := newRecorder(), memory.New(memory.Options{})
		act := newAction("call", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			return action.Result{}, r.call(ctx, 0)
		})
		cfg := Config{Limits: limitsOf(t, `{"calls": {"key": "'all'", "rate": "4/s", "burst": 4}}`)}
		e := openEngine(t, st, cfg, act)
		run := start(t, e, planOf(t, fanOf(60, "action: {name: call}"), act), nil)
		for range 10 {
			time.Sleep(600 * time.Millisecond)
			e.crash()
			synctest.Wait()
			e = openEngine(t, st, cfg, act)
		}
		waitForEnd(t, e, run)
		at := r.calls()
		for i := range at {
			for j := i; j < len(at); j++ {
				if most := 4 + 4*(at[j]-at[i]).Seconds(); float64(j-i+1) > most+0.01 {
					t.Fatalf("%d calls within %v: the rate is 4 a second", j-i+1, at[j]-at[i])
				}
			}
		}
		if took := at[len(at)-1]; took > 25*time.Second {
			t.Errorf("60 calls at 4 a second took %v", took)
		}
	})
}

// When a provider fails its breaker opens: steps wait, and do not fail. One tries it after a
// time, and the others follow.
func TestBreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		healthy := false
		act := newAction("call", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			_ = r.call(ctx, 0)
			r.mu.Lock()
			defer r.mu.Unlock()
			if !healthy {
				return action.Result{}, fault.New(fault.ProviderError, "it is broken")
			}
			return action.Result{}, nil
		})
		act.Provider = "main"
		e := openEngine(t, memory.New(memory.Options{}), Config{
			Concurrency: 1, Limits: limitsOf(t, `{"main": {"provider": "main", "breaker": {"share": 0.5, "min": 5, "window": "1m", "open": "20s"}}}`),
		}, act)
		p := planOf(t, fanOf(50, "action: {name: call}, continue_on_error: true"), act)
		run := start(t, e, p, nil)
		time.Sleep(10 * time.Second)
		if n := len(r.calls()); n != 5 {
			t.Fatalf("%d calls, the breaker opens after 5", n)
		}
		standing, err := e.Waiting(t.Context(), acc, run, []journal.Ref{{Step: 49}})
		if err != nil {
			t.Fatal(err)
		}
		if at := standing[journal.Ref{Step: 49}]; at == nil || at.Reason != `waits because provider "main" fails: 5 of the last 5 attempts; it is tried again at 2000-01-01T00:00:20Z` || at.Until != "2000-01-01T00:00:20.000Z" || at.Ahead != 44 {
			t.Errorf("it stands %+v", at)
		}
		time.Sleep(15 * time.Second)
		if n := len(r.calls()); n != 6 {
			t.Fatalf("%d calls, want one that tries it", n)
		}
		r.mu.Lock()
		healthy = true
		r.mu.Unlock()
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("the run is %s: %s", head.Status, head.Message)
		}
		if at := r.calls(); len(at) != 50 || at[len(at)-1] > 41*time.Second {
			t.Errorf("%d calls until %v", len(at), at[len(at)-1])
		}
	})
}

// F25: retries of a provider that answers nobody are a fifth of its first attempts, and one a second.
func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		act := newAction("call", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			_ = r.call(ctx, 0)
			return action.Result{}, fault.New(fault.ServiceUnavailable, "away")
		})
		act.Provider = "main"
		e := openEngine(t, memory.New(memory.Options{}), Config{Limits: limitsOf(t, `{"main": {"provider": "*", "breaker": false}}`)}, act)
		start(t, e, planOf(t, fanOf(100, "action: {name: call}, continue_on_error: true, retryPolicy: {maxAttempts: 5, initialDelay: 100ms, maxDelay: 100ms, jitter: 0}"), act), nil)
		time.Sleep(10*time.Second + 50*time.Millisecond)
		if n := len(r.calls()); n < 128 || n > 131 {
			t.Errorf("%d calls in 10 s: want 100, 20 that these have earned and one a second", n)
		}
	})
}

// Tokens a minute: what an attempt has used counts, in place of what it was expected to.
func TestTokensAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		act := newAction("ask", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			return action.Result{Tokens: 2_000}, r.call(ctx, 0)
		})
		e := openEngine(t, memory.New(memory.Options{}), Config{Limits: limitsOf(t, `{"tokens": {"key": "model", "tokens_per_minute": 60000}}`)}, act)
		time.Sleep(time.Minute)
		run := start(t, e, planOf(t, fanOf(100, "action: {name: ask, parameters: {model: m, maxTokens: 500}}"), act), nil)
		waitForEnd(t, e, run)
		// 100 attempts use 200,000 tokens; 10,000 are there, and 1,000 come each second.
		at := r.calls()
		if took := at[len(at)-1] - time.Minute; took < 150*time.Second || took > 200*time.Second {
			t.Errorf("100 attempts of 2,000 tokens took %v at 60,000 a minute", took)
		}
	})
}

// Credits a day: attempts wait for the next day when those of a key have cost as much as they
// may.
func TestCreditsADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		act := newAction("pay", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			return action.Result{Price: "0.5"}, r.call(ctx, time.Second)
		})
		act.Price = "2"
		e := openEngine(t, memory.New(memory.Options{}), Config{Limits: limitsOf(t, `{"spend": {"key": "account", "credits_per_day": 3}}`)}, act)
		run := start(t, e, planOf(t, fanOf(10, "action: {name: pay}"), act), nil)
		time.Sleep(23 * time.Hour)
		if n := len(r.calls()); n != 6 {
			t.Errorf("%d attempts of 0.5 credits, 3 credits a day", n)
		}
		standing, err := e.Waiting(t.Context(), acc, run, []journal.Ref{{Step: 9}})
		if at := standing[journal.Ref{Step: 9}]; err != nil || at == nil || at.Until != "2000-01-02T00:00:00.000Z" {
			t.Errorf("it stands %+v (%v), want it until midnight", at, err)
		}
		waitForEnd(t, e, run)
		if n, took := len(r.calls()), time.Since(r.since); n != 10 || took < 24*time.Hour || took > 25*time.Hour {
			t.Errorf("%d attempts within %v", n, took)
		}
	})
}

// A cancelled run leaves a limit at once, and a limit that waits for time wakes the loop when it is
// due and not before.
func TestF17_CancelAtALimit(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Limits: limitsOf(t, `{"slow": {"key": "'all'", "rate": "1/h"}}`)}, noop())
	p := planOf(t, fan(3), noop())
	h.advanceClock(hour)
	first, second := h.run(acc, p, nil), h.run(acc, p, nil)
	if len(h.tasks) != 1 {
		t.Fatalf("%d tasks, the bucket holds 1", len(h.tasks))
	}
	if at := h.c.attempts.Arbiter.Next(); at != h.now+hour {
		t.Errorf("the loop is to be woken in %d s, want in an hour", (at-h.now)/1_000_000)
	}
	h.runUntilIdle(request(first, machine.Input{Kind: machine.InCancel, Text: "no more"}))
	h.advanceClock(hour)
	if len(h.tasks) != 1 || h.tasks[0].id.Key != second {
		t.Errorf("%d tasks; the next is to be of the run that was not cancelled", len(h.tasks))
	}
	h.runUntilIdle(request(second, machine.Input{Kind: machine.InCancel, Text: "no more"}))
	h.advanceClock(hour)
	h.wantNoSlots()
	if left := h.c.attempts.Arbiter.Usage(); len(left) != 0 {
		t.Errorf("something waits: %+v", left)
	}
}

// The expressions of limits see what they are said to see.
func TestFactsOfAnAttempt(t *testing.T) {
	act := noop()
	act.Provider = "main"
	cfg := Config{
		Limits: limitsOf(t, `{"x": {"key": "account + ' ' + action + ' ' + provider + ' ' + model + ' ' + queue + ' ' + label.a", "concurrency": 1, "priority": "model == 'm' ? 2.0 : 0.5"}}`),
		Called: func(a *action.Action, provider, model string) (string, string, string) {
			return a.Provider + "-" + provider, model, "q"
		},
	}
	h := newHarness(t, memory.New(memory.Options{}), cfg, act)
	p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: noop, parameters: {provider: one, model: \"{{ 'm' }}\"}}}\n", act)
	in := h.startInput(acc, p, nil)
	in.m.Start.Labels = map[string]string{"a": "b"}
	h.runUntilIdle(in)
	if u := h.c.attempts.Arbiter.Usage(); len(u) != 2 || u[0].Key != "acme noop main-one m q b" {
		t.Errorf("limits in use: %+v", u)
	}
	h.finishTasks()
	h.wantStatus(store.Key{Account: acc, Run: in.out.run}, "completed")
}
