// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/roux-engine/roux/internal/store"
)

// A tap wraps a store and counts the commits that pass through it.
type tap struct {
	store.Store
	// delay is a pause before every commit. It simulates a disk whose sync takes that
	// much longer; to the engine it is the same, because it waits for Commit.
	delay time.Duration

	mu          sync.Mutex
	commits     int
	transitions int
	bytes       int64
	sizes       map[int]int // transitions, rounded up to a power of two -> commits
	recovered   int         // runs that were read when the store was opened
	keep        bool        // keep copies of the commits, up to maxKept bytes
	kept        [][]store.Transition
}

const maxKept = 256 << 20

// Commit implements store.Store.
func (t *tap) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	n := 0
	for i := range batch {
		n += sizeOf(&batch[i])
	}
	t.mu.Lock()
	t.commits++
	t.transitions += len(batch)
	t.bytes += int64(n)
	if t.sizes == nil {
		t.sizes = map[int]int{}
	}
	size := 1
	for size < len(batch) {
		size *= 2
	}
	t.sizes[size]++
	if t.keep && t.bytes <= maxKept {
		t.kept = append(t.kept, copyOf(batch))
	}
	t.mu.Unlock()
	if t.delay > 0 {
		time.Sleep(t.delay)
	}
	return t.Store.Commit(ctx, batch)
}

// Recover implements store.Store.
func (t *tap) Recover(ctx context.Context, fn func(*store.Saved) error) error {
	return t.Store.Recover(ctx, func(s *store.Saved) error {
		t.recovered++
		return fn(s)
	})
}

// sizeOf returns the number of bytes of a transition.
func sizeOf(t *store.Transition) int {
	n := len(t.Frames)
	for _, p := range t.Plans {
		n += len(p.Data)
	}
	if t.Compaction != nil {
		n += len(t.Compaction.Chunk) + len(t.Compaction.State)
	}
	return n
}

func copyOf(batch []store.Transition) []store.Transition {
	batch = slices.Clone(batch)
	for i := range batch {
		t := &batch[i]
		t.Frames = bytes.Clone(t.Frames)
		if t.Head != nil {
			h := *t.Head
			t.Head = &h
		}
		if t.Compaction != nil {
			f := *t.Compaction
			f.Chunk, f.State = bytes.Clone(f.Chunk), bytes.Clone(f.State)
			t.Compaction = &f
		}
	}
	return batch
}

// A count is the state of a tap's counters.
type count struct {
	commits, transitions int
	bytes                int64
}

func (t *tap) count() count {
	t.mu.Lock()
	defer t.mu.Unlock()
	return count{t.commits, t.transitions, t.bytes}
}

// forget resets the counters.
func (t *tap) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commits, t.transitions, t.bytes, t.sizes = 0, 0, 0, nil
}

// record starts or stops keeping copies of commits, and returns those kept so
// far.
func (t *tap) record(on bool) [][]store.Transition {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep = on
	kept := t.kept
	t.kept = nil
	return kept
}

func (t *tap) histogram() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := map[string]float64{}
	for size, n := range t.sizes {
		h[strconv.Itoa(size)] = float64(n)
	}
	return h
}
