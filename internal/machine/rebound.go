// SPDX-License-Identifier: Apache-2.0

package machine

import "github.com/roux-engine/roux/internal/journal"

// What a name has after a retry that resets a step which bound it (R41).

// addRebound looks for earlier steps that bound the same name as a reset step in a
// scope that has since been left. It resets the owner of that scope, because the
// earlier value is no longer held, and the reset step and its successors may read it
// (R41).
func (g *resetSet) addRebound() {
	p := g.run.plan
	type name struct{ graph, slot int32 }
	var inner map[name][]int32 // steps that bind a name of an enclosing frame
	for i := range p.Steps {
		st := &p.Steps[i]
		if frame := p.Graphs[st.Graph].Frame; st.Slot >= 0 && frame != st.Graph {
			if inner == nil {
				inner = map[name][]int32{}
			}
			inner[name{frame, st.Slot}] = append(inner[name{frame, st.Slot}], int32(i))
		}
	}
	for k := 0; k < len(g.resets) && inner != nil; k++ { // add appends to g.resets
		x := g.resets[k]
		step := x.scope.step(p, x.step)
		if step.Slot < 0 || x.scope.outs[x.step] == nil {
			continue
		}
		f := x.scope.frame
		for _, i := range inner[name{f.graph, step.Slot}] {
			if s, own := g.findLeft(f, p.Steps[i].Graph); s != nil && own >= 0 && g.find(s, own) < 0 {
				g.add(s, own, false)
				g.addDependents(s, own)
			}
		}
	}
}

// findLeft looks, in frame f and the scopes inside it, for the scope of a graph. If that
// scope is in memory, s is that scope and own is -1. If it has been left, own is the
// local index, in scope s, of the step that owned it or a scope around it. If it was
// never opened, s is nil.
func (g *resetSet) findLeft(f *scope, graph int32) (s *scope, own int32) {
	p := g.run.plan
	if graph == f.graph {
		return f, -1
	}
	owner := p.Graphs[graph].Owner
	if s, own = g.findLeft(f, p.Steps[owner].Graph); s == nil || own >= 0 {
		return s, own
	}
	own = owner - s.g.First
	if c := s.comps[own]; c != nil {
		for _, child := range c.children {
			if child.graph == graph {
				return child, -1
			}
		}
	}
	if st := &s.steps[own]; st.at == 0 || st.status != journal.Completed && st.status != journal.Skipped {
		return nil, 0
	}
	return s, own
}

// boundBefore returns the event of the value that the name of a reset step has again, if that
// is the output of a step of an inner scope: nothing else would hold it when that scope is
// left before the name is bound again (R41). 0 = none.
func (g *resetSet) boundBefore(x reset) int64 {
	slot := x.scope.step(g.run.plan, x.step).Slot
	if slot < 0 || x.scope.outs[x.step] == nil {
		return 0
	}
	f, seq, inner := x.scope.frame, uint64(0), false
	f.eachBound(f, g.run.plan, slot, func(s *scope, i int32, v *value) {
		switch {
		case v.seq < seq || g.find(s, i) >= 0 || g.ownerReset(reset{scope: s, step: i}):
		case v.seq > seq:
			seq, inner = v.seq, s != f
		default:
			inner = inner && s != f
		}
	})
	if !inner {
		return 0
	}
	return int64(seq)
}

// boundAgain returns the value that the name of a reset step has again, if the event says
// so.
func (r *Run) boundAgain(s *scope, i int32, ev *journal.Event) (before *value, err error) {
	seq, slot := ev.BoundBefore(), s.step(r.plan, i).Slot
	if seq == 0 {
		return nil, nil
	}
	if slot >= 0 {
		s.frame.eachBound(s.frame, r.plan, slot, func(in *scope, k int32, v *value) {
			if v.seq == seq && (in != s || k != i) {
				before = v
			}
		})
	}
	if before == nil {
		return nil, errImpossible(ev, "no other step has bound the value that the name has again")
	}
	return before, nil
}
