// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// programs are those of the plans that the runs of a tree execute, by key.
type programs map[string]*machine.Program

// prepare makes the programs of the plans of a case and of those of their child runs.
func prepare(c *Case) programs {
	all := programs{}
	roots := append([]*plan.Plan{c.Plan}, c.Others...)
	if c.Later != nil {
		roots = append(append(roots, c.Later.Plan), c.Later.Others...)
	}
	for _, p := range roots {
		for _, q := range family(p) {
			if all[q.Key()] == nil {
				all[q.Key()] = machine.Prepare(q)
			}
		}
	}
	return all
}

// family returns a plan, and those of its child runs and of theirs.
func family(p *plan.Plan) []*plan.Plan {
	all := append([]*plan.Plan{p}, p.Embedded...)
	for i := range p.Registered {
		if q := p.Registered[i].Plan; q != nil {
			all = append(append(all, q), q.Embedded...)
		}
	}
	return all
}

// treeRecord is what the checker knows of a run's place in its tree.
type treeRecord struct {
	self      *journal.Child // nil = it is a root
	pins      []journal.Pin  // of the actions of its plan
	shared    *journal.Tree  // a root's
	terms     *journal.Credits
	share     journal.Share // a child run's, by its own journal
	before    ledger.Amount // a child run's: what its earlier attempts have paid for
	links     []*link
	begun     map[journal.Ref]struct{} // steps of this generation that had an attempt
	ending    bool                     // it begins nothing more
	dirty     bool                     // it has events that checkTrees has not seen
	asked     asked                    // a root's: what a user or schedule asked for
	pinnedAt  map[string]uint64        // the numbers of the events run.pinned, by the name or text that an expression gave
	inherited inherited                // what it has of the context of its parent
	fresh     bool                     // it is a child run that checkPlace has not checked
	dialect   int                      // of its text; -1 = not known
}

// A link is what the journal of a run says of a child run.
type link struct {
	key   store.Key
	ref   journal.Ref
	fence journal.Fence
	given journal.Share  // at its start
	share journal.Share  // with what was added
	end   *journal.Event // nil = it goes on
	past  bool           // it has gone on as another attempt
	stops bool           // its step waits for it to be cancelled
	input map[string]any // of the parent when it started the child run
	since int64          // when the engine was first at rest while it should have been cancelled
}

// recordTree takes an event into account. What it means is checked when the whole commit
// is known.
func (c *checker) recordTree(t *runRecord, ev *journal.Event) {
	tr := &t.tree
	if !tr.dirty {
		tr.dirty = true
		c.changed = append(c.changed, t)
	}
	switch ev.Kind {
	case journal.EvRunStarted:
		st, err := journal.DecodeStart(ev.Data)
		if err != nil {
			c.w.fail("run %s: its start cannot be read: %v", t.key.Run, err)
		}
		tr.pins, tr.shared = st.Pins, st.Tree
		if tr.self, tr.terms = st.Child, st.Credits; st.Child != nil {
			tr.share, tr.fresh = st.Child.Share, true
		} else {
			c.checkRoot(t)
			c.countRoot(t)
		}
		if tr.inherited, err = decodeInherited(st.Inherited); err != nil {
			c.w.fail("R24: run %s has a context that cannot be read: %v", t.key.Run, err)
		}
	case journal.EvRunPinned:
		if _, more, err := ev.Pinned(); err == nil { // journal.Checker has read it
			if tr.shared = tr.shared.With(more); tr.pinnedAt == nil {
				tr.pinnedAt = map[string]uint64{}
			}
			tr.pinnedAt[strings.Clone(ev.Text)] = ev.Seq
		}
	case journal.EvRunRetried:
		clear(tr.begun)
		tr.ending = false
	case journal.EvRunResumed:
		if place, err := ev.Resumed(tr.self); err == nil { // journal.Checker has read it
			tr.self, tr.share, tr.before = place, place.Share, ev.PaidBefore()
		}
	case journal.EvRunEnding:
		tr.ending = true
	case journal.EvRunExtended:
		*ev.Resource().Of(&tr.share) += ev.Added()
	case journal.EvNodeStarted:
		tr.begin(ev.Ref())
	case journal.EvChildStarted:
		tr.begin(ev.Ref())
		share, _ := ev.Share() // journal.Checker has read it
		fence := journal.Fence{Gen: t.journal.Generation(), Attempt: ev.Attempt}
		for _, l := range tr.links {
			l.past = l.past || l.key.Run == ev.Text
		}
		tr.links = append(tr.links, &link{key: store.Key{Account: t.key.Account, Run: ev.Text}, ref: ev.Ref(), fence: fence, given: share, share: share, input: t.replica.Start().Parameters})
	case journal.EvChildExtended:
		l := tr.open(ev.Ref())
		*ev.Resource().Of(&l.share) += ev.Added()
	case journal.EvNodeAborting:
		for _, l := range tr.links {
			l.stops = l.stops || l.ref == ev.Ref() && l.end == nil
		}
	case journal.EvChildEnded:
		end := *ev
		end.Data = bytes.Clone(ev.Data)
		tr.open(ev.Ref()).end = &end
	}
}

