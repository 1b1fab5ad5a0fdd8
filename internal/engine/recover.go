// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

const (
	minBackoff = 20_000    // µs between attempts to reach a failing store
	maxBackoff = 1_000_000 // µs
	maxEnter   = 256       // runs whose recovery one pass begins
)

// open makes this core the owner of the store's runs and loads those that are
// neither suspended nor settled. Attempts that were open have no worker any more:
// their runs are told so as they enter.
func (c *core) open(now int64) error {
	c.now = now
	epoch, err := c.cfg.Store.Own(c.ctx)
	if err != nil {
		return err
	}
	c.epoch = epoch
	if err := failpoint.Hit(failpoint.RecoverFirst); err != nil {
		return err
	}
	careful, err := c.lookAtCrashes()
	if err != nil {
		return err
	}
	err = c.cfg.Store.Recover(c.ctx, func(saved *store.Saved) error {
		if err := failpoint.Hit(failpoint.RecoverRun); err != nil {
			return err
		}
		if !c.takes(saved.Head.Key) || saved.Head.Quarantine != "" || c.quarantined[saved.Head.Key] != "" {
			return nil
		}
		suspect := careful && c.suspect(saved)
		c.inherited[saved.Head.Key] = inherited{saved.Last, suspect}
		if suspect {
			c.suspects = append(c.suspects, saved.Head.Key)
			return nil
		}
		return c.enterSaved(saved)
	})
	if c.since == 0 {
		for _, l := range c.entering {
			if l.interrupted { // what was found is older
				c.now = max(c.now, l.run.Now()+1)
			}
		}
		c.since = c.now
	}
	if err == nil {
		err = failpoint.Hit(failpoint.RecoverLast)
	}
	if err == nil {
		err = c.owns()
	}
	if err != nil {
		return err
	}
	return c.lookAhead()
}

// enterSaved loads one run of recovery. A damaged one is set apart and does not
// stop the others; an error is the store's.
func (c *core) enterSaved(saved *store.Saved) error {
	l, err := c.admit(saved)
	if err == nil {
		c.entering = append(c.entering, l)
	}
	if passing(err) {
		return err
	}
	return nil
}

// passing says that an error tells of the store as it is now and not of a run:
// trying again may help.
func passing(err error) bool {
	switch fault.CodeOf(err) {
	case fault.ServiceUnavailable, fault.StoreFailed, fault.StoreFull:
		return true
	}
	return errors.Is(err, context.Canceled)
}

// An inherited run is as the process before left it, up to event last: whatever
// it had handed out is lost. That stays true until this engine has written to it,
// however often it is loaded until then.
type inherited struct {
	last    uint64
	suspect bool // it is not to be loaded yet
}

// bereaved says whether the attempts of a run that is being loaded were lost with
// an earlier process, and forgets runs of which that will never be so.
func (c *core) bereaved(l *loadedRun) bool {
	h, ok := c.inherited[l.key]
	if ok && (h.last != l.run.Last() || running(l) == 0) {
		delete(c.inherited, l.key)
		ok = false
	}
	return ok
}

// enterNext carries out what loaded runs owe, a bounded number in one pass.
func (c *core) enterNext() {
	for n := 0; len(c.entering) > 0 && n < maxEnter && !c.full(); n++ {
		l := c.entering[0]
		c.entering = c.entering[1:]
		if !l.gone {
			c.recoverRun(l)
		}
	}
	if len(c.entering) == 0 && (len(c.suspects) > 0 || c.alone) {
		c.nextSuspect()
	}
}

// recoverRun carries out what a loaded run owes.
func (c *core) recoverRun(l *loadedRun) {
	if l.interrupted {
		l.interrupted = false
		// The commands of this turn are among those owed below.
		in := &machine.Input{Kind: machine.InWorkerLost, All: true}
		if c.handedBack(l) && !mutation.HandBack {
			in.Text = handedBack
		}
		if err := c.decideQuietly(l, in); err != nil && !l.gone {
			c.cfg.Logger.Error("a run did not take that its attempts are lost", "run", l.key.Run, "err", err)
		}
		if l.gone {
			return
		}
		failpoint.Pass(failpoint.LostRecorded)
	}
	var cmds []machine.Command
	if err := c.protect(l, func() {
		l.run.EachRunning(func(ref journal.Ref, fence journal.Fence) { c.takeUp(l, ref, fence) })
		cmds = l.run.Owed(nil)
	}); err != nil {
		return
	}
	for i := range cmds {
		c.command(l, &cmds[i])
	}
	c.arm(l)
}

// takeUp takes up an attempt that is open in a loaded run, and finds it again
// where this process still carries it out.
func (c *core) takeUp(l *loadedRun, ref journal.Ref, fence journal.Fence) {
	c.attempts.hold(l, ref, fence, c.limitsOf(l, ref))
	id := taskID{l.key, ref, fence}
	if fl := c.attempts.orphans[id]; fl != nil {
		if k := l.requests.Get(ref); k.Fence == fence {
			k.Holder.fl = fl
			delete(c.attempts.orphans, id)
		}
	}
}

// handedBack says that attempts were given up by an orderly stop: nothing went
// wrong with them (F45).
const handedBack = "handed back"

// handedBack says whether the attempts of a loaded run were given up by an orderly
// stop: the process that wrote its last event was stopped in order. What became of
// later ones is not asked: one that died before it wrote to the run has not lost
// attempts of it, and one that was stopped before has not given them up.
func (c *core) handedBack(l *loadedRun) bool {
	return c.history.Began <= l.run.Now() && l.run.Now() <= c.history.Stopped && !l.released
}

