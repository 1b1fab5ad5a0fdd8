// SPDX-License-Identifier: Apache-2.0

package engine

const (
	maxSuspend = 256       // idle runs that one batch suspends
	soon       = 5_000_000 // µs; a run whose timer is due within it is not worth suspending
)

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
		l := m.recent.Front()
		if l == nil || excess <= 0 && l.touched > idleSince {
			return
		}
		if l.touched == m.c.now && l.suspending {
			return
		}
		m.recent.ToBack(&l.age)
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
		m.rest(l)
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
	return !l.committing && !l.suspending && !l.continueDue && !l.interrupted && (l.start == nil || l.dirty) && l.run.Quiet() && m.c.tree.below[l.key] == 0
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
	size, events, oldest := m.c.cfg.Store.Uncompacted()
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
	for l := m.recent.Front(); l != nil && m.c.pipeline.building.bytes < 4*m.c.cfg.MaxBatchBytes; {
		next := m.recent.After(&l.age)
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
