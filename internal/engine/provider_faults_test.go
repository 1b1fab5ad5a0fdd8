// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/memory"
)

// F25: a provider is away for an hour, with 10,000 steps that try again. Meanwhile it is only probed;
// when it is back it gets no more calls than its limits say; and no step has used up its attempts.
func TestF25_ProviderAwayForAnHour(t *testing.T) {
	runs := 10
	if testing.Short() || raceOn {
		runs = 1
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		act := newAction("call", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			if time.Since(r.since) < time.Hour {
				_ = r.call(ctx, 0)
				return action.Result{}, fault.New(fault.ServiceUnavailable, "away")
			}
			return action.Result{}, r.call(ctx, 100*time.Millisecond)
		})
		act.Provider = "main"
		e := openEngine(t, memory.New(memory.Options{}), Config{
			ProviderSlots: map[string]int{"main": 20},
			Limits:        limitsOf(t, `{"main": {"provider": "main", "breaker": {"share": 0.5, "min": 20, "window": "1m", "open": "30s"}, "retries": {"share": 0.2}}}`),
		}, act)
		p := planOf(t, fanOf(1000, "action: {name: call}, retryPolicy: {maxAttempts: 100, initialDelay: 1s, maxDelay: 60s}"), act)
		var all []string
		for range runs {
			all = append(all, start(t, e, p, nil))
		}
		time.Sleep(time.Hour - time.Second)
		away := len(r.calls())
		if away < 100 || away > 500 {
			t.Errorf("%d calls while it was away: want one each 30 s, and those before the breaker has opened", away)
		}
		for _, run := range all {
			if head := waitForEnd(t, e, run); head.Status != "completed" {
				t.Errorf("a run is %s: %s %s", head.Status, head.Code, head.Message)
			}
		}
		if n := len(r.calls()) - away; n < runs*1000 {
			t.Errorf("%d calls since it is back, want one for each of %d steps", n, runs*1000)
		}
		perSecond := map[time.Duration]int{}
		for _, at := range r.calls()[away:] {
			perSecond[at.Truncate(time.Second)]++
		}
		for at, n := range perSecond {
			if n > 20*11 {
				t.Errorf("%d calls in the second at %s, 20 slots and 100 ms a call allow 200", n, at)
			}
		}
		if r.most > 20 {
			t.Errorf("%d calls at once, the limit is 20", r.most)
		}
	})
}

// F41: a limit that is lowered below what is in use ends nothing. What holds the slots is recounted from
// the records, and nothing more begins until fewer are in use than the limit says.
func TestF41_LimitLoweredBelowUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newService(), memory.New(memory.Options{})
		o := openOutside(t, st, s, Config{ProviderSlots: map[string]int{"acme": 3}})
		var runs []string
		for range 3 {
			runs = append(runs, o.begin(submitAndGoOn))
		}
		time.Sleep(time.Minute) // they are suspended
		held := s.list()
		if len(held) != 3 {
			t.Fatalf("%d jobs, want 3", len(held))
		}
		if _, err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.stop()
		o = openOutside(t, st.Reopen(), s, Config{ProviderSlots: map[string]int{"acme": 1}})
		next := o.begin(submitAndGoOn)
		for i, id := range held {
			time.Sleep(time.Minute)
			if n := len(s.list()); n != 3 {
				t.Fatalf("%d jobs when %d of 3 have ended: one began above the limit of 1", n, i)
			}
			o.deliver(id, "d"+id, "hello")
			synctest.Wait()
		}
		for _, run := range runs {
			if head := waitForEnd(t, o.Engine, run); head.Status != "completed" {
				t.Errorf("a run above the new limit is %s: %s", head.Status, head.Message)
			}
		}
		time.Sleep(time.Second)
		for _, id := range s.list() {
			o.deliver(id, "e"+id, "hello")
		}
		if head := waitForEnd(t, o.Engine, next); head.Status != "completed" {
			t.Errorf("the run that waited is %s: %s", head.Status, head.Message)
		}
		synctest.Wait()
		o.wantFreeSlots()
	})
}
