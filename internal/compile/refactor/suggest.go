// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/compile/lint"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// A Suggestion is steps that are worth a recipe of their own, and can be moved.
type Suggestion struct {
	First   string   `json:"first"`
	Last    string   `json:"last"`
	Line    int      `json:"line"` // of the first step
	Why     string   `json:"why"`
	Steps   int      `json:"steps"` // that move, with those within them
	Saved   int      `json:"saved"` // how many steps fewer the recipe has
	Name    string   `json:"name"`  // a name for the new recipe
	Inputs  []string `json:"inputs"`
	Outputs []string `json:"outputs"`
	// Again are the first and the last steps of the same steps at other places.
	Again [][2]string `json:"again,omitempty"`
}

const (
	// large is how many steps of one list are worth a cut, and part how many are moved at most.
	large, part = 12, 15
	// maxTried bounds how many extractions are tried, each of which compiles the recipe.
	maxTried = 15
	// maxWindows bounds the parts of lists that are looked at: each costs time in proportion to the recipe.
	maxWindows = 600
	// worth is how many steps an extraction moves at least.
	worth = 3
)

// Suggest lists what can be moved, that with the largest gain first.
func (t *Text) Suggest() []Suggestion {
	s := &suggester{Text: t, seen: map[[2]string]bool{}}
	s.repeated()
	for _, l := range lists(t.recipe) {
		switch {
		case l.owner == nil:
		case l.owner.Loop != nil && len(l.owner.Loop.Steps) == len(l.steps):
			s.whole(l, "the body of the loop "+quotedID(l.owner))
		case l.owner.Condition != nil:
			s.whole(l, "a side of the condition "+quotedID(l.owner))
		case l.branch:
			s.whole(l, "a branch of "+quotedID(l.owner))
		}
		if len(l.steps) >= large {
			s.windows(l)
		}
	}
	slices.SortStableFunc(s.found, func(a, b Suggestion) int {
		return cmp.Compare(b.Saved*2-len(b.Inputs)-len(b.Outputs), a.Saved*2-len(a.Inputs)-len(a.Outputs))
	})
	return s.found
}

func quotedID(s *recipe.Step) string { return fmt.Sprintf("%q", s.ID) }

type suggester struct {
	*Text
	seen   map[[2]string]bool
	tried  int
	looked int // parts of lists
	found  []Suggestion
}

// try adds a suggestion if it can be carried out.
func (s *suggester) try(steps []*recipe.Step, why string, again [][2]string) bool {
	first, last := steps[0], steps[len(steps)-1]
	key := [2]string{first.ID, last.ID}
	if first.ID == "" || last.ID == "" || s.seen[key] || s.tried >= maxTried {
		return false
	}
	s.seen[key] = true
	s.tried++
	name := s.nameFor(first.ID)
	res, err := s.Extract(Extraction{First: first.ID, Last: last.ID, Name: name, Path: name + ".yaml"})
	if err != nil {
		return false
	}
	s.found = append(s.found, Suggestion{
		First: first.ID, Last: last.ID, Line: s.source.Pos(first.Ptr).Line, Why: why, Steps: res.Steps, Saved: (res.Steps - 1) * (1 + len(again)),
		Name: name, Inputs: orNone(res.Inputs), Outputs: orNone(res.Outputs), Again: again,
	})
	return true
}

func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// nameFor returns a name that no step has.
func (s *suggester) nameFor(id string) string {
	name := id + "-part"
	for k := 2; s.byID[name] != nil || len(name) > 64; k++ {
		name = fmt.Sprintf("part-%d", k)
	}
	return name
}

// repeated tries steps that the recipe has several times.
func (s *suggester) repeated() {
	for _, g := range lint.Repeated(s.recipe) {
		var again [][2]string
		for _, steps := range g.Steps[1:] {
			again = append(again, [2]string{steps[0].ID, steps[len(steps)-1].ID})
		}
		s.try(g.Steps[0], fmt.Sprintf("these steps are in the recipe %d times, up to names", len(g.Steps)), again)
	}
}

// whole tries all steps of a list.
func (s *suggester) whole(l list, why string) {
	n := 0
	for _, st := range l.steps {
		each(st, func(*recipe.Step) { n++ })
	}
	if n >= worth {
		s.try(l.steps, why, nil)
	}
}

// windows tries parts of a long list: those that pass the fewest values in and out, and do not overlap.
func (s *suggester) windows(l list) {
	type window struct{ from, to, cost int }
	var all []window
	left := maxWindows - s.looked
	if left <= 0 || s.tried >= maxTried {
		return
	}
	longest := min(part, len(l.steps)/2)
	stride := 1 + len(l.steps)*(longest-worth+1)/left
	for size := longest; size >= worth; size-- {
		for from := 0; from+size <= len(l.steps); from += stride {
			s.looked++
			if cost, ok := s.cost(l, from, from+size-1); ok {
				all = append(all, window{from, from + size - 1, cost})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b window) int {
		return cmp.Or(cmp.Compare(2*a.cost-(a.to-a.from), 2*b.cost-(b.to-b.from)), cmp.Compare(a.from, b.from))
	})
	var taken []window
	for _, w := range all {
		if len(taken) >= 3 || s.tried >= maxTried {
			break
		}
		if slices.ContainsFunc(taken, func(o window) bool { return w.from <= o.to && o.from <= w.to }) {
			continue
		}
		if s.try(l.steps[w.from:w.to+1], fmt.Sprintf("a part of %d steps one after the other, tied to the others by %d names", len(l.steps), w.cost), nil) {
			taken = append(taken, w)
		}
	}
}

// cost returns how many values cross the border of steps, without compiling anything.
func (s *suggester) cost(l list, first, last int) (int, bool) {
	if l.steps[first].ID == "" || l.steps[last].ID == "" {
		return 0, false
	}
	m, err := s.prepare(Extraction{First: l.steps[first].ID, Last: l.steps[last].ID, Name: s.nameFor(l.steps[first].ID)})
	if err != nil {
		return 0, false
	}
	return len(m.inputs) + len(m.outputs), true
}
