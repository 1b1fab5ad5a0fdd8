// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/heap"

	"github.com/roux-engine/roux/internal/store"
)

// An alarm says when a run wants to be looked at. There is at most one valid
// alarm a run: attempts come and go far more often than timers fire, so an
// alarm that turns out early is corrected when it goes off, not when it changes.
type alarm struct {
	at    int64
	timer *timerHandle // of a run in memory, or
	key   store.Key    // of a suspended one
}

// A timerHandle is how an alarm finds its run. It is cut off when the run leaves
// memory: an alarm may outlive it by days and must not hold it.
type timerHandle struct {
	l     *loadedRun
	valid uint64 // seq of the run's one valid alarm
}

// alarms is a binary heap by time. Equal times keep no order of their own; seq
// makes it the order of arming, so that one seed gives one journal.
type alarms struct {
	heap []seqAlarm
	seq  uint64
	// dead is how many alarms mean nothing any more: those of runs that have ended,
	// or wait for something earlier, would lie in wait for a ttl of days.
	dead int
}

// minDead is how many dead alarms are not worth looking for.
const minDead = 1_024

// noteDead counts one more dead alarm, and drops all of them once they are more than
// the living.
func (h *alarms) noteDead() {
	h.dead++
	if h.dead < minDead || h.dead < len(h.heap)/2 {
		return
	}
	// Not in place: a burst of runs would leave its room behind.
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

// push returns the number by which the alarm can be made a timer handle's valid one.
func (h *alarms) push(a alarm) uint64 {
	h.seq++
	h.heap = heap.Push(h.heap, seqAlarm{a, h.seq}, earlier)
	return h.seq
}

// next is the earliest alarm's time; 0 = none.
func (h *alarms) next() int64 {
	if len(h.heap) == 0 {
		return 0
	}
	return h.heap[0].at
}

// pop takes the earliest alarm; ok says that it still means something.
func (h *alarms) pop() (a alarm, ok bool) {
	top, rest := heap.Pop(h.heap, earlier)
	h.heap = rest
	if ok = top.living(); !ok {
		h.dead--
	}
	return top.alarm, ok
}
