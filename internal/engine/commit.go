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

// committed takes the store's answer to the batch being committed. releaseCommitted
// then releases what waited for it.
//
// The order matters. A command carried out before its commit could outlive a crash that
// loses the reason why it was sent. One carried out after its commit is at worst sent
// again by recovery, and receivers recognize it by run, step and attempt.
func (p *pipeline) committed(verdicts []store.Verdict, err error) {
	p.releaseCommitted() // of the previous batch, if this one is empty and was encoded ahead
	b := p.committing
	p.committing = nil
	if err != nil {
		p.c.recovery.commitFailed(b, err)
		return
	}
	var unpaid []string // accounts of which entries were refused
	for i := range b.transitions {
		t, l := &b.transitions[i], b.runs[i]
		if verdicts[i].Err != nil {
			if len(t.Entries) > 0 && (l == nil || l.claim.Unpaid == nil) && !slices.Contains(unpaid, t.Account) {
				unpaid = append(unpaid, t.Account)
			}
			p.refused(b, t, l, verdicts[i])
			if p.c.recovery.dead != nil {
				return
			}
			continue
		}
		t.LogNotices(p.c.cfg.Logger)
		p.observe(t, l)
		if t.Run == "" {
			p.c.frames = append(p.c.frames, feed.Published{Key: t.Key, Changed: true})
			continue
		}
		if l == nil {
			delete(p.c.recovery.quarantined, t.Key)
			p.c.frames = append(p.c.frames, feed.Published{Key: t.Key, Head: t.Head})
			continue
		}
		p.c.publishJobs(l)
		l.committing, l.start = false, nil
		if t.Head != nil {
			l.unended.Store(t.Head.Ended == 0)
		}
		if len(p.c.recovery.inherited) > 0 && t.Last != 0 {
			delete(p.c.recovery.inherited, t.Key)
		}
		if len(t.Frames) > 0 || t.Head != nil {
			p.c.residency.uncompacted += len(t.Frames)
			p.c.frames = append(p.c.frames, feed.Published{Key: t.Key, Frames: t.Frames, Head: t.Head, Changed: len(t.Entries) > 0})
		}
		if n := b.compacted[i]; n >= 0 {
			l.tail = slices.Clone(l.tail[n:])
			l.from -= n // meaningful only while dirty
			l.chunked = t.Compaction.Last
			l.snapshotSize = len(t.Compaction.State)
		}
		if l.dropped || l.version != l.encoded && !mutation.Reload {
			continue
		}
		switch {
		case t.Suspension != nil:
			p.c.residency.rest(l)
			p.c.residency.armSuspended(t.Key, t.Suspension.WakeAt)
		case t.Compaction != nil && l.settled():
			if t.Compaction.First == 1 {
				l.prog.TailCapacity = b.compacted[i] + b.compacted[i]/16
			}
			p.c.residency.drop(l)
		case l.requests.Len() == 0 && l.run.Quiet():
			p.c.residency.quiet = append(p.c.residency.quiet, quietRun{l, l.version})
		}
	}
	p.c.recovery.loadReturning()
	if len(unpaid) > 0 || p.doubts {
		p.c.decideAgain(b, unpaid)
		p.doubts = p.c.decideAgain(p.building, unpaid)
	}
	p.c.purses.Reload()
	p.c.purses.Trim()
	p.c.queues.Trim()
	p.committedBatch = b
	p.c.recovery.backoff = 0
}

// observe notes for the observer what a transition has made durable.
func (p *pipeline) observe(t *store.Transition, l *loadedRun) {
	if p.c.cfg.Observer == nil || t.Run == "" || len(t.Frames) == 0 && t.Head == nil {
		return
	}
	o := feed.Observed{Published: feed.Published{Key: t.Key, Frames: t.Frames, Head: t.Head}}
	if l != nil {
		o.Plan, o.Start, o.Generation, o.Memory = l.run.Plan(), l.run.Start(), l.run.Generation(), l.run.Memory()
		l.seen.Note(&o)
	}
	p.c.watched = append(p.c.watched, o)
}

// encodeAhead encodes the batch under construction if it is large, so that its commit
// can begin before releaseCommitted is called for the last batch: the store then writes
// one batch while the effects of the other are carried out. A small batch is not
// committed ahead: its sync is most of its cost, so it waits for more runs to share it.
func (p *pipeline) encodeAhead() *batch {
	if len(p.building.dirty) < p.c.cfg.LargeBatch {
		return nil
	}
	return p.encodeBatch()
}

