// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// The runs of a tree are decided one at a time. What one tells another is a message, which
// is delivered after the turn that caused it and before anything else is decided, into
// the same batch. The transitions of a tree in one batch are written all or none.

// A message is what one run of a tree tells another.
type message struct {
	to   store.Key
	in   machine.Input
	from *loadedRun
}

// A tree holds what is about to happen between runs of the same tree.
type tree struct {
	mail       []message
	delivering bool
	asked      []waiter           // steps that ask for a child run
	later      []waiter           // those that ask again at laterAt, because something could not be read
	laterAt    int64              // UTC µs
	cancels    []store.Key        // child runs that are to be cancelled
	returning  []store.Key        // runs that left memory and are read again when no commit is in flight
	returnAt   int64              // not before then; 0 = none of them failed to be read
	away       map[store.Key]bool // those of returning
	postponed  []*input           // for runs of away
	below      map[store.Key]int  // how many child runs of a run are in memory
}

func (t *tree) init() { *t = tree{away: map[store.Key]bool{}, below: map[store.Key]int{}} }

// busy reports whether advance has something to do.
func (t *tree) busy(closing bool) bool { return !closing && len(t.asked) > 0 || len(t.cancels) > 0 }

// askLater lets a step ask again after a while.
func (t *tree) askLater(w waiter, now int64) {
	if len(t.later) == 0 {
		t.laterAt = now + maxBackoff
	}
	t.later = append(t.later, w)
}

// askDue lets the steps ask again whose time has come.
func (t *tree) askDue(now int64) {
	if len(t.later) > 0 && now >= t.laterAt {
		t.asked, t.later = append(t.asked, t.later...), nil
	}
}

// setPlace records where a run stands in its tree.
func (l *loadedRun) setPlace(start *journal.Start) {
	switch {
	case start == nil:
	case start.Child != nil:
		l.place, l.root = start.Child, start.Child.Root
	case start.Tree != nil:
		l.root = start.Run
	}
}

// parentKey names the parent of a child run.
func (l *loadedRun) parentKey() store.Key {
	return store.Key{Account: l.key.Account, Run: l.place.Parent}
}

// parentOf returns the parent of a child run, if it is in memory.
func (c *core) parentOf(l *loadedRun) *loadedRun {
	if l.place == nil {
		return nil
	}
	if l.parent == nil || l.parent.dropped {
		l.parent = c.residency.runs[l.parentKey()]
	}
	return l.parent
}

// needParents loads the runs above a child run, which stay in memory as long as it does:
// they know what it may use. If one of them cannot be read now, the child run leaves memory
// and is read again later, because without them it would reach limits that are not its own.
// A run below one that is lost or quarantined goes on with the share that it has.
func (c *core) needParents(l *loadedRun) error {
	for x := l; x != nil && x.place != nil && !x.run.Status().Terminal(); x = x.parent {
		if c.parentOf(x) != nil {
			continue
		}
		if x.orphan {
			return nil
		}
		_, err := c.residency.get(x.parentKey())
		switch {
		case l.dropped: // its parent panicked
			return store.TakenBackError(l.key.Run)
		case err == nil:
			c.parentOf(x)
		case store.Permanent(err):
			x.orphan = true
			c.cfg.Logger.Warn("the parent of a child run is lost", "run", x.key.Run, "parent", x.place.Parent, "err", err)
			return nil
		default:
			c.cfg.Logger.Warn("the parent of a child run cannot be read; reading both later", "run", l.key.Run, "parent", x.place.Parent, "err", err)
			c.residency.drop(l)
			c.tree.comeBack(l.key, c.now+maxBackoff)
			return fmt.Errorf("run %s, which run %s belongs to: %w", x.place.Parent, l.key.Run, err)
		}
	}
	return nil
}

// rootOf is the root of a run's tree, or the highest run above it that is in memory.
func (c *core) rootOf(l *loadedRun) *loadedRun {
	for p := c.parentOf(l); p != nil; p = c.parentOf(l) {
		l = p
	}
	return l
}

// pausedAbove reports whether a run that contains this one is paused.
func (c *core) pausedAbove(l *loadedRun) bool {
	for p := c.parentOf(l); p != nil; p = c.parentOf(p) {
		if p.run.Paused() {
			return true
		}
	}
	return false
}

// available is how many credits a run can get now: from its account or, if it is a child
// run, through its parent.
func (c *core) available(l *loadedRun) (n int64, bound ledger.Bound) {
	if l.place == nil {
		return c.purses.Offer(l.key.Account, l.claim.Key)
	}
	p := c.parentOf(l)
	if p == nil {
		return 0, bound
	}
	n = p.run.Free().Credits
	if room := p.run.Room().Credits; room > 0 {
		more, b := c.available(p)
		n, bound = n+min(room, max(0, more)), b
	}
	return n, bound
}

