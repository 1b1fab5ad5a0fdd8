// SPDX-License-Identifier: Apache-2.0

// Package heap keeps a slice in the order of a binary heap, the least element first.
// Unlike container/heap it needs no interface and no allocation per element. It decides
// nothing about the order of elements: the caller's less does. Equal elements have no
// defined order. Sort sorts a slice that is not sorted often.
package heap

// Push adds x to the heap h and returns the heap.
func Push[T any](h []T, x T, less func(a, b *T) bool) []T {
	h = append(h, x)
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !less(&h[i], &h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	return h
}

// Pop removes and returns the least element of h, which must not be empty.
func Pop[T any](h []T, less func(a, b *T) bool) (least T, rest []T) {
	var zero T
	n := len(h) - 1
	least = h[0]
	h[0], h[n] = h[n], zero
	h = h[:n]
	down(h, 0, less)
	return least, h
}

// Init puts elements that are in any order into heap order.
func Init[T any](h []T, less func(a, b *T) bool) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		down(h, i, less)
	}
}

func down[T any](h []T, i int, less func(a, b *T) bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && less(&h[child+1], &h[child]) {
			child++
		}
		if !less(&h[child], &h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
