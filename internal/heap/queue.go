// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"iter"
	"slices"
)

// A Queue gives back its least element first, as a heap does. What is pushed in order costs O(1), and
// only what is not is kept in a heap. Every call is given the same less. The zero Queue is empty.
type Queue[T any] struct {
	line []T // in order, from taken on
	rest []T // a heap
	// taken is how many elements of line have been removed.
	taken int
}

// Len returns the number of elements.
func (q *Queue[T]) Len() int { return len(q.line) - q.taken + len(q.rest) }

// Push adds x.
func (q *Queue[T]) Push(x T, less func(a, b *T) bool) {
	if n := len(q.line); n > q.taken && less(&x, &q.line[n-1]) {
		q.rest = Push(q.rest, x, less)
		return
	}
	if 2*q.taken > len(q.line) && len(q.line) == cap(q.line) {
		n := copy(q.line, q.line[q.taken:])
		clear(q.line[n:])
		q.line, q.taken = q.line[:n], 0
	}
	q.line = append(q.line, x)
}

// First returns the least element, until Push or Pop is called. There must be one.
func (q *Queue[T]) First(less func(a, b *T) bool) *T {
	if q.inLine(less) {
		return &q.line[q.taken]
	}
	return &q.rest[0]
}

// inLine reports whether the least element is in line.
func (q *Queue[T]) inLine(less func(a, b *T) bool) bool {
	return len(q.rest) == 0 || q.taken < len(q.line) && !less(&q.rest[0], &q.line[q.taken])
}

// Pop removes and returns the least element. There must be one.
func (q *Queue[T]) Pop(less func(a, b *T) bool) (least T) {
	if !q.inLine(less) {
		least, q.rest = Pop(q.rest, less)
		return least
	}
	var zero T
	least, q.line[q.taken] = q.line[q.taken], zero
	if q.taken++; q.taken == len(q.line) {
		q.line, q.taken = q.line[:0], 0
	}
	return least
}

// All returns the elements in no particular order.
func (q *Queue[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, of := range [][]T{q.line[q.taken:], q.rest} {
			for i := range of {
				if !yield(&of[i]) {
					return
				}
			}
		}
	}
}

// DeleteFunc removes the elements for which del returns true.
func (q *Queue[T]) DeleteFunc(del func(T) bool, less func(a, b *T) bool) {
	q.line, q.taken = slices.DeleteFunc(slices.Delete(q.line, 0, q.taken), del), 0
	q.rest = slices.DeleteFunc(q.rest, del)
	Init(q.rest, less)
}