// releaseCommitted releases what waited for the batch that was committed last.
func (p *pipeline) releaseCommitted() {
	b := p.committedBatch
	if b == nil {
		return // it was lost
	}
	p.committedBatch = nil
	for _, in := range b.inputs {
		in.sendAnswer()
	}
	for i := range b.commands {
		p.emit(&b.commands[i])
	}
	b.reset()
	p.spare = b
}

// emit turns a durable command into an effect. The run's state may be ahead of the
// disk: an attempt that has ended meanwhile is not handed out.
func (p *pipeline) emit(o *pendingCommand) {
	l, cmd := o.l, &o.cmd
	if l.refused || l.dropped && cmd.Kind < cmdFree && cmd.Kind != machine.CmdCancelTask {
		return
	}
	if cmd.Kind == cmdFree {
		p.c.attempts.Free(taskID{Key: l.key, Ref: cmd.Ref, Fence: cmd.Fence}, true)
		return
	}
	e := effect{kind: cmd.Kind, id: taskID{Key: l.key, Ref: cmd.Ref, Fence: cmd.Fence}, prog: l.prog}
	switch cmd.Kind {
	case machine.CmdDispatch:
		if e.attempt = p.c.attempts.launch(l, e.id); e.attempt == nil {
			return // still in flight in this process: recovery repeats its command
		}
		ended := true
		err := p.c.protect(l, func() { ended = !l.run.TaskInto(e.attempt.task, cmd.Ref, cmd.Fence) })
		if err != nil || ended {
			p.c.attempts.Finish(l.set(), e.id)
			return
		}
		e.task = e.attempt.task
	case machine.CmdCancelTask:
		if now := p.c.residency.runs[l.key]; now != nil {
			l = now // it was loaded again
		}
		if e.attempt = p.c.attempts.stop(l, e.id); e.attempt == nil {
			return
		}
	default:
		e.from, e.n, e.file, e.definition = cmd.From, cmd.N, cmd.File, o.definition
	}
	p.c.effects = append(p.c.effects, e)
}

// refused handles a transition that the store refused.
func (p *pipeline) refused(b *batch, t *store.Transition, l *loadedRun, v store.Verdict) {
	if len(t.Entries) > 0 {
		p.c.purses.Forget(t.Account)
	}
	switch {
	case fault.CodeOf(v.Err) == fault.StaleEpoch:
		p.c.recovery.fail(v.Err, b)
		return
	case t.Run == "":
		p.c.refusedChange(b, t, v.Err)
		p.c.refusedChange(p.building, t, v.Err)
		return
	case l == nil: // a quarantine mark; the run stays out of memory anyway
		p.c.cfg.Logger.Error("the mark of a quarantined run was refused", "run", t.Run, "err", v.Err)
		return
	case l.start == nil:
		p.c.cfg.Logger.Error("a transition was refused; loading its run again", "run", t.Run, "err", v.Err)
	}
	if l.claim.Unpaid != nil && fault.CodeOf(v.Err) == fault.Conflict && v.Run == "" {
		v.Err = l.claim.Unpaid
	}
	began := l.start != nil
	if began && v.Group {
		v.Err = store.TakenBackError(t.Run) // nothing was wrong with it
	}
	if reason := p.c.recovery.quarantined[t.Key]; reason != "" {
		p.c.recovery.correctMark(t.Key, reason, began)
	}
	l.committing, l.refused = false, true
	p.c.residency.drop(l)
	p.c.attempts.TakeBack(l.key)
	if t.Group != "" {
		p.c.recovery.dropTree(t.Key.Account, t.Group)
		if !began {
			p.c.tree.comeBack(t.Key, 0)
		}
	}
	p.c.refusedClass(l)
	for _, inputs := range [...][]*input{b.inputs, p.building.inputs} {
		for _, in := range inputs {
			if in.key != t.Key {
				continue
			}
			switch in.out = (answer{run: t.Run, err: v.Err}); {
			case began && in.kind != inStart:
				in.out.err = fault.New(fault.RunNotFound, "there is no run %s: its start was refused", t.Run)
			case began && fault.CodeOf(v.Err) == fault.Conflict && v.Run != "":
				in.out = answer{run: v.Run, existing: true}
			case !began && in.reply == nil:
				p.c.again = append(p.c.again, in)
			}
		}
	}
	if began || t.Group != "" {
		return // a tree is loaded again when all its refusals are known
	}
	if _, err := p.c.residency.get(t.Key); err != nil {
		p.c.cfg.Logger.Error("the run could not be loaded again", "run", t.Run, "err", err)
		if !store.Permanent(err) {
			p.c.residency.alarms.Push(alarm{At: p.c.now + maxBackoff, Key: t.Key})
		}
	}
}
