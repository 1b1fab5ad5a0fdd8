// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/alarms"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

const (
	maxTimers  = 1_000  // timers that fire in one pass (F11)
	maxWakeups = 10_000 // wake-ups of suspended runs that are kept in memory
	hour       = 3_600_000_000
	stuckTimer = 1_000_000 // µs until a timer that changed nothing is tried again
)

type (
	alarm = alarms.Alarm[loadedRun]
	timer = alarms.Timer[loadedRun]
)

// fireDue fires the timers that are due, a bounded number in one pass.
func (m *residency) fireDue() {
	free := max(16, m.c.cfg.MaxLoaded-len(m.runs)) // suspended runs that may be loaded
	for n := 0; n < maxTimers && free > 0 && !m.c.pipeline.full(); n++ {
		at := m.alarms.Next()
		if at == 0 || at > m.c.now {
			break
		}
		a, ok := m.alarms.Pop()
		switch {
		case !ok:
		case a.Timer != nil:
			a.Timer.Of.alarm = 0
			m.fire(a.Timer.Of)
		case m.runs[a.Key] != nil: // loaded since, with an alarm of its own
			m.c.askParent(m.runs[a.Key])
		default:
			free--
			l, err := m.get(a.Key)
			if err == nil {
				m.fire(l)
				continue
			}
			m.c.cfg.Logger.Warn("a suspended run could not be woken", "run", a.Key.Run, "err", err)
			if !store.Permanent(err) {
				m.alarms.Push(alarm{At: m.c.now + maxBackoff, Key: a.Key})
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
			m.alarms.Push(alarm{At: w.At, Key: w.Key})
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
		m.alarms.Push(alarm{At: wakeAt, Key: key})
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
	at := c.residency.alarms.Next()
	earliest := func(t int64) {
		if t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	earliest(c.residency.horizon)
	if len(c.tree.returning) > 0 {
		earliest(c.tree.returnAt)
	}
	if len(c.tree.later) > 0 {
		earliest(c.tree.laterAt)
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
