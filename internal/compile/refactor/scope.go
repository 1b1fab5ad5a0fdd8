// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"maps"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/spell"
)

// A list is the steps of a scope.
type list struct {
	ptr    string // in the model
	steps  []*recipe.Step
	owner  *recipe.Step   // nil = they are those of the recipe
	branch bool           // of a parallel step, which is always a sequence
	loops  []*recipe.Step // around it, the innermost first
	depth  int
}

// lists returns the lists of a recipe, in their order.
func lists(r *recipe.Recipe) (all []list) {
	var walk func(l list)
	walk = func(l list) {
		all = append(all, l)
		for _, s := range l.steps {
			if s != nil {
				for _, inner := range within(s, l) {
					walk(inner)
				}
			}
		}
	}
	walk(list{ptr: r.Ptr + "/steps", steps: r.Steps})
	return all
}

// within returns the lists of a step.
func within(s *recipe.Step, l list) (all []list) {
	add := func(ptr string, steps []*recipe.Step, branch bool, loops []*recipe.Step) {
		if len(steps) > 0 {
			all = append(all, list{ptr: s.Ptr + ptr, steps: steps, owner: s, branch: branch, loops: loops, depth: l.depth + 1})
		}
	}
	if s.Condition != nil {
		add("/condition/then", s.Condition.Then, false, l.loops)
		add("/condition/else", s.Condition.Else, false, l.loops)
	}
	if s.Parallel != nil {
		for i, branch := range s.Parallel.Branches {
			add("/parallel/branches/"+strconv.Itoa(i), branch, true, l.loops)
		}
	}
	if s.Loop != nil {
		add("/loop/steps", s.Loop.Steps, false, append([]*recipe.Step{s}, l.loops...))
	}
	if s.OnError != nil && s.OnError.FallbackStep != nil {
		all = append(all, within(s.OnError.FallbackStep, l)...)
	}
	return all
}

// findList finds the list with the first and the last step.
func (m *move) findList() error {
	for _, id := range []string{m.First, m.Last} {
		if m.byID[id] == nil {
			e := fault.New(fault.Usage, "the recipe has no step %q", id)
			if near := spell.Nearest(id, slices.Sorted(maps.Keys(m.byID))); near != "" {
				e = fault.New(fault.Usage, "the recipe has no step %q; did you mean %q?", id, near)
			}
			return e
		}
	}
	index := func(l list, id string) int {
		return slices.IndexFunc(l.steps, func(s *recipe.Step) bool { return s != nil && s.ID == id })
	}
	for _, l := range lists(m.recipe) {
		m.first, m.last = index(l, m.First), index(l, m.Last)
		switch {
		case m.first < 0 && m.last < 0:
			continue
		case m.first < 0 || m.last < 0:
			return refuse("%q and %q are not in one list of steps", m.First, m.Last)
		case m.last < m.first:
			return refuse("%q comes before %q: name the first step first", m.Last, m.First)
		}
		m.list = l
		if m.d.Name == "dag" && l.owner != nil {
			return refuse("the steps are within a node; of a workflow in the dialect dag only its nodes can be moved")
		}
		return nil
	}
	return refuse("the step %q is the fallback of another one, which is no list", m.First)
}

// outputRead reports whether the output of the step that owns a scope may be read.
func (m *move) outputRead(s *recipe.Step) bool {
	if s.OutputBinding != "" || s.Transform != nil && s.Transform.OutputBinding != "" || s.Compensate != nil || s.Contracts != nil || s.Moderation != nil {
		return true
	}
	if m.recipe.Result == "steps" || len(m.recipe.OutputSchema) > 0 && len(m.recipe.Outputs) == 0 {
		return true
	}
	for _, e := range m.uses {
		for _, ref := range e.Refs {
			if ref.Name == s.ID || ref.Name == "steps" && len(ref.Path) > 0 && ref.Path[0] == s.ID {
				return true
			}
		}
	}
	for _, l := range lists(m.recipe) { // its output may be that of the scope that it is in
		if k := slices.Index(l.steps, s); k >= 0 {
			return l.owner != nil && k == len(l.steps)-1 && m.outputRead(l.owner)
		}
	}
	return true // it is in a fallback, whose output is that of the step
}

// errorRead reports whether an expression may read the error of a step.
func (m *move) errorRead(s *recipe.Step) bool {
	for _, e := range m.uses {
		for _, ref := range e.Refs {
			path := ref.Path
			switch {
			case ref.Name == "steps" && len(path) > 0 && path[0] == s.ID:
				path = path[1:]
			case ref.Name != s.ID || s.ID == "":
				continue
			}
			if len(path) == 0 || path[0] == "error" {
				return true
			}
		}
	}
	return false
}

// ownerOf returns the step that a step is in, or nil.
func (m *move) ownerOf(s *recipe.Step) *recipe.Step {
	for _, l := range lists(m.recipe) {
		if slices.Contains(l.steps, s) {
			return l.owner
		}
	}
	var owner *recipe.Step
	m.recipe.Each(func(o *recipe.Step) {
		if o.OnError != nil && o.OnError.FallbackStep == s {
			owner = o
		}
	})
	return owner
}

// checkHeirs refuses what recipes read that inherit the context of this one, and are run by steps that stay.
func (m *move) checkHeirs() (err error) {
	m.recipe.Each(func(s *recipe.Step) {
		if err != nil || s.Recipe == nil || m.inside[s] || !s.Recipe.Inherits(recipe.InheritContext) {
			return
		}
		if s.Recipe.Inline != nil {
			err = m.checkHeir(s, s.Recipe.Inline)
			return
		}
		for frame := range m.frames {
			for name, b := range m.frames[frame] {
				if b.in && b.out {
					err = refuse("%q is bound by steps that move and by steps that stay, and %s runs a recipe that may read it", name, named(s))
				}
			}
		}
	})
	return err
}

// checkHeir is checkHeirs for a recipe in the text.
func (m *move) checkHeir(s *recipe.Step, heir *recipe.Recipe) (err error) {
	for _, e := range texts.Uses(heir) {
		for _, ref := range e.Refs {
			name := ref.Name
			if name == "steps" && len(ref.Path) > 0 {
				name = ref.Path[0]
			}
			moves := m.stepOf(name) != nil
			for _, frame := range m.frames {
				moves = moves || frame[name].in
			}
			if moves && !heir.HasStep(name) {
				return refuse("%s runs a recipe that inherits the context of this one, and reads %q of the steps that move", named(s), name).
					advising("Pass it on with the inputs of that recipe.")
			}
		}
	}
	heir.EachInline(func(_ *recipe.Step, inner *recipe.Recipe) {
		if err == nil {
			err = m.checkHeir(s, inner)
		}
	})
	return err
}
