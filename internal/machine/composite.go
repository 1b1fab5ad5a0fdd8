// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A composite is a step that owns running scopes: a taken side, branches,
// iterations, a fallback, a compensation.
type composite struct {
	scope *scope // of the step
	step  int32  // local index
	kind  compositeKind
	pos   uint64 // worklist position; 0 = none
	asked bool   // its owed command was issued

	kids  map[int64]*scope // in memory, by ordinal (branch or item index)
	open  int32            // kids not settled
	ended bool             // the join is decided or the step aborted: no new kids
	err   *stepError       // why it was aborted

	// Condition, fallback, compensation: what became of the one scope.
	inner kidStatus
	out   *value
	cause stepError

	// Parallel.
	branches []branch
	ok, bad  int32
	winner   int32 // -1 = none

	loop *loopState
}

type compositeKind uint8

const (
	conditional compositeKind = iota
	parallel
	looping
	falling
	undoing
)

type kidStatus uint8

const (
	kidOpen kidStatus = iota
	kidOK
	kidFailed
	kidLost
)

type branch struct {
	status kidStatus
	out    *value
	err    stepError
}

func (r *Run) newComposite(s *scope, i int32, kind compositeKind) *composite {
	r.dropComposite(s, i)
	c := &composite{scope: s, step: i, kind: kind, winner: -1}
	if s.comps == nil {
		s.comps = make(map[int32]*composite, 2)
	}
	s.comps[i] = c
	r.frames += compositeBytes
	return c
}

// newScope makes a scope, not yet known to an owner.
func (r *Run) newScope(path journal.Path, graph int32, parent *scope, owner int32, ordinal int64) *scope {
	g := &r.plan.Graphs[graph]
	s := &scope{path: path, graph: graph, g: g, parent: parent, owner: owner, ordinal: ordinal,
		failed: -1, live: g.N, steps: make([]stepState, g.N)}
	r.frames += s.frameBytes()
	s.frame = s
	if g.Frame != graph && parent != nil {
		s.frame = parent.frame
	}
	if g.N > 0 {
		r.alive++
		r.touchRun()
	}
	if r.plan.Waves && g.N > 0 {
		s.inWave = int32(len(r.prog.waves[graph][0]))
	}
	gen := uint16(r.gen)
	for k := range s.steps {
		s.steps[k].waiting = int32(len(r.plan.Steps[g.First+int32(k)].Preds))
		s.steps[k].keyGen = gen
	}
	for k := range s.steps {
		r.touchStep(s, int32(k))
	}
	return s
}

// openChild opens a scope under a composite.
func (r *Run) openChild(c *composite, graph int32, ordinal int64, item *value) error {
	path := c.scope.path.Child(graph, ordinal)
	if r.scopes == nil {
		r.scopes = make(map[journal.Path]*scope, 4)
	}
	if r.gen > 1 {
		r.dropOlder(path)
	}
	s := r.newScope(path, graph, c.scope, c.scope.g.First+c.step, ordinal)
	s.item = r.hold(item)
	r.scopes[path] = s
	if c.kids == nil {
		c.kids = make(map[int64]*scope, 2)
	}
	c.kids[kidKey(s)] = s
	c.open++
	c.scope.openKids++
	r.touchScope(c.scope)
	if s.live == 0 {
		r.scopeSettled(s)
	}
	return nil
}

// kidKey tells the kids of one composite apart.
func kidKey(s *scope) int64 {
	if s.g.Role == plan.Branch {
		return int64(s.g.Ordinal)
	}
	return s.ordinal
}

// openComposite folds node.started of a condition, parallel or loop step.
func (r *Run) openComposite(s *scope, i int32, ev *journal.Event) error {
	step := s.step(r.plan, i)
	switch step.Kind {
	case plan.Condition:
		c := r.newComposite(s, i, conditional)
		switch ev.Side() {
		case journal.ThenSide:
			return r.openChild(c, step.Then, 0, nil)
		case journal.ElseSide:
			return r.openChild(c, step.Else, 0, nil)
		}
		c.inner = kidOK
		r.touchComposite(c)
	case plan.Parallel:
		c := r.newComposite(s, i, parallel)
		c.branches = make([]branch, len(step.Branches))
		r.frames += int64(len(c.branches)) * branchBytes
		for _, g := range step.Branches {
			if err := r.openChild(c, g, 0, nil); err != nil {
				return err
			}
		}
		r.touchComposite(c)
	case plan.Loop:
		c := r.newComposite(s, i, looping)
		c.loop = newLoopState(ev)
		r.frames += c.loop.frameBytes()
		r.hold(c.loop.list)
		r.touchComposite(c)
	default:
		return errImpossible(ev, "the step owns no scopes")
	}
	return nil
}

