// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// Runs that have not ended are counted by account and state as Unended counts them, and only a
// bounded number is read.
func TestUnendedStates(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	start := func(account, run string, change func(*store.Transition)) {
		tr := startOf(epoch, store.Key{Account: account, Run: run}, "1")
		tr.Head.Status = "running"
		if change != nil {
			change(&tr)
		}
		mustCommit(t, s, tr)
	}
	start("acme", "a", nil)
	start("acme", "b", nil)
	start("acme", "queued", func(tr *store.Transition) { tr.Head.Status = store.StatusQueued })
	start("acme", "bad", func(tr *store.Transition) { tr.Head.Quarantine = "it panicked" })
	start("acme", "imported", func(tr *store.Transition) { tr.Head.Quarantine = store.ImportedReason })
	start("acme", "ended", func(tr *store.Transition) { tr.Head.Status, tr.Head.Ended = "completed", 5 })
	start("rival", "a", func(tr *store.Transition) {
		tr.Head.Status = "waiting"
		tr.Compaction, tr.Suspension = &store.Compaction{First: 1, Last: 1, Chunk: tr.Frames}, &store.Suspension{WakeAt: 9}
	})
	want := []store.UnendedState{{Account: "acme", State: "quarantined", Runs: 1}, {Account: "acme", State: "queued", Runs: 1}, {Account: "acme", State: "running", Runs: 2}, {Account: "rival", State: "waiting", Runs: 1}}
	for _, tt := range []struct {
		most     int
		complete bool
		want     []store.UnendedState
	}{
		{6, true, want},
		{5, false, want}, // one more is read, to know that there are more
	} {
		got, complete, err := s.UnendedStates(t.Context(), tt.most)
		if err != nil || complete != tt.complete || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("at most %d: %+v, complete %v, %v", tt.most, got, complete, err)
		}
	}
	got, complete, err := s.UnendedStates(t.Context(), 1)
	if n := 0; err != nil || complete {
		t.Errorf("at most 1: complete %v, %v", complete, err)
	} else {
		for _, u := range got {
			n += u.Runs
		}
		if n > 2 {
			t.Errorf("at most 1: %+v", got)
		}
	}
	for account, live := range map[string]int{"acme": 3, "rival": 1} {
		n, err := s.Unended(t.Context(), account)
		if err != nil || n.Live != live {
			t.Errorf("%s has %+v, %v", account, n, err)
		}
	}
	if plan := queryPlan(t, s, s.t.unendedStates, 1); !strings.Contains(plan, "SEARCH runs USING INDEX runs_live") {
		t.Errorf("the runs are read as follows: %s", plan)
	}
}
