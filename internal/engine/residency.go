// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A residency decides which runs are in memory: which are loaded, which leave it, and
// when a run that is not in it has to be looked at.
type residency struct {
	c      *core
	runs   map[store.Key]*loadedRun // the loop writes it under runsMu, others read it so
	runsMu sync.RWMutex
	peak   int     // runs it has held at once
	recent runList // by touch
	// taken are the runs that were in memory, under Config.Select.
	selected map[store.Key]bool

	alarms  alarms
	horizon int64 // suspended runs due until then have an alarm

	quiet       []quietRun // quiet since their last commit, the first ones first, and stale entries
	uncompacted int        // bytes committed since the last look at laggards
	compacting  bool
}

func (m *residency) init(c *core) {
	m.c, m.runs, m.selected = c, map[store.Key]*loadedRun{}, map[store.Key]bool{}
	m.recent.init()
}

// unended says that a run is in memory, stored, and has not ended as of its last
// commit. Any goroutine may ask.
func (m *residency) unended(key store.Key) bool {
	m.runsMu.RLock()
	l := m.runs[key]
	m.runsMu.RUnlock()
	return l != nil && l.unended.Load()
}

// get returns a run, loading it when it is not in memory.
func (m *residency) get(key store.Key) (*loadedRun, error) {
	if l := m.runs[key]; l != nil {
		return l, nil
	}
	if reason := m.c.recovery.quarantined[key]; reason != "" {
		return nil, store.ErrQuarantined(key.Run, reason)
	}
	if m.c.recovery.inherited[key].suspect {
		return nil, &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
			Msg: "run " + key.Run + " is being recovered with care after crashes; try again in a moment"}
	}
	saved, err := m.c.cfg.Store.Load(m.c.ctx, key)
	if fault.CodeOf(err) == fault.StoreCorrupt {
		m.c.recovery.quarantineStored(key, err.Error())
	}
	if err != nil {
		return nil, err
	}
	shouldBeLoaded := saved.Suspension == nil && !saved.Head.Settled() // it ought to have been in memory
	if shouldBeLoaded {
		if err := m.c.recovery.checkOwnership(); err != nil {
			return nil, err
		}
	}
	l, err := m.admit(saved)
	switch {
	case err != nil:
	case shouldBeLoaded:
		m.c.recovery.recoverRun(l)
	default:
		m.arm(l) // looking ahead passes over runs in memory
	}
	if err == nil && l.dropped {
		return nil, store.ErrQuarantined(key.Run, "it cannot go on")
	}
	return l, err
}

// admit takes a stored run into memory. A run that cannot be read is quarantined
// (F20): its bytes are kept as they are, and the others go on.
func (m *residency) admit(saved *store.Saved) (*loadedRun, error) {
	if reason := saved.Head.Quarantine; reason != "" {
		return nil, store.ErrQuarantined(saved.Head.Run, reason)
	}
	l, err := m.rebuild(saved)
	if transient(err) {
		return nil, err
	}
	if err != nil {
		m.c.recovery.quarantine(saved.Head, err.Error())
		return nil, store.ErrQuarantined(saved.Head.Run, err.Error())
	}
	m.advanceClock(l, saved.Head)
	l.interrupted = len(m.c.recovery.inherited) > 0 && m.c.recovery.lostAttempts(l)
	m.add(l)
	if status := l.run.Status(); l.head.Status != status.String() || (l.head.Ended != 0) != status.Terminal() {
		m.c.cfg.Logger.Warn("the head of a run lags behind its journal, which counts", "run", l.key.Run, "head", l.head.Status, "journal", status.String())
		m.c.pipeline.touch(l, l.run.Last()+1)
		m.c.pipeline.building.urgent = true
	}
	return l, nil
}

// advanceClock goes on from the time of a run that is loaded, where that is later: time
// never falls, also when the wall clock was turned back while the process was down
// (I10). What the process notes at its end is then not older than what it wrote.
func (m *residency) advanceClock(l *loadedRun, head store.Head) {
	if t := max(l.run.Now(), head.Updated); t > m.c.now {
		m.c.cfg.Logger.Warn("the clock is behind the journal; going on from the journal's time",
			"run", head.Run, "behind", time.Duration(t-m.c.now)*time.Microsecond)
		m.c.now = t
	}
}

// add makes a run part of memory.
func (m *residency) add(l *loadedRun) {
	m.runsMu.Lock()
	m.runs[l.key] = l
	m.runsMu.Unlock()
	if m.c.cfg.Select != nil {
		m.selected[l.key] = true
	}
	l.age.l = l
	l.touched = m.c.now
	m.recent.toBack(&l.age)
}

// drop takes a run out of memory and gives back what it held.
func (m *residency) drop(l *loadedRun) {
	if l.dropped {
		return
	}
	l.dropped = true
	m.runsMu.Lock()
	delete(m.runs, l.key)
	m.runs, m.peak = store.ShrinkMap(m.runs, m.peak)
	m.runsMu.Unlock()
	m.recent.remove(&l.age)
	if l.timer != nil {
		l.timer.l = nil
		if l.alarm != 0 {
			m.alarms.noteDead()
		}
	}
	l.requests.Each(m.c.attempts.keepOrphan)
	m.c.attempts.arbiter.WithdrawAll(&l.requests)
}

// arm sees to it that the run is looked at when its next timer is due.
func (m *residency) arm(l *loadedRun) {
	due := l.run.NextDue()
	if due == 0 || l.alarm != 0 && l.alarm <= due || l.dropped {
		return
	}
	m.armAt(l, due)
}

// armAt makes `at` the run's valid alarm.
func (m *residency) armAt(l *loadedRun, at int64) {
	if l.timer == nil {
		l.timer = &timerHandle{l: l}
	}
	before := l.alarm
	l.alarm = at
	l.timer.valid = m.alarms.push(alarm{at: at, timer: l.timer})
	if before != 0 {
		m.alarms.noteDead()
	}
}

// selects reports whether this engine carries a run on by itself: each run, or those
// that Config.Select names and those that have been in its memory. The latter are
// remembered for as long as it runs; an engine that has to do with many runs has no
// Select.
func (m *residency) selects(key store.Key) bool {
	return m.c.cfg.Select == nil || m.selected[key] || m.c.cfg.Select(key)
}

// due returns up to maxAhead wake-ups of suspended runs that this engine takes, the
// earliest first, and whether there may be more until then.
func (m *residency) due(until int64) (wakes []store.Wake, more bool, err error) {
	for limit := maxWakeups; ; limit *= 4 {
		all, err := m.c.cfg.Store.Due(m.c.ctx, until, limit)
		if err != nil {
			return nil, false, err
		}
		if m.c.cfg.Select == nil {
			return all, len(all) == maxWakeups, nil
		}
		wakes = wakes[:0]
		for _, w := range all {
			if m.selects(w.Key) && len(wakes) < maxWakeups {
				wakes = append(wakes, w)
			}
		}
		if len(all) < limit || len(wakes) == maxWakeups {
			return wakes, len(wakes) == maxWakeups, nil
		}
	}
}
