// SPDX-License-Identifier: Apache-2.0

package resultcache

import (
	"context"
	"sync"

	"github.com/roux-engine/roux/internal/store"
)

// maxBatch is how many bytes of results are written at once.
const maxBatch = 8 << 20

// A writer writes results. Those that arrive during a write share the next one, so that many
// attempts that end together need few syncs.
type writer struct {
	put func(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)

	mu      sync.Mutex
	busy    bool
	waiting []*write
}

type write struct {
	change store.RecordChange
	done   chan error // capacity 1
}

// write makes a change durable. If ctx ends before, it may become durable all the same.
func (w *writer) write(ctx context.Context, change store.RecordChange) error {
	one := &write{change: change, done: make(chan error, 1)}
	w.mu.Lock()
	w.waiting = append(w.waiting, one)
	lead := !w.busy
	w.busy = true
	w.mu.Unlock()
	if lead {
		go w.run(context.WithoutCancel(ctx))
	}
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run writes until nothing waits.
func (w *writer) run(ctx context.Context) {
	for {
		batch := w.take()
		if batch == nil {
			return
		}
		changes := make([]store.RecordChange, len(batch))
		for i, one := range batch {
			changes[i] = one.change
		}
		_, err := w.put(ctx, changes...)
		for _, one := range batch {
			one.done <- err
		}
	}
}

// take returns what is written next; nil = nothing, and run ends.
func (w *writer) take() []*write {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, 0
	for n < len(w.waiting) && n < store.MaxRecordChanges && (n == 0 || size < maxBatch) {
		size += len(w.waiting[n].change.Data)
		n++
	}
	if n == 0 {
		w.busy = false
		return nil
	}
	batch := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	return batch
}
