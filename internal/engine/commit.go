// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

// committed takes the store's word on the batch in flight. What waited for it
// goes out with carryOn.
//
// The order is the whole point. A command carried out before its commit could
// outlive a crash that forgets why it was sent; one carried out after it is at
// worst sent again by recovery, and receivers know it by run, step and attempt.
func (c *core) committed(verdicts []store.Verdict, err error) {
	c.releaseCommitted() // of the batch before, when this one is empty and came ahead
	b := c.flying
	c.flying = nil
	if err != nil {
		c.lose(b, err)
		return
	}
	for i := range b.trans {
		t, l := &b.trans[i], b.runs[i]
		if verdicts[i].Err != nil {
			c.refused(b, t, l, verdicts[i])
			if c.dead != nil {
				return
			}
			continue
		}
		if l == nil {
			delete(c.quarantined, t.Key)
			c.frames = append(c.frames, feed.Published{Key: t.Key, Head: t.Head})
			continue
		}
		l.flying, l.begin = false, nil
		if t.Head != nil {
			l.unended.Store(t.Head.Ended == 0)
		}
		if len(c.inherited) > 0 && t.Last != 0 {
			delete(c.inherited, t.Key)
		}
		if len(t.Frames) > 0 || t.Head != nil {
			c.uncompacted += len(t.Frames)
			c.frames = append(c.frames, feed.Published{Key: t.Key, Frames: t.Frames, Head: t.Head})
		}
		if n := b.compacted[i]; n >= 0 {
			l.tail = slices.Clone(l.tail[n:])
			l.from -= n // meaningful only while dirty
			l.chunked = t.Compaction.Last
			l.snap = len(t.Compaction.State)
		}
		if l.gone || l.version != l.encoded && !mutation.Reload {
			continue
		}
		switch {
		case t.Suspension != nil:
			c.drop(l)
			c.expect(t.Key, t.Suspension.WakeAt)
		case t.Compaction != nil && l.settled():
			if t.Compaction.First == 1 {
				l.prog.room = b.compacted[i] + b.compacted[i]/16
			}
			c.drop(l)
		case l.requests.Len() == 0 && l.run.Quiet():
			c.resting = append(c.resting, rested{l, l.version})
		}
	}
	c.committedBatch = b
	c.backoff = 0
}

// encodeAhead encodes the batch under construction when it is large enough to be committed
// before what waited for the last one goes out: the store writes the one while what
// follows from the other is done. A small one waits for that: its sync is most of
// what it costs, and serves all who come along.
func (c *core) encodeAhead() *batch {
	if len(c.building.dirty) < c.cfg.MinAhead {
		return nil
	}
	return c.encodeBatch()
}

// releaseCommitted lets out what waited for the batch that was committed last.
func (c *core) releaseCommitted() {
	b := c.committedBatch
	if b == nil {
		return // it was lost
	}
	c.committedBatch = nil
	for _, in := range b.ins {
		in.send()
	}
	for i := range b.owed {
		c.emit(b.owed[i].l, &b.owed[i].cmd)
	}
	b.reset()
	c.spare = b
}

// emit turns a durable command into an effect. The run may have moved on since,
// ahead of the disk: an attempt that is already over is not handed out.
func (c *core) emit(l *loadedRun, cmd *machine.Command) {
	if l.gone && cmd.Kind != machine.CmdCancelTask {
		return
	}
	e := effect{kind: cmd.Kind, id: taskID{l.key, cmd.Ref, cmd.Fence}, prog: l.prog}
	switch cmd.Kind {
	case machine.CmdDispatch:
		if e.fl = c.attempts.launch(l, e.id); e.fl == nil {
			return // recovery asks for what still runs in this process
		}
		over := true
		err := c.protect(l, func() { over = !l.run.TaskInto(&e.fl.task, cmd.Ref, cmd.Fence) })
		if err != nil || over {
			c.attempts.land(l, e.id)
			return
		}
		e.task = &e.fl.task
	case machine.CmdCancelTask:
		if e.fl = c.attempts.land(l, e.id); e.fl == nil {
			return
		}
	default:
		e.from, e.n, e.file = cmd.From, cmd.N, cmd.File
	}
	c.effects = append(c.effects, e)
}

