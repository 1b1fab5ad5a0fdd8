// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A loadedRun is a run in memory.
type loadedRun struct {
	key   store.Key
	prog  *program
	run   *machine.Run
	head  store.Head // as of the last encoded batch
	begin *begin     // until the run's first transition is durable
	// unended is true while the head that is stored says so; others read it.
	unended atomic.Bool
	ended   int64 // when the run reached its last terminal event; 0 = it is live

	tail    []byte // frames after chunked, durable or not
	chunked uint64 // last event kept in a chunk
	snap    int    // size of the last snapshot

	dirty       bool   // part of the batch under construction: its
	from        int    // … frames begin here in tail,
	first       uint64 // … with this event
	flying      bool   // part of the batch being committed
	version     uint32 // grows with every touch
	encoded     uint32 // version when last encoded
	compact     bool   // encode with a compaction
	leaving     bool   // encode with a suspension
	suspended   bool   // the store has, or is given, a suspension entry as of the last event
	again       bool   // InContinue is due
	interrupted bool   // loaded with attempts whose worker is gone
	forceHead   bool   // encode with a head row
	released    bool   // it was set apart, and its attempts told to stop, until just now
	gone        bool   // dropped from memory; whoever still points here is late

	requests requestSet
	limits   [][]*limit   // by plan action
	timer    *timerHandle // nil until it has an alarm
	alarm    int64        // its valid alarm; 0 = none
	wake     int64        // WakeAt of its suspension entry
	touched  int64
	age      link // in core.recent
}

// unended says that a run is in memory, stored, and has not ended as of its last
// commit. Any goroutine may ask.
func (c *core) unended(key store.Key) bool {
	c.runsMu.RLock()
	l := c.runs[key]
	c.runsMu.RUnlock()
	return l != nil && l.unended.Load()
}

// settled says that nothing will ever happen to the run by itself.
func (l *loadedRun) settled() bool { return l.run.Status().Terminal() && l.run.Quiet() }

// newHead brings the head row up to date and says whether it must be written:
// at the start, at the end and when the status changes.
func (l *loadedRun) newHead(now int64) bool {
	old := l.head
	h := &l.head
	status := l.run.Status()
	h.Status = status.String()
	h.Ended, h.Owes, h.Code, h.Message = 0, false, "", ""
	if status.Terminal() {
		h.Ended = l.ended
		h.Owes = !l.run.Quiet()
		h.Code, h.Message = l.run.Failure()
	}
	if l.begin == nil && h.Status == old.Status && h.Ended == old.Ended && h.Owes == old.Owes && !l.forceHead {
		*h = old
		return false
	}
	h.Used, h.Failures, h.Updated = l.run.Used(), l.run.HasFailures(), now
	return true
}

// get returns a run, loading it when it is not in memory.
func (c *core) get(key store.Key) (*loadedRun, error) {
	if l := c.runs[key]; l != nil {
		return l, nil
	}
	if reason := c.quarantined[key]; reason != "" {
		return nil, store.ErrQuarantined(key.Run, reason)
	}
	if c.inherited[key].suspect {
		return nil, &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
			Msg: "run " + key.Run + " is being recovered with care after crashes; try again in a moment"}
	}
	saved, err := c.cfg.Store.Load(c.ctx, key)
	if fault.CodeOf(err) == fault.StoreCorrupt {
		c.quarantineStored(key, err.Error())
	}
	if err != nil {
		return nil, err
	}
	astray := saved.Suspension == nil && !saved.Head.Settled() // it ought to have been in memory
	if astray {
		if err := c.owns(); err != nil {
			return nil, err
		}
	}
	l, err := c.admit(saved)
	switch {
	case err != nil:
	case astray:
		c.recoverRun(l)
	default:
		c.arm(l) // looking ahead passes over runs in memory
	}
	if err == nil && l.gone {
		return nil, store.ErrQuarantined(key.Run, "it cannot go on")
	}
	return l, err
}

// admit takes a stored run into memory. A run that cannot be read is set apart
// (F20): its bytes are kept as they are, and the others go on.
func (c *core) admit(saved *store.Saved) (*loadedRun, error) {
	if reason := saved.Head.Quarantine; reason != "" {
		return nil, store.ErrQuarantined(saved.Head.Run, reason)
	}
	l, err := c.rebuild(saved)
	if passing(err) {
		return nil, err
	}
	if err != nil {
		c.quarantine(saved.Head, err.Error())
		return nil, store.ErrQuarantined(saved.Head.Run, err.Error())
	}
	c.catchUp(l, saved.Head)
	l.interrupted = len(c.inherited) > 0 && c.bereaved(l)
	c.enter(l)
	if status := l.run.Status(); l.head.Status != status.String() || (l.head.Ended != 0) != status.Terminal() {
		c.cfg.Logger.Warn("the head of a run lags behind its journal, which counts", "run", l.key.Run, "head", l.head.Status, "journal", status.String())
		c.touch(l, l.run.Last()+1)
		c.building.urgent = true
	}
	return l, nil
}

