// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// An account that floods the engine with 10,000 ready steps costs another
// account's only step at most two task times, with one slot and with two.
func TestFairnessAcrossAccounts(t *testing.T) {
	for _, slots := range []int{1, 2} {
		limited := noop()
		limited.Slots = slots
		p1, pFlood := planOf(t, chain(1), limited), planOf(t, fan(10_000), limited)
		r := newRig(t, memory.New(memory.Options{}), Config{}, limited)
		r.run("flood", pFlood, nil)
		if len(r.tasks) != slots {
			t.Fatalf("%d tasks are handed out, %d slots", len(r.tasks), slots)
		}
		key := r.run("small", p1, nil)
		times := 0 // how often all that was handed out was finished
		for ; !slices.ContainsFunc(r.tasks, func(ef effect) bool { return ef.id.key == key }); times++ {
			tasks := r.tasks
			r.tasks = nil
			for _, ef := range tasks {
				r.settle(done(ef, `{}`))
			}
			if len(r.tasks) != slots {
				t.Fatalf("%d tasks are handed out, %d slots", len(r.tasks), slots)
			}
			if times == 2 {
				t.Fatalf("slots=%d: the small account still waits after 2 task times", slots)
			}
		}
	}
}

// The same through the engine's own bound, and with many accounts: everyone is
// served in turn.
func TestAccountsTakeTurns(t *testing.T) {
	r := newRig(t, memory.New(memory.Options{}), Config{Concurrency: 1}, noop())
	p := planOf(t, fan(5), noop())
	for _, account := range []string{"a", "b", "c"} {
		r.run(account, p, nil)
	}
	var order string
	for range 12 {
		ef := r.pull()
		order += ef.id.key.Account
		r.settle(done(ef, `{}`))
	}
	if want := "abcabcabcabc"; order != want {
		t.Errorf("served in the order %s, want %s", order, want)
	}
}

// node.blocked is said once for each reason, not once for each look.
func TestHeldStepsSayWhyOnce(t *testing.T) {
	limited := noop()
	limited.Slots = 1
	r := newRig(t, memory.New(memory.Options{}), Config{}, limited)
	p := planOf(t, fan(4), limited)
	key := r.run(acc, p, nil)
	r.work()
	lines := r.trace(key, p)
	if n := count(lines, "node.blocked"); n != 3 {
		t.Errorf("%d node.blocked events for 3 held steps", n)
	}
	r.wantStatus(key, "completed")
	if left := r.c.attempts.arbiter.Usage(); len(left) != 0 {
		t.Errorf("after the end slots are held: %+v", left)
	}
}

// A provider's slots bound all its actions together, and hold also after a
// restart: they are recounted from what is open.
func TestI22_ProviderSlots(t *testing.T) {
	a, b := noop(), noop()
	a.Name, a.Provider = "first", "printer"
	b.Name, b.Provider = "second", "printer"
	src := "name: x\norder: none\nsteps:\n" +
		"  - {id: a1, action: {name: first}}\n  - {id: a2, action: {name: first}}\n" +
		"  - {id: b1, action: {name: second}}\n  - {id: b2, action: {name: second}}\n"
	p := planOf(t, src, a, b)
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{ProviderSlots: map[string]int{"printer": 2}}, a, b)
	key := r.run(acc, p, nil)
	if len(r.tasks) != 2 {
		t.Fatalf("%d tasks of the provider are handed out, 2 slots", len(r.tasks))
	}
	r.settle(done(r.pull(), `{}`))
	if len(r.tasks) != 2 {
		t.Fatalf("%d tasks of the provider are handed out, 2 slots", len(r.tasks))
	}
	r = r.reopen(st.Crash(0))
	r.settle()
	if len(r.tasks) != 2 {
		t.Fatalf("after a crash %d tasks of the provider are handed out, 2 slots", len(r.tasks))
	}
	r.work()
	r.wantStatus(key, "completed")
}

// A step that no longer wants its place in the queue neither gets a slot nor
// keeps one.
func TestF17_CancelWhileHeld(t *testing.T) {
	limited := noop()
	limited.Slots = 1
	r := newRig(t, memory.New(memory.Options{}), Config{}, limited)
	p := planOf(t, fan(3), limited)
	held, other := r.run(acc, p, nil), r.run(acc, p, nil)
	r.settle(request(held, machine.Input{Kind: machine.InCancel, Text: "no more"}))
	r.wantStatus(held, "cancelled")
	r.work()
	r.wantStatus(other, "completed")
	if left := r.c.attempts.arbiter.Usage(); len(left) != 0 {
		t.Errorf("slots are still held: %+v", left)
	}
}

