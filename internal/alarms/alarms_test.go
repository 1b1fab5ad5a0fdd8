// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// A run is what the alarms of a test are of.
type run struct{ _ int }

// Alarms go off in the order of their times, or of setting if times are equal. Dead
// alarms are recognized, and removed once they are the majority.
func TestAlarms(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var h Queue[run]
		type known struct {
			at     int64
			seq    uint64
			handle *Timer[run]
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
				b := &Timer[run]{Of: &run{}}
				a := known{at: 1 + r.Int64N(50), handle: b}
				if r.IntN(4) == 0 {
					a.handle = nil // of a suspended run
				}
				a.seq = h.Push(Alarm[run]{At: a.at, Timer: a.handle})
				if a.handle != nil {
					a.handle.Valid = a.seq
				}
				set = append(set, a)
			case k < 8: // a run leaves memory, or waits for something else
				i := r.IntN(len(set))
				if b := set[i].handle; b != nil && b.Of != nil && b.Valid == set[i].seq {
					if r.IntN(2) == 0 {
						b.Of = nil
					} else {
						b.Valid = 0
					}
					h.NoteDead()
				}
				if len(h.heap) < len(set) { // all dead alarms were removed
					if h.dead != 0 || dead() != 0 {
						t.Fatalf("seed %d: of %d alarms left, %d mean nothing, %d are known", seed, len(h.heap), dead(), h.dead)
					}
					set = slices.DeleteFunc(set, func(a known) bool { return a.handle != nil && (a.handle.Of == nil || a.handle.Valid != a.seq) })
				}
			default:
				slices.SortFunc(set, func(a, b known) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
				want := set[0]
				set = set[1:]
				living := want.handle == nil || want.handle.Of != nil && want.handle.Valid == want.seq
				if at := h.Next(); at != want.at {
					t.Fatalf("seed %d, step %d: the next is at %d, want %d", seed, step, at, want.at)
				}
				if a, ok := h.Pop(); a.At != want.at || a.Timer != want.handle || ok != living {
					t.Fatalf("seed %d, step %d: popped %+v, means something %v; want %+v, %v", seed, step, a, ok, want, living)
				}
			}
			if len(h.heap) != len(set) || h.dead != dead() {
				t.Fatalf("seed %d, step %d: %d alarms, %d of them dead, want %d, %d", seed, step, len(h.heap), h.dead, len(set), dead())
			}
			most = max(most, h.dead)
		}
		if most >= MinDead && most > len(h.heap) {
			t.Errorf("seed %d: up to %d dead alarms are kept", seed, most)
		}
		for range set {
			h.Pop()
		}
		if h.Next() != 0 || h.dead != 0 {
			t.Errorf("seed %d: empty, the next alarm is at %d, %d are dead", seed, h.Next(), h.dead)
		}
	}
}

// Dead alarms are removed when there are MinDead of them and they are half of all; not
// before.
func TestDeadAlarmsAreBounded(t *testing.T) {
	for _, living := range []int{0, MinDead - 1, MinDead, MinDead + 1, MinDead + 2} {
		var h Queue[run]
		h.Push(Alarm[run]{At: 1, Key: store.Key{Run: "suspended"}})
		for range living - 1 {
			h.Push(Alarm[run]{At: 2, Timer: &Timer[run]{Of: &run{}, Valid: h.seq + 1}})
		}
		var handles []*Timer[run]
		for range MinDead + 1 {
			b := &Timer[run]{Of: &run{}, Valid: h.seq + 1}
			h.Push(Alarm[run]{At: 3, Timer: b})
			handles = append(handles, b)
		}
		all := len(h.heap)
		for i, b := range handles {
			b.Of = nil
			h.NoteDead()
			n := i + 1
			if dropped := len(h.heap) < all; dropped != (n >= MinDead && n >= all/2) {
				t.Errorf("%d living, %d dead: dropped %v", all-len(handles), n, dropped)
			}
			if len(h.heap) < all {
				break
			}
		}
	}
	if at := new(Queue[run]).Next(); at != 0 {
		t.Errorf("without any the next is at %d", at)
	}
}

func TestAlarmsComeInOrder(t *testing.T) {
	var h Queue[run]
	for i, at := range []int64{5, 3, 9, 3, 1, 7, 3} {
		h.Push(Alarm[run]{At: at, Key: store.Key{Run: strconv.Itoa(i)}})
	}
	got := ""
	for h.Next() != 0 {
		a, _ := h.Pop()
		got += a.Key.Run
	}
	if want := "4136052"; got != want {
		t.Errorf("alarms rang in the order %s, want %s", got, want)
	}
}
