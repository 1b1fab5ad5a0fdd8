// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"strings"

	"github.com/roux-engine/roux/internal/plan"
)

// causes finds for each event of a run the event that caused it: for a step that becomes
// ready the last event that it waited for, for a step that has begun its own event before,
// and for a step that owns scopes the last event that settled a step inside it.
type causes struct {
	plan    *plan.Plan
	scopes  map[Path]*scopeCauses
	start   uint64 // what began the generation
	verdict uint64 // what decided how the run ends; 0 = nothing has
	ending  uint64 // what the end of the run follows from: the verdict, or the last root step that settled
	signal  uint64 // the last signal
	named   string // its name
}

// scopeCauses is what is remembered of an open scope.
type scopeCauses struct {
	opened uint64   // what opened it
	last   []uint64 // of each step: its last event; 0 = it has not begun
	done   []bool   // of each step: it has settled
	open   int      // steps that have not settled
}

// open remembers a scope. One that opens again after it was forgotten, because of a retry or
// a compensation, has settled steps only.
func (c *causes) open(path Path, graph int32, opened uint64, settled bool) *scopeCauses {
	n := int(c.plan.Graphs[graph].N)
	s := &scopeCauses{opened: opened, last: make([]uint64, n), done: make([]bool, n), open: n}
	if settled {
		s.open = 0
		for i := range s.done {
			s.done[i] = true
		}
	}
	c.scopes[Path(strings.Clone(string(path)))] = s
	return s
}

// add follows an event and returns the number of the one that caused it; 0 = not known.
func (c *causes) add(ev *Event) (parent uint64) {
	if ev.Step < 0 || int(ev.Step) >= len(c.plan.Steps) {
		return c.addRun(ev)
	}
	step := &c.plan.Steps[ev.Step]
	if ev.NotTaken() { // that side has no scope
		return c.owner(ev.Path)
	}
	s := c.scopes[ev.Path]
	if s == nil {
		s = c.open(ev.Path, step.Graph, c.start, true)
	}
	i := ev.Step - c.plan.Graphs[step.Graph].First
	parent = c.cause(s, i, step, ev)
	switch ev.Kind {
	case EvNodeInvalidated:
		if s.done[i] {
			s.done[i] = false
			s.open++
		}
		if s.last[i] = 0; ev.Reopened() {
			s.last[i] = ev.Seq
		}
	case EvNodeProgress, EvNodeLog, EvNodeDelta, EvNodePreview, EvContract, EvModerationPassed, EvModerationFlagged, EvNodeCharged, EvNodeIgnored, EvChildExtended, EvNodeCompensated:
		// They cause nothing.
	case EvNodeCompleted, EvNodeFailed, EvNodeSkipped, EvNodeCancelled:
		s.last[i] = ev.Seq
		c.settled(s, i, ev)
	default:
		s.last[i] = ev.Seq
		c.opens(ev, step)
	}
	if s.open == 0 && ev.Path != "" && ev.Kind != EvNodeCompensating {
		delete(c.scopes, ev.Path)
	}
	return parent
}

// cause is the event that caused one of a step.
func (c *causes) cause(s *scopeCauses, i int32, step *plan.Step, ev *Event) uint64 {
	switch ev.Kind {
	case EvNodeInvalidated:
		return c.start
	case EvNodeSkipped, EvNodeCancelled:
		if ev.Reason() == ByCancel && c.verdict != 0 {
			return c.verdict
		}
	case EvNodeCompleted:
		if step.Kind == plan.Wait && step.Signal != "" && step.Signal == c.named {
			return max(s.last[i], c.signal)
		}
	}
	if s.last[i] != 0 {
		return s.last[i]
	}
	return c.readied(s, step)
}

// readied is what made a step ready that has not begun: the last settled step that it waited
// for, what opened its scope, or the retry.
func (c *causes) readied(s *scopeCauses, step *plan.Step) uint64 {
	at, first := max(s.opened, c.start), c.plan.Graphs[step.Graph].First
	for _, pred := range step.Preds {
		at = max(at, s.last[pred-first])
	}
	return at
}

// opens remembers what opened the scopes that an event opens.
func (c *causes) opens(ev *Event, step *plan.Step) {
	var graphs []int32
	ordinal := int64(0)
	switch ev.Kind {
	case EvNodeOpened:
		switch {
		case step.Kind == plan.Condition && ev.Side() == ThenSide:
			graphs = []int32{step.Then}
		case step.Kind == plan.Condition && ev.Side() == ElseSide:
			graphs = []int32{step.Else}
		case step.Kind == plan.Parallel:
			graphs = step.Branches
		}
	case EvNodeIteration:
		graphs, ordinal = []int32{step.Body}, ev.Item()
	case EvNodeFallback:
		graphs = []int32{step.Fallback}
	case EvNodeCompensating:
		graphs = []int32{step.Compensate}
	}
	for _, g := range graphs {
		if g != plan.None {
			c.open(ev.Path.Child(g, ordinal), g, ev.Seq, false)
		}
	}
}

// settled remembers that a step has settled.
func (c *causes) settled(s *scopeCauses, i int32, ev *Event) {
	if !s.done[i] {
		s.done[i] = true
		s.open--
	}
	if ev.Path == "" {
		c.ending = ev.Seq
		return
	}
	if owner, ok := Owner(c.plan, ev.Path); ok {
		if above := c.scopes[owner.Path]; above != nil {
			above.last[owner.Step-c.plan.Graphs[c.plan.Steps[owner.Step].Graph].First] = ev.Seq
		}
	}
}

// owner is the last event of the step that owns a scope.
func (c *causes) owner(path Path) uint64 {
	owner, ok := Owner(c.plan, path)
	if !ok || c.scopes[owner.Path] == nil {
		return 0
	}
	return c.scopes[owner.Path].last[owner.Step-c.plan.Graphs[c.plan.Steps[owner.Step].Graph].First]
}

func (c *causes) addRun(ev *Event) (parent uint64) {
	switch ev.Kind {
	case EvRunStarted:
		c.start = ev.Seq
		c.open("", 0, ev.Seq, false)
		return 0
	case EvRunRetried:
		parent, c.start = c.ending, ev.Seq
		c.ending, c.verdict = ev.Seq, 0
		return parent
	case EvRunSignalled:
		c.signal, c.named = ev.Seq, strings.Clone(ev.Text)
		return 0
	case EvCreditsReserved, EvRunLimits, EvRunResumed:
		return c.start
	case EvRunEnding, EvCreditsSettled, EvRunContract, EvRunCompleted, EvRunFailed, EvRunCancelled, EvRunExpired:
		if ev.Kind == EvRunEnding {
			c.verdict = ev.Seq
		}
		parent, c.ending = c.ending, ev.Seq
		return parent
	}
	return 0 // a request, or something that the journal does not record
}