// refused handles a transition that the store did not write.
func (c *core) refused(b *batch, t *store.Transition, l *loadedRun, v store.Verdict) {
	switch {
	case fault.CodeOf(v.Err) == fault.StaleEpoch:
		c.die(v.Err, b)
		return
	case l == nil: // a quarantine mark; the run stays out of memory all the same
		c.cfg.Logger.Error("a mark was refused", "run", t.Run, "err", v.Err)
		return
	case l.begin == nil:
		c.cfg.Logger.Error("a transition was refused; loading its run again", "run", t.Run, "err", v.Err)
	}
	began := l.begin != nil
	if reason := c.quarantined[t.Key]; reason != "" {
		c.correctMark(t.Key, reason, began)
	}
	l.flying = false
	c.drop(l)
	for _, ins := range [...][]*input{b.ins, c.building.ins} {
		for _, in := range ins {
			if in.key != t.Key {
				continue
			}
			switch in.out = (answer{run: t.Run, err: v.Err}); {
			case began && in.kind != inStart:
				in.out.err = fault.New(fault.RunNotFound, "there is no run %s: its start was refused", t.Run)
			case began && fault.CodeOf(v.Err) == fault.Conflict && v.Run != "":
				in.out = answer{run: v.Run, existing: true}
			case !began && in.reply == nil:
				c.backlog = append(c.backlog, in)
			}
		}
	}
	if began {
		return
	}
	if _, err := c.get(t.Key); err != nil {
		c.cfg.Logger.Error("the run could not be loaded again", "run", t.Run, "err", err)
		if !hopeless(err) {
			c.alarms.push(alarm{at: c.now + maxBackoff, key: t.Key})
		}
	}
}

// lose handles a failed commit. The connection may have died before the commit
// or after it. We cannot tell, so every run in memory is suspect: forget them
// and load again, once the store answers.
func (c *core) lose(b *batch, err error) {
	if c.ctx.Err() == nil && c.cfg.CommitFailed != nil {
		c.cfg.CommitFailed(err)
	}
	if fatal(err) {
		c.die(err, b)
		return
	}
	c.cfg.Logger.Warn("a commit failed; loading every run again", "err", err)
	c.stalled = err
	c.backoff = min(max(2*c.backoff, minBackoff), maxBackoff)
	c.retryAt = c.now + c.backoff
	c.forget()
	c.lost = append(c.lost, b)
	// What was never sent to the store is certainly not written.
	for _, in := range c.building.ins {
		c.redo(in)
	}
	c.building.reset()
	c.refuse()
}

// redo keeps a report of a worker for when the runs are back, and refuses what
// a caller can ask for again.
func (c *core) redo(in *input) {
	if in.reply == nil {
		c.backlog = append(c.backlog, in)
		return
	}
	in.out = answer{run: in.key.Run, err: c.stalled}
	in.send()
}

// forget empties memory.
func (c *core) forget() {
	for l := c.recent.front(); l != nil; l = c.recent.front() {
		l.requests.Each(c.attempts.orphan)
		l.requests = requestSet{} // the arbiter starts anew
		c.drop(l)
	}
	for _, k := range c.attempts.overdue {
		c.attempts.orphan(k)
	}
	c.attempts.arbiter = newArbiter(c.cfg.Concurrency)
	c.alarms = alarms{}
	c.resting = nil
	c.horizon = 0
	clear(c.attempts.overdue)
	c.continues, c.entering, c.suspects = nil, nil, nil
}

// refuse answers callers while nothing can be committed. Reports of workers
// stay: they always get in.
func (c *core) refuse() {
	err := c.dead
	if err == nil {
		err = c.stalled
	}
	kept := c.backlog[:0]
	for _, in := range c.backlog {
		if in.reply == nil {
			if c.dead == nil {
				kept = append(kept, in)
			}
			continue
		}
		in.out = answer{run: in.key.Run, err: err}
		in.send()
	}
	clear(c.backlog[len(kept):])
	c.backlog = kept
}

// die ends the engine: what is not acknowledged by now never will be (I21).
func (c *core) die(err error, b *batch) {
	c.cfg.Logger.Error("the engine stops acknowledging", "err", err)
	c.dead = err
	c.forget()
	c.lost = append(c.lost, b)
	c.tellAll(err)
}

// tellAll answers everybody who still waits: nothing more will be written.
func (c *core) tellAll(err error) {
	for _, b := range append(c.lost, c.building) {
		for _, in := range b.ins {
			in.out = answer{run: in.key.Run, err: err}
			in.send()
		}
		b.reset()
	}
	c.lost = nil
	c.refuse()
}

// fatal says that no later commit can succeed.
func fatal(err error) bool {
	switch fault.CodeOf(err) {
	case fault.StoreFailed, fault.StaleEpoch:
		return true
	}
	return false
}
