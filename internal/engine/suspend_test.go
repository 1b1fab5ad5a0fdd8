// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// waiterRecipe waits for a signal, uses its value, waits for a time, and uses values
// from before each wait: a suspended run must find them again.
const waiterRecipe = `
name: waiter
inputSchema: {type: object, properties: {n: {type: integer}}}
steps:
  - {id: before, transform: {expression: 'input.n * 2', outputBinding: twice}}
  - {id: asked, wait: {signal: go, timeout: 2h}, outputBinding: got}
  - {id: work, action: {name: noop, parameters: {a: '{{ twice }}', b: '{{ got }}'}}}
  - {id: rest, wait: {duration: 10m}}
  - id: each
    loop:
      over: '[twice, got, 3]'
      steps:
        - {id: nap, wait: {duration: 1m}}
        - {id: one, transform: {expression: 'item + twice'}}
  - {id: last, transform: {expression: 'steps.work.output.ok && twice == input.n * 2'}}
`

// rendered returns a journal in its public form, without times, because these depend on
// the moment at which a run was handled.
func rendered(t testing.TB, st store.Store, p *plan.Plan, key store.Key) string {
	t.Helper()
	var b strings.Builder
	err := store.EachEvent(context.Background(), st, key, 0, func(ev *journal.Event) error {
		env := journal.Render(p, key.Run, ev)
		env.Timestamp = ""
		delete(env.Payload, "durationMs")
		delete(env.Payload, "duration")
		delete(env.Payload, "dueAt")
		delete(env.Payload, "due")
		delete(env.Payload, "until")
		line, err := json.Marshal(env)
		fmt.Fprintf(&b, "%s\n", line)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// waitingRuns drives n waiting runs with at most `loaded` in memory and returns
// their journals.
func waitingRuns(t *testing.T, n, loaded int, crash bool) []string {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{MaxLoaded: loaded}, noop())
	p := planOf(t, waiterRecipe, noop())
	var keys []store.Key
	for i := range n {
		keys = append(keys, h.run(acc, p, map[string]any{"n": int64(i)}))
	}
	if len(h.c.residency.runs) > loaded {
		t.Errorf("%d runs are in memory, %d allowed", len(h.c.residency.runs), loaded)
	}
	if crash {
		st = st.Crash(0)
		h = h.reopen(st)
		h.runUntilIdle()
	}
	dice := rand.New(rand.NewPCG(7, 7))
	for _, i := range dice.Perm(n) {
		if i%10 == 9 {
			continue // its wait times out
		}
		in := request(keys[i], machine.Input{Kind: machine.InSignal, Name: "go", Data: fmt.Appendf(nil, "%d", i)})
		reply := h.replyOf(in)
		h.runUntilIdle(in)
		if err := reply().err; err != nil {
			t.Fatal(err)
		}
		if len(h.tasks) > 50 {
			h.finishTasks()
		}
	}
	h.finishTasks()
	if len(h.c.residency.runs) > loaded {
		t.Errorf("%d runs are in memory, %d allowed", len(h.c.residency.runs), loaded)
	}
	for range 30 {
		h.advanceClock(5 * 60_000_000)
		h.finishTasks()
	}
	var journals []string
	for i, key := range keys {
		want := "completed"
		if i%10 == 9 {
			want = "failed"
		}
		h.wantStatus(key, want)
		if t.Failed() {
			t.Fatal(strings.Join(h.trace(key, p), "\n"))
		}
		journals = append(journals, rendered(t, st, p, key))
	}
	return journals
}

// Journals are the same with few runs in memory as with all of them.
func TestSuspensionDoesNotChangeJournals(t *testing.T) {
	n := 10_000
	if testing.Short() || raceOn {
		n = 500
	}
	all := waitingRuns(t, n, 1_000_000, false)
	few := waitingRuns(t, n, n/100, false)
	for i := range all {
		if all[i] != few[i] {
			t.Fatalf("run %d differs.\nall in memory:\n%s\nfew in memory:\n%s", i, all[i], few[i])
		}
	}
	_ = waitingRuns(t, n/10, max(2, n/1000), true)
}

// A suspended run costs the next start nothing. A quiet run is suspended when it has
// been idle, even if memory is not full.
func TestIdleRunsAreSuspended(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, waiterRecipe, noop())
	key := h.run(acc, p, map[string]any{"n": int64(1)})
	if len(h.c.residency.runs) != 1 {
		t.Fatal("the run left memory at once")
	}
	h.advanceClock(2 * h.cfg.SuspendAfter.Microseconds())
	if len(h.c.residency.runs) != 0 {
		t.Fatal("an idle run is still in memory")
	}
	saved, err := st.Load(context.Background(), key)
	if err != nil || saved.Suspension == nil || saved.Suspension.WakeAt != testEpoch+7_200_000_000 {
		t.Fatalf("its suspension is %+v (%v)", saved.Suspension, err)
	}
	n := 0
	if err := st.Recover(context.Background(), func(*store.Saved) error { n++; return nil }); err != nil || n != 0 {
		t.Errorf("%d runs are to be recovered (%v), want none", n, err)
	}
}

// Of many runs that begin to wait at once only the last ones stay in memory, so that a
// crash at that moment leaves the next start little to read. A run that wakes soon is
// not worth suspending.
func TestQuietRunsAreBounded(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{MaxQuiet: 10}, noop())
	p := planOf(t, waiterRecipe, noop())
	wait := planOf(t, "name: n\nsteps:\n  - {id: n, wait: {duration: 2s}}\n", noop())
	var keys []store.Key
	for range 100 {
		h.run(acc, wait, nil)
		keys = append(keys, h.run(acc, p, map[string]any{"n": int64(1)}))
	}
	if n := len(h.c.residency.runs); n < 100 || n > 112 {
		t.Fatalf("%d runs are in memory, want 100 with short waits and about 10 others", n)
	}
	if h.c.residency.runs[keys[99]] == nil || h.c.residency.runs[keys[0]] != nil {
		t.Error("the suspended runs are not those that have been quiet for longest")
	}
	n := 0
	h = h.reopen(st.Crash(0))
	if err := h.st.Recover(context.Background(), func(*store.Saved) error { n++; return nil }); err != nil || n > 112 {
		t.Errorf("%d runs are to be recovered (%v)", n, err)
	}
	for _, key := range keys {
		sig := request(key, machine.Input{Kind: machine.InSignal, Name: "go", Data: []byte(`1`)})
		reply := h.replyOf(sig)
		h.runUntilIdle(sig)
		if err := reply().err; err != nil {
			t.Fatal(err)
		}
	}
	if len(h.tasks) != 100 {
		t.Errorf("%d of 100 runs continued", len(h.tasks))
	}
	h.advanceClock(3 * h.cfg.SuspendAfter.Microseconds())
	for _, e := range h.c.residency.quiet {
		if !e.unchanged() {
			t.Fatal("a run that has left memory is still listed as quiet, and held in memory")
		}
	}
}

