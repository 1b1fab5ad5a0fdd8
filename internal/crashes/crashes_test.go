// SPDX-License-Identifier: Apache-2.0

package crashes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

const second = 1_000_000

// Two crashes within a minute make runs suspect; clean stops do not.
func TestBegin(t *testing.T) {
	var h History
	begins := func(now int64) (isolates bool) {
		h.Begin(now)
		return len(h.Crashes) >= limit
	}
	if begins(0) {
		t.Error("the first process isolates runs")
	}
	h.Stop(1, 2*second)
	if begins(3*second) || len(h.Crashes) != 0 {
		t.Error("a clean stop counts as a crash")
	}
	if begins(4*second) || len(h.Crashes) != 1 {
		t.Errorf("after one crash: %v", h.Crashes)
	}
	if !begins(5 * second) {
		t.Error("two crashes within a second")
	}
	if begins(66*second) || len(h.Crashes) != 1 {
		t.Errorf("crashes a minute ago count: %v", h.Crashes)
	}
}

// A note that an earlier release wrote, or a damaged one, can be read.
func TestRead(t *testing.T) {
	if h, err := Read([]byte(`{"running":false,"clock":7}`)); err != nil || !h.Clean(7) || h.Clean(8) {
		t.Errorf("an earlier release: %+v, %v", h, err)
	}
	if h, err := Read([]byte(`{"running":true,"crashes":[1]`)); err == nil || h.Running || h.Crashes != nil {
		t.Errorf("a damaged note: %+v, %v", h, err)
	}
	var h History
	h.Begin(1)
	h.Stop(0, 5)
	note, err := json.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = Read(note); err != nil || h.Clean(0) || h.Clean(5) {
		t.Errorf("attempts that may have been lost in a crash are called handed back: %+v, %v", h, err)
	}
}

// A run is to be quarantined when the process has died three times with nothing new from
// it.
func TestI16_Blame(t *testing.T) {
	var h History
	saved := func(run string, last uint64) *store.Saved {
		return &store.Saved{Head: store.Head{Key: store.Key{Account: "a", Run: run}}, Last: last}
	}
	for n, last := range []uint64{1, 1, 2, 2} {
		if reason := h.Blame(saved("x", last)); reason != "" {
			t.Errorf("death %d: %s", n+1, reason)
		}
		if reason := h.Blame(saved("y", uint64(n))); reason != "" {
			t.Errorf("a run that goes on: %s", reason)
		}
	}
	if reason := h.Blame(saved("x", 2)); !strings.Contains(reason, "3 times") {
		t.Errorf("the third death: %q", reason)
	}
	if len(h.Deaths) != 1 || h.Deaths[0].Run != "y" {
		t.Errorf("%+v is kept", h.Deaths)
	}
}

// Runs that had work in flight are suspect; after five crashes all that were active are.
func TestSuspect(t *testing.T) {
	frame := func(kinds ...journal.EventKind) *store.Saved {
		events := make([]journal.Event, len(kinds))
		for i, k := range kinds {
			events[i] = journal.Event{Seq: uint64(i + 1), At: 100 * second, Kind: k}
		}
		return &store.Saved{Head: store.Head{Updated: 100 * second}, Tail: journal.AppendFrame(nil, events), Last: uint64(len(kinds))}
	}
	busy, quiet := frame(journal.EvNodeStarted), frame(journal.EvNodeStarted, journal.EvNodeCompleted)
	h := History{Crashes: []int64{110 * second, 111 * second}}
	suspect := func(saved *store.Saved) bool {
		is, _ := h.Suspect(saved)
		return is
	}
	if !suspect(busy) || suspect(quiet) {
		t.Error("a run is suspect if it had work in flight")
	}
	for n, saved := range []*store.Saved{frame(journal.EvNodeQueued), busy, frame(journal.EvNodeStarted, journal.EvNodeSubmitted), frame(journal.EvNodeStarted, journal.EvNodeLost)} {
		want := 0
		if n == 1 {
			want = 1
		}
		if is, running := h.Suspect(saved); !is || running != want {
			t.Errorf("run %d: suspect %v with %d attempts in flight, want %d", n, is, running, want)
		}
	}
	for provider, want := range map[string]int{journal.Workers: 1, "acme": 0} { // a task may have no record that counts it
		ev, err := (&journal.Job{Provider: provider, ID: "j"}).Event(1, 1, nil)
		ev.Seq, ev.At = 1, 100*second
		submitted := &store.Saved{Head: store.Head{Updated: 100 * second}, Tail: journal.AppendFrame(nil, []journal.Event{ev}), Last: 1}
		if _, running := h.Suspect(submitted); err != nil || running != want {
			t.Errorf("a job of %s: %d attempts in flight, want %d, %v", provider, running, want, err)
		}
	}
	if _, running := h.Suspect(&store.Saved{Head: store.Head{Updated: 100 * second}, StateLast: 1}); running == 0 {
		t.Error("a run may have had attempts in flight that only its state knows")
	}
	h.Crashes = append(h.Crashes, 112*second, 113*second, 114*second)
	if !suspect(quiet) {
		t.Error("after five crashes any active run is suspect")
	}
	h.Crashes[0] = 161 * second
	if suspect(busy) {
		t.Error("a run that was last active long before the crashes is suspect")
	}
}