// A timed-out action that has not returned keeps its slot until it does.
func TestX115_SlotOfATimedOutActionIsFreedWhenItReturns(t *testing.T) {
	limited := noop()
	limited.Slots = 1
	r := newRig(t, memory.New(memory.Options{}), Config{}, limited)
	p := planOf(t, "name: x\norder: none\nsteps:\n  - {id: a, action: {name: noop}, continue_on_error: true}\n  - {id: b, action: {name: noop}}\n", limited)
	key := r.run(acc, p, nil)
	a := r.pull()
	late := broken(a, "STEP_TIMEOUT")
	late.holding = true
	r.settle(late)
	if len(r.tasks) != 0 {
		t.Fatal("the slot was given away while the action still runs")
	}
	r.settle(&input{kind: inFreed, key: a.id.key, m: machine.Input{Ref: a.id.ref, Fence: a.id.fence}})
	if len(r.tasks) != 1 {
		t.Fatal("the slot was not given back")
	}
	r.work()
	r.wantStatus(key, "completed")
}

func TestAlarmsComeInOrder(t *testing.T) {
	var h alarms
	for i, at := range []int64{5, 3, 9, 3, 1, 7, 3} {
		h.push(alarm{at: at, key: store.Key{Run: itoa(i)}})
	}
	got := ""
	for h.next() != 0 {
		a, _ := h.pop()
		got += a.key.Run
	}
	if want := "4136052"; got != want {
		t.Errorf("alarms rang in the order %s, want %s", got, want)
	}
}

// I15: the alarms of runs that have ended do not pile up until a ttl of days is
// over, and the others still come in order.
func TestAlarmsOfTheDeadAreForgotten(t *testing.T) {
	r := newRig(t, memory.New(memory.Options{}), Config{}, noop())
	waits := r.run(acc, planOf(t, waitRecipe, noop()), nil)
	p := planOf(t, chain(1), noop())
	for range 60 {
		var ins []*input
		for range 100 {
			ins = append(ins, r.start(acc, p, nil))
		}
		r.settle(ins...)
		r.work()
	}
	if n := cap(r.c.residency.alarms.heap); n > 4*minDead {
		t.Errorf("room for %d alarms, for one run in memory", n)
	}
	last := int64(0)
	for found := false; len(r.c.residency.alarms.heap) > 0; {
		a, _ := r.c.residency.alarms.pop()
		if a.at < last {
			t.Fatalf("an alarm at %d comes after one at %d", a.at, last)
		}
		last = a.at
		if a.timer != nil && a.timer.l != nil && a.timer.l.key == waits {
			found = true
		}
		if len(r.c.residency.alarms.heap) == 0 && !found {
			t.Error("the alarm of the run that waits is gone")
		}
	}
}

// I15: neither does the room that batches of many runs took.
func TestBatchesOfManyRunsLeaveNoRoom(t *testing.T) {
	r := newRig(t, memory.New(memory.Options{}), Config{}, noop())
	p := planOf(t, chain(1), noop())
	var ins []*input
	for range 10 * keptRuns {
		ins = append(ins, r.start(acc, p, nil))
	}
	r.handle(ins...)
	if n := cap(r.c.pipeline.building.dirty); n < 10*keptRuns {
		t.Fatalf("the batch had %d runs", n)
	}
	r.settle()
	r.work()
	r.pass(1_000_000)
	for _, b := range []*batch{r.c.pipeline.building, r.c.pipeline.spare} {
		if n := max(cap(b.dirty), cap(b.ins), cap(b.owed), cap(b.trans), cap(b.runs)); n > 2*keptRuns {
			t.Errorf("room for %d runs is kept while there is none", n)
		}
	}
}

// I15: neither do those of a run that lives on: while it waits for something
// soon, its alarm for the end of its ttl means nothing, time after time.
func TestAlarmsOfTheLivingDoNotPileUp(t *testing.T) {
	r := newRig(t, memory.New(memory.Options{}), Config{}, noop())
	const laps = 2 * minDead
	loops := r.run(acc, planOf(t, `
name: loops
limits: {max_total_steps: 20000}
steps:
  - id: each
    loop: {over: input.items, maxConcurrency: 1, steps: [{id: w, wait: {duration: 1s}}, {id: a, action: {name: noop}}]}
`, noop()), map[string]any{"items": make([]any, laps)})
	most := 0
	for range laps {
		r.pass(1_000_000)
		r.work()
		most = max(most, len(r.c.residency.alarms.heap))
		dead := 0
		for i := range r.c.residency.alarms.heap {
			if !r.c.residency.alarms.heap[i].living() {
				dead++
			}
		}
		if dead != r.c.residency.alarms.dead {
			t.Fatalf("%d alarms are dead, %d were counted", dead, r.c.residency.alarms.dead)
		}
	}
	r.wantStatus(loops, "completed")
	if most > minDead+2 || most < minDead/2 {
		t.Errorf("%d alarms for one run", most)
	}
}