// catchUp goes on from the time of a run that is loaded, where that is later: time
// never falls, also when the wall clock was turned back while the process was down
// (I10). What the process notes at its end is then not older than what it wrote.
func (c *core) catchUp(l *loadedRun, head store.Head) {
	if t := max(l.run.Now(), head.Updated); t > c.now {
		c.cfg.Logger.Warn("the clock is behind the journal; going on from the journal's time",
			"run", head.Run, "behind", time.Duration(t-c.now)*time.Microsecond)
		c.now = t
	}
}

// enter makes a run part of memory.
func (c *core) enter(l *loadedRun) {
	c.runsMu.Lock()
	c.runs[l.key] = l
	c.runsMu.Unlock()
	if c.cfg.Select != nil {
		c.taken[l.key] = true
	}
	l.age.l = l
	l.touched = c.now
	c.recent.toBack(&l.age)
}

// rebuild folds a stored run. Nothing it does changes the core.
func (c *core) rebuild(saved *store.Saved) (l *loadedRun, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.Logger.Error("a run broke its fold", "run", saved.Head.Run, "panic", v, "stack", string(debug.Stack()))
			err = fault.New(fault.InternalError, "folding its journal panicked: %v", v)
		}
	}()
	if saved.Err != nil {
		return nil, saved.Err
	}
	prog, err := c.programs.load(c.ctx, c.cfg.Store, saved.Head.PlanHash)
	if err != nil {
		return nil, err
	}
	run, err := refold(c.ctx, c.cfg.Store, prog, saved, 0)
	if err != nil {
		return nil, err
	}
	l = &loadedRun{
		key: saved.Head.Key, prog: prog, run: run, head: saved.Head,
		chunked: saved.Chunked, snap: len(saved.State), ended: saved.Head.Ended,
	}
	if l.ended == 0 && run.Status().Terminal() {
		l.ended = run.Now() // the head lags
	}
	l.unended.Store(l.ended == 0)
	if saved.Suspension != nil {
		l.suspended, l.wake = true, saved.Suspension.WakeAt
	}
	if saved.Last > saved.Chunked {
		l.tail, err = after(saved.Tail, saved.Chunked)
	}
	return l, err
}

// refold gives the run that saved describes, after event `until` at the latest
// (0 = all of them).
func refold(ctx context.Context, st store.Reader, prog *program, saved *store.Saved, until uint64) (*machine.Run, error) {
	run := machine.NewRun(prog.machine)
	if saved.State != nil && saved.Format == machine.SnapshotFormat && (until == 0 || saved.StateLast <= until) {
		r, err := machine.Restore(prog.machine, saved.State)
		if err != nil {
			return nil, fmt.Errorf("restore run %s from its snapshot at event %d: %w", saved.Head.Run, saved.StateLast, err)
		}
		run = r
	}
	apply := func(ev *journal.Event) error {
		if ev.Seq <= run.Last() {
			return nil
		}
		if until != 0 && ev.Seq > until {
			return errEnough
		}
		return run.Apply(ev)
	}
	if run.Last() < saved.StateLast { // a snapshot of another format is only skipped
		if err := store.EachEvent(ctx, st, saved.Head.Key, run.Last(), apply); err != nil && !errors.Is(err, errEnough) {
			return nil, fmt.Errorf("fold run %s: %w", saved.Head.Run, err)
		}
	}
	if err := journal.EachEvent(saved.Tail, apply); err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("fold run %s: %w", saved.Head.Run, err)
	}
	if until == 0 && run.Last() != saved.Last {
		return nil, fault.New(fault.StoreCorrupt, "run %s: folded to event %d, its journal has %d", saved.Head.Run, run.Last(), saved.Last)
	}
	return run, supply(ctx, st, saved.Head.Key, run)
}

// errEnough stops a walk over events before its end.
var errEnough = errors.New("enough")

