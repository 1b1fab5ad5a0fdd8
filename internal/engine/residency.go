// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/admission"
	"github.com/roux-engine/roux/internal/alarms"
	"github.com/roux-engine/roux/internal/list"
	"github.com/roux-engine/roux/internal/store"
)

// A residency decides which runs are in memory: which are loaded, which leave it, and
// when a run that is not in memory must be woken.
type residency struct {
	c      *core
	runs   map[store.Key]*loadedRun // written by the loop under runsMu; others read it under runsMu
	runsMu sync.RWMutex
	peak   int                  // the largest size of runs, for ShrinkMap
	recent list.List[loadedRun] // by last touch; no map, because choices must be the same for the same seed
	// selected are the runs that were in memory, if there is a Config.Select.
	selected map[store.Key]bool

	alarms  alarms.Queue[loadedRun]
	horizon int64 // suspended runs that are due until then have an alarm

	quiet       []quietRun // quiet since their last commit, oldest first; may contain stale entries
	uncompacted int        // bytes committed since compactOldest last ran
	compacting  bool
}

func (m *residency) init(c *core) {
	m.c, m.runs, m.selected = c, map[store.Key]*loadedRun{}, map[store.Key]bool{}
	m.recent.Init()
}

// unended reports whether a run is in memory, stored, and has not ended as of its last
// commit. Any goroutine may call it.
func (m *residency) unended(key store.Key) bool {
	m.runsMu.RLock()
	l := m.runs[key]
	m.runsMu.RUnlock()
	return l != nil && l.unended.Load()
}

// get returns a run, loading it if it is not in memory.
func (m *residency) get(key store.Key) (*loadedRun, error) {
	if l, err := m.held(key); l != nil || err != nil {
		return l, err
	}
	saved, err := m.c.cfg.Store.Load(m.c.ctx, key)
	if fault.CodeOf(err) == fault.StoreCorrupt {
		m.c.recovery.quarantineStored(key, err.Error())
	}
	if err == nil {
		err = m.above(&saved.Head)
	}
	if err != nil {
		return nil, err
	}
	if l, err := m.held(key); l != nil || err != nil { // a run above it has asked for it
		return l, err
	}
	shouldBeLoaded := saved.Suspension == nil && !saved.Head.Settled() // it should have been in memory
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
		m.arm(l) // lookAhead skips runs in memory
		m.c.askParent(l)
	}
	switch {
	case err != nil || !l.dropped:
		return l, err
	case m.c.tree.away[key]: // a run above it could not be read
		return nil, store.TakenBackError(key.Run)
	}
	return nil, store.QuarantinedError(key.Run, "it cannot go on")
}

// held returns a run that is in memory, or why it must not be loaded now, or nothing.
func (m *residency) held(key store.Key) (*loadedRun, error) {
	if l := m.runs[key]; l != nil {
		return l, nil
	}
	if reason := m.c.recovery.quarantined[key]; reason != "" {
		return nil, store.QuarantinedError(key.Run, reason)
	}
	if m.c.tree.away[key] {
		return nil, store.TakenBackError(key.Run)
	}
	if m.c.recovery.inherited[key].suspect {
		return nil, &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
			Msg: "run " + key.Run + " is being recovered with care after crashes; try again in a moment"}
	}
	return nil, nil
}

// above loads the runs above a stored run that has not ended, unless they are lost.
func (m *residency) above(h *store.Head) error {
	if h.Parent == "" || h.Settled() || h.Quarantine != "" {
		return nil
	}
	p, err := m.get(store.Key{Account: h.Account, Run: h.Parent})
	if err == nil {
		err = m.c.needParents(p)
	}
	if store.Permanent(err) {
		return nil
	}
	return err
}

// admit loads a stored run into memory. A run that cannot be read is quarantined (F20):
// its bytes are kept as they are, and other runs are not affected.
func (m *residency) admit(saved *store.Saved) (*loadedRun, error) {
	if reason := saved.Head.Quarantine; reason != "" {
		return nil, store.QuarantinedError(saved.Head.Run, reason)
	}
	l, err := m.rebuild(saved)
	if store.Transient(err) {
		return nil, err
	}
	if err != nil {
		m.c.recovery.quarantine(saved.Head, err.Error())
		return nil, store.QuarantinedError(saved.Head.Run, err.Error())
	}
	m.advanceClock(l, saved.Head)
	inherited, found := m.c.recovery.inherited[l.key]
	l.interrupted = len(m.c.recovery.inherited) > 0 && m.c.recovery.lostAttempts(l)
	m.c.loadedClass(l, &saved.Head)
	m.add(l)
	m.c.adoptJobs(l, found && inherited.last == l.run.Last())
	if status := l.run.Status(); l.head.Status != status.String() || (l.head.Ended != 0) != status.Terminal() {
		m.c.cfg.Logger.Warn("the head of a run lags behind its journal; the journal counts", "run", l.key.Run, "head", l.head.Status, "journal", status.String())
		m.c.pipeline.touch(l, l.run.Last()+1)
		m.c.pipeline.building.urgent = true
		if l.limited {
			m.c.reclassify(l, admission.ClassOfRun(l.run.Last(), l.run.Status()))
		}
	}
	if l.class == admission.Queued {
		m.c.queues.Add(l.key, l.queuedAt)
	}
	return l, nil
}

