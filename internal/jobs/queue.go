// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"bytes"

	"github.com/roux-engine/roux/internal/heap"
)

// An entry is a delivery to act upon, or a job to cancel, at a time.
type entry struct {
	at   int64  // UTC µs
	seq  uint64 // in the order in which they were added, for equal times
	name string // id of the record
	// tries is how often it has failed.
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

// A plannedPoll is a job that its service is asked about at a time. It has no pointers and no text,
// because there may be millions.
type plannedPoll struct {
	at        int64 // UTC µs
	submitted int64
	digest    Digest
	owner     uint32 // in Keeper.owners
}

func sooner(a, b *plannedPoll) bool {
	return a.at < b.at || a.at == b.at && bytes.Compare(a.digest[:], b.digest[:]) < 0
}

// polls are the jobs of one provider in the order in which they are asked about.
type polls struct {
	heap []plannedPoll
	// free is when the next poll may begin: polls are at least 1/rate apart, and a service
	// that asks for a pause gets it.
	free int64
	// pause is until when the service has asked for a pause.
	pause int64
}

func (p *polls) push(one plannedPoll) { p.heap = heap.Push(p.heap, one, sooner) }

func (p *polls) pop() (top plannedPoll) {
	top, p.heap = heap.Pop(p.heap, sooner)
	return top
}
