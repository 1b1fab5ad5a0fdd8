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

// TestQueue: elements that were pushed in any order are popped least first, also after some were deleted.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q heap.Queue[int]
		var want []int
		next := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			switch slices.Sort(want); rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3:
				next += rapid.IntRange(0, 2).Draw(t, "more") // in order
				q.Push(next, less)
				want = append(want, next)
			case 4:
				x := rapid.IntRange(0, next).Draw(t, "x")
				q.Push(x, less)
				want = append(want, x)
			case 5:
				odd := func(x int) bool { return x%2 == 1 }
				q.DeleteFunc(odd, less)
				want = slices.DeleteFunc(want, odd)
			default:
				if q.Len() == 0 {
					continue
				}
				first := *q.First(less)
				if x := q.Pop(less); x != want[0] || first != x {
					t.Fatalf("first %d, popped %d, the least is %d", first, x, want[0])
				}
				want = want[1:]
			}
			var all []int
			for x := range q.All() {
				all = append(all, *x)
			}
			slices.Sort(all)
			slices.Sort(want)
			if !slices.Equal(all, want) || q.Len() != len(want) {
				t.Fatalf("%d elements %v, want %v", q.Len(), all, want)
			}
		}
	})
}
