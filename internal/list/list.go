// SPDX-License-Identifier: Apache-2.0

// Package list is a doubly linked list whose links are part of its elements, so that adding,
// moving and removing one costs no memory. It decides nothing about the order.
package list

// A Link is an element's place in a list. An element is in at most one list by each of its
// links.
type Link[T any] struct {
	Of         *T // the element
	prev, next *Link[T]
}

// A List holds elements from front to back. Call Init before it is used.
type List[T any] struct{ head Link[T] }

// Init empties the list. Links that were in it must not be used again.
func (l *List[T]) Init() { l.head.prev, l.head.next = &l.head, &l.head }

// Remove removes an element, if it is in the list.
func (l *List[T]) Remove(e *Link[T]) {
	if e.next != nil {
		e.prev.next, e.next.prev = e.next, e.prev
		e.prev, e.next = nil, nil
	}
}

// ToBack moves an element to the back, and adds it if it is not in the list.
func (l *List[T]) ToBack(e *Link[T]) {
	l.Remove(e)
	e.prev, e.next = l.head.prev, &l.head
	e.prev.next, l.head.prev = e, e
}

// Front returns the first element, or nil.
func (l *List[T]) Front() *T { return l.head.next.Of }

// After returns the element behind e, or nil.
func (l *List[T]) After(e *Link[T]) *T { return e.next.Of }