func (tr *treeRecord) begin(ref journal.Ref) {
	if tr.begun == nil {
		tr.begun = map[journal.Ref]struct{}{}
	}
	tr.begun[ref] = struct{}{}
}

// open returns the child run of a step that goes on. journal.Checker knows that there is one.
func (tr *treeRecord) open(ref journal.Ref) *link {
	for i := len(tr.links) - 1; ; i-- {
		if l := tr.links[i]; l.ref == ref && l.end == nil {
			return l
		}
	}
}

// checkTrees asserts that the journals of a tree agree after a commit: what one run says
// of another is in one commit with what that one says of itself (X62, F44).
func (c *checker) checkTrees() {
	for _, t := range c.changed {
		t.tree.dirty = false
		if t.tree.self != nil {
			c.checkPlace(t)
		}
		for _, l := range t.tree.links {
			c.checkLink(t, l)
		}
		c.checkShares(t)
	}
	c.changed = c.changed[:0]
}

// checkPlace asserts that a child run is one that its parent has started, and that the
// parent knows of its end.
func (c *checker) checkPlace(t *runRecord) {
	self := t.tree.self
	parent := c.runs[keyOfParent(t)]
	var l *link
	if parent != nil {
		for _, o := range parent.tree.links {
			if o.key == t.key {
				l = o
			}
		}
	}
	if l == nil {
		c.w.fail("F44: child run %s exists, and its parent %s has not started it", t.key.Run, self.Parent)
		return
	}
	c.checkPinned(t)
	if t.tree.fresh {
		t.tree.fresh = false
		c.checkInherited(t, parent, l)
	}
	root, depth := parent.key.Run, int64(1)
	if up := parent.tree.self; up != nil {
		root, depth = up.Root, up.Depth+1
	}
	switch {
	case self.Ref() != l.ref || self.Fence() != l.fence || self.Share != l.given || self.Root != root:
		c.w.fail("X62: child run %s says of itself %+v, its parent %+v", t.key.Run, *self, *l)
	case self.Depth != depth || depth > self.MaxDepth:
		c.w.fail("X61: child run %s is at depth %d by its start and %d by its parent, of at most %d", t.key.Run, self.Depth, depth, self.MaxDepth)
	case l.end == nil && t.tree.share != l.share:
		c.w.fail("X60: child run %s has the share %+v by its own journal and %+v by its parent's", t.key.Run, t.tree.share, l.share)
	case l.end == nil && t.journal.Status().Terminal():
		if head, err := c.w.mem.Head(c.w.ctx(), t.key); err == nil && !head.Owes {
			c.w.fail("F44: child run %s is %s, its parent does not know, and nobody will tell it", t.key.Run, t.journal.Status())
		}
	}
}

