// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// A request that cancels the run before keeps its turn although another one waits behind it.
func TestKeyedCancelWithAnotherBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.execute("a", schedule.OverlapSkip, "")
		w.deaf.Store(true) // the run takes its time to end
		for _, policy := range []schedule.Overlap{schedule.OverlapCancel, schedule.OverlapQueue} {
			if k := w.execute("a", policy, ""); k.Result != Queued {
				t.Fatalf("%s: %+v", policy, k)
			}
		}
		time.Sleep(time.Minute)
		w.deaf.Store(false)
		time.Sleep(3 * longestPause)
		if got := w.keyed("a"); got != "cancelled active" {
			t.Fatalf("%s, want the first one cancelled", got)
		}
		w.signalAll("a")
		time.Sleep(2 * longestPause)
		if got := w.keyed("a"); got != "cancelled completed active" {
			t.Errorf("%s, want a run for each request", got)
		}
	})
}

// signalAll lets the active runs with a key go on.
func (w *world) signalAll(key string) {
	w.t.Helper()
	heads, err := w.st.List(w.t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelKey: key}, Limit: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range heads {
		if !heads[i].Settled() {
			w.signal(heads[i].Run)
		}
	}
}

func (w *world) debounce(key string, window time.Duration, idempotency string) *Keyed {
	w.t.Helper()
	k, err := w.s.Execute(w.t.Context(), acme, &KeyedRequest{
		Key: key, IfActive: schedule.OverlapQueue, Debounce: window, Start: starts.Request{Recipe: "asks"}, Idempotency: idempotency,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// A request that waits for its window to pass keeps no other one waiting, and has its turn when
// it has passed.
func TestDebounceKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.debounce("a", time.Hour, "")
		if k := w.execute("a", schedule.OverlapSkip, ""); k.Result != Started {
			t.Fatalf("%+v, although no run is active", k)
		}
		w.execute("a", schedule.OverlapQueue, "")
		w.signalAll("a")
		time.Sleep(3 * longestPause)
		if got := w.keyed("a"); got != "completed active" {
			t.Fatalf("%s, want the second one active", got)
		}
		time.Sleep(time.Hour)
		w.execute("a", schedule.OverlapQueue, "last") // behind it, because its window has passed
		w.signalAll("a")
		time.Sleep(3 * longestPause)
		if got := w.keyed("a"); got != "completed completed active" {
			t.Fatalf("%s, want the third one active", got)
		}
		w.signalAll("a")
		time.Sleep(3 * longestPause)
		if k := w.execute("a", schedule.OverlapSkip, "last"); k.Result != Started || !k.Existing {
			t.Errorf("%+v", k)
		}
		if got := w.keyed("a"); got != "completed completed completed active" {
			t.Errorf("%s, want the fourth one active", got)
		}
	})
}

// A request that was answered Queued has its run, although its policy is to be skipped, and is
// not answered with that of another one.
func TestKeyedQueuedIsNotSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.busy.Store(2)
		for i := range 2 { // the first one is started while the second one comes
			if k := w.execute("a", schedule.OverlapSkip, ""); k.Result != Queued {
				t.Fatalf("request %d: %+v", i, k)
			}
		}
		if got := w.keyed("a"); got != "active" {
			t.Fatalf("%s, want the first one active", got)
		}
		w.signalAll("a")
		time.Sleep(2 * longestPause)
		if got := w.keyed("a"); got != "completed active" {
			t.Errorf("%s, want a run for each request", got)
		}
	})
}

// A repeated request whose run has ended takes nothing from those that wait.
func TestKeyedRepeatedCancelsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.execute("a", schedule.OverlapSkip, "one")
		w.signal(first.Run)
		time.Sleep(time.Second)
		want := Keyed{Run: first.Run, Result: Started, Existing: true}
		for name, repeat := range map[string]func() *Keyed{
			"cancelPrevious": func() *Keyed { return w.execute("a", schedule.OverlapCancel, "one") },
			"debounced":      func() *Keyed { return w.debounce("a", time.Hour, "one") },
		} {
			w.debounce("a", time.Minute, "")
			if k := repeat(); *k != want {
				t.Errorf("%s: %+v, want %+v", name, k, want)
			}
			before := strings.Count(w.keyed("a"), "completed")
			time.Sleep(time.Minute + time.Second)
			if got := w.keyed("a"); strings.Count(got, "active") != 1 {
				t.Errorf("%s: %s: the request that waited has no run", name, got)
			}
			w.signalAll("a")
			time.Sleep(time.Second)
			if got := w.keyed("a"); strings.Count(got, "completed") != before+1 {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}

// A request is answered with what became of it, and not of another one.
func TestKeyedAnswerIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.execute("b", schedule.OverlapSkip, "one")
		first := w.execute("a", schedule.OverlapSkip, "")
		// It will be refused: its idempotency key is that of another request.
		if k, err := w.s.Execute(t.Context(), acme, &KeyedRequest{
			Key: "a", IfActive: schedule.OverlapQueue, Start: starts.Request{Recipe: "quick"}, Idempotency: "one",
		}); err != nil || k.Result != Queued {
			t.Fatalf("%+v, %v", k, err)
		}
		w.signal(first.Run)
		time.Sleep(firstPause / 2) // it has ended, and nobody has looked yet
		k := w.execute("a", schedule.OverlapSkip, "")
		if k.Result != Started || k.Existing || k.Run == first.Run {
			t.Errorf("%+v", k)
		}
		if got := w.keyed("a"); got != "completed active" {
			t.Error(got)
		}
	})
}