// A thousand runs with long attempts, started one after the other, do not wake the loop
// a thousand times a second to check whether they can be suspended.
func TestIdleChecksAreBatched(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	p := planOf(t, chain(1), noop())
	for range 1000 {
		h.run(acc, p, nil)
		h.advanceClock(1_000)
	}
	wakes := 0
	for until := h.now + 10_000_000; ; wakes++ {
		at := h.c.wakeup()
		if at == 0 || at > until {
			break
		}
		h.now = max(at, h.now+1)
		h.runUntilIdle()
	}
	if wakes < 10 || wakes > 150 {
		t.Errorf("the loop was woken %d times in 10 s, want some 10 times a second", wakes)
	}
}

// The journal stays bounded: small runs are compacted in groups.
func TestOldestRunsAreCompacted(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{CompactBytes: 64 << 10, CompactCheck: 4 << 10}, noop())
	p := planOf(t, "name: w\norder: none\nsteps:\n  - {id: w, wait: {signal: go}}\n  - {id: a, action: {name: noop}}\n", noop())
	var keys []store.Key
	for range 2_000 {
		keys = append(keys, h.run(acc, p, nil)) // open attempts: none may be suspended
	}
	if s, _ := st.Stats(context.Background()); s.JournalBytes > 128<<10 {
		t.Errorf("%d bytes of journal are not covered", s.JournalBytes)
	}
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	h.finishTasks()
	for _, key := range keys {
		verify(t, h.st, key)
	}
}
