// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// Alarms go off in the order of their times, or of setting if times are equal. Dead
// alarms are recognized, and removed once they are the majority.
func TestAlarms(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var h alarms
		type known struct {
			at     int64
			seq    uint64
			handle *timerHandle
		}
		var set []known
		dead := func() (n int) {
			for i := range h.heap {
				if !h.heap[i].living() {
					n++
				}
			}
			return n
		}
		most := 0
		for step := range 5_000 {
			switch k := r.IntN(10); {
			case k < 5 || len(set) == 0:
				b := &timerHandle{l: &loadedRun{}}
				a := known{at: 1 + r.Int64N(50), handle: b}
				if r.IntN(4) == 0 {
					a.handle = nil // of a suspended run
				}
				a.seq = h.push(alarm{at: a.at, timer: a.handle})
				if a.handle != nil {
					a.handle.valid = a.seq
				}
				set = append(set, a)
			case k < 8: // a run leaves memory, or waits for something else
				i := r.IntN(len(set))
				if b := set[i].handle; b != nil && b.l != nil && b.valid == set[i].seq {
					if r.IntN(2) == 0 {
						b.l = nil
					} else {
						b.valid = 0
					}
					h.noteDead()
				}
				if len(h.heap) < len(set) { // all dead alarms were removed
					if h.dead != 0 || dead() != 0 {
						t.Fatalf("seed %d: of %d alarms left, %d mean nothing, %d are known", seed, len(h.heap), dead(), h.dead)
					}
					set = slices.DeleteFunc(set, func(a known) bool { return a.handle != nil && (a.handle.l == nil || a.handle.valid != a.seq) })
				}
			default:
				slices.SortFunc(set, func(a, b known) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
				want := set[0]
				set = set[1:]
				living := want.handle == nil || want.handle.l != nil && want.handle.valid == want.seq
				if at := h.next(); at != want.at {
					t.Fatalf("seed %d, step %d: the next is at %d, want %d", seed, step, at, want.at)
				}
				if a, ok := h.pop(); a.at != want.at || a.timer != want.handle || ok != living {
					t.Fatalf("seed %d, step %d: popped %+v, means something %v; want %+v, %v", seed, step, a, ok, want, living)
				}
			}
			if len(h.heap) != len(set) || h.dead != dead() {
				t.Fatalf("seed %d, step %d: %d alarms, %d of them dead, want %d, %d", seed, step, len(h.heap), h.dead, len(set), dead())
			}
			most = max(most, h.dead)
		}
		if most >= minDead && most > len(h.heap) {
			t.Errorf("seed %d: up to %d dead alarms are kept", seed, most)
		}
		for range set {
			h.pop()
		}
		if h.next() != 0 || h.dead != 0 {
			t.Errorf("seed %d: empty, the next alarm is at %d, %d are dead", seed, h.next(), h.dead)
		}
	}
}

// Dead alarms are removed when there are minDead of them and they are half of all; not
// before.
func TestDeadAlarmsAreBounded(t *testing.T) {
	for _, living := range []int{0, minDead - 1, minDead, minDead + 1, minDead + 2} {
		var h alarms
		h.push(alarm{at: 1, key: store.Key{Run: "suspended"}})
		for range living - 1 {
			h.push(alarm{at: 2, timer: &timerHandle{l: &loadedRun{}, valid: h.seq + 1}})
		}
		var handles []*timerHandle
		for range minDead + 1 {
			b := &timerHandle{l: &loadedRun{}, valid: h.seq + 1}
			h.push(alarm{at: 3, timer: b})
			handles = append(handles, b)
		}
		all := len(h.heap)
		for i, b := range handles {
			b.l = nil
			h.noteDead()
			n := i + 1
			if dropped := len(h.heap) < all; dropped != (n >= minDead && n >= all/2) {
				t.Errorf("%d living, %d dead: dropped %v", all-len(handles), n, dropped)
			}
			if len(h.heap) < all {
				break
			}
		}
	}
	if at := (&alarms{}).next(); at != 0 {
		t.Errorf("without any the next is at %d", at)
	}
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
	if n := cap(h.c.residency.alarms.heap); n > 4*minDead {
		t.Errorf("capacity for %d alarms, for one run in memory", n)
	}
	last := int64(0)
	for found := false; len(h.c.residency.alarms.heap) > 0; {
		a, _ := h.c.residency.alarms.pop()
		if a.at < last {
			t.Fatalf("an alarm at %d comes after one at %d", a.at, last)
		}
		last = a.at
		if a.timer != nil && a.timer.l != nil && a.timer.l.key == waits {
			found = true
		}
		if len(h.c.residency.alarms.heap) == 0 && !found {
			t.Error("the alarm of the waiting run was removed")
		}
	}
}

// I15: the alarms of a running run do not accumulate either: each time it waits for
// something earlier than the end of its ttl, the later alarm becomes dead.
func TestSupersededAlarmsDoNotAccumulate(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	const laps = 2 * minDead
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
		most = max(most, len(h.c.residency.alarms.heap))
		dead := 0
		for i := range h.c.residency.alarms.heap {
			if !h.c.residency.alarms.heap[i].living() {
				dead++
			}
		}
		if dead != h.c.residency.alarms.dead {
			t.Fatalf("%d alarms are dead, %d were counted", dead, h.c.residency.alarms.dead)
		}
	}
	h.wantStatus(loops, "completed")
	if most > minDead+2 || most < minDead/2 {
		t.Errorf("%d alarms for one run", most)
	}
}