// run-now is answered with its own run, also if an occurrence comes at the same moment.
func TestRunNowAnswerIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "quick", schedule.Spec{Every: time.Minute, Overlap: schedule.OverlapAllow})
		w.s.Stop()
		time.Sleep(time.Minute)
		f, err := w.s.RunNow(t.Context(), acme, "s")
		if err != nil || f.Result != Started || !f.Manual || f.Run == "" {
			t.Errorf("%+v, %v", f, err)
		}
		if got := w.results("s"); got != "started, started" {
			t.Error(got)
		}
	})
}

// An account that has as many runs as it may loses no occurrence and no request that was
// accepted, however long that takes. Who asks meanwhile is refused.
func TestQuotaPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "quick", schedule.Spec{Cron: "@hourly"})
		w.execute("a", schedule.OverlapSkip, "")
		w.execute("a", schedule.OverlapQueue, "")
		w.denied.Store(fault.OverQuota("live_runs", 10, 10, "the account has 10 live runs"))
		w.signalAll("a")
		time.Sleep(time.Hour + 10*time.Minute)
		if _, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "b", IfActive: schedule.OverlapSkip, Start: starts.Request{Recipe: "asks"}}); fault.CodeOf(err) != fault.QuotaExceeded {
			t.Error(err)
		}
		w.denied.Store(nil)
		time.Sleep(3 * longestPause)
		if got := w.results("s"); got != "started" {
			t.Errorf("the schedule: %s", got)
		}
		if got := w.keyed("a"); got != "completed active" {
			t.Errorf("the request that waited: %s", got)
		}
		if got := w.keyed("b"); got != "" {
			t.Errorf("the request that was refused: %s", got)
		}
		w.denied.Store(fault.OverQuota("live_runs", 10, 10, "the account has 10 live runs"))
		if f, err := w.s.RunNow(t.Context(), acme, "s"); err != nil || f.Result != Failed || f.Code != fault.QuotaExceeded {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

// What waits is stored once each time it is looked at.
func TestWaitingIsStoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.execute("a", schedule.OverlapSkip, "")
		w.execute("a", schedule.OverlapQueue, "")
		time.Sleep(10 * time.Minute)
		var n atomic.Int64
		count := func(after bool) error {
			if !after {
				n.Add(1)
			}
			return nil
		}
		w.records.stop.Store(&count)
		const looks = 20
		time.Sleep(looks * longestPause)
		if got := n.Load(); got < looks-1 || got > looks+1 {
			t.Errorf("%d changes of records, want one for each of %d looks", got, looks)
		}
	})
}

// The requests of a key are bounded together: a key is one record.
func TestKeyedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.execute("a", schedule.OverlapSkip, "")
		large := func(policy schedule.Overlap, text string) error {
			_, err := w.s.Execute(t.Context(), acme, &KeyedRequest{Key: "a", IfActive: policy, Start: starts.Request{
				Recipe: "asks", Parameters: json.RawMessage(fmt.Sprintf(`{"text":"%s"}`, text)),
			}})
			return err
		}
		const size = 250 << 10
		text, n := strings.Repeat("x", size), 0
		err := error(nil)
		for ; n < MaxKeyed && err == nil; n++ {
			err = large(schedule.OverlapQueue, text)
		}
		if code := fault.CodeOf(err); code != fault.QuotaExceeded || n-1 != MaxKeyedBytes/size || !strings.Contains(err.Error(), fmt.Sprint(MaxKeyedBytes)) {
			t.Errorf("request %d: %v", n, err)
		}
		if err := large(schedule.OverlapQueue, ""); err != nil {
			t.Errorf("a small one: %v", err)
		}
		// One that takes the place of the others fits, also if it is stored larger than it came.
		if err := large(schedule.OverlapCancel, strings.Repeat("<", size)); err != nil {
			t.Errorf("the largest one: %v", err)
		}
	})
}
