// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A composite is a step that owns running scopes: the side of a condition, branches,
// iterations, a fallback or a compensation. A step that owns a child run is one, too.
type composite struct {
	scope  *scope // of the step
	step   int32  // local index
	kind   compositeKind
	pos    uint64 // worklist position; 0 = none
	issued bool   // its owed command was issued and is not answered

	children map[int64]*scope // in memory, by ordinal (branch or item index)
	open     int32            // children not settled
	ended    bool             // the join is decided or the step is aborted: no new children open
	err      *stepError       // why it was aborted

	// Condition, fallback, compensation: the outcome of the one scope.
	inner childStatus
	out   *value
	cause stepError

	// Parallel.
	branches     []branch
	nOK, nFailed int32
	winner       int32 // -1 = none

	loop  *loopState
	child *childRun // childRunComposite: open is 1 until it has ended
}

type compositeKind uint8

const (
	conditionComposite compositeKind = iota
	parallelComposite
	loopComposite
	fallbackComposite
	compensationComposite
	childRunComposite
)

type childStatus uint8

const (
	childOpen childStatus = iota
	childOK
	childFailed
	childCancelled
)

type branch struct {
	status childStatus
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
	r.structMem += compositeBytes
	return c
}

// newScope makes a scope; the caller registers it with its owner.
func (r *Run) newScope(path journal.Path, graph int32, parent *scope, owner int32, ordinal int64) *scope {
	g := &r.plan.Graphs[graph]
	s := &scope{path: path, graph: graph, g: g, parent: parent, owner: owner, ordinal: ordinal,
		failed: -1, live: g.N, steps: make([]stepState, g.N)}
	r.structMem += s.structBytes()
	s.frame = s
	if g.Frame != graph && parent != nil {
		s.frame = parent.frame
	}
	if g.N > 0 {
		r.alive++
		r.refreshRun()
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
		r.refreshStep(s, int32(k))
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
	s.item = r.addRef(item)
	r.scopes[path] = s
	if c.children == nil {
		c.children = make(map[int64]*scope, 2)
	}
	c.children[childKey(s)] = s
	c.open++
	c.scope.openChildren++
	r.refreshScope(c.scope)
	if s.live == 0 {
		r.scopeSettled(s)
	}
	return nil
}

// childKey identifies a child within its composite.
func childKey(s *scope) int64 {
	if s.g.Role == plan.Branch {
		return int64(s.g.Ordinal)
	}
	return s.ordinal
}

// openComposite applies node.started of a condition, parallel or loop step.
func (r *Run) openComposite(s *scope, i int32, ev *journal.Event) error {
	step := s.step(r.plan, i)
	switch step.Kind {
	case plan.Condition:
		c := r.newComposite(s, i, conditionComposite)
		switch ev.Side() {
		case journal.ThenSide:
			return r.openChild(c, step.Then, 0, nil)
		case journal.ElseSide:
			return r.openChild(c, step.Else, 0, nil)
		}
		c.inner = childOK
		r.refreshComposite(c)
	case plan.Parallel:
		c := r.newComposite(s, i, parallelComposite)
		c.branches = make([]branch, len(step.Branches))
		r.structMem += int64(len(c.branches)) * branchBytes
		for _, g := range step.Branches {
			if err := r.openChild(c, g, 0, nil); err != nil {
				return err
			}
		}
		r.refreshComposite(c)
	case plan.Loop:
		c := r.newComposite(s, i, loopComposite)
		c.loop = newLoopState(step, ev)
		r.structMem += c.loop.structBytes()
		r.addRef(c.loop.list)
		r.refreshComposite(c)
	default:
		return errImpossible(ev, "the step owns no scopes")
	}
	return nil
}

func (r *Run) openFallback(s *scope, i int32) error {
	st := &s.steps[i]
	c := r.newComposite(s, i, fallbackComposite)
	r.begin(s, i, journal.Running)
	st.due = 0
	return r.openChild(c, s.step(r.plan, i).Fallback, 0, nil)
}

// abort applies the decision to end a composite early (its total_timeout).
func (r *Run) abort(s *scope, i int32, ev *journal.Event) error {
	c := s.comps[i]
	if c == nil {
		return errImpossible(ev, "the step has no open scopes")
	}
	c.ended, c.err = true, &stepError{ev.Code, ev.Text}
	if c.child != nil {
		c.child.retry, s.steps[i].due = ev.RetriesAttempt(), 0
		r.cancelChild(c)
	}
	r.sweepChildren(c, journal.BranchLost)
	r.refreshComposite(c)
	return nil
}

// sweep begins to settle every open step of a scope. Inner scopes come first, so that
// a composite settles after the scopes it owns.
func (r *Run) sweep(s *scope, why journal.Reason) {
	if s.state == scopeSweep && (why == 0 || s.reason == journal.ByCancel) {
		return
	}
	s.state, s.reason, s.cursor = scopeSweep, why, 0
	if r.turn != nil && s.openChildren > 0 {
		r.swept = append(r.swept, s)
	}
	inner := why
	if inner == 0 {
		inner = journal.RunEnded
	}
	for _, c := range s.sortedComps() {
		c.ended = true
		r.cancelChild(c)
		r.sweepChildren(c, inner)
		r.refreshComposite(c)
	}
	for k := range s.steps {
		r.refreshStep(s, int32(k))
	}
	r.refreshScope(s)
}

func (r *Run) sweepChildren(c *composite, why journal.Reason) {
	for _, child := range c.sortedChildren() {
		if child.live > 0 {
			r.sweep(child, why)
		}
	}
}

// scopeSettled notifies the owner of a scope that all steps in it have settled.
func (r *Run) scopeSettled(s *scope) {
	r.refreshScope(s)
	if s.parent == nil {
		r.refreshRun()
		return
	}
	c := s.parent.comps[s.owner-s.parent.g.First]
	c.open--
	s.parent.openChildren--
	status := s.outcome()
	r.childSettled(c, s, status)
	switch {
	case c.looksAt(status):
		c.loop.completed = append(c.loop.completed, s.ordinal)
	case c.kind == loopComposite:
		r.openHeld(c, s)
		fallthrough
	default:
		if status == childOK && !s.g.Compensates {
			r.dropScope(s)
		}
	}
	r.refreshComposite(c)
	if s.parent.state == scopeSweep {
		r.refreshScope(s.parent)
	}
	r.refreshRun()
}

// outcome is the status of a settled scope as its owner sees it.
func (s *scope) outcome() childStatus {
	switch {
	case s.state == scopeSweep && s.reason != 0:
		return childCancelled
	case s.failed >= 0:
		return childFailed
	}
	return childOK
}

// childSettled keeps what the join needs of a settled scope.
func (r *Run) childSettled(c *composite, s *scope, status childStatus) {
	cause := s.cause()
	switch c.kind {
	case parallelComposite:
		b := &c.branches[s.g.Ordinal]
		*b = branch{status: status, out: r.addRef(s.out), err: cause}
		switch status {
		case childOK:
			c.nOK++
			if c.winner < 0 {
				c.winner = s.g.Ordinal
			}
		case childFailed:
			c.nFailed++
		}
		if !c.ended && c.joined(s.parent.step(r.plan, c.step)) {
			// The join is decided: branches that still run have lost (X46–X52, R27).
			c.ended = true
			r.sweepChildren(c, journal.BranchLost)
		}
	case loopComposite:
		r.itemSettled(c, s, status, cause)
	default:
		c.inner, c.cause = status, cause
		r.replace(&c.out, s.out)
	}
}

// cause is the error that ended the scope.
func (s *scope) cause() stepError {
	if s.failed < 0 {
		return stepError{}
	}
	return s.errs[s.failed-s.g.First]
}

// joined is the table of design section 9: it reports whether the branches that have
// settled decide the outcome of a parallel step.
func (c *composite) joined(step *plan.Step) bool {
	all := c.nOK+c.nFailed == int32(len(c.branches))
	switch step.WaitFor {
	case plan.WaitAll:
		return all || step.Strategy == plan.FailFast && c.nFailed > 0
	case plan.WaitAny:
		return all || c.nOK > 0 || step.Strategy == plan.FailFast && c.nFailed > 0
	default:
		return all || c.nOK > 0
	}
}

// succeeded reports whether a decided join is a success.
func (c *composite) succeeded(step *plan.Step) bool {
	switch {
	case step.WaitFor == plan.WaitAll && step.Strategy == plan.Ignore:
		return true
	case step.WaitFor == plan.WaitAll:
		return c.nFailed == 0
	case step.WaitFor == plan.WaitAny && step.Strategy == plan.Ignore:
		return true
	default:
		return c.nOK > 0
	}
}

// compositeDue reports whether Decide can advance c.
func (r *Run) compositeDue(c *composite) bool {
	st := &c.scope.steps[c.step]
	if c.kind == compensationComposite || st.status != journal.Running || c.scope.state == scopeSweep || c.scope.heldBack() {
		return false // advanceRun ends compensations, and sweepScope the steps of a swept scope
	}
	if c.ended {
		return c.open == 0
	}
	switch c.kind {
	case parallelComposite:
		return c.open == 0
	case loopComposite:
		return c.loopDue(c.scope.step(r.plan, c.step))
	default:
		return c.inner != childOpen
	}
}

// dropComposite removes a composite and its scopes; all of them have settled.
func (r *Run) dropComposite(s *scope, i int32) {
	c := s.comps[i]
	if c == nil {
		return
	}
	for _, child := range c.sortedChildren() {
		if child.g.Compensates && c.kind != compensationComposite {
			continue // it stays without an owner, because its steps may have to be compensated
		}
		r.dropScope(child)
	}
	r.track(&c.pos, false, entry{})
	r.release(c.out)
	for k := range c.branches {
		r.release(c.branches[k].out)
	}
	if l := c.loop; l != nil {
		r.release(l.list)
		r.release(l.acc)
		r.releaseOuts(l)
	}
	r.structMem -= c.structBytes()
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
	r.structMem -= s.structBytes()
	delete(r.scopes, s.path)
	if s.parent != nil {
		if c := s.parent.comps[s.owner-s.parent.g.First]; c != nil && c.children[childKey(s)] == s {
			delete(c.children, childKey(s))
		}
	}
}

// dropOlder removes a scope of an older generation that is about to run again, with
// its pending compensations: the new execution of its steps replaces them.
func (r *Run) dropOlder(path journal.Path) {
	within := func(p journal.Path) bool { return strings.HasPrefix(string(p), string(path)) }
	r.compensations = slices.DeleteFunc(r.compensations, func(u journal.Ref) bool { return within(u.Path) })
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

// owned reports whether the composite that opened the scope is still in memory. A
// composite that has completed leaves its scopes with compensations behind.
func (s *scope) owned() bool {
	if s.parent == nil {
		return true
	}
	c := s.parent.comps[s.owner-s.parent.g.First]
	return c != nil && c.children[childKey(s)] == s
}
