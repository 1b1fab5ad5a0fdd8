// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

const (
	maxSuspend = 256       // idle runs that leave memory with one batch
	nap        = 5_000_000 // µs: a run whose timer is due by then is not worth suspending
	maxRing    = 1_000     // timers that fire in one pass (F11)
	maxAhead   = 10_000    // suspended runs whose wake-ups are kept in memory
	hour       = 3_600_000_000
	stuckTimer = 1_000_000 // µs until a timer that changed nothing is looked at again
)

// ring fires the timers that are due, a bounded number in one pass.
func (c *core) ring() {
	room := max(16, c.cfg.MaxLoaded-len(c.runs)) // suspended runs that may come in
	for n := 0; n < maxRing && room > 0 && !c.full(); n++ {
		at := c.alarms.next()
		if at == 0 || at > c.now {
			break
		}
		a, ok := c.alarms.pop()
		switch {
		case !ok:
		case a.timer != nil:
			a.timer.l.alarm = 0
			c.fire(a.timer.l)
		case c.runs[a.key] != nil: // it has come in since, with an alarm of its own
		default:
			room--
			l, err := c.get(a.key)
			if err == nil {
				c.fire(l)
				continue
			}
			c.cfg.Logger.Warn("a suspended run could not be woken", "run", a.key.Run, "err", err)
			if !hopeless(err) {
				c.alarms.push(alarm{at: c.now + maxBackoff, key: a.key})
			}
		}
	}
	if c.now >= c.horizon && c.stalled == nil {
		if err := c.lookAhead(); err != nil {
			c.cfg.Logger.Warn("the next wake-ups could not be read", "err", err)
			c.horizon = c.now + maxBackoff
		}
	}
}

// hopeless says that trying again changes nothing.
func hopeless(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Quarantined, fault.StoreCorrupt, fault.RunNotFound:
		return true
	}
	return false
}

func (c *core) fire(l *loadedRun) {
	if due := l.run.NextDue(); due == 0 || due > c.now {
		c.arm(l)
		return
	}
	before := l.run.Last()
	if err := c.decide(l, &machine.Input{Kind: machine.InTimer}); err != nil && !l.gone {
		c.cfg.Logger.Error("a run did not take that a timer is due", "run", l.key.Run, "err", err)
	}
	if l.gone {
		return
	}
	if l.run.Last() != before {
		c.building.urgent = true
		return
	}
	if l.run.NextDue() <= c.now && l.run.NextDue() != 0 {
		c.ringAt(l, c.now+stuckTimer)
	}
}

// lookAhead arms the wake-ups of suspended runs for the next hour.
func (c *core) lookAhead() error {
	until := c.now + hour
	wakes, more, err := c.due(until)
	if err != nil {
		return err
	}
	for _, w := range wakes {
		if c.runs[w.Key] == nil {
			c.alarms.push(alarm{at: w.At, key: w.Key})
		}
	}
	if more {
		// More are due before the hour is over; look again when these have rung.
		until = max(wakes[maxAhead-1].At, c.now+50_000)
	}
	c.horizon = until
	return nil
}

// expect arms the wake-up of a run that has just left memory.
func (c *core) expect(key store.Key, wake int64) {
	if wake != 0 && wake <= c.horizon {
		c.alarms.push(alarm{at: wake, key: key})
	}
}

// tidy lets idle runs leave memory, and compacts runs whose events keep old
// journal rows alive.
func (c *core) tidy() {
	c.suspendResting()
	c.suspendIdle()
	if c.compacting || c.uncompacted >= c.cfg.CompactCheck {
		c.uncompacted = 0
		c.compactLaggards()
	}
}

// suspendIdle suspends quiet runs, the longest untouched first: all that are idle,
// and as many more as exceed what memory may hold.
func (c *core) suspendIdle() {
	excess := len(c.runs) - c.cfg.MaxLoaded
	if c.closing {
		excess = len(c.runs)
	}
	idle := c.now - c.cfg.SuspendAfter.Microseconds()
	// Runs that cannot leave are passed over, but not all of them every time.
	for n := min(2*max(excess, 0)+maxSuspend, 8*maxSuspend); n > 0; n-- {
		l := c.recent.front()
		if l == nil || excess <= 0 && l.touched > idle {
			return
		}
		if l.touched == c.now && l.leaving {
			return
		}
		c.recent.toBack(&l.age)
		if !c.mayLeave(l) || excess <= 0 && c.wakesSoon(l) {
			l.touched = c.now // to be looked at again after a while
			continue
		}
		excess--
		c.leave(l)
	}
}