// advanceClock moves the clock to the time of a loaded run if that is later: time never
// falls, even if the wall clock was turned back while the process was down (I10). What
// the process records at its end is then not older than what it has written.
func (m *residency) advanceClock(l *loadedRun, head store.Head) {
	if t := max(l.run.Now(), head.Updated); t > m.c.now {
		m.c.cfg.Logger.Warn("the clock is behind the journal; continuing from the journal's time",
			"run", head.Run, "behind", time.Duration(t-m.c.now)*time.Microsecond)
		m.c.now = t
	}
}

// add adds a run to memory.
func (m *residency) add(l *loadedRun) {
	m.runsMu.Lock()
	m.runs[l.key] = l
	m.runsMu.Unlock()
	if l.place != nil {
		m.c.tree.below[l.parentKey()]++
	}
	if m.c.cfg.Select != nil {
		if l.root != "" && !m.selects(l.key) {
			m.horizon = 0 // the runs below it are selected with it, and may be due soon
		}
		m.selected[l.key] = true
	}
	l.age.Of = l
	l.touched = m.c.now
	m.recent.ToBack(&l.age)
}

// drop removes a run from memory and frees what it held.
func (m *residency) drop(l *loadedRun) {
	if l.dropped {
		return
	}
	l.dropped = true
	if l.place != nil {
		if key := l.parentKey(); m.c.tree.below[key] > 1 {
			m.c.tree.below[key]--
		} else {
			delete(m.c.tree.below, key)
		}
	}
	m.runsMu.Lock()
	delete(m.runs, l.key)
	m.runs, m.peak = store.ShrinkMap(m.runs, m.peak)
	m.runsMu.Unlock()
	m.recent.Remove(&l.age)
	if l.timer != nil {
		l.timer.Of = nil
		if l.alarm != 0 {
			m.alarms.NoteDead()
		}
	}
	m.c.purses.Withdraw(l.key.Account, &l.claim)
	m.c.attempts.Unload(&l.requests)
}

// rest removes a run from memory that is suspended in the store.
func (m *residency) rest(l *loadedRun) {
	if !l.dropped {
		m.c.attempts.Rest(&l.requests)
		m.drop(l)
	}
}

// arm sets the run's alarm for its next timer.
func (m *residency) arm(l *loadedRun) {
	due := l.run.NextDue()
	if due == 0 || l.alarm != 0 && l.alarm <= due || l.dropped {
		return
	}
	m.armAt(l, due)
}

// armAt sets the run's valid alarm to `at`.
func (m *residency) armAt(l *loadedRun, at int64) {
	if l.timer == nil {
		l.timer = &timer{Of: l}
	}
	before := l.alarm
	l.alarm = at
	l.timer.Valid = m.alarms.Push(alarm{At: at, Timer: l.timer})
	if before != 0 {
		m.alarms.NoteDead()
	}
}

// selects reports whether this engine continues a run on its own: every run, or those
// that Config.Select names and those that have been in its memory. The latter are
// remembered as long as the engine runs; an engine that handles many runs has no
// Select.
func (m *residency) selects(key store.Key) bool {
	return m.c.cfg.Select == nil || m.selected[key] || m.c.cfg.Select(key)
}

// selectsOf is selects for a stored run: child runs are continued with their root.
func (m *residency) selectsOf(key store.Key, root string) bool {
	return m.selects(key) || root != "" && m.selects(store.Key{Account: key.Account, Run: root})
}

// due returns up to maxWakeups wake-ups of suspended runs that this engine selects,
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
			if m.selectsOf(w.Key, w.Root) && len(wakes) < maxWakeups {
				wakes = append(wakes, w)
			}
		}
		if len(all) < limit || len(wakes) == maxWakeups {
			return wakes, len(wakes) == maxWakeups, nil
		}
	}
}
