// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// An engine with Select continues the runs it selects, those that start there and those
// that a request names. It leaves the others alone, even when their timers are due and
// when every run is read again after a failed commit.
func TestSelect(t *testing.T) {
	fail := false
	st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome {
		if fail {
			fail = false
			return memory.Refused
		}
		return memory.OK
	}})
	work := planOf(t, chain(1), noop())
	wait := planOf(t, "name: nap\nsteps:\n  - {id: nap, wait: {duration: PT1M}}\n", noop())
	before := newHarness(t, st, Config{SuspendAfter: 1}, noop())
	mine, other := before.run(acc, work, nil), before.run(acc, work, nil)
	myNap, otherNap := before.run(acc, wait, nil), before.run(acc, wait, nil)
	signalled := before.run(acc, planOf(t, "name: ask\nsteps:\n  - {id: ask, wait: {signal: go}}\n  - {id: nap, wait: {duration: PT1M}}\n", noop()), nil)
	before.advanceClock(2_000_000) // they are suspended

	var failures []error
	chosen := map[store.Key]bool{mine: true, myNap: true}
	before.cfg.Select = func(key store.Key) bool { return chosen[key] }
	before.cfg.CommitFailed = func(err error) { failures = append(failures, err) }
	h := before.reopen(st)
	h.runUntilIdle()
	if len(h.c.residency.runs) != 1 || h.c.residency.runs[mine] == nil {
		t.Fatalf("%d runs were loaded, want the one that is selected and not suspended", len(h.c.residency.runs))
	}
	began := h.run(acc, wait, nil)
	h.runUntilIdle(request(signalled, machine.Input{Kind: machine.InSignal, Name: "go"}))
	fail = true
	refused := h.startInput(acc, work, nil)
	h.runUntilIdle(refused)
	h.advanceClock(5 * maxBackoff)
	if len(failures) != 1 || fault.CodeOf(failures[0]) != fault.StoreFull {
		t.Errorf("CommitFailed was called with %v, want one STORE_FULL", failures)
	}
	h.advanceClock(120_000_000)
	h.finishTasks()
	for _, key := range []store.Key{mine, myNap, began, signalled} {
		h.wantStatus(key, "completed")
	}
	for _, key := range []store.Key{other, otherNap} {
		h.wantStatus(key, "running")
		if h.c.residency.runs[key] != nil {
			t.Errorf("run %s was loaded", key.Run)
		}
	}
}

// Wake-ups of runs that are not selected do not crowd out those of the selected ones,
// however many they are.
func TestSelectDue(t *testing.T) {
	st := memory.New(memory.Options{})
	wait := planOf(t, "name: nap\nsteps:\n  - {id: nap, wait: {duration: PT1M}}\n", noop())
	before := newHarness(t, st, Config{SuspendAfter: 1}, noop())
	const others = maxWakeups + 10
	var keys []store.Key
	for range others {
		keys = append(keys, before.run(acc, wait, nil))
	}
	before.advanceClock(2_000_000)
	last := keys[len(keys)-1]
	before.cfg.Select = func(key store.Key) bool { return key == last }
	h := before.reopen(st)
	wakes, more, err := h.c.residency.due(h.now + hour)
	if err != nil || more || len(wakes) != 1 || wakes[0].Key != last {
		t.Errorf("due are %d wake-ups, more %t, %v; want the last run's", len(wakes), more, err)
	}
	h.advanceClock(120_000_000)
	h.wantStatus(last, "completed")
	h.wantStatus(keys[0], "running")
}

// Child runs are continued with their root, also suspended ones: whether the root is
// selected, or a request names it while others of its tree are due (I9).
func TestSelectTrees(t *testing.T) {
	st := memory.New(memory.Options{})
	tree := planOf(t, "name: tree\norder: none\nsteps:\n"+
		"  - {id: c, recipe: {inline: {name: nap, steps: [{id: nap, wait: {duration: PT1M}}]}}}\n  - {id: ask, wait: {signal: go}}\n", noop())
	before := newHarness(t, st, Config{SuspendAfter: 1}, noop())
	mine, named, other := before.run(acc, tree, nil), before.run(acc, tree, nil), before.run(acc, tree, nil)
	before.advanceClock(2_000_000)
	if n := len(before.c.residency.runs); n > 0 {
		t.Fatalf("%d runs are not suspended", n)
	}
	before.cfg.Select = func(key store.Key) bool { return key == mine }
	h := before.reopen(st)
	h.advanceClock(1_000_000)
	for _, key := range []store.Key{mine, named} {
		h.runUntilIdle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
		h.advanceClock(1_000_000) // it is suspended again
	}
	h.advanceClock(120_000_000)
	h.wantStatus(mine, "completed")
	h.wantStatus(named, "completed")
	h.wantStatus(other, "running")
}