// room is what the limits of the runs above a child run leave for it beyond its share,
// whatever the account has.
func (c *core) room(l *loadedRun) (room journal.Share) {
	p := c.parentOf(l)
	if p == nil {
		return room
	}
	room = p.run.Free()
	more := p.run.Room()
	if p.place != nil {
		up := c.room(p)
		more = journal.Share{Credits: min(more.Credits, up.Credits), Steps: min(more.Steps, up.Steps), Memory: min(more.Memory, up.Memory)}
	}
	room.Steps += more.Steps
	room.Memory += more.Memory
	if room.Credits < math.MaxInt64 { // otherwise no account pays
		room.Credits += more.Credits
	}
	return room
}

// freeAbove is how many credits the runs above a child run have left for it.
func (c *core) freeAbove(l *loadedRun) (n int64) {
	for p := c.parentOf(l); p != nil; p = c.parentOf(p) {
		n += p.run.Free().Credits
	}
	return n
}

// tell queues a message to the parent of a child run.
func (c *core) tell(l *loadedRun, in machine.Input) {
	in.Ref, in.Fence = l.place.Ref(), l.place.Fence()
	c.tree.mail = append(c.tree.mail, message{l.parentKey(), in, l})
}

// deliverMail delivers the messages of a turn, and those that follow from them.
func (c *core) deliverMail() {
	t := &c.tree
	t.delivering = true
	for n := 0; n < len(t.mail); n++ {
		m := t.mail[n]
		t.mail[n] = message{}
		if !m.from.dropped {
			c.deliverMessage(&m)
		}
	}
	t.mail, t.delivering = t.mail[:0], false
}

func (c *core) deliverMessage(m *message) {
	l, err := c.residency.get(m.to)
	if err != nil {
		c.cfg.Logger.Warn("a run could not be told of a child run", "run", m.to.Run, "child", m.from.key.Run, "err", err)
		if m.in.Kind == machine.InChildEnded {
			m.from.owesEnd, m.from.forceHead = true, true
			c.pipeline.touch(m.from, m.from.run.Last()+1)
		}
		return
	}
	if m.in.Kind == machine.InChildEnded {
		failpoint.Pass(failpoint.ChildEnds)
	}
	if err := c.turnOf(l, &m.in); err != nil && !l.dropped {
		c.cfg.Logger.Error("a run refused a message of a child run", "run", m.to.Run, "child", m.from.key.Run, "err", err)
	}
	c.pipeline.building.urgent = true
}

// requestChild queues a step that asks for a child run.
func (c *core) requestChild(l *loadedRun, ref journal.Ref) {
	c.tree.asked = append(c.tree.asked, waiter{l, ref})
}

// serveAsked starts the child run of the step that has asked longest.
func (c *core) serveAsked() {
	t := &c.tree
	w := t.asked[0]
	t.asked[0], t.asked = waiter{}, t.asked[1:]
	l := w.l
	if l.dropped || !l.run.Asks(w.ref) || l.run.Paused() || c.pausedAbove(l) {
		return
	}
	if c.rootOf(l).place != nil {
		return // the root cannot be loaded; askAgain is called when it is
	}
	in := machine.Input{Kind: machine.InGranted, Ref: w.ref, Child: &machine.ChildGrant{}}
	child, hash, fail := c.prepareChild(l, w.ref)
	if child == nil && fail == nil {
		return // it asks again when its recipe is resolved
	}
	var last *loadedRun
	if child != nil {
		in.InputHash, in.Child.Share = hash, child.Share()
		var err error
		if last, err = c.lastChild(l, child); err != nil {
			c.tree.askLater(w, c.now)
			return
		}
	}
	if last != nil {
		in.Child.Share, in.Child.Resume = child.Resumed(last.run)
	}
	in.Child.Failure = fail
	err := c.inject(l, in)
	c.pipeline.building.urgent = true
	if err != nil || fail != nil || l.dropped { // dropped: a run above it panicked as it gave more
		return
	}
	if id, share, fence, ok := l.run.ChildOf(w.ref); ok {
		failpoint.Pass(failpoint.ChildBegins)
		if in.Child.Resume {
			c.resumeChild(l, last, machine.Input{Kind: machine.InResume, Ref: w.ref, Fence: fence, Child: &machine.ChildGrant{Share: share}})
			return
		}
		c.startChild(l, child, child.Start(id, w.ref, fence, share))
	}
}

// lastChild returns the run that the next child run of a step goes on in, if there is one that
// can (X104). It returns an error if that cannot be read now.
func (c *core) lastChild(l *loadedRun, child *program.Child) (*loadedRun, error) {
	id := child.Last()
	if id == "" {
		return nil, nil
	}
	last, err := c.residency.get(store.Key{Account: l.key.Account, Run: id})
	switch {
	case err == nil && !l.dropped && child.Continues(last.run):
		return last, nil
	case err != nil && !store.Permanent(err):
		c.cfg.Logger.Warn("a child run that is to go on cannot be read; trying again later", "run", l.key.Run, "child", id, "err", err)
		return nil, err
	}
	return nil, nil // a lost or quarantined one does not go on
}