// supply gives a restored run the values its snapshot only names.
func supply(ctx context.Context, st store.Reader, key store.Key, run *machine.Run) error {
	missing := run.Missing()
	for len(missing) > 0 {
		page, err := st.Events(ctx, key, missing[0]-1, pageBytes)
		if err != nil {
			return err
		}
		if page.Next < missing[0] {
			return fault.New(fault.StoreCorrupt, "run %s: event %d holds a value of its state and is not stored", key.Run, missing[0])
		}
		err = journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			for len(missing) > 0 && missing[0] < ev.Seq {
				missing = missing[1:]
			}
			if len(missing) > 0 && missing[0] == ev.Seq {
				missing = missing[1:]
				return run.Supply(ev)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// after cuts the events up to `last` off frames.
func after(frames []byte, last uint64) ([]byte, error) {
	var events []journal.Event
	whole := true
	err := journal.EachEvent(frames, func(ev *journal.Event) error {
		if ev.Seq > last {
			if whole && len(events) == 0 {
				return errEnough // nothing to cut
			}
			events = append(events, *ev)
		} else {
			whole = false
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return slices.Clone(frames), nil
	}
	if err != nil {
		return nil, err
	}
	var tail []byte
	for len(events) > 0 { // a frame holds events of one time
		n := 1
		for n < len(events) && events[n].At == events[0].At {
			n++
		}
		tail = journal.AppendFrame(tail, events[:n])
		events = events[n:]
	}
	return tail, nil
}

// drop takes a run out of memory and gives back what it held.
func (c *core) drop(l *loadedRun) {
	if l.gone {
		return
	}
	l.gone = true
	c.runsMu.Lock()
	delete(c.runs, l.key)
	c.runs, c.most = store.ShrinkMap(c.runs, c.most)
	c.runsMu.Unlock()
	c.recent.remove(&l.age)
	if l.timer != nil {
		l.timer.l = nil
		if l.alarm != 0 {
			c.alarms.died()
		}
	}
	l.requests.Each(c.attempts.orphan)
	c.attempts.arbiter.WithdrawAll(&l.requests)
}

// quarantine sets apart a run that is not, or no longer, in memory (I16). Where the
// head is damaged nothing is stored: that would make the damage good.
func (c *core) quarantine(head store.Head, reason string) {
	c.cfg.Logger.Error("run set apart", "run", head.Run, "reason", reason)
	c.quarantined[head.Key] = reason
	if head.Damage == "" {
		head.Quarantine, head.Updated = reason, c.now
		c.building.extra = append(c.building.extra, store.Transition{Key: head.Key, Epoch: c.epoch, Head: &head})
		c.building.urgent = true
	}
	c.recall(head.Key)
}

// correctMark replaces the mark of a run whose last transition was refused after
// the run was set apart: the mark is not stored yet, and its head tells of that
// transition. A run whose start was refused does not exist and has no mark.
func (c *core) correctMark(key store.Key, reason string, began bool) {
	if began {
		c.dropMark(key)
		delete(c.quarantined, key)
		return
	}
	head, err := c.cfg.Store.Head(c.ctx, key)
	if err != nil {
		c.cfg.Logger.Error("the head of a run that is set apart cannot be read", "run", key.Run, "err", err)
		return
	}
	c.dropMark(key)
	if head.Quarantine == "" {
		c.quarantine(head, reason)
	}
}

// dropMark takes back the mark of a run that waits to be stored.
func (c *core) dropMark(key store.Key) {
	c.building.extra = slices.DeleteFunc(c.building.extra, func(t store.Transition) bool { return t.Key == key })
}

// recall tells the attempts of a run that has been set apart to stop, also those
// that it lost sight of in a reload. Whoever releases the run finds them lost;
// until then nobody else would tell their actions.
func (c *core) recall(key store.Key) {
	var ids []taskID
	for id := range c.attempts.orphans {
		if id.key == key {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b taskID) int { // one seed gives one order
		return cmp.Or(cmp.Compare(a.ref.Path, b.ref.Path), cmp.Compare(a.ref.Step, b.ref.Step),
			cmp.Compare(a.fence.Gen, b.fence.Gen), cmp.Compare(a.fence.Attempt, b.fence.Attempt))
	})
	for _, id := range ids {
		c.effects = append(c.effects, effect{kind: machine.CmdCancelTask, id: id, prog: c.attempts.orphans[id].prog, fl: c.attempts.orphans[id]})
		delete(c.attempts.orphans, id)
	}
}

// quarantineStored is quarantine for a run of which only the head can be read.
func (c *core) quarantineStored(key store.Key, reason string) {
	head, err := c.cfg.Store.Head(c.ctx, key)
	if err != nil || head.Quarantine != "" {
		return
	}
	c.quarantine(head, reason)
}
