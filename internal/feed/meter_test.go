// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// What was long ago does not count in the rates, and neither does what came before the oldest
// commit that is remembered.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(nil, nil)
		want := func(what string, finished uint64, commits, attempts float64, median, p99, slowest time.Duration) {
			t.Helper()
			p := f.Pace(finished)
			if math.Round(p.CommitsPerSecond) != commits || math.Round(p.AttemptsPerSecond) != attempts || p.Median != median || p.P99 != p99 || p.Slowest != slowest {
				t.Errorf("%s: %+v, want %v commits and %v attempts a second, %s, %s, %s", what, p, commits, attempts, median, p99, slowest)
			}
		}
		want("at the start", 0, 0, 0, 0, 0, 0)
		f.Committed(time.Second, 100, nil)
		time.Sleep(2 * meterWindow)
		want("long after a commit", 100, 0, 0, 0, 0, 0)
		for i := range 100 {
			f.Committed(time.Duration(i+1)*time.Millisecond, 100+uint64(3*i), nil)
		}
		time.Sleep(time.Second)
		want("a second after 100 commits", 400, 10, 30, 51*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond)
		for range 3 * meterCommits {
			time.Sleep(time.Millisecond)
			f.Committed(time.Millisecond, 400, nil)
		}
		want("at 1,000 commits a second", 400, 1000, 0, time.Millisecond, time.Millisecond, time.Millisecond)
		if p := f.Pace(400); p.Commits != 101+3*meterCommits || p.Failed != 0 {
			t.Errorf("%d commits and %d that failed are counted", p.Commits, p.Failed)
		}
	})
}

// The last failures are remembered, each once: of runs that failed, runs that were quarantined
// and commits.
func TestLastFailures(t *testing.T) {
	f := New(nil, nil)
	head := func(run string, ended int64, change func(*store.Head)) {
		h := &store.Head{Key: store.Key{Account: acc, Run: run}, Status: "failed", Code: fault.StepFailed, Ended: ended, Recipe: "r"}
		if change != nil {
			change(h)
		}
		f.Publish([]Published{{Key: h.Key, Head: h}})
	}
	head("one", 1, nil)
	head("one", 1, func(h *store.Head) { h.Deleted = 2 })
	head("done", 1, func(h *store.Head) { h.Status, h.Code = "completed", "" })
	head("cancelled", 1, func(h *store.Head) { h.Status, h.Code = "cancelled", fault.ExecutionCancelled })
	head("retried", 0, nil)
	head("imported", 0, func(h *store.Head) { h.Code, h.Quarantine = "", store.ImportedReason })
	head("bad", 0, func(h *store.Head) { h.Code, h.Quarantine, h.Updated = "", "it panicked", 3 })
	f.Committed(time.Second, 0, fault.New(fault.StoreFailed, "the disk is full"))
	got := f.Pace(0).Failures
	if len(got) != 3 || got[0].Code != fault.StoreFailed || got[0].Key.Run != "" || got[1].Key.Run != "bad" || got[1].Code != fault.Quarantined ||
		got[2].Key.Run != "one" || got[2].Code != fault.StepFailed || got[2].Recipe != "r" || !got[2].At.Equal(time.UnixMicro(1)) {
		t.Errorf("the failures are %+v", got)
	}
	for i := range 2 * meterFailures {
		head("later", int64(10+i), nil)
	}
	if got = f.Pace(0).Failures; len(got) != meterFailures || !got[0].At.Equal(time.UnixMicro(9+2*meterFailures)) {
		t.Errorf("after many failures, %d are remembered, the newest of %s", len(got), got[0].At)
	}
}
