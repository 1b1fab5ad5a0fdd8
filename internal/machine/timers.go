// SPDX-License-Identifier: Apache-2.0

package machine

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
	q.heap = append(q.heap, t)
	for k := len(q.heap) - 1; k > 0; {
		parent := (k - 1) / 2
		if q.heap[parent].compare(q.heap[k]) <= 0 {
			break
		}
		q.heap[parent], q.heap[k] = q.heap[k], q.heap[parent]
		k = parent
	}
}

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
		n := len(q.heap) - 1
		q.heap[0], q.heap[n] = q.heap[n], timer{}
		q.heap = q.heap[:n]
		q.sink(0)
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

func (q *timers) sink(k int) {
	for n := len(q.heap); ; {
		least := k
		for _, kid := range [...]int{2*k + 1, 2*k + 2} {
			if kid < n && q.heap[kid].compare(q.heap[least]) < 0 {
				least = kid
			}
		}
		if least == k {
			return
		}
		q.heap[k], q.heap[least] = q.heap[least], q.heap[k]
		k = least
	}
}

// keep drops those of which ok says no, so that a long chain of steps with
// timeouts keeps as many timers as are open.
func (q *timers) keep(ok func(timer) bool) {
	row, heap := q.row, q.heap
	q.row, q.heap = row[:0], heap[:0]
	for _, t := range row[q.front:] {
		if ok(t) {
			q.row = append(q.row, t)
		}
	}
	for _, t := range heap {
		if ok(t) {
			q.heap = append(q.heap, t)
		}
	}
	q.front = 0
	clear(row[len(q.row):])
	clear(heap[len(q.heap):])
	for k := len(q.heap)/2 - 1; k >= 0; k-- {
		q.sink(k)
	}
}
