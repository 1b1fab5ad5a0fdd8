// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"slices"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

// ordered reports whether a step of the list without dependencies waits for the one before it.
func (m *move) ordered() bool { return m.list.branch || m.recipe.Order != "none" }

// dependencies decides what the new step waits for, and changes the lists that name steps on the other side.
func (m *move) dependencies() error {
	ids := map[string]bool{}
	for _, s := range m.moved() {
		ids[s.ID] = s.ID != ""
	}
	var outside []string
	explicit := false
	for i, s := range m.moved() {
		if s.DependsOn == nil {
			continue
		}
		explicit = explicit || i == 0
		for _, id := range *s.DependsOn {
			if !ids[id] && !slices.Contains(outside, id) {
				outside = append(outside, id)
			}
		}
		if err := m.keepDependencies(s, ids); err != nil {
			return err
		}
	}
	if err := m.waitFor(outside, explicit); err != nil {
		return err
	}
	m.withoutEdges()
	for i, s := range m.list.steps {
		if s == nil || i >= m.first && i <= m.last {
			continue
		}
		own := m.ownDependencies(s)
		if own == nil {
			continue
		}
		var now []string
		for _, id := range *own {
			if ids[id] {
				id = m.Name
			}
			if !slices.Contains(now, id) {
				now = append(now, id)
			}
		}
		if !slices.Equal(now, *own) {
			if err := m.editList(s, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepDependencies removes from the list of a step that moves those that do not.
func (m *move) keepDependencies(s *recipe.Step, ids map[string]bool) error {
	own := m.ownDependencies(s)
	if own == nil { // edges say what it depends on
		within := slices.ContainsFunc(*s.DependsOn, func(id string) bool { return ids[id] })
		if within || m.recipe.Order == "none" || s == m.moved()[0] {
			return nil
		}
		pointer := m.source.Pointer(s.Ptr)
		return m.insert(m.source.Tree().Find(pointer), pointer, 1, []field{{"dependsOn", "[]"}})
	}
	var kept []string
	for _, id := range *own {
		if ids[id] {
			kept = append(kept, id)
		}
	}
	if len(kept) == len(*own) {
		return nil
	}
	return m.editList(s, kept)
}

// waitFor sets what the new step waits for.
func (m *move) waitFor(outside []string, explicit bool) error {
	switch {
	case explicit:
		if outside == nil {
			outside = []string{}
		}
		m.depends = &outside
	case len(outside) > 0:
		if m.ordered() && m.first > 0 {
			before := m.list.steps[m.first-1]
			if before == nil || before.ID == "" {
				return refuse("the step before them has no id, by which the new step could wait for it")
			}
			if !slices.Contains(outside, before.ID) {
				outside = append(outside, before.ID)
			}
		}
		if len(outside) > 1 || !m.ordered() || m.first == 0 || outside[0] != m.list.steps[m.first-1].ID {
			m.depends = &outside
		}
	}
	return nil
}

// withoutEdges leaves out of what the new step waits for the nodes that edges to it lead from.
func (m *move) withoutEdges() {
	if m.depends == nil || !m.flow() {
		return
	}
	var rest []string
	for _, id := range *m.depends {
		if !m.edges.from[id] {
			rest = append(rest, id)
		}
	}
	if m.depends = &rest; len(rest) == 0 && (len(m.edges.from) > 0 || m.recipe.Order == "none") {
		m.depends = nil // edges say all of it
	} else if len(rest) == 0 {
		m.depends = &[]string{}
	}
}

// result decides whether the result of the recipe has to be written out, because steps that move are in it.
func (m *move) result() error {
	r := m.recipe
	if len(r.Outputs) > 0 || len(r.OutputSchema) > 0 || len(m.list.loops) > 0 {
		return nil
	}
	if r.Result == "steps" {
		if m.list.owner != nil {
			return nil
		}
		for i, s := range m.list.steps {
			switch {
			case s == nil || s.ID == "":
				return refuse("the outputs of the steps are the result of the recipe, and one of them has no id").advising("Give it an id, or say with `outputs` what the result is.")
			case !definite(s):
				return refuse("the output of %s is a part of the result of the recipe only if it completes", named(s)).advising("Say with `outputs` what the result is.")
			case i >= m.first && i <= m.last:
				m.output("steps"+member(s.ID)+".output", identifier(s.ID))
			}
		}
		m.results = true
		return nil
	}
	for _, s := range m.moved() {
		each(s, func(s *recipe.Step) {
			if len(m.loopsOf[s]) > 0 {
				return
			}
			for _, name := range bindings(s) {
				m.results = true
				m.output(name, name)
			}
		})
	}
	for name, b := range m.frames[nil] {
		if m.results && b.in && b.out {
			return refuse("%q is bound by steps that move and by steps that stay, and is in the result of the recipe", name)
		}
	}
	return nil
}
