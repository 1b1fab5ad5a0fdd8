// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"github.com/roux-engine/roux/internal/heap"
)

// An entry is something to do for a job at a time.
type entry struct {
	at   int64  // UTC µs
	seq  uint64 // in the order in which they were added, for equal times
	name string // id of the record
	// tries is how often it has failed: of a delivery or a cancellation.
	tries int
}

func earlier(a, b *entry) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// A queue holds entries by time.
type queue struct {
	heap []entry
	seq  uint64
}

func (q *queue) push(at int64, name string, tries int) {
	q.seq++
	q.heap = heap.Push(q.heap, entry{at, q.seq, name, tries}, earlier)
}

// next is the time of the first entry; ok is false if there is none.
func (q *queue) next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *queue) pop() entry {
	top, rest := heap.Pop(q.heap, earlier)
	q.heap = rest
	return top
}

// polls are the jobs of one provider in the order in which they are asked about.
type polls struct {
	queue
	// free is when the next poll may begin: polls are at least 1/rate apart, and a service
	// that asks for a pause gets it.
	free int64
}