// checkPinned asserts that a child run executes the recipe, and pays the prices, that were
// pinned when the root of its tree was started.
func (c *checker) checkPinned(t *runRecord) {
	root := c.runs[store.Key{Account: t.key.Account, Run: t.tree.self.Root}]
	parent := c.runs[keyOfParent(t)]
	if root == nil {
		return
	}
	for i, a := range t.prog.Plan().Actions {
		if pin := root.tree.shared.Action(a.String()); pin == nil || *pin != t.tree.pins[i] {
			c.w.fail("I12: child run %s has pinned %+v, and its root %+v", t.key.Run, t.tree.pins[i], pin)
		}
	}
	up := parent.prog.Plan()
	ref := &up.Children[up.Steps[t.tree.self.Step].Child.Ref]
	want := ref.Key
	if ref.By != "" {
		want = c.checkNamed(t, root, ref)
	}
	if found := root.tree.shared.Recipe(ref.String()); ref.Registered() && found != nil {
		want = found.Key
	}
	if t.tree.fresh {
		c.checkAsked(t, parent, root, ref)
	}
	if got := t.prog.Plan().Key(); got != want {
		c.w.fail("X62: child run %s executes plan %s, and recipe %s is plan %s", t.key.Run, got, ref, want)
	}
}

// keyOfParent names the parent of a child run.
func keyOfParent(t *runRecord) store.Key {
	return store.Key{Account: t.key.Account, Run: t.tree.self.Parent}
}

// checkLink asserts that a child run exists and ended as its parent says.
func (c *checker) checkLink(t *runRecord, l *link) {
	child := c.runs[l.key]
	if child == nil || child.journal.Last() == 0 {
		if l.end == nil {
			c.w.fail("F44: run %s has started child run %s, which is not durable", t.key.Run, l.key.Run)
		}
		return // it could not be started, and its step knows
	}
	if l.end == nil || l.past {
		return
	}
	c.checkGiven(t, child, l)
	own := int64(len(child.tree.begun))
	for _, o := range child.tree.links {
		if o.end == nil {
			c.w.fail("I6: child run %s has ended, and its child run %s goes on", l.key.Run, o.key.Run)
			return
		}
		if o.fence.Gen == child.journal.Generation() {
			own += o.end.ChildSteps()
		}
	}
	switch {
	case child.journal.Status() != l.end.ChildStatus():
		c.w.fail("X62: child run %s is %s, and %s by its parent", l.key.Run, child.journal.Status(), l.end.ChildStatus())
	case l.end.ChildSteps() < own || l.end.ChildSteps() > l.share.Steps:
		c.w.fail("X60: child run %s and those below it began at least %d steps, its parent counts %d of %d", l.key.Run, own, l.end.ChildSteps(), l.share.Steps)
	case child.tree.terms != nil && l.end.ChildUsed() != child.due():
		c.w.fail("I11: child run %s costs %s, and its parent is charged %s", l.key.Run, child.due(), l.end.ChildUsed())
	}
}

// checkGiven asserts that the parent has the result of a child run that has completed: all of it, or the output of its
// last step. Steps that take parts of it are not checked.
func (c *checker) checkGiven(t, child *runRecord, l *link) {
	last, step := child.events[len(child.events)-1], t.replica.Plan().Steps[l.ref.Step].Child
	if len(step.Outputs) > 0 || last.Kind != journal.EvRunCompleted || l.end.Code != "" {
		return
	}
	want := last.Data
	if len(want) == 0 {
		want = []byte("{}")
	}
	if p := child.prog.Plan(); step.Last && p.OfSteps && p.Graphs[0].Out != plan.None {
		var outputs map[string]json.RawMessage
		if err := json.Unmarshal(want, &outputs); err != nil {
			c.w.fail("I3: child run %s gave %s, want an object: %v", l.key.Run, want, err)
		}
		if want = outputs[p.Steps[p.Graphs[0].Out].ID]; want == nil { // it was skipped
			want = []byte("null")
		}
	}
	if !bytes.Equal(l.end.Data, want) {
		c.w.fail("I3: child run %s gave %s, its parent has %s", l.key.Run, want, l.end.Data)
	}
}

