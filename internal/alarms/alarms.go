// SPDX-License-Identifier: Apache-2.0

// Package alarms keeps the times at which runs must be checked, of which most are superseded before
// they come.
//
// It decides in which order alarms go off, and removes those that are no longer valid before they
// outnumber the others. It knows neither the clock nor what is done when an alarm goes off.
package alarms

import (
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/store"
)

// An Alarm is a time at which a run must be checked. There is at most one valid alarm a
// run: attempts start and end far more often than timers fire, so an alarm that turns
// out to be early is corrected when it goes off, not when the timer changes.
type Alarm[R any] struct {
	At    int64     // UTC µs
	Timer *Timer[R] // of a run in memory, or
	Key   store.Key // of a suspended one
}

// A Timer links an alarm to its run. The link is cut when the run leaves memory,
// because an alarm may outlive the run by days and must not hold it.
type Timer[R any] struct {
	Of    *R
	Valid uint64 // number of the run's one valid alarm
}

// A Queue is a binary heap by time. Alarms of equal times go off in the order in which
// they were set (seq), so that one seed gives one journal.
type Queue[R any] struct {
	heap []seqAlarm[R]
	seq  uint64
	// dead is how many alarms are no longer valid: those of runs that have ended or
	// have an earlier alarm. They would otherwise stay until their time, up to a ttl of
	// days.
	dead int
}

// MinDead is how many dead alarms are not worth removing.
const MinDead = 1_024

// NoteDead counts one more dead alarm, and removes all of them once they outnumber the
// living.
func (h *Queue[R]) NoteDead() {
	h.dead++
	if h.dead < MinDead || h.dead < len(h.heap)/2 {
		return
	}
	// Not in place, because a burst of runs would leave its capacity behind.
	kept := make([]seqAlarm[R], 0, len(h.heap)-h.dead+MinDead)
	for _, a := range h.heap {
		if a.living() {
			kept = append(kept, a)
		}
	}
	h.heap, h.dead = kept, 0
	heap.Init(h.heap, earlier[R])
}

type seqAlarm[R any] struct {
	Alarm[R]
	seq uint64
}

func (a *seqAlarm[R]) living() bool {
	return a.Timer == nil || a.Timer.Of != nil && a.Timer.Valid == a.seq
}

func earlier[R any](a, b *seqAlarm[R]) bool {
	return a.At < b.At || a.At == b.At && a.seq < b.seq
}

// Push returns the number by which the alarm can be made the valid one of a Timer.
func (h *Queue[R]) Push(a Alarm[R]) uint64 {
	h.seq++
	h.heap = heap.Push(h.heap, seqAlarm[R]{a, h.seq}, earlier[R])
	return h.seq
}

// Next returns the time of the earliest alarm; 0 = none.
func (h *Queue[R]) Next() int64 {
	if len(h.heap) == 0 {
		return 0
	}
	return h.heap[0].At
}

// Pop removes the earliest alarm; ok reports whether it is still valid.
func (h *Queue[R]) Pop() (a Alarm[R], ok bool) {
	top, rest := heap.Pop(h.heap, earlier[R])
	h.heap = rest
	if ok = top.living(); !ok {
		h.dead--
	}
	return top.Alarm, ok
}

// Len returns how many alarms are kept, and how many of them are not valid.
func (h *Queue[R]) Len() (all, dead int) { return len(h.heap), h.dead }
