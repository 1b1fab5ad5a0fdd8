// SPDX-License-Identifier: Apache-2.0

package plan

import "fmt"

// Check returns an error if the plan violates an invariant that code which walks plans
// relies on: every index is within the plan, scopes form a tree, and steps wait only for
// earlier waves of their own graph. A plan from outside is checked before it is used.
func (p *Plan) Check() error {
	if len(p.Graphs) == 0 || p.Graphs[0].Owner != None || p.Graphs[0].Role != Root {
		return fmt.Errorf("plan: the first graph must be the root")
	}
	for g := range p.Graphs {
		if err := p.checkGraph(int32(g)); err != nil {
			return err
		}
	}
	if err := p.checkChildren(); err != nil {
		return err
	}
	owned := make([]bool, len(p.Graphs))
	for i := range p.Steps {
		if err := p.checkStep(int32(i), owned); err != nil {
			return err
		}
	}
	for g := range p.Graphs {
		if g > 0 && !owned[g] {
			return fmt.Errorf("plan: no step owns graph %d", g)
		}
		if err := p.checkDepth(int32(g)); err != nil {
			return err
		}
	}
	for i := range p.Outputs {
		if err := p.checkVars(p.Outputs[i].Expr.Vars); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) graphIn(g int32) bool { return g >= 0 && int(g) < len(p.Graphs) }
func (p *Plan) stepIn(i int32) bool  { return i >= 0 && int(i) < len(p.Steps) }

func (p *Plan) checkGraph(n int32) error {
	g := &p.Graphs[n]
	switch {
	case g.N < 0 || g.First < 0 || int64(g.First)+int64(g.N) > int64(len(p.Steps)):
		return fmt.Errorf("plan: graph %d has steps that are not there", n)
	case n > 0 && !p.stepIn(g.Owner):
		return fmt.Errorf("plan: graph %d has no owner", n)
	case int(g.Role) >= len(roleNames):
		return fmt.Errorf("plan: graph %d has an unknown role", n)
	case !p.graphIn(g.Frame) || g.Slots < 0 || g.Slots > int32(len(p.Steps)) || g.Waves < 0 || g.Waves > g.N:
		return fmt.Errorf("plan: graph %d has a frame, slots or waves that cannot be", n)
	case g.Out != None && (g.Out < g.First || g.Out >= g.First+g.N):
		return fmt.Errorf("plan: the output of graph %d is a step outside of it", n)
	}
	return nil
}

// checkDepth follows the owners to the root and checks the depth.
func (p *Plan) checkDepth(n int32) error {
	depth := int32(0)
	for g := n; p.Graphs[g].Owner != None; g = p.Steps[p.Graphs[g].Owner].Graph {
		if depth++; int(depth) > len(p.Graphs) {
			return fmt.Errorf("plan: graph %d owns itself", n)
		}
	}
	if depth != p.Graphs[n].Depth {
		return fmt.Errorf("plan: graph %d says depth %d and stands at %d", n, p.Graphs[n].Depth, depth)
	}
	return nil
}

func (p *Plan) checkStep(n int32, owned []bool) error {
	s := &p.Steps[n]
	if !p.graphIn(s.Graph) || int(s.Kind) >= len(kindNames) {
		return fmt.Errorf("plan: step %d has an unknown graph or kind", n)
	}
	g := &p.Graphs[s.Graph]
	if n < g.First || n >= g.First+g.N || s.Wave < 0 || s.Wave >= max(g.Waves, 1) {
		return fmt.Errorf("plan: step %d is not in its graph", n)
	}
	for _, list := range [][]int32{s.Preds, s.Succs} {
		for _, o := range list {
			if o < g.First || o >= g.First+g.N {
				return fmt.Errorf("plan: step %d depends on one outside of its graph", n)
			}
		}
	}
	for _, o := range s.Preds {
		if p.Steps[o].Wave >= s.Wave {
			return fmt.Errorf("plan: step %d waits for a later wave", n)
		}
	}
	if s.Kind == Action && (s.Action < 0 || int(s.Action) >= len(p.Actions)) || s.Slot != None && (s.Slot < 0 || s.Slot >= p.Graphs[g.Frame].Slots) {
		return fmt.Errorf("plan: step %d has an action or a slot that is not there", n)
	}
	if s.Kind == Loop && s.Body == None || s.Kind == Loop && s.Expr == nil && s.Rounds == nil || s.Kind == Condition && s.Expr == nil || s.Kind == Transform && (s.Expr == nil) == (len(s.Params) == 0) {
		return fmt.Errorf("plan: step %d lacks what its kind needs", n)
	}
	if err := p.checkChild(n); err != nil {
		return err
	}
	for _, o := range s.Graphs() {
		if !p.graphIn(o) || o == 0 || owned[o] || p.Graphs[o].Owner != n {
			return fmt.Errorf("plan: step %d owns a graph that is not its own", n)
		}
		owned[o] = true
	}
	return p.checkExprs(s)
}

func (p *Plan) checkExprs(s *Step) error {
	if err := p.checkRounds(s); err != nil {
		return err
	}
	for _, e := range append([]*Expr{s.When, s.Expr}, s.Rounds.Exprs()...) {
		if e != nil {
			if err := p.checkVars(e.Vars); err != nil {
				return err
			}
		}
	}
	if k := s.Cache; k != nil {
		if s.Kind != Action || k.TTLMS <= 0 || k.Price < 0 {
			return fmt.Errorf("plan: the step %q has a cache that cannot be", s.ID)
		}
		if k.Key != nil {
			if err := p.checkVars(k.Key.Vars); err != nil {
				return err
			}
		}
	}
	bindings := s.inputBindings()
	for i := range bindings {
		if b := &bindings[i]; b.Merge > MergeObject || (b.Merge == 0) != (len(b.From) == 0) {
			return fmt.Errorf("plan: the input %q of the step %q is made in no known way", b.Name, s.ID)
		}
	}
	return p.checkVars(s.InputVars())
}

func (p *Plan) checkRounds(s *Step) error {
	r := s.Rounds
	if r == nil {
		return nil
	}
	bounded := s.Expr != nil && r.Max == 0 && r.While == nil || s.Expr == nil && r.Max > 0 && (r.While != nil || r.Until != nil)
	if s.Kind != Loop || s.Concurrency > 1 || !bounded || (r.As == "") != (r.Next == nil) || (r.As == "") != (len(r.Initial) == 0) {
		return fmt.Errorf("plan: the step %q has rounds that cannot be", s.ID)
	}
	return p.checkVars(r.InitialRef)
}

func (p *Plan) checkVars(vars []Var) error {
	for i := range vars {
		v := &vars[i]
		ok := v.Kind <= VarAccumulated
		switch v.Kind {
		case VarBinding:
			ok = p.graphIn(v.Graph) && v.Index >= 0 && v.Index < p.Graphs[v.Graph].Slots
		case VarStep:
			ok = p.graphIn(v.Graph) && p.stepIn(v.Index) && p.Steps[v.Index].Graph == v.Graph
		case VarItem, VarIndex:
			ok = p.graphIn(v.Graph)
		case VarAccumulated:
			ok = p.graphIn(v.Graph) && p.Graphs[v.Graph].Role == Body && p.stepIn(p.Graphs[v.Graph].Owner) && p.Steps[p.Graphs[v.Graph].Owner].Rounds.Accumulates()
		case VarInherited:
			ok = v.Index >= 0 && int(v.Index) < len(p.Inherits)
		}
		if !ok {
			return fmt.Errorf("plan: the name %q means nothing in it", v.Name)
		}
	}
	return nil
}
