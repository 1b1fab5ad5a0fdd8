// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
)

// One is a Source of one recipe: every schedule plays it.
type One struct{ c Case }

// NewOne returns a source of the plan of a user's recipe. The actions are those
// it was compiled with; none is executed, their outputs are made by [Answers].
func NewOne(name string, text []byte, p *plan.Plan, actions engine.Actions, input map[string]any, files []File) *One {
	c := Case{Name: name, Recipe: text, Plan: p, Actions: actions, Parameters: input, Files: files}
	for i := range p.Steps {
		if s := p.Steps[i].Signal; s != "" && !slices.Contains(c.Signals, s) {
			c.Signals = append(c.Signals, s)
		}
	}
	root := &p.Graphs[0]
	for i := range root.N {
		c.From = append(c.From, p.Steps[root.First+i].ID)
	}
	c.Answer = NewAnswers(actions, files).Answer
	return &One{c}
}

// Case returns the recipe.
func (o *One) Case(uint64) (*Case, error) {
	c := o.c
	// Each has its own: answers keep what they have read of schemas, and several
	// goroutines may play.
	c.Answer = NewAnswers(c.Actions, c.Files).Answer
	return &c, nil
}
