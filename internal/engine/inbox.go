// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"sync/atomic"
)

// An inbox holds what has arrived for the loop. Any goroutine may call put.
type inbox struct {
	mu     sync.Mutex
	queue  []*input
	spare  []*input     // the queue that was taken last, for reuse
	length atomic.Int64 // of queue
	closed error        // set once the inbox accepts nothing more
}

// put appends an input. The caller must wake the loop.
func (b *inbox) put(in *input) error {
	b.mu.Lock()
	err := b.closed
	if err == nil {
		b.queue = append(b.queue, in)
		b.length.Store(int64(len(b.queue)))
	}
	b.mu.Unlock()
	return err
}

// take returns what has arrived since the last call. The slice is reused after the next
// call.
func (b *inbox) take() []*input {
	b.mu.Lock()
	defer b.mu.Unlock()
	inputs := b.queue
	clear(b.spare) // already handled; they would keep their runs in memory
	b.queue, b.spare = b.spare[:0], inputs
	b.length.Store(0)
	return inputs
}

// close makes put return err from now on, and returns what was not taken.
func (b *inbox) close(err error) []*input {
	b.mu.Lock()
	defer b.mu.Unlock()
	untaken := b.queue
	b.closed, b.queue = err, nil
	return untaken
}
