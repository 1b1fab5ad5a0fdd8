// SPDX-License-Identifier: Apache-2.0

// Package inbox collects what many goroutines have for one loop. It decides no order but that
// of arrival, and nothing about what arrives.
package inbox

import (
	"sync"
	"sync/atomic"
)

// An Inbox holds what has arrived for a loop. Any goroutine may call Put.
type Inbox[T any] struct {
	mu     sync.Mutex
	queue  []T
	spare  []T // the queue that was taken last, for reuse
	length atomic.Int64
	closed error // set once the inbox accepts nothing more
}

// Len is how many inputs have arrived since the last Take.
func (b *Inbox[T]) Len() int64 { return b.length.Load() }

// Put appends an input. The caller must wake the loop.
func (b *Inbox[T]) Put(in T) error {
	b.mu.Lock()
	err := b.closed
	if err == nil {
		b.queue = append(b.queue, in)
		b.length.Store(int64(len(b.queue)))
	}
	b.mu.Unlock()
	return err
}

// Take returns what has arrived since the last call. The slice is reused after the next
// call.
func (b *Inbox[T]) Take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	inputs := b.queue
	clear(b.spare) // already handled; they would keep their runs in memory
	b.queue, b.spare = b.spare[:0], inputs
	b.length.Store(0)
	return inputs
}

// Close makes Put return err from now on, and returns what was not taken.
func (b *Inbox[T]) Close(err error) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	untaken := b.queue
	b.closed, b.queue = err, nil
	return untaken
}
