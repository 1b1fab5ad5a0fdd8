// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

func (w *world) execute(key string, policy schedule.Overlap, idempotency string) *Keyed {
	w.t.Helper()
	k, err := w.s.Execute(w.t.Context(), acme, &KeyedRequest{Key: key, IfActive: policy, Start: starts.Request{Recipe: "asks"}, Idempotency: idempotency})
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// keyed are the states of the runs with a key, the oldest first.
func (w *world) keyed(key string) string {
	w.t.Helper()
	heads, err := w.st.List(w.t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelKey: key}, Limit: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	var list []string
	for i := range heads {
		state := "active"
		if heads[i].Settled() {
			state = heads[i].Status
		}
		list = append([]string{state}, list...)
	}
	return strings.Join(list, " ")
}

func (w *world) signal(run string) {
	w.t.Helper()
	if err := w.e.Signal(w.t.Context(), acme, run, "go", nil); err != nil {
		w.t.Fatal(err)
	}
}

// At most one run with a key is active, by each policy; a repeated request changes nothing.
func TestKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.execute("a", schedule.OverlapSkip, "one")
		if first.Result != Started || first.Existing || first.Run == "" {
			t.Fatalf("%+v", first)
		}
		if k := w.execute("a", schedule.OverlapSkip, ""); *k != (Keyed{Run: first.Run, Result: Skipped}) {
			t.Errorf("skip: %+v", k)
		}
		for _, policy := range IfActive {
			if k := w.execute("a", policy, "one"); *k != (Keyed{Run: first.Run, Result: Started, Existing: true}) {
				t.Errorf("repeated with %s: %+v", policy, k)
			}
		}
		if k := w.execute("b", schedule.OverlapSkip, ""); k.Result != Started || k.Run == first.Run {
			t.Errorf("another key: %+v", k)
		}
		if k := w.execute("a", schedule.OverlapQueue, "two"); *k != (Keyed{Run: first.Run, Result: Queued}) {
			t.Errorf("queue: %+v", k)
		}
		if k := w.execute("a", schedule.OverlapQueue, "two"); *k != (Keyed{Run: first.Run, Result: Queued, Existing: true}) {
			t.Errorf("queued twice: %+v", k)
		}
		w.kill()
		w.boot()
		w.signal(first.Run)
		time.Sleep(longestPause)
		if got := w.keyed("a"); got != "completed active" {
			t.Errorf("queue: %s", got)
		}
		// The first request again, after its run has ended and while another one is active.
		if k := w.execute("a", schedule.OverlapCancel, "one"); *k != (Keyed{Run: first.Run, Result: Started, Existing: true}) {
			t.Errorf("repeated later: %+v", k)
		}
		w.execute("a", schedule.OverlapQueue, "three")
		if k := w.execute("a", schedule.OverlapCancel, "four"); k.Result != Queued {
			t.Errorf("cancel: %+v", k)
		}
		time.Sleep(longestPause)
		if got := w.keyed("a"); got != "completed cancelled active" {
			t.Errorf("cancelPrevious: %s", got)
		}
		// A key of which no run is active is forgotten.
		last := w.execute("a", schedule.OverlapSkip, "")
		w.signal(last.Run)
		time.Sleep(2 * forgetAfter)
		page, _, err := w.st.Records(t.Context(), store.RecordQuery{Account: acme, Kind: kindKey})
		if err != nil || len(page) != 1 { // that of b
			t.Errorf("%d keys are left, %v", len(page), err)
		}
	})
}

// What cannot be started is refused, and takes the key from nobody.
func TestKeyedRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for want, r := range map[string]starts.Request{
			"RECIPE_NOT_FOUND": {Recipe: "no"}, "INPUT_INVALID": {Recipe: "quick", Parameters: json.RawMessage(`{"m":1}`)},
		} {
			if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "a", IfActive: schedule.OverlapSkip, Start: r}); string(fault.CodeOf(err)) != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "a", IfActive: schedule.OverlapAllow, Start: starts.Request{Recipe: "asks"}, Idempotency: ""}); fault.CodeOf(err) != fault.RequestInvalid {
			t.Error(err)
		}
		w.denied.Store(fault.New(fault.AccountDisabled, "the account is disabled"))
		if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "a", IfActive: schedule.OverlapQueue, Start: starts.Request{Recipe: "asks"}, Idempotency: ""}); fault.CodeOf(err) != fault.AccountDisabled {
			t.Error(err)
		}
		w.denied.Store(nil)
		w.execute("a", schedule.OverlapSkip, "one")
		// The idempotency key of another request.
		if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "b", IfActive: schedule.OverlapSkip, Start: starts.Request{Recipe: "quick"}, Idempotency: "one"}); fault.CodeOf(err) != fault.IdempotencyMismatch {
			t.Error(err)
		}
		for range MaxKeyed {
			w.execute("a", schedule.OverlapQueue, "")
		}
		if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "a", IfActive: schedule.OverlapQueue, Start: starts.Request{Recipe: "asks"}, Idempotency: ""}); fault.CodeOf(err) != fault.QuotaExceeded {
			t.Error(err)
		}
	})
}

