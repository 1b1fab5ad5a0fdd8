// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

const (
	maxSuspend = 256       // idle runs that one batch suspends
	soon       = 5_000_000 // µs; a run whose timer is due within it is not worth suspending
	maxTimers  = 1_000     // timers that fire in one pass (F11)
	maxWakeups = 10_000    // wake-ups of suspended runs that are kept in memory
	hour       = 3_600_000_000
	stuckTimer = 1_000_000 // µs until a timer that changed nothing is tried again
)

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
		default:
			free--
			l, err := m.get(a.key)
			if err == nil {
				m.fire(l)
				continue
			}
			m.c.cfg.Logger.Warn("a suspended run could not be woken", "run", a.key.Run, "err", err)
			if !permanent(err) {
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

// permanent reports whether trying again would not help.
func permanent(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Quarantined, fault.StoreCorrupt, fault.RunNotFound:
		return true
	}
	return false
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

// tidy suspends idle runs, and compacts runs whose events keep old journal rows alive.
func (m *residency) tidy() {
	m.suspendQuiet()
	m.suspendIdle()
	if m.compacting || m.uncompacted >= m.c.cfg.CompactCheck {
		m.uncompacted = 0
		m.compactOldest()
	}
}

// suspendIdle suspends quiet runs, the longest untouched first: all that are idle, and
// as many more as exceed MaxLoaded.
func (m *residency) suspendIdle() {
	excess := len(m.runs) - m.c.cfg.MaxLoaded
	if m.c.closing {
		excess = len(m.runs)
	}
	idleSince := m.c.now - m.c.cfg.SuspendAfter.Microseconds()
	// Runs that cannot be suspended are skipped, but only a bounded number in one pass.
	for n := min(2*max(excess, 0)+maxSuspend, 8*maxSuspend); n > 0; n-- {
		l := m.recent.front()
		if l == nil || excess <= 0 && l.touched > idleSince {
			return
		}
		if l.touched == m.c.now && l.suspending {
			return
		}
		m.recent.toBack(&l.age)
		if !m.suspendable(l) || excess <= 0 && m.wakesSoon(l) {
			l.touched = m.c.now // check it again after SuspendAfter
			continue
		}
		excess--
		m.suspend(l)
	}
}

// suspend removes a run from memory, with the next batch if the store must record it.
func (m *residency) suspend(l *loadedRun) {
	switch {
	case !l.dirty && l.settled() && len(l.tail) == 0:
		m.drop(l) // a late request had loaded it
	case !l.dirty && l.suspended && l.wakeAt == l.run.NextDue():
		m.drop(l)
		m.armSuspended(l.key, l.wakeAt)
	default:
		m.c.pipeline.touch(l, l.run.Last()+1)
		l.suspending = true
		m.c.pipeline.building.urgent = true
	}
}

// A quietRun is a run that was quiet when it was committed. It stays quiet as long as
// it has that version.
type quietRun struct {
	l       *loadedRun
	version uint32
}

func (r quietRun) unchanged() bool { return !r.l.dropped && r.l.version == r.version }

// suspendQuiet suspends the runs that have been quiet for longest if there are more
// than MaxQuiet, even before SuspendAfter: after a crash each of them must be read
// before the engine can start.
func (m *residency) suspendQuiet() {
	for len(m.quiet) > 0 && !m.quiet[0].unchanged() {
		m.quiet[0], m.quiet = quietRun{}, m.quiet[1:]
	}
	for n := min(len(m.quiet)-m.c.cfg.MaxQuiet, 4*maxSuspend); n > 0; n-- {
		r := m.quiet[0]
		m.quiet[0], m.quiet = quietRun{}, m.quiet[1:]
		if r.unchanged() && m.suspendable(r.l) && !m.wakesSoon(r.l) {
			m.suspend(r.l)
		}
	}
}

// suspendable reports whether the run only waits and is not in use here.
func (m *residency) suspendable(l *loadedRun) bool {
	return !l.committing && !l.suspending && !l.continueDue && !l.interrupted && (l.start == nil || l.dirty) && l.run.Quiet()
}

func (m *residency) wakesSoon(l *loadedRun) bool {
	due := l.run.NextDue()
	return due != 0 && due <= m.c.now+soon
}

// compactOldest compacts the runs that keep the oldest journal rows alive, once those
// are too many: the geometric rule alone never compacts a small run. It continues,
// batch by batch, until three quarters of the limit are left: thousands of runs that
// advance side by side add events as fast as one batch compacts old ones. With a lower
// target each run would be compacted more often, and a compaction costs the same
// whatever it covers. Runs that only wait are suspended at the same time, so that they
// cost the next start nothing.
func (m *residency) compactOldest() {
	size, events, oldest := m.c.cfg.Store.Uncovered()
	if m.compacting {
		size, events = size+size/3, events+events/3
	}
	m.compacting = size >= m.c.cfg.CompactBytes || events >= m.c.cfg.CompactEvents
	if !m.compacting {
		return
	}
	compacting := false
	for _, key := range oldest {
		l := m.runs[key]
		if l == nil || l.committing || len(l.tail) == 0 || m.c.pipeline.building.bytes > 4*m.c.cfg.MaxBatchBytes {
			continue
		}
		m.c.pipeline.touch(l, l.run.Last()+1)
		if m.suspendable(l) {
			l.suspending = true
		}
		l.compact, compacting = true, true
		m.c.pipeline.building.urgent = true
		m.c.pipeline.building.bytes += len(l.tail)
	}
	m.compacting = compacting // otherwise wait: the oldest rows belong to a commit in progress or to runs without a tail
}

// compactAll compacts what is left in memory before a clean stop, so that the next
// start reads snapshots and no journal. It reports whether there was nothing to do.
func (m *residency) compactAll() bool {
	nothing := true
	for l := m.recent.front(); l != nil && m.c.pipeline.building.bytes < 4*m.c.cfg.MaxBatchBytes; {
		next := m.recent.after(&l.age)
		if len(l.tail) > 0 && !l.compact {
			m.c.pipeline.touch(l, l.run.Last()+1)
			l.compact, nothing = true, false
			m.c.pipeline.building.urgent = true
			m.c.pipeline.building.bytes += len(l.tail)
		}
		l = next
	}
	return nothing
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
	if b := c.pipeline.building; !b.empty() && !b.urgent {
		earliest(b.changedAt + lazyTick)
	}
	if len(c.recovery.suspects) > 0 || c.recovery.suspectMarked {
		earliest(c.recovery.nextSuspectAt)
	}
	if l := c.residency.recent.front(); l != nil {
		// A little later, so that many runs are checked at a time: otherwise each
		// active run would wake the loop once every SuspendAfter.
		earliest(l.touched + c.cfg.SuspendAfter.Microseconds() + lazyTick)
	}
	return at
}
