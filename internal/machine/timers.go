// SPDX-License-Identifier: Apache-2.0

package machine

import "github.com/roux-engine/roux/internal/heap"

// timers gives out timers by compare, the least first.
type timers struct {
	// row holds, from front on, those that came in order. Of steps with one
	// timeout all do: ten thousand at once cost no search.
	row   []timer
	front int
	heap  []timer // the others, a binary heap
}

func (q *timers) len() int { return len(q.row) - q.front + len(q.heap) }

func (q *timers) push(t timer) {
	if q.front == len(q.row) || q.row[len(q.row)-1].compare(t) <= 0 {
		q.row = append(q.row, t)
		return
	}
	q.heap = heap.Push(q.heap, t, earlier)
}

func earlier(a, b *timer) bool { return a.compare(*b) < 0 }

// first is the least, valid until the next call; nil = there is none.
func (q *timers) first() *timer {
	switch {
	case q.front == len(q.row):
		if len(q.heap) == 0 {
			return nil
		}
		return &q.heap[0]
	case len(q.heap) > 0 && q.heap[0].compare(q.row[q.front]) < 0:
		return &q.heap[0]
	}
	return &q.row[q.front]
}

// pop takes the first away. There must be one.
func (q *timers) pop() {
	if len(q.heap) > 0 && q.first() == &q.heap[0] {
		_, q.heap = heap.Pop(q.heap, earlier)
		return
	}
	q.row[q.front] = timer{}
	q.front++
	switch {
	case q.front == len(q.row):
		q.row, q.front = q.row[:0], 0
	case q.front >= 64 && q.front > len(q.row)/2:
		n := copy(q.row, q.row[q.front:])
		clear(q.row[n:])
		q.row, q.front = q.row[:n], 0
	}
}

// keep drops those of which ok says no, so that a long chain of steps with
// timeouts keeps as many timers as are open.
func (q *timers) keep(ok func(timer) bool) {
	row, others := q.row, q.heap
	q.row, q.heap = row[:0], others[:0]
	for _, t := range row[q.front:] {
		if ok(t) {
			q.row = append(q.row, t)
		}
	}
	for _, t := range others {
		if ok(t) {
			q.heap = append(q.heap, t)
		}
	}
	q.front = 0
	clear(row[len(q.row):])
	clear(others[len(q.heap):])
	heap.Init(q.heap, earlier)
}
