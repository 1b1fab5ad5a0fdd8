// SPDX-License-Identifier: Apache-2.0

package machine

import "github.com/roux-engine/roux/internal/heap"

// timerQueue is a priority queue of timers in the order of compare.
type timerQueue struct {
	// sorted holds, from front on, the timers that were pushed in order. Steps with the
	// same timeout push their timers in order, so ten thousand of them need no heap
	// operation.
	sorted []timer
	front  int
	heap   []timer // the other timers, as a binary heap
}

func (q *timerQueue) len() int { return len(q.sorted) - q.front + len(q.heap) }

func (q *timerQueue) push(t timer) {
	if q.front == len(q.sorted) || q.sorted[len(q.sorted)-1].compare(t) <= 0 {
		q.sorted = append(q.sorted, t)
		return
	}
	q.heap = heap.Push(q.heap, t, earlier)
}

func earlier(a, b *timer) bool { return a.compare(*b) < 0 }

// first is the least timer, valid until the next call; nil = the queue is empty.
func (q *timerQueue) first() *timer {
	switch {
	case q.front == len(q.sorted):
		if len(q.heap) == 0 {
			return nil
		}
		return &q.heap[0]
	case len(q.heap) > 0 && q.heap[0].compare(q.sorted[q.front]) < 0:
		return &q.heap[0]
	}
	return &q.sorted[q.front]
}

// pop removes the first timer. The queue must not be empty.
func (q *timerQueue) pop() {
	if len(q.heap) > 0 && q.first() == &q.heap[0] {
		_, q.heap = heap.Pop(q.heap, earlier)
		return
	}
	q.sorted[q.front] = timer{}
	q.front++
	switch {
	case q.front == len(q.sorted):
		q.sorted, q.front = q.sorted[:0], 0
	case q.front >= 64 && q.front > len(q.sorted)/2:
		n := copy(q.sorted, q.sorted[q.front:])
		clear(q.sorted[n:])
		q.sorted, q.front = q.sorted[:n], 0
	}
}

// keep drops the timers for which ok is false, so that a long chain of steps with
// timeouts holds only as many timers as are live.
func (q *timerQueue) keep(ok func(timer) bool) {
	row, others := q.sorted, q.heap
	q.sorted, q.heap = row[:0], others[:0]
	for _, t := range row[q.front:] {
		if ok(t) {
			q.sorted = append(q.sorted, t)
		}
	}
	for _, t := range others {
		if ok(t) {
			q.heap = append(q.heap, t)
		}
	}
	q.front = 0
	clear(row[len(q.sorted):])
	clear(others[len(q.heap):])
	heap.Init(q.heap, earlier)
}
