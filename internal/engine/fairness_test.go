// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store/memory"
)

// An account that floods the engine with 10,000 ready steps costs another
// account's only step at most two task times, with one slot and with two.
func TestFairnessAcrossAccounts(t *testing.T) {
	for _, slots := range []int{1, 2} {
		limited := noop()
		limited.Slots = slots
		p1, pFlood := planOf(t, chain(1), limited), planOf(t, fan(10_000), limited)
		h := newHarness(t, memory.New(memory.Options{}), Config{}, limited)
		h.run("flood", pFlood, nil)
		if len(h.tasks) != slots {
			t.Fatalf("%d tasks are handed out, %d slots", len(h.tasks), slots)
		}
		key := h.run("small", p1, nil)
		times := 0 // how often all that was handed out was finished
		for ; !slices.ContainsFunc(h.tasks, func(ef effect) bool { return ef.id.Key == key }); times++ {
			tasks := h.tasks
			h.tasks = nil
			for _, ef := range tasks {
				h.runUntilIdle(success(ef, `{}`))
			}
			if len(h.tasks) != slots {
				t.Fatalf("%d tasks are handed out, %d slots", len(h.tasks), slots)
			}
			if times == 2 {
				t.Fatalf("slots=%d: the small account still waits after 2 task times", slots)
			}
		}
	}
}

// The same with the engine's own limit and with many accounts: accounts are served in
// rotation.
func TestAccountsTakeTurns(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Concurrency: 1}, noop())
	p := planOf(t, fan(5), noop())
	for _, account := range []string{"a", "b", "c"} {
		h.run(account, p, nil)
	}
	var order string
	for range 12 {
		ef := h.takeTask()
		order += ef.id.Key.Account
		h.runUntilIdle(success(ef, `{}`))
	}
	if want := "abcabcabcabc"; order != want {
		t.Errorf("served in the order %s, want %s", order, want)
	}
}

// node.blocked is recorded once for each reason, not on each check.
func TestBlockedStepsReportEachReasonOnce(t *testing.T) {
	limited := noop()
	limited.Slots = 1
	h := newHarness(t, memory.New(memory.Options{}), Config{}, limited)
	p := planOf(t, fan(4), limited)
	key := h.run(acc, p, nil)
	h.finishTasks()
	lines := h.trace(key, p)
	if n := countPrefix(lines, "node.blocked"); n != 3 {
		t.Errorf("%d node.blocked events for 3 held steps", n)
	}
	h.wantStatus(key, "completed")
	if left := h.c.attempts.Arbiter.Usage(); len(left) != 0 {
		t.Errorf("after the end slots are held: %+v", left)
	}
}

// A provider's slots bound all its actions together, also after a restart: they are
// recounted from the open attempts.
func TestI22_ProviderSlots(t *testing.T) {
	a, b := noop(), noop()
	a.Name, a.Provider = "first", "printer"
	b.Name, b.Provider = "second", "printer"
	src := "name: x\norder: none\nsteps:\n" +
		"  - {id: a1, action: {name: first}}\n  - {id: a2, action: {name: first}}\n" +
		"  - {id: b1, action: {name: second}}\n  - {id: b2, action: {name: second}}\n"
	p := planOf(t, src, a, b)
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{ProviderSlots: map[string]int{"printer": 2}}, a, b)
	key := h.run(acc, p, nil)
	if len(h.tasks) != 2 {
		t.Fatalf("%d tasks of the provider are handed out, 2 slots", len(h.tasks))
	}
	h.runUntilIdle(success(h.takeTask(), `{}`))
	if len(h.tasks) != 2 {
		t.Fatalf("%d tasks of the provider are handed out, 2 slots", len(h.tasks))
	}
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	if len(h.tasks) != 2 {
		t.Fatalf("after a crash %d tasks of the provider are handed out, 2 slots", len(h.tasks))
	}
	h.finishTasks()
	h.wantStatus(key, "completed")
}

// A step that no longer waits in the queue neither gets a slot nor keeps one.
func TestF17_CancelWhileHeld(t *testing.T) {
	limited := noop()
	limited.Slots = 1
	h := newHarness(t, memory.New(memory.Options{}), Config{}, limited)
	p := planOf(t, fan(3), limited)
	held, other := h.run(acc, p, nil), h.run(acc, p, nil)
	h.runUntilIdle(request(held, machine.Input{Kind: machine.InCancel, Text: "no more"}))
	h.wantStatus(held, "cancelled")
	h.finishTasks()
	h.wantStatus(other, "completed")
	if left := h.c.attempts.Arbiter.Usage(); len(left) != 0 {
		t.Errorf("slots are still held: %+v", left)
	}
}

// A timed-out action that has not returned keeps its slot until it does.
func TestX115_SlotOfATimedOutActionIsFreedWhenItReturns(t *testing.T) {
	limited := noop()
	limited.Slots = 1
	h := newHarness(t, memory.New(memory.Options{}), Config{}, limited)
	p := planOf(t, "name: x\norder: none\nsteps:\n  - {id: a, action: {name: noop}, continue_on_error: true}\n  - {id: b, action: {name: noop}}\n", limited)
	key := h.run(acc, p, nil)
	a := h.takeTask()
	late := failure(a, "STEP_TIMEOUT")
	late.holding = true
	h.runUntilIdle(late)
	if len(h.tasks) != 0 {
		t.Fatal("the slot was given away while the action still runs")
	}
	h.runUntilIdle(&input{kind: inFreed, key: a.id.Key, m: machine.Input{Ref: a.id.Ref, Fence: a.id.Fence}})
	if len(h.tasks) != 1 {
		t.Fatal("the slot was not given back")
	}
	h.finishTasks()
	h.wantStatus(key, "completed")
}