func (r *Run) openFallback(s *scope, i int32) error {
	st := &s.steps[i]
	c := r.newComposite(s, i, falling)
	r.begin(s, i, journal.Running)
	st.due = 0
	return r.openChild(c, s.step(r.plan, i).Fallback, 0, nil)
}

// abort folds the decision to end a composite early (its total_timeout).
func (r *Run) abort(s *scope, i int32, ev *journal.Event) error {
	c := s.comps[i]
	if c == nil {
		return errImpossible(ev, "the step has no open scopes")
	}
	c.ended, c.err = true, &stepError{ev.Code, ev.Text}
	r.sweepKids(c, journal.BranchLost)
	r.touchComposite(c)
	return nil
}

// sweep begins to close everything in a scope that is not settled. Scopes
// inside go first, so that a composite closes after what it owns.
func (r *Run) sweep(s *scope, why journal.Reason) {
	if s.state == scopeSweep && (why == 0 || s.reason == journal.ByCancel) {
		return
	}
	s.state, s.reason, s.cursor = scopeSweep, why, 0
	inner := why
	if inner == 0 {
		inner = journal.RunEnded
	}
	for _, c := range s.sortedComps() {
		c.ended = true
		r.sweepKids(c, inner)
		r.touchComposite(c)
	}
	for k := range s.steps {
		r.touchStep(s, int32(k))
	}
	r.touchScope(s)
}

func (r *Run) sweepKids(c *composite, why journal.Reason) {
	for _, kid := range c.sortedKids() {
		if kid.live > 0 {
			r.sweep(kid, why)
		}
	}
}

// scopeSettled tells the owner of a scope that every step in it has settled.
func (r *Run) scopeSettled(s *scope) {
	r.touchScope(s)
	if s.parent == nil {
		r.touchRun()
		return
	}
	c := s.parent.comps[s.owner-s.parent.g.First]
	c.open--
	s.parent.openKids--
	status := s.outcome()
	r.kidSettled(c, s, status)
	if c.kind == looping {
		r.admit(c, s)
	}
	if status == kidOK && !s.g.Compensates {
		r.dropScope(s)
	}
	r.touchComposite(c)
	if s.parent.state == scopeSweep {
		r.touchScope(s.parent)
	}
	r.touchRun()
}

// outcome is what a settled scope means to its owner.
func (s *scope) outcome() kidStatus {
	switch {
	case s.state == scopeSweep && s.reason != 0:
		return kidLost
	case s.failed >= 0:
		return kidFailed
	}
	return kidOK
}

// kidSettled keeps what the join needs of a settled scope.
func (r *Run) kidSettled(c *composite, s *scope, status kidStatus) {
	cause := s.cause()
	switch c.kind {
	case parallel:
		b := &c.branches[s.g.Ordinal]
		*b = branch{status: status, out: r.hold(s.out), err: cause}
		switch status {
		case kidOK:
			c.ok++
			if c.winner < 0 {
				c.winner = s.g.Ordinal
			}
		case kidFailed:
			c.bad++
		}
		if !c.ended && c.joined(s.parent.step(r.plan, c.step)) {
			// The join is decided: what still runs has lost (X46–X52, R27).
			c.ended = true
			r.sweepKids(c, journal.BranchLost)
		}
	case looping:
		r.itemSettled(c, s, status, cause)
	default:
		c.inner, c.cause = status, cause
		r.replace(&c.out, s.out)
	}
}

// cause is the error that ended a scope.
func (s *scope) cause() stepError {
	if s.failed < 0 {
		return stepError{}
	}
	return s.errs[s.failed-s.g.First]
}

