// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/roux-engine/roux/internal/journal"
)

// Check asserts the invariants of a run between two turns: counters equal what they
// count (I5), the worklist holds exactly what is due, and a run that has not ended
// waits for something (I6). Its cost grows with the steps in memory; simulations call
// it after every turn.
func (r *Run) Check() error {
	if r.last == 0 {
		return nil
	}
	var err error
	r.eachScope(func(s *scope) {
		if bad := checkScope(r, s); bad != nil && err == nil {
			err = fmt.Errorf("scope %q: %w", journal.ScopePath(r.plan, s.path), bad)
		}
	})
	if err != nil {
		return err
	}
	if want := r.recountStructs(); r.structMem != want {
		return fmt.Errorf("R38: the run counts %d bytes of open scopes and holds %d", r.structMem, want)
	}
	if r.status.Terminal() {
		if r.busy != 0 || r.alive != 0 {
			return fmt.Errorf("R10: the run has ended with %d steps begun and %d scopes open", r.busy, r.alive)
		}
		if r.given != (journal.Share{}) {
			return fmt.Errorf("X60: the run has ended with %+v given to child runs", r.given)
		}
		return nil
	}
	given, open := journal.Share{}, 0
	r.Children(func(ref journal.Ref, _ journal.Fence, _ string) {
		_, share, _, _ := r.ChildOf(ref)
		given = journal.Share{Credits: given.Credits + share.Credits, Steps: given.Steps + share.Steps, Memory: given.Memory + share.Memory}
		open++
	})
	if given != r.given {
		return fmt.Errorf("X60: the run counts %+v as given to child runs, they have %+v", r.given, given)
	}
	if r.NextDue() == 0 && r.Quiet() && !r.waitsForSignal() && open == 0 && !r.paused && !r.queued() {
		return fmt.Errorf("I6: the run is %s and waits for nothing", r.status)
	}
	return nil
}

// CheckValues asserts that the count of value bytes equals the values held (R38).
// given is the size of the run's input and of its edits.
func (r *Run) CheckValues(given int64) error {
	if want := given + recountValues(r); r.valueMem != want {
		return fmt.Errorf("R38: the run counts %d bytes of values and holds %d", r.valueMem, want)
	}
	return nil
}

func (r *Run) waitsForSignal() bool {
	found := false
	r.eachScope(func(s *scope) {
		for i := range s.steps {
			found = found || s.steps[i].status == journal.Waiting && s.step(r.plan, int32(i)).Signal != ""
		}
	})
	return found
}

func checkScope(r *Run, s *scope) error {
	live, children := int32(0), int32(0)
	for k := range s.steps {
		i := int32(k)
		st, step := &s.steps[k], s.step(r.plan, i)
		if !st.status.Settled() {
			live++
		}
		waiting := int32(0)
		for _, p := range step.Preds {
			if !s.steps[p-s.g.First].status.Settled() {
				waiting++
			}
		}
		if waiting != st.waiting { // I5
			return fmt.Errorf("I5: %s counts %d open predecessors, there are %d", step.ID, st.waiting, waiting)
		}
		if st.status.Begun() && waiting > 0 {
			return fmt.Errorf("I5: %s has begun with %d predecessors open", step.ID, waiting)
		}
		due := (st.status == journal.Pending || st.status == journal.Invalidated) && waiting == 0 && s.state == scopeOpen && !s.heldBack()
		if due && r.plan.Waves && step.Wave > s.wave {
			due = st.flags&flagReady == 0
		}
		if due != (st.pos != 0) {
			return fmt.Errorf("step %s is due %v and on the worklist %v", step.ID, due, st.pos != 0)
		}
	}
	for _, c := range s.comps {
		open, running := int32(0), int32(0)
		if c.child != nil {
			open = c.open
		}
		for _, child := range c.children {
			if child.live > 0 {
				open++
				if !child.held {
					running++
				}
			}
		}
		if c.kind == loopComposite && running > s.step(r.plan, c.step).Concurrency {
			return fmt.Errorf("X59: loop %s runs %d items at once", s.step(r.plan, c.step).ID, running)
		}
		if open != c.open {
			return fmt.Errorf("composite %s counts %d open scopes, there are %d", s.step(r.plan, c.step).ID, c.open, open)
		}
		children += open
		if r.compositeDue(c) != (c.pos != 0) {
			return fmt.Errorf("composite %s is due %v and on the worklist %v", s.step(r.plan, c.step).ID, r.compositeDue(c), c.pos != 0)
		}
	}
	if live != s.live || children != s.openChildren {
		return fmt.Errorf("counts %d live and %d children, there are %d and %d", s.live, s.openChildren, live, children)
	}
	if due := s.state == scopeSweep && s.live > 0 && s.openChildren == 0; due != (s.pos != 0) {
		return fmt.Errorf("sweep is due %v and on the worklist %v", due, s.pos != 0)
	}
	return nil
}

// recountValues adds up the values that the run refers to, each once.
func recountValues(r *Run) int64 {
	seen := map[*value]bool{}
	total := int64(0)
	add := func(v *value) {
		if v != nil && v.list != nil {
			v = v.list
		}
		if v != nil && !seen[v] {
			seen[v] = true
			total += v.n
		}
	}
	r.eachValue(add)
	return total
}

// Admits reports whether a worker's report may do more than record a late result: its
// fence is that of a live attempt, or the run has work left from an earlier turn,
// which continues with this input (I3).
func (r *Run) Admits(in *Input) bool {
	if in.Kind != InResult && in.Kind != InProgress && in.Kind != InWorkerLost || in.All || r.worklist.len() > 0 {
		return true
	}
	s, i := r.at(in.Ref)
	if s == nil || !s.attemptOpen(i) {
		return false
	}
	if c := s.comps[i]; c != nil {
		return c.owes() && in.Fence.Gen == r.gen
	}
	return in.Fence == (journal.Fence{Gen: r.gen, Attempt: s.steps[i].attempt})
}

// EffectKey is the effect key of the last attempt of a step instance; "" when the step
// is not in memory.
func (r *Run) EffectKey(ref journal.Ref) string {
	s, i := r.at(ref)
	if s == nil {
		return ""
	}
	return r.effectKey(s, i)
}
