// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// The simulator found each of these.

// Two accounts may have one key, and something to do with it at one time.
func TestKeyOfTwoAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const other = "other"
		if _, _, diags, err := w.recipes.Register(t.Context(), other, registry.Draft{Text: []byte("name: asks\nversion: \"1.0.0\"\nsteps:\n  - {id: ask, wait: {signal: go}}\n")}); err != nil {
			t.Fatal(diags, err)
		}
		var first []*Keyed
		for range 2 {
			for _, account := range []string{acme, other} {
				k, err := w.s.Execute(t.Context(), account, &KeyedRequest{Key: "a", IfActive: schedule.OverlapQueue, Start: starts.Request{Recipe: "asks"}})
				if err != nil {
					t.Fatal(err)
				}
				first = append(first, k)
			}
		}
		for i, account := range []string{acme, other} {
			if err := w.e.Signal(t.Context(), account, first[i].Run, "go", nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * longestPause)
		for _, account := range []string{acme, other} {
			heads, err := w.st.List(t.Context(), store.Query{Account: account, Labels: map[string]string{LabelKey: "a"}, Limit: 10})
			if err != nil || len(heads) != 2 {
				t.Errorf("account %s has %d runs with the key, want 2: %v", account, len(heads), err)
			}
		}
	})
}

// A disk that is full for a moment makes no occurrence fail (F31).
func TestF31_StartOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "quick", schedule.Spec{Every: time.Hour})
		w.denied.Store(fault.New(fault.StoreFull, "the disk is full"))
		time.Sleep(time.Hour + time.Minute)
		w.denied.Store(nil)
		time.Sleep(time.Minute)
		if got := w.results("s"); got != "started" {
			t.Errorf("%s", got)
		}
	})
}

// A schedule is paused after its run was started and before that was stored: the history has the
// run, and the next occurrence knows that it is active.
func TestI13_PausedBeforeTheStartIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "asks", schedule.Spec{Every: time.Hour})
		stop := func(after bool) error {
			if !after && len(w.runs("s")) > 0 {
				return errors.New("the disk is gone")
			}
			return nil
		}
		w.records.stop.Store(&stop)
		time.Sleep(time.Hour + time.Second)
		w.records.stop.Store(nil)
		if _, err := w.s.Pause(t.Context(), acme, "s"); err != nil {
			t.Fatal(err)
		}
		if got := w.results("s"); got != "started" {
			t.Errorf("after the pause: %s", got)
		}
		if _, err := w.s.Resume(t.Context(), acme, "s"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := w.results("s"); got != "started, skipped" || len(w.runs("s")) != 1 {
			t.Errorf("after the next occurrence: %s, %v", got, w.runs("s"))
		}
	})
}

// A schedule whose record could not be written comes again, whichever write fails next.
func TestI13_PostponedAndKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "quick", schedule.Spec{Every: time.Hour})
		n := 0
		stop := func(after bool) error {
			if !after {
				if n++; n == 1 || n == 4 || n == 5 { // not when it is postponed, nor the write after that
					return errors.New("the disk is gone")
				}
			}
			return nil
		}
		w.records.stop.Store(&stop)
		time.Sleep(time.Hour + 5*time.Minute)
		if got := w.results("s"); got != "started" || n < 6 {
			t.Errorf("after %d writes: %s", n, got)
		}
	})
}

// lose asks for a run whose start is not stored, and returns once it has begun.
func (w *world) lose(policy schedule.Overlap) {
	w.t.Helper()
	before := w.keyed("a")
	stop := func(after bool) error {
		if !after && w.keyed("a") != before {
			return errors.New("the disk is gone")
		}
		return nil
	}
	w.records.stop.Store(&stop)
	if _, err := w.s.Execute(w.t.Context(), acme, &KeyedRequest{Key: "a", IfActive: policy, Start: starts.Request{Recipe: "asks"}}); err == nil {
		w.t.Fatal("the start was stored")
	}
	w.records.stop.Store(nil)
}

// A run was started, and that was not stored; the start fails for a moment when it is tried again.
// The request that cancels it finds it all the same.
func TestI13_KeyedStartedAndThenBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lose(schedule.OverlapQueue)
		w.busy.Store(1)
		w.execute("a", schedule.OverlapCancel, "")
		time.Sleep(longestPause)
		if got := w.keyed("a"); got != "cancelled active" {
			t.Error(got)
		}
	})
}

// A run was started when the one before had ended, and that was not stored. Then the one before is
// retried: it is not the run that the request cancels.
func TestI13_KeyedRetriedBeforeTheStartIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.execute("a", schedule.OverlapSkip, "")
		if err := w.e.Cancel(t.Context(), acme, first.Run, "enough"); err != nil {
			t.Fatal(err)
		}
		w.lose(schedule.OverlapCancel)
		if err := w.e.Retry(t.Context(), acme, first.Run, engine.RetryRequest{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * longestPause)
		if got := w.keyed("a"); got != "active active" {
			t.Errorf("%s: the retried run was cancelled", got)
		}
	})
}
