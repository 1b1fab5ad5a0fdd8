// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// A Coverage is how much of a recipe tests have run.
type Coverage struct {
	Recipe   string   `json:"recipe"` // its file
	Steps    int      `json:"steps"`
	Ran      int      `json:"stepsRun"`
	Branches int      `json:"branches"`
	Taken    int      `json:"branchesTaken"`
	Missed   []string `json:"missed"` // the steps that did not run, and the branches that were not taken

	plan    *plan.Plan
	ran     []bool
	skipped []bool // by its condition
	opened  []int
	passed  []int // how often a condition was evaluated
}

// newCoverage returns a coverage of no run.
func newCoverage(file string, p *plan.Plan) *Coverage {
	return &Coverage{Recipe: file, plan: p, ran: make([]bool, len(p.Steps)), skipped: make([]bool, len(p.Steps)), opened: make([]int, len(p.Graphs)), passed: make([]int, len(p.Steps))}
}

// add adds what a run has run. Its plan has the same steps, also if it has mocked recipes.
func (c *Coverage) add(t *view.Tally) {
	if len(t.Steps) != len(c.ran) || len(t.Opened) != len(c.opened) {
		return
	}
	for i := range t.Steps {
		st := &t.Steps[i]
		c.ran[i] = c.ran[i] || st.Began
		c.skipped[i] = c.skipped[i] || st.Counts["skipped"] > 0
		c.passed[i] += st.Counts["completed"] + st.Counts["failed"]
	}
	for i, n := range t.Opened {
		c.opened[i] += n
	}
	c.count()
}

// merge adds another coverage of the same recipe.
func (c *Coverage) merge(o *Coverage) {
	if len(o.ran) != len(c.ran) || len(o.opened) != len(c.opened) {
		return // the recipe was changed meanwhile
	}
	for i := range c.ran {
		c.ran[i], c.skipped[i], c.passed[i] = c.ran[i] || o.ran[i], c.skipped[i] || o.skipped[i], c.passed[i]+o.passed[i]
	}
	for i := range c.opened {
		c.opened[i] += o.opened[i]
	}
	c.count()
}

// Percent is how much of the steps and branches was run.
func (c *Coverage) Percent() float64 {
	if c.Steps+c.Branches == 0 {
		return 100
	}
	return 100 * float64(c.Ran+c.Taken) / float64(c.Steps+c.Branches)
}

// count counts what was run.
func (c *Coverage) count() {
	c.Steps, c.Ran, c.Branches, c.Taken, c.Missed = len(c.plan.Steps), 0, 0, 0, nil
	branch := func(taken bool, what string) {
		c.Branches++
		if taken {
			c.Taken++
		} else {
			c.Missed = append(c.Missed, what)
		}
	}
	for i := range c.plan.Steps {
		st := &c.plan.Steps[i]
		if c.ran[i] {
			c.Ran++
		} else {
			c.Missed = append(c.Missed, "step "+st.ID)
		}
		if st.When != nil {
			branch(c.skipped[i], "step "+st.ID+" skipped by its condition")
		}
		c.branches(i, st, branch)
	}
}

// branches counts the ways that a step may take.
func (c *Coverage) branches(i int, st *plan.Step, branch func(taken bool, what string)) {
	switch st.Kind {
	case plan.Condition:
		then := 0
		if st.Then != plan.None {
			then = c.opened[st.Then]
		}
		branch(then > 0, "then of "+st.ID)
		if st.Else != plan.None {
			branch(c.opened[st.Else] > 0, "else of "+st.ID)
		} else {
			branch(c.passed[i] > then, "else of "+st.ID+", which has no steps")
		}
	case plan.Parallel:
		for n, g := range st.Branches {
			branch(c.opened[g] > 0, fmt.Sprintf("branch %d of %s", n, st.ID))
		}
	case plan.Loop:
		branch(c.opened[st.Body] > 0, "an iteration of "+st.ID)
	}
	if st.Fallback != plan.None {
		branch(c.opened[st.Fallback] > 0, "fallback of "+st.ID)
	}
	if st.Compensate != plan.None {
		branch(c.opened[st.Compensate] > 0, "compensation of "+st.ID)
	}
}

// Coverages returns the coverage of each recipe by all test files, by the name of its file.
func Coverages(files []*File) (list []*Coverage) {
	for _, f := range files {
		if f.Coverage == nil {
			continue
		}
		i := slices.IndexFunc(list, func(c *Coverage) bool { return c.Recipe == f.Coverage.Recipe })
		if i >= 0 {
			list[i].merge(f.Coverage)
			continue
		}
		f.Coverage.count()
		list = append(list, f.Coverage)
	}
	slices.SortFunc(list, func(a, b *Coverage) int { return cmp.Compare(a.Recipe, b.Recipe) })
	return list
}