// Requests at once, also while the process is killed: never two active runs, and each request
// that was accepted has one run.
func TestKeyedAtOnce(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 13))
			w := newWorld(t)
			accepted := map[string]bool{}
			for round := range 4 {
				var mu sync.Mutex
				var all sync.WaitGroup
				lives, dead := dice.IntN(12), false
				stop := func(after bool) error {
					mu.Lock()
					defer mu.Unlock()
					if lives--; lives < 0 {
						dead = true
					}
					if dead && !after {
						return errKilled
					}
					return nil
				}
				w.records.stop.Store(&stop)
				for i := range 6 {
					all.Go(func() {
						name := fmt.Sprint(round, ".", i)
						if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "k", IfActive: schedule.OverlapQueue, Start: starts.Request{Recipe: "asks"}, Idempotency: name}); err == nil {
							mu.Lock()
							accepted[name] = true
							mu.Unlock()
						}
					})
				}
				all.Wait()
				if got := w.keyed("k"); strings.Count(got, "active") > 1 {
					t.Fatalf("seed %d: %s", seed, got)
				}
				w.kill()
				w.boot()
			}
			for range 30 {
				time.Sleep(longestPause)
				heads, err := w.st.List(t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelKey: "k"}, Limit: 500})
				if err != nil {
					t.Fatal(err)
				}
				active := 0
				for i := range heads {
					if !heads[i].Settled() {
						active++
						w.signal(heads[i].Run)
					}
				}
				if active > 1 {
					t.Fatalf("seed %d: %d runs are active", seed, active)
				}
			}
			seen := map[string]int{}
			heads, err := w.st.List(t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelKey: "k"}, Limit: 500})
			if err != nil {
				t.Fatal(err)
			}
			for i := range heads {
				seen[heads[i].LabelsOf()[LabelOccurrence]]++
			}
			for name := range accepted {
				id, err := w.s.nameOf(name)
				if err != nil || seen[id] != 1 {
					t.Errorf("seed %d: request %s has %d runs, %v", seed, name, seen[id], err)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// The last of the requests within a window starts its run, also after a restart; what waits
// without a window is not touched.
func TestDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ask := func(n int, window time.Duration, idempotency string) *Keyed {
			t.Helper()
			k, err := w.s.Execute(t.Context(), acme, &KeyedRequest{
				Key: "a", IfActive: schedule.OverlapQueue, Debounce: window, Idempotency: idempotency,
				Start: starts.Request{Recipe: "quick", Parameters: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))},
			})
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		for n := range 5 {
			if k := ask(n, time.Minute, fmt.Sprint(n)); k.Result != Queued || k.Existing {
				t.Errorf("%+v", k)
			}
			time.Sleep(50 * time.Second)
		}
		if k := ask(4, time.Minute, "4"); !k.Existing {
			t.Errorf("repeated: %+v", k)
		}
		if got := w.keyed("a"); got != "" {
			t.Errorf("too early: %s", got)
		}
		w.kill()
		w.boot()
		time.Sleep(9 * time.Second)
		if got := w.keyed("a"); got != "" {
			t.Errorf("too early: %s", got)
		}
		time.Sleep(2 * time.Second)
		heads, err := w.st.List(t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelKey: "a"}})
		if err != nil || len(heads) != 1 {
			t.Fatalf("%d runs, %v", len(heads), err)
		}
		run, err := w.e.State(t.Context(), acme, heads[0].Run, 0)
		if err != nil || fmt.Sprint(run.Start().Parameters) != "map[n:4]" {
			t.Errorf("%v, %v", run.Start().Parameters, err)
		}
		if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "a", IfActive: schedule.OverlapSkip, Debounce: 25 * time.Hour, Start: starts.Request{Recipe: "quick"}}); fault.CodeOf(err) != fault.RequestInvalid {
			t.Error(err)
		}
	})
}
