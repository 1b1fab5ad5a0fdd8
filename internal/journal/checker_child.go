// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// children is what a Checker knows of the child runs of a run.
type children struct {
	self *Child             // the run's own place; nil = it is a root run
	open map[Ref]*openChild // by the step instance that runs it
	ids  map[string]Ref     // every child run that was started
	tree *Tree              // what the run has pinned; nil = nothing
}

type openChild struct {
	attempt uint32
	share   Share
}

// pinned checks that what an expression names is pinned once, in the root run (R28).
func (m *children) pinned(ev *Event) error {
	ref, more, err := ev.Pinned()
	if err != nil {
		return fmt.Errorf("R28: event %d pins what it does not have: %s", ev.Seq, err.Error())
	}
	if m.self != nil || m.tree.Recipe(ref) != nil {
		return fmt.Errorf("R28: event %d pins %.60q, which is pinned, or the run is no root", ev.Seq, ref)
	}
	m.tree = m.tree.With(more)
	return nil
}

// check checks what a step of kind recipe says of its child run: it is started once
// for each attempt, ends before anything follows from it, and costs no more than its
// share.
func (m *children) check(ev *Event, p *plan.Plan, funds *credits) error {
	if ev.Step < 0 {
		if ev.Kind.Ends() && len(m.open) > 0 {
			return fmt.Errorf("I6: event %d ends the run while %d of its child runs go on", ev.Seq, len(m.open))
		}
		if ev.Kind == EvRunResumed {
			return m.resumed(ev)
		}
		if ev.Kind == EvRunPinned {
			return m.pinned(ev)
		}
		if ev.Kind == EvRunExtended && (m.self == nil || ev.Added() <= 0) {
			return fmt.Errorf("X60: event %d adds %d to the share of a run", ev.Seq, ev.Added())
		}
		return nil
	}
	if ev.Kind < EvChildStarted && p.Steps[ev.Step].Kind != plan.Recipe {
		return nil
	}
	child := m.open[ev.Ref()]
	switch ev.Kind {
	case EvChildStarted:
		share, err := ev.Share()
		switch ref, known := m.ids[ev.Text]; {
		case p.Steps[ev.Step].Kind != plan.Recipe || err != nil || min(share.Credits, share.Steps, share.Memory) < 0:
			return fmt.Errorf("X60: event %d starts a child run of a step that has none, or with the share %s", ev.Seq, ev.Data)
		case ev.GoesOn() && (child != nil || !known || ref != ev.Ref() || !p.Steps[ev.Step].Child.Resume):
			return fmt.Errorf("X104: event %d goes on with child run %q, which the step has not run or which does not go on", ev.Seq, ev.Text)
		case !ev.GoesOn() && (child != nil || known || ev.Text == ""):
			return fmt.Errorf("I3: event %d starts child run %q, and the step runs one or has run it", ev.Seq, ev.Text)
		}
		if m.open == nil {
			m.open, m.ids = map[Ref]*openChild{}, map[string]Ref{}
		}
		m.open[ev.Ref()], m.ids[ev.Text] = &openChild{ev.Attempt, share}, ev.Ref()
		return funds.give(share.Credits)
	case EvChildExtended, EvChildEnded:
		if child == nil || child.attempt != ev.Attempt {
			return fmt.Errorf("I3: event %d is about attempt %d, whose child run has ended or was never started", ev.Seq, ev.Attempt)
		}
		if ev.Kind == EvChildExtended {
			*ev.Resource().Of(&child.share) += ev.Added()
			if ev.Resource() == CreditsShare {
				funds.giveMore(ev.Added())
			}
			return nil
		}
		if most := ledger.Whole(child.share.Credits); funds.terms != nil && ev.ChildUsed() > most || ev.ChildUsed() < 0 {
			return fmt.Errorf("I11: event %d charges %s credits for a child run, its share is %s", ev.Seq, ev.ChildUsed(), most)
		}
		if ev.ChildSteps() < 0 || ev.ChildSteps() > child.share.Steps {
			return fmt.Errorf("X60: event %d says that a child run began %d steps, its share is %d", ev.Seq, ev.ChildSteps(), child.share.Steps)
		}
		if !ev.ChildStatus().Terminal() {
			return fmt.Errorf("I3: event %d ends a child run as %s", ev.Seq, ev.ChildStatus())
		}
		delete(m.open, ev.Ref())
		funds.given -= child.share.Credits
	case EvNodeRetried, EvNodeFallback, EvNodeCompleted, EvNodeFailed, EvNodeSkipped, EvNodeCancelled, EvNodeInvalidated:
		if child != nil {
			return fmt.Errorf("I6: event %d is %s, and the child run of attempt %d goes on", ev.Seq, ev.Name(), child.attempt)
		}
	case EvNodeLost:
		return fmt.Errorf("I3: event %d loses a child run, which has a journal of its own", ev.Seq)
	}
	return nil
}

// resumed takes the place that a child run has as another attempt of its step.
func (m *children) resumed(ev *Event) error {
	place, err := ev.Resumed(m.self)
	switch {
	case err != nil:
		return fmt.Errorf("X104: %w", err)
	case place.Gen < m.self.Gen || place.Gen == m.self.Gen && place.Attempt <= m.self.Attempt || min(place.Share.Credits, place.Share.Steps, place.Share.Memory) < 0:
		return fmt.Errorf("X104: event %d makes attempt %d.%d of a child run that was attempt %d.%d", ev.Seq, place.Gen, place.Attempt, m.self.Gen, m.self.Attempt)
	}
	m.self = place
	return nil
}

// OpenChildren is how many child runs of the run go on.
func (c *Checker) OpenChildren() int { return len(c.children.open) }
