// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// checkChild asks what became of a child run: its parent was loaded after a crash, or was
// quarantined when the child ended.
func (r *recovery) checkChild(l *loadedRun, cmd *machine.Command) {
	key := store.Key{Account: l.key.Account, Run: cmd.Child}
	if child := r.c.residency.runs[key]; child != nil {
		r.tellEnd(child)
		return
	}
	head, err := r.c.cfg.Store.Head(r.c.ctx, key)
	switch {
	case fault.CodeOf(err) == fault.RunNotFound:
		end := &machine.ChildEnd{Status: journal.RunFailed, Code: fault.Interrupted, Msg: "run " + cmd.Child + " is not stored any more", Recipe: "child"}
		_ = r.c.inject(l, machine.Input{Kind: machine.InChildEnded, Ref: cmd.Ref, Fence: cmd.Fence, End: end})
	case err != nil:
		r.c.cfg.Logger.Warn("the head of a child run could not be read", "run", cmd.Child, "err", err)
		r.askLater(key, err)
	case strings.HasPrefix(head.Quarantine, store.CutOffReason):
		if err := r.release(key); err != nil {
			r.c.cfg.Logger.Error("a child run was not released with its parent", "run", key.Run, "err", err)
		}
	case head.Ended != 0:
		child, err := r.c.residency.get(key)
		if err != nil {
			r.askLater(key, err)
			return
		}
		r.tellEnd(child)
	}
}

// askLater loads a child run later, if it could not be read now. It then tells its parent of
// its end, or asks whether it is to end.
func (r *recovery) askLater(key store.Key, err error) {
	if !store.Permanent(err) {
		r.c.residency.alarms.Push(alarm{At: r.c.now + maxBackoff, Key: key})
	}
}

// tellEnd tells the parent of a child run that has ended of its end, once more.
func (r *recovery) tellEnd(child *loadedRun) {
	if child.place == nil || !child.run.Status().Terminal() {
		return
	}
	var end *machine.ChildEnd
	last := func(ev *journal.Event) error {
		if ev.Seq == child.run.Last() && ev.Kind.Ends() {
			end = child.run.ChildEnd(ev)
			end.Outputs = append([]byte(nil), end.Outputs...)
		}
		return nil
	}
	err := journal.EachEvent(child.tail, last)
	if end == nil && err == nil {
		err = store.EachEvent(r.c.ctx, r.c.cfg.Store, child.key, child.run.Last()-1, last)
	}
	if end == nil {
		r.c.cfg.Logger.Error("the end of a child run could not be read", "run", child.key.Run, "err", err)
		return
	}
	if child.owesEnd = false; child.head.Owes {
		child.forceHead = true
		r.c.pipeline.touch(child, child.run.Last()+1)
	}
	r.c.tell(child, machine.Input{Kind: machine.InChildEnded, End: end})
	if !r.c.tree.delivering {
		r.c.deliverMail()
	}
}

// dropTree removes the runs of a tree from memory, because what one of them did since the
// last batch is lost, and the others know of it. Those that are stored are read again
// when no commit is in flight.
func (r *recovery) dropTree(account, root string) {
	for l := r.c.residency.recent.Front(); l != nil; {
		next := r.c.residency.recent.After(&l.age)
		if l.root == root && l.key.Account == account {
			r.c.unstored(l)
			if l.start == nil || l.committing {
				r.c.tree.comeBack(l.key, 0)
				r.c.attempts.Arbiter.Pause() // until its attempts are counted again
			}
			r.c.residency.drop(l)
			r.c.attempts.TakeBack(l.key)
			r.returnInputs(l)
		}
		l = next
	}
	b := r.c.pipeline.building
	b.commands = slices.DeleteFunc(b.commands, func(o pendingCommand) bool {
		return o.l.dropped && o.l.root == root && o.l.key.Account == account
	})
	r.c.purses.Forget(account) // entries may have been made that will not be written
}

// comeBack notes that a run is to be read again, with those that are already, and not
// before a time unless one of them is to be read earlier.
func (t *tree) comeBack(key store.Key, at int64) {
	if len(t.returning) == 0 || at < t.returnAt {
		t.returnAt = at
	}
	if !t.away[key] {
		t.away[key] = true
		t.returning = append(t.returning, key)
	}
}

// returns reports whether there are runs to be read again now.
func (t *tree) returns(now int64) bool { return len(t.returning) > 0 && now >= t.returnAt }

// returnInputs takes the inputs of a run out of the batch under construction. A caller is
// told to try again; the reports of workers are handled again.
func (r *recovery) returnInputs(l *loadedRun) {
	b := r.c.pipeline.building
	b.inputs = slices.DeleteFunc(b.inputs, func(in *input) bool {
		switch {
		case in.key != l.key || in.kind == inCredits:
			return false
		case in.reply == nil:
			r.c.tree.postponed = append(r.c.tree.postponed, in)
			return true
		}
		in.out = answer{run: l.key.Run, err: store.TakenBackError(l.key.Run)}
		return false
	})
}

// cutOff handles a turn of a child run that needs more than its share while a run above it
// is lost or quarantined, which would give it more. To fail it would be wrong: the run below
// that one is quarantined as well, until that one is released. A request is refused.
func (r *recovery) cutOff(l *loadedRun, refused error) error {
	top := r.c.rootOf(l)
	reason := store.CutOffReason + ", and run " + top.place.Parent + ", which would give it more, is quarantined; it goes on when that run is released"
	if refused != nil {
		return fault.New(fault.Quarantined, "run %s cannot take this: %s", l.key.Run, reason)
	}
	return r.takeBack(top, reason)
}

// takeBack takes back what a tree did since the last batch, because one of its runs
// cannot go on. That run is quarantined or, if it is not stored, the run above it that is.
func (r *recovery) takeBack(l *loadedRun, reason string) error {
	culprit := l
	for culprit.start != nil && !culprit.committing {
		p := r.c.parentOf(culprit)
		if p == nil {
			break
		}
		culprit = p
	}
	stored := culprit.start == nil || culprit.committing
	if culprit != l {
		reason = "child run " + l.key.Run + ": " + reason
	}
	r.dropTree(l.key.Account, l.root)
	err := store.QuarantinedError(culprit.key.Run, reason)
	for _, in := range r.c.pipeline.building.inputs {
		if in.key == l.key || in.key == culprit.key {
			in.out = answer{run: in.key.Run, err: err} // what its answer depends on will not be written
		}
	}
	if stored {
		r.quarantineLoaded(culprit, reason)
	}
	return err
}

// loadReturning reads the runs again that are away. Those that cannot be read now stay
// away, and what is postponed for them waits, except for requests, which are refused.
func (r *recovery) loadReturning() {
	t := &r.c.tree
	if !t.returns(r.c.now) || r.c.pipeline.committing != nil {
		return
	}
	keys, postponed := t.returning, t.postponed
	t.returning, t.postponed = nil, nil
	clear(t.away)
	for _, key := range keys {
		if _, err := r.c.residency.get(key); err != nil && fault.CodeOf(err) != fault.RunNotFound && fault.CodeOf(err) != fault.Quarantined {
			r.c.cfg.Logger.Error("a run could not be loaded again", "run", key.Run, "err", err)
			if !store.Permanent(err) {
				t.comeBack(key, r.c.now+maxBackoff)
			}
		}
	}
	for _, in := range postponed {
		if in.reply == nil {
			r.c.again = append(r.c.again, in)
		} else {
			r.c.backlog = append(r.c.backlog, in)
		}
	}
	r.c.attempts.Arbiter.Resume()
	r.c.pipeline.building.urgent = true
}