// joined is the table of design section 9: whether the outcome of a parallel
// step is decided by the branches that have settled.
func (c *composite) joined(step *plan.Step) bool {
	all := c.ok+c.bad == int32(len(c.branches))
	switch step.WaitFor {
	case plan.WaitAll:
		return all || step.Strategy == plan.FailFast && c.bad > 0
	case plan.WaitAny:
		return all || c.ok > 0 || step.Strategy == plan.FailFast && c.bad > 0
	default:
		return all || c.ok > 0
	}
}

// succeeded says how a decided join came out.
func (c *composite) succeeded(step *plan.Step) bool {
	switch {
	case step.WaitFor == plan.WaitAll && step.Strategy == plan.Ignore:
		return true
	case step.WaitFor == plan.WaitAll:
		return c.bad == 0
	case step.WaitFor == plan.WaitAny && step.Strategy == plan.Ignore:
		return true
	default:
		return c.ok > 0
	}
}

// compositeDue says that Decide can do something with c.
func (r *Run) compositeDue(c *composite) bool {
	st := &c.scope.steps[c.step]
	if c.kind == undoing || st.status != journal.Running || c.scope.state == scopeSweep || c.scope.heldBack() {
		return false // a compensation is the run's business, a sweep the scope's
	}
	if c.ended {
		return c.open == 0
	}
	switch c.kind {
	case parallel:
		return c.open == 0
	case looping:
		return c.loopDue(c.scope.step(r.plan, c.step))
	default:
		return c.inner != kidOpen
	}
}

// dropComposite forgets a composite and its scopes; all of them have settled.
func (r *Run) dropComposite(s *scope, i int32) {
	c := s.comps[i]
	if c == nil {
		return
	}
	for _, kid := range c.sortedKids() {
		if kid.g.Compensates && c.kind != undoing {
			continue // its steps may have to be undone: it stays, without an owner
		}
		r.dropScope(kid)
	}
	r.track(&c.pos, false, entry{})
	r.release(c.out)
	for k := range c.branches {
		r.release(c.branches[k].out)
	}
	if l := c.loop; l != nil {
		r.release(l.list)
		r.releaseOuts(l)
	}
	r.frames -= c.frameBytes()
	delete(s.comps, i)
}

func (r *Run) dropScope(s *scope) {
	for i := range s.comps {
		r.dropComposite(s, i)
	}
	r.track(&s.pos, false, entry{})
	for k := range s.steps {
		r.track(&s.steps[k].pos, false, entry{})
	}
	for _, v := range s.outs {
		r.release(v)
	}
	for _, v := range s.slots {
		r.release(v)
	}
	r.release(s.out)
	r.release(s.item)
	r.frames -= s.frameBytes()
	delete(r.scopes, s.path)
	if s.parent != nil {
		if c := s.parent.comps[s.owner-s.parent.g.First]; c != nil && c.kids[kidKey(s)] == s {
			delete(c.kids, kidKey(s))
		}
	}
}

// dropOlder forgets a scope of an older generation that runs anew, with what it
// left to undo: its steps will be undone as what they do now.
func (r *Run) dropOlder(path journal.Path) {
	within := func(p journal.Path) bool { return strings.HasPrefix(string(p), string(path)) }
	r.undo = slices.DeleteFunc(r.undo, func(u journal.Ref) bool { return within(u.Path) })
	for p, old := range r.scopes {
		if within(p) {
			r.dropScope(old)
		}
	}
}

// sortedComps returns the composites of a scope in step order.
func (s *scope) sortedComps() []*composite {
	if len(s.comps) == 0 {
		return nil
	}
	comps := make([]*composite, 0, len(s.comps))
	for _, c := range s.comps {
		comps = append(comps, c)
	}
	slices.SortFunc(comps, func(a, b *composite) int { return int(a.step - b.step) })
	return comps
}

// owned: the composite that opened the scope still stands. One that completed
// leaves scopes with compensations behind.
func (s *scope) owned() bool {
	if s.parent == nil {
		return true
	}
	c := s.parent.comps[s.owner-s.parent.g.First]
	return c != nil && c.kids[kidKey(s)] == s
}
