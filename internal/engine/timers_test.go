// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/roux-engine/roux/internal/alarms"
	"github.com/roux-engine/roux/internal/store/memory"
)

// I15: the alarms of runs that have ended do not accumulate until the end of their ttl,
// and the others still go off in order.
func TestAlarmsOfEndedRunsAreRemoved(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	waits := h.run(acc, planOf(t, waitRecipe, noop()), nil)
	p := planOf(t, chain(1), noop())
	for range 60 {
		var inputs []*input
		for range 100 {
			inputs = append(inputs, h.startInput(acc, p, nil))
		}
		h.runUntilIdle(inputs...)
		h.finishTasks()
	}
	if n, _ := h.c.residency.alarms.Len(); n > 4*alarms.MinDead {
		t.Errorf("%d alarms, for one run in memory", n)
	}
	last := int64(0)
	for found := false; h.c.residency.alarms.Next() != 0; {
		a, _ := h.c.residency.alarms.Pop()
		if a.At < last {
			t.Fatalf("an alarm at %d comes after one at %d", a.At, last)
		}
		last = a.At
		if a.Timer != nil && a.Timer.Of != nil && a.Timer.Of.key == waits {
			found = true
		}
		if h.c.residency.alarms.Next() == 0 && !found {
			t.Error("the alarm of the waiting run was removed")
		}
	}
}

// I15: the alarms of a running run do not accumulate either: each time it waits for
// something earlier than the end of its ttl, the later alarm becomes dead.
func TestSupersededAlarmsDoNotAccumulate(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	const laps = 2 * alarms.MinDead
	loops := h.run(acc, planOf(t, `
name: loops
limits: {max_total_steps: 20000}
steps:
  - id: each
    loop: {over: input.items, maxConcurrency: 1, steps: [{id: w, wait: {duration: 1s}}, {id: a, action: {name: noop}}]}
`, noop()), map[string]any{"items": make([]any, laps)})
	most := 0
	for range laps {
		h.advanceClock(1_000_000)
		h.finishTasks()
		all, dead := h.c.residency.alarms.Len()
		if most = max(most, all); all-dead != 1 && h.c.residency.runs[loops] != nil {
			t.Fatalf("%d alarms, %d of them dead: the run has one", all, dead)
		}
	}
	h.wantStatus(loops, "completed")
	if most > alarms.MinDead+2 || most < alarms.MinDead/2 {
		t.Errorf("%d alarms for one run", most)
	}
}
