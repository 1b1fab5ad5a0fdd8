// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

const (
	maxTimers  = 1_000  // timers that fire in one pass (F11)
	maxWakeups = 10_000 // wake-ups of suspended runs that are kept in memory
	hour       = 3_600_000_000
	stuckTimer = 1_000_000 // µs until a timer that changed nothing is tried again
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

// fireDue fires the timers that are due, a bounded number in one pass.
func (m *residency) fireDue() {
	free := max(16, m.c.cfg.MaxLoaded-len(m.runs)) // suspended runs that may be loaded
	for n := 0; n < maxTimers && free > 0 && !m.c.pipeline.full(); n++ {
		at := m.alarms.next()
		if at == 0 || at > m.c.now {
			break
		}
		a, ok := m.alarms.pop()
		switch {
		case !ok:
		case a.timer != nil:
			a.timer.l.alarm = 0
			m.fire(a.timer.l)
		case m.runs[a.key] != nil: // loaded since, with an alarm of its own
			m.c.askParent(m.runs[a.key])
		default:
			free--
			l, err := m.get(a.key)
			if err == nil {
				m.fire(l)
				continue
			}
			m.c.cfg.Logger.Warn("a suspended run could not be woken", "run", a.key.Run, "err", err)
			if !store.Permanent(err) {
				m.alarms.push(alarm{at: m.c.now + maxBackoff, key: a.key})
			}
		}
	}
	if m.c.now >= m.horizon && m.c.recovery.stalled == nil {
		if err := m.lookAhead(); err != nil {
			m.c.cfg.Logger.Warn("the next wake-ups could not be read", "err", err)
			m.horizon = m.c.now + maxBackoff
		}
	}
}

func (m *residency) fire(l *loadedRun) {
	if due := l.run.NextDue(); due == 0 || due > m.c.now {
		m.arm(l)
		return
	}
	before := l.run.Last()
	if err := m.c.decide(l, &machine.Input{Kind: machine.InTimer}); err != nil && !l.dropped {
		m.c.cfg.Logger.Error("a run refused a timer that is due", "run", l.key.Run, "err", err)
	}
	if l.dropped {
		return
	}
	if l.run.Last() != before {
		m.c.pipeline.building.urgent = true
		return
	}
	if l.run.NextDue() <= m.c.now && l.run.NextDue() != 0 {
		m.armAt(l, m.c.now+stuckTimer)
	}
}

// lookAhead sets the alarms of suspended runs that are due within the next hour.
func (m *residency) lookAhead() error {
	until := m.c.now + hour
	wakes, more, err := m.due(until)
	if err != nil {
		return err
	}
	for _, w := range wakes {
		if m.runs[w.Key] == nil {
			m.alarms.push(alarm{at: w.At, key: w.Key})
		}
	}
	if more {
		// More are due within the hour; read them when these have gone off.
		until = max(wakes[maxWakeups-1].At, m.c.now+50_000)
	}
	m.horizon = until
	return nil
}

// armSuspended sets the alarm of a run that has just left memory.
func (m *residency) armSuspended(key store.Key, wakeAt int64) {
	if wakeAt != 0 && wakeAt <= m.horizon {
		m.alarms.push(alarm{at: wakeAt, key: key})
	}
}

// wakeup returns when handle must be called again at the latest, UTC µs; 0 = not before
// something arrives.
func (c *core) wakeup() int64 {
	if c.recovery.dead != nil {
		return 0
	}
	if c.recovery.stalled != nil {
		return c.recovery.retryAt
	}
	at := c.residency.alarms.next()
	earliest := func(t int64) {
		if t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	earliest(c.residency.horizon)
	if len(c.tree.returning) > 0 {
		earliest(c.tree.returnAt)
	}
	earliest(c.purses.Next())
	if !c.closing {
		earliest(c.attempts.Arbiter.Next())
	}
	earliest(c.queues.Next())
	if b := c.pipeline.building; !b.empty() && !b.urgent {
		earliest(b.due)
	}
	if len(c.recovery.suspects) > 0 || c.recovery.suspectMarked {
		earliest(c.recovery.nextSuspectAt)
	}
	if l := c.residency.recent.Front(); l != nil {
		// A little later, so that many runs are checked at a time: otherwise each
		// active run would wake the loop once every SuspendAfter.
		earliest(l.touched + c.cfg.SuspendAfter.Microseconds() + lazyTick)
	}
	return at
}
