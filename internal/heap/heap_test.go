// SPDX-License-Identifier: Apache-2.0

package heap_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/heap"
)

func less(a, b *int) bool { return *a < *b }

// TestHeap: elements that were pushed in any order are popped least first, also from a heap
// that Init made from a slice.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "at first")
		want := slices.Clone(h)
		heap.Init(h, less)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if len(h) > 0 && rapid.Bool().Draw(t, "pop") {
				var x int
				x, h = heap.Pop(h, less)
				slices.Sort(want)
				if x != want[0] {
					t.Fatalf("popped %d, the least is %d", x, want[0])
				}
				want = want[1:]
				continue
			}
			x := rapid.IntRange(0, 9).Draw(t, "x")
			h, want = heap.Push(h, x, less), append(want, x)
		}
		slices.Sort(want)
		for _, least := range want {
			var x int
			if x, h = heap.Pop(h, less); x != least {
				t.Fatalf("popped %d, the least is %d", x, least)
			}
		}
		if len(h) != 0 {
			t.Fatalf("%d are left", len(h))
		}
	})
}