// leave lets a run out of memory, with the next batch when that has to say so.
func (c *core) leave(l *loadedRun) {
	switch {
	case !l.dirty && l.settled() && len(l.tail) == 0:
		c.drop(l) // a late request had brought it in
	case !l.dirty && l.suspended && l.wake == l.run.NextDue():
		c.drop(l)
		c.expect(l.key, l.wake)
	default:
		c.touch(l, l.run.Last()+1)
		l.leaving = true
		c.building.urgent = true
	}
}

// rested is a run that was quiet when it was committed; it is so as long as it
// has that version.
type rested struct {
	l       *loadedRun
	version uint32
}

func (r rested) still() bool { return !r.l.gone && r.l.version == r.version }

// suspendResting suspends what has been quiet for longest when more than MaxResting
// runs are, also before their time: after a crash each of them has to be read
// before anything can go on.
func (c *core) suspendResting() {
	for len(c.resting) > 0 && !c.resting[0].still() {
		c.resting[0], c.resting = rested{}, c.resting[1:]
	}
	for n := min(len(c.resting)-c.cfg.MaxResting, 4*maxSuspend); n > 0; n-- {
		r := c.resting[0]
		c.resting[0], c.resting = rested{}, c.resting[1:]
		if r.still() && c.mayLeave(r.l) && !c.wakesSoon(r.l) {
			c.leave(r.l)
		}
	}
}

// mayLeave says that the run owes nothing but waits, and nobody here holds it.
func (c *core) mayLeave(l *loadedRun) bool {
	return !l.flying && !l.leaving && !l.again && !l.interrupted && (l.begin == nil || l.dirty) && l.run.Quiet()
}

func (c *core) wakesSoon(l *loadedRun) bool {
	due := l.run.NextDue()
	return due != 0 && due <= c.now+nap
}

// compactLaggards compacts the runs that keep the oldest journal rows alive, once
// those are too many: the geometric rule alone never compacts a small run. It goes
// on, batch by batch, until three quarters of what started it are left: thousands
// of runs that advance side by side bring new events as fast as one batch compacts
// old ones. With less left, each run is compacted more often, and a compaction costs the
// same whatever it covers.
// What only waits is suspended while we are at it, and costs the next start nothing.
func (c *core) compactLaggards() {
	size, events, oldest := c.cfg.Store.Uncovered()
	if c.compacting {
		size, events = size+size/3, events+events/3
	}
	c.compacting = size >= c.cfg.CompactBytes || events >= c.cfg.CompactEvents
	if !c.compacting {
		return
	}
	some := false
	for _, key := range oldest {
		l := c.runs[key]
		if l == nil || l.flying || len(l.tail) == 0 || c.building.bytes > 4*c.cfg.MaxBatchBytes {
			continue
		}
		c.touch(l, l.run.Last()+1)
		if c.mayLeave(l) {
			l.leaving = true
		}
		l.compact, some = true, true
		c.building.urgent = true
		c.building.bytes += len(l.tail)
	}
	c.compacting = some // else wait for more events: these are held by a commit or another
}

// compactAll covers what is left in memory at a clean end, so that the next start
// reads snapshots and no journal. It says whether there was nothing to do.
func (c *core) compactAll() bool {
	none := true
	for l := c.recent.front(); l != nil && c.building.bytes < 4*c.cfg.MaxBatchBytes; {
		next := c.recent.after(&l.age)
		if len(l.tail) > 0 && !l.compact {
			c.touch(l, l.run.Last()+1)
			l.compact, none = true, false
			c.building.urgent = true
			c.building.bytes += len(l.tail)
		}
		l = next
	}
	return none
}

// wakeup is when handle must be called again at the latest, UTC µs; 0 = not
// before something arrives.
func (c *core) wakeup() int64 {
	if c.dead != nil {
		return 0
	}
	if c.stalled != nil {
		return c.retryAt
	}
	at := c.alarms.next()
	sooner := func(t int64) {
		if t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	sooner(c.horizon)
	if b := c.building; !b.empty() && !b.urgent {
		sooner(b.since + lazyTick)
	}
	if len(c.suspects) > 0 || c.alone {
		sooner(c.suspectAt)
	}
	if l := c.recent.front(); l != nil {
		// A little later, so that runs are looked at many at a time: each that is
		// at work would wake the loop once every SuspendAfter.
		sooner(l.touched + c.cfg.SuspendAfter.Microseconds() + lazyTick)
	}
	return at
}
