// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/simulate/answer"
)

// One is a Source with a single recipe: every schedule plays it.
type One struct {
	c     Case
	fixed map[string][]byte // by step
}

// NewOne returns a source for the plan of a user's recipe. The actions are those it
// was compiled with. They are not executed; package answer makes their outputs.
func NewOne(name string, text []byte, p *plan.Plan, actions catalogue.Finder, input map[string]any, files []File) *One {
	c := Case{Name: name, Recipe: text, Plan: p, Actions: actions, Parameters: input, Files: files, Payloads: map[string]any{}}
	for _, q := range family(p) {
		for i := range q.Steps {
			if s := q.Steps[i].Signal; s != "" && !slices.Contains(c.Signals, s) {
				c.Signals = append(c.Signals, s)
			}
		}
	}
	root := &p.Graphs[0]
	for i := range root.N {
		c.From = append(c.From, p.Steps[root.First+i].ID)
	}
	return &One{c: c, fixed: map[string][]byte{}}
}

// Answer sets the output, canonical JSON, of a step whenever it succeeds; it returns
// false when neither the recipe nor one that it runs has an action step of that id.
func (o *One) Answer(step string, output []byte) bool {
	found := false
	for _, q := range family(o.c.Plan) {
		for i := range q.Steps {
			if s := &q.Steps[i]; s.ID == step && s.Kind == plan.Action {
				o.fixed[step], found = output, true
			}
		}
	}
	return found
}

// Signal sets the payload of a signal; it returns false when no step of the recipe
// waits for it.
func (o *One) Signal(name string, payload any) bool {
	o.c.Payloads[name] = payload
	return slices.Contains(o.c.Signals, name)
}

// Case returns the recipe.
func (o *One) Case(uint64) (*Case, error) {
	c := o.c
	// Each Case has its own answers, because they cache schemas and several goroutines
	// may play.
	a := answer.New(c.Actions, hashesOf(c.Files), o.fixed)
	c.Answer = func(dice *rand.Rand, t *machine.Task, _ []byte) []byte {
		return a.Answer(dice, answer.Call{Step: t.StepPath, Action: t.Pin.Name, Version: t.Pin.Version, Contract: t.OutputC})
	}
	return &c, nil
}

func hashesOf(files []File) (hashes []string) {
	for i := range files {
		hashes = append(hashes, files[i].Hash)
	}
	return hashes
}