// due is what a child run that has ended costs its parent.
func (t *runRecord) due() ledger.Amount {
	return t.tree.terms.Policy.CostOfTry(t.journal.Status() == journal.RunFailed, t.journal.Used(), t.tree.before, t.tree.terms.Estimated, t.tree.share.Credits)
}

// checkShares asserts that a run gives away no more than it has.
func (c *checker) checkShares(t *runRecord) {
	if len(t.tree.links) == 0 {
		return
	}
	var given journal.Share
	steps := int64(len(t.tree.begun))
	for _, l := range t.tree.links {
		switch {
		case l.end == nil:
			given.Credits += l.share.Credits
			given.Steps += l.share.Steps
			given.Memory += l.share.Memory
		case l.fence.Gen == t.journal.Generation():
			steps += l.end.ChildSteps()
		}
	}
	limits := t.replica.Plan().Limits
	if c.w.seed%3 == 0 { // users who retry raise it
		limits.TotalSteps += int64(c.w.seed % 50)
	}
	if t.tree.self != nil {
		limits.TotalSteps = t.tree.share.Steps
		limits.MemoryBytes = t.tree.share.Memory
	}
	held, settled := t.journal.Credits()
	switch {
	case steps+given.Steps > limits.TotalSteps:
		c.w.fail("X60: run %s began %d steps and gave %d away, of %d", t.key.Run, steps, given.Steps, limits.TotalSteps)
	case given.Memory > limits.MemoryBytes:
		c.w.fail("X60: run %s gave %d bytes away, of %d", t.key.Run, given.Memory, limits.MemoryBytes)
	case t.tree.terms != nil && given.Credits > 0 && (t.journal.Used()-t.tree.before).Plus(ledger.Whole(given.Credits)).Ceil() > held+settled:
		c.w.fail("I11: run %s has used %s credits and gave %d away, of %d", t.key.Run, t.journal.Used(), given.Credits, held+settled)
	}
}

// takenBack notes that what a tree of runs did since the last commit may be taken back,
// because one of them panics or is cut off: a live run that had ended goes on.
func (c *checker) takenBack(key store.Key, run *machine.Run) {
	if st := run.Start(); st != nil && st.Child != nil {
		key.Run = st.Child.Root
	}
	if root := c.runs[key]; root != nil {
		root.place.disturbed = true
	}
}

// cutOff reports whether a run above a child run is not in memory: it is quarantined.
func (p *process) cutOff(key store.Key, run *machine.Run) bool {
	for {
		child := run.Start().Child
		if child == nil {
			return false
		}
		key.Run = child.Parent
		parent, ok := p.stage.Find(key)
		if !ok {
			return true
		}
		run = parent.Run
	}
}

// checkCancelled asserts that the child runs of a cancelled run or step end: the engine is at rest
// and nothing is quarantined.
func (c *checker) checkCancelled(p *process) {
	if p.stage.Recovering() {
		return
	}
	for _, t := range c.all {
		verdict := t.journal.Verdict()
		stops := t.tree.ending && (verdict == journal.RunCancelled || verdict == journal.RunExpired)
		for _, l := range t.tree.links {
			if child := c.runs[l.key]; l.end == nil && (stops || l.stops) && child != nil && !child.stops() {
				if l.since == 0 {
					l.since = c.w.mono
				}
				if c.w.mono-l.since <= lateTolerance { // it may have to be read again
					continue
				}
				c.w.fail("I8: run %s or its step is cancelled, and its child run %s goes on", t.key.Run, l.key.Run)
			}
		}
	}
}

// stops reports whether a run begins nothing more but compensations.
func (t *runRecord) stops() bool {
	return t.tree.ending || t.replica.Failing() || t.journal.Status().Terminal()
}

// checkFamilies asserts at the end that no child run is left.
func (c *checker) checkFamilies() {
	for _, t := range c.all {
		for _, l := range t.tree.links {
			if l.end == nil {
				c.w.fail("F44: run %s has ended, and its child run %s goes on", t.key.Run, l.key.Run)
			}
		}
	}
}
