// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/heap"

	"github.com/roux-engine/roux/internal/store"
)

// An alarm is a time at which a run must be checked. There is at most one valid alarm a
// run: attempts start and end far more often than timers fire, so an alarm that turns
// out to be early is corrected when it goes off, not when the timer changes.
type alarm struct {
	at    int64
	timer *timerHandle // of a run in memory, or
	key   store.Key    // of a suspended one
}

// A timerHandle links an alarm to its run. The link is cut when the run leaves memory,
// because an alarm may outlive the run by days and must not hold it.
type timerHandle struct {
	l     *loadedRun
	valid uint64 // seq of the run's one valid alarm
}

// alarms is a binary heap by time. Alarms of equal times go off in the order in which
// they were set (seq), so that one seed gives one journal.
type alarms struct {
	heap []seqAlarm
	seq  uint64
	// dead is how many alarms are no longer valid: those of runs that have ended or
	// have an earlier alarm. They would otherwise stay until their time, up to a ttl of
	// days.
	dead int
}

// minDead is how many dead alarms are not worth removing.
const minDead = 1_024

// noteDead counts one more dead alarm, and removes all of them once they outnumber the
// living.
func (h *alarms) noteDead() {
	h.dead++
	if h.dead < minDead || h.dead < len(h.heap)/2 {
		return
	}
	// Not in place, because a burst of runs would leave its capacity behind.
	kept := make([]seqAlarm, 0, len(h.heap)-h.dead+minDead)
	for _, a := range h.heap {
		if a.living() {
			kept = append(kept, a)
		}
	}
	h.heap, h.dead = kept, 0
	heap.Init(h.heap, earlier)
}

type seqAlarm struct {
	alarm
	seq uint64
}

func (a *seqAlarm) living() bool {
	return a.timer == nil || a.timer.l != nil && a.timer.valid == a.seq
}

func earlier(a, b *seqAlarm) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// push returns the sequence number by which the alarm can be made a handle's valid one.
func (h *alarms) push(a alarm) uint64 {
	h.seq++
	h.heap = heap.Push(h.heap, seqAlarm{a, h.seq}, earlier)
	return h.seq
}

// next returns the time of the earliest alarm; 0 = none.
func (h *alarms) next() int64 {
	if len(h.heap) == 0 {
		return 0
	}
	return h.heap[0].at
}

// pop removes the earliest alarm; ok reports whether it is still valid.
func (h *alarms) pop() (a alarm, ok bool) {
	top, rest := heap.Pop(h.heap, earlier)
	h.heap = rest
	if ok = top.living(); !ok {
		h.dead--
	}
	return top.alarm, ok
}