// resumeChild lets a child run go on in the batch of the event that says so.
func (c *core) resumeChild(parent, last *loadedRun, in machine.Input) {
	err := c.inject(last, in)
	if err == nil || parent.dropped {
		return
	}
	end := &machine.ChildEnd{Status: journal.RunFailed, Code: fault.CodeOf(err), Msg: fault.Message(err), Recipe: last.head.Recipe}
	// It can only panic, which quarantines the parent and is logged.
	_ = c.inject(parent, machine.Input{Kind: machine.InChildEnded, Ref: in.Ref, Fence: in.Fence, End: end})
}

// prepareChild finds out what the child run of a step is started with. A failure is one of the
// step; without a child and a failure, its recipe is being resolved. The expressions are those of
// a recipe, so a panic in them is a failure, too (I16).
func (c *core) prepareChild(l *loadedRun, ref journal.Ref) (child *program.Child, inputHash []byte, fail *machine.Failure) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.Logger.Error("a panic was contained", "run", l.key.Run, "doing", "preparing a child run", "panic", view.PanicText(l.run.Plan(), v))
			child, inputHash, fail = nil, nil, &machine.Failure{Code: fault.InternalError, Msg: "preparing the child run panicked; the log has the details"}
		}
	}()
	task, fail := l.run.ChildTask(ref)
	if fail != nil {
		return nil, nil, fail
	}
	root := c.rootOf(l)
	child, err := c.programs.Child(c.ctx, c.cfg.Store, c.cfg.Actions, l.prog, l.run.Start(), root.run.Start().Tree, root.resolved, task)
	if errors.Is(err, program.ErrUnresolved) {
		c.requestRecipe(l, ref, task.Definition)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, program.ChildFailure(task.Ref.String(), err)
	}
	return child, task.InputHash, nil
}

// startChild starts a child run in the batch of the event that says so.
func (c *core) startChild(parent *loadedRun, child *program.Child, start *journal.Start) {
	in := &input{kind: inStart, key: store.Key{Account: parent.key.Account, Run: start.Run},
		start: &runStart{prog: child.Program, recipe: child.Recipe, version: child.Version}}
	in.m = machine.Input{Kind: machine.InStart, Start: start}
	if err := c.start(in).err; err != nil && !parent.dropped {
		end := &machine.ChildEnd{Status: journal.RunFailed, Code: fault.CodeOf(err), Msg: fault.Message(err), Recipe: child.Recipe}
		// It can only panic, which quarantines the parent and is logged.
		_ = c.inject(parent, machine.Input{Kind: machine.InChildEnded, Ref: start.Child.Ref(), Fence: start.Child.Fence(), End: end})
	}
}

// askParent makes up for what a child run and its parent could not tell each other because
// one of them could not be loaded: the end of the child run, or that it is to end.
func (c *core) askParent(l *loadedRun) {
	if l.owesEnd {
		c.recovery.tellEnd(l)
	}
	if l.place == nil || l.run.Status().Terminal() {
		return
	}
	if c.needParents(l) != nil {
		return
	}
	if p := c.parentOf(l); p != nil && p.run.Cancels(l.place.Ref(), l.key.Run) {
		c.tree.cancels = append(c.tree.cancels, l.key)
	}
}

// cancelNext cancels the child run that has been waiting longest to be cancelled. Its
// parent has begun to wait for its end, so it may be cancelled in a later batch.
func (c *core) cancelNext() {
	t := &c.tree
	key := t.cancels[0]
	t.cancels = t.cancels[1:]
	l, err := c.residency.get(key)
	if err != nil {
		c.cfg.Logger.Warn("a child run could not be cancelled; its parent waits for it", "run", key.Run, "err", err)
		c.recovery.askLater(key, err)
		return
	}
	if l.run.Status().Terminal() {
		return
	}
	c.pipeline.building.urgent = true
	// One that is failing refuses: its end is on its way.
	_ = c.inject(l, machine.Input{Kind: machine.InCancel, Text: "the step that started it has ended"})
}

// askAgain lets the steps of a tree ask for attempts that they did not get while a run
// above them was paused.
func (c *core) askAgain(root string) {
	for l := c.residency.recent.Front(); l != nil; l = c.residency.recent.After(&l.age) {
		if l.root != root || l.run.Paused() || c.pausedAbove(l) {
			continue
		}
		for _, cmd := range l.run.Owed(nil) {
			if cmd.Kind == machine.CmdAcquire {
				c.enqueueCommand(l, &cmd)
			}
		}
	}
}
