// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

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
	if !permanent(err) {
		r.c.residency.alarms.push(alarm{at: r.c.now + maxBackoff, key: key})
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
	for l := r.c.residency.recent.front(); l != nil; {
		next := r.c.residency.recent.after(&l.age)
		if l.root == root && l.key.Account == account {
			r.c.unstored(l)
			r.c.residency.drop(l)
			if l.start == nil || l.committing {
				r.c.tree.comeBack(l.key)
			}
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

// comeBack notes that a run is to be read again.
func (t *tree) comeBack(key store.Key) {
	if !t.away[key] {
		t.away[key] = true
		t.returning = append(t.returning, key)
	}
}

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
		in.out = answer{run: l.key.Run, err: errTakenBack(l.key.Run)}
		return false
	})
}

func errTakenBack(run string) error {
	return &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
		Msg: "run " + run + " is being read again, because another run of its tree had to be; try again in a moment"}
}

// treePanicked takes back what a tree did since the last batch, because one of its runs
// panicked. That run is quarantined or, if it is not stored, the run above it that is.
func (r *recovery) treePanicked(l *loadedRun, reason string) error {
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
		r.quarantine(culprit.head, reason)
	}
	return err
}

// loadReturning reads the runs again that dropTree removed.
func (r *recovery) loadReturning() {
	t := &r.c.tree
	if len(t.returning) == 0 || r.c.pipeline.committing != nil {
		return
	}
	keys := t.returning
	t.returning = nil
	clear(t.away)
	for _, key := range keys {
		if _, err := r.c.residency.get(key); err != nil && fault.CodeOf(err) != fault.RunNotFound && fault.CodeOf(err) != fault.Quarantined {
			r.c.cfg.Logger.Error("a run of a tree could not be loaded again", "run", key.Run, "err", err)
			if !permanent(err) {
				r.c.residency.alarms.push(alarm{at: r.c.now + maxBackoff, key: key})
			}
		}
	}
	for _, in := range t.postponed {
		if in.reply == nil {
			r.c.again = append(r.c.again, in)
		} else {
			r.c.backlog = append(r.c.backlog, in)
		}
	}
	clear(t.postponed)
	t.postponed = t.postponed[:0]
	r.c.pipeline.building.urgent = true
}
