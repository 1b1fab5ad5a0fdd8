// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/plan"
)

// I9: timers leave the queue in order, whatever the order they were pushed in, and
// keep removes all that do not apply any more.
func TestTimersComeInOrder(t *testing.T) {
	in := &scope{g: &plan.Graph{}}
	rapid.Check(t, func(t *rapid.T) {
		var q timerQueue
		var want []timer
		for range rapid.IntRange(1, 400).Draw(t, "times") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0: // in order, as most come
				for range rapid.IntRange(1, 100).Draw(t, "row") {
					x := timer{due: int64(len(want)), scope: in, step: int32(len(want))}
					if len(want) > 0 {
						x.due = max(x.due, want[len(want)-1].due+1)
					}
					q.push(x)
					want = append(want, x)
				}
			case 1:
				odd := rapid.Int64Range(0, 1).Draw(t, "odd")
				ok := func(x timer) bool { return x.due%2 == odd }
				q.keep(ok)
				want = slices.DeleteFunc(want, func(x timer) bool { return !ok(x) })
			case 2, 3, 4, 5:
				if len(want) > 0 {
					q.pop()
					want = want[1:]
				}
			default:
				x := timer{due: rapid.Int64Range(0, 500).Draw(t, "due"), scope: in, step: rapid.Int32Range(0, 3).Draw(t, "step"), total: rapid.Bool().Draw(t, "total")}
				q.push(x)
				at, _ := slices.BinarySearchFunc(want, x, timer.compare)
				want = slices.Insert(want, at, x)
			}
			if q.len() != len(want) {
				t.Fatalf("%d timers, want %d", q.len(), len(want))
			}
			first := q.first()
			if (first == nil) != (len(want) == 0) || first != nil && *first != want[0] {
				t.Fatalf("the first is %v of %v", first, want)
			}
		}
		for _, list := range [][]timer{q.sorted[:q.front], q.sorted[len(q.sorted):cap(q.sorted)], q.heap[len(q.heap):cap(q.heap)]} {
			for _, x := range list {
				if x.scope != nil {
					t.Fatal("a timer that left is still held")
				}
			}
		}
	})
}