// decideQuietly is decide for a turn whose commands are taken from Owed.
func (c *core) decideQuietly(l *loadedRun, in *machine.Input) error {
	c.muted = true
	defer func() { c.muted = false }()
	err := c.decide(l, in)
	c.building.urgent = true
	return err
}

// reload loads every run again after a failed commit, and says whether it could.
// What the lost batch held is looked up run by run: our epoch guards the
// journals, so an event number that is there was written by that batch (F16).
func (c *core) reload() bool {
	if c.now < c.retryAt {
		return false
	}
	err := c.cfg.Store.Recover(c.ctx, func(saved *store.Saved) error {
		key := saved.Head.Key
		switch {
		case !c.takes(key) || saved.Head.Quarantine != "" || c.quarantined[key] != "":
		case c.inherited[key].suspect:
			c.suspects = append(c.suspects, key)
		default:
			return c.enterSaved(saved)
		}
		return nil
	})
	written := map[store.Key]bool{}
	for _, b := range c.lost {
		for i := range b.trans {
			if t := &b.trans[i]; err == nil {
				written[t.Key], err = c.wrote(t)
			}
		}
	}
	if err == nil {
		err = c.markAgain()
	}
	if err == nil {
		err = c.lookAhead()
	}
	if err == nil {
		err = c.owns()
	}
	if err != nil {
		c.forget()
		c.backoff = min(2*c.backoff, maxBackoff)
		c.retryAt = c.now + c.backoff
		if fatal(err) {
			c.die(err, c.building)
		}
		return false
	}
	whole := !slices.Contains(slices.Collect(maps.Values(written)), false)
	for _, b := range c.lost {
		for _, in := range b.ins {
			if is, ok := written[in.key]; ok && !is || in.kind == inBarrier && !whole {
				c.redo(in)
				continue
			}
			in.send()
		}
		for i := range b.owed {
			// What a run still wants it asks for again; of what it gave up nobody
			// else would tell the worker.
			if o := &b.owed[i]; o.cmd.Kind == machine.CmdCancelTask && written[o.l.key] {
				c.emit(o.l, &o.cmd)
			}
		}
		b.reset()
		c.spare = b
	}
	c.lost = nil
	c.stalled = nil
	// What a lost batch wrote all the same was published to nobody, and may be the
	// last thing that its runs ever do.
	c.frames = append(c.frames, feed.Published{})
	c.cfg.Logger.Info("the store answers again", "runs", len(c.runs))
	return true
}

// markAgain marks the runs whose marks were in a lost batch and were not written.
func (c *core) markAgain() error {
	keys := slices.SortedFunc(maps.Keys(c.quarantined), func(a, b store.Key) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Run, b.Run))
	})
	for _, key := range keys {
		head, err := c.cfg.Store.Head(c.ctx, key)
		switch {
		case passing(err):
			return err
		case err != nil || head.Quarantine != "":
			delete(c.quarantined, key)
		default:
			c.quarantine(head, c.quarantined[key])
		}
	}
	return nil
}

// owns asks whether this engine still owns the runs it has just read: they may be
// the work of one that has taken over meanwhile, and nothing of theirs may then be
// carried out here.
func (c *core) owns() error { return c.cfg.Store.Owns(c.ctx, c.epoch) }

// wrote says whether the store holds a transition of a lost batch.
func (c *core) wrote(t *store.Transition) (bool, error) {
	if t.Last == 0 {
		return c.unmarked(t)
	}
	if l := c.runs[t.Key]; l != nil {
		return l.run.Last() >= t.Last, nil
	}
	saved, err := c.cfg.Store.Load(c.ctx, t.Key)
	switch fault.CodeOf(err) {
	case "":
		return saved.Last >= t.Last, nil
	case fault.RunNotFound:
		return false, nil
	}
	return false, err
}

// unmarked says whether the store holds a transition without events, as far as
// somebody waits for that: for a mark that was taken back, not for a compaction or a mark.
func (c *core) unmarked(t *store.Transition) (bool, error) {
	if t.Head == nil || t.Head.Quarantine != "" {
		return true, nil
	}
	head, err := c.cfg.Store.Head(c.ctx, t.Key)
	if passing(err) {
		return false, err
	}
	return err == nil && head.Quarantine == "", nil
}

// release takes a run out of quarantine. Whatever was in the hands of a worker
// when it was set apart is lost.
func (c *core) release(key store.Key) error {
	if c.runs[key] != nil {
		return fault.New(fault.Conflict, "run %s is not set apart", key.Run)
	}
	saved, err := c.cfg.Store.Load(c.ctx, key)
	if err != nil {
		return err
	}
	if saved.Head.Quarantine == "" {
		if c.quarantined[key] != "" {
			return &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
				Msg: "run " + key.Run + " has just been set apart and its mark is not stored yet; try again in a moment"}
		}
		return fault.New(fault.Conflict, "run %s is not set apart", key.Run)
	}
	head := saved.Head
	saved.Head.Quarantine = ""
	l, err := c.rebuild(saved)
	if err != nil {
		return store.ErrQuarantined(key.Run, err.Error())
	}
	delete(c.quarantined, key)
	c.cfg.Logger.Info("run released", "run", key.Run, "reason", head.Quarantine)
	c.catchUp(l, head)
	c.enter(l)
	l.forceHead, l.released = true, true
	c.touch(l, l.run.Last()+1)
	c.building.urgent = true
	l.interrupted = running(l) > 0
	c.recoverRun(l)
	return nil
}

// running is how many attempts of a run are handed out.
func running(l *loadedRun) int {
	_, n := l.run.Open()
	return n
}
