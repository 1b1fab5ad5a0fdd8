// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/extend"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A compiled is the recipe of a test file.
type compiled struct {
	plan   *plan.Plan
	recipe *recipe.Recipe
	source *recipe.Source
	diags  []fault.Diagnostic
}

// stubAction is the action of the only step of a recipe that stands for a mocked one.
const stubAction = "mocked-recipe"

// withStub are actions with the one of stubs.
type withStub struct{ catalogue.Actions }

var stub = &action.Action{
	Name: stubAction, Version: "1.0.0", Description: "Answers in place of a recipe.",
	Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, fault.New(fault.NotAvailable, "it answers in tests only")
	},
}

// Find implements catalogue.Finder.
func (w withStub) Find(name, version string) *action.Action {
	if name == stubAction {
		return stub
	}
	return w.Actions.Find(name, version)
}

// compileRecipe compiles a recipe whose mocked child recipes have stubs in their place.
func compileRecipe(file string, text []byte, opt compile.Options, mocks map[string][]Answer) *compiled {
	c := &compiled{}
	c.plan, c.recipe, c.source, c.diags = compile.Source(file, text, withStubs(opt, mocks))
	return c
}

// withStubs returns options with which recipes are compiled that have stubs in place of the mocked ones.
func withStubs(opt compile.Options, mocks map[string][]Answer) compile.Options {
	opt.Actions = withStub{opt.Actions}
	if opt.Recipes != nil {
		opt.Recipes = stubs{opt.Recipes, mocks}
	}
	return opt
}

// stubs finds recipes, and in place of those that are mocked a text with one step.
type stubs struct {
	compile.Recipes
	mocks map[string][]Answer
}

// File implements compile.Recipes.
func (s stubs) File(from, path string) (*compile.Text, error) {
	text, err := s.Recipes.File(from, path)
	if answers := s.mocks[path]; answers != nil {
		return stubText(path, text, s.Recipes, answers)
	}
	return text, err
}

// Find implements compile.Recipes.
func (s stubs) Find(name, version string) (*compile.Text, error) {
	text, err := s.Recipes.Find(name, version)
	if answers := s.mocks[name]; answers != nil {
		return stubText(name, text, s.Recipes, answers)
	}
	return text, err
}

// stubText is the text of a recipe that takes and gives what another one does, if that is there,
// and whose outputs are those of the answers.
func stubText(key string, real *compile.Text, recipes compile.Recipes, answers []Answer) (*compile.Text, error) {
	names := map[string]bool{}
	for i := range answers {
		var fields map[string]json.RawMessage
		if answers[i].Output == nil {
			continue
		}
		if err := json.Unmarshal(answers[i].Output, &fields); err != nil {
			return nil, fault.New(fault.RecipeInvalid, "mocks.recipes.%s: the output of a recipe is an object", key)
		}
		for name := range fields {
			names[name] = true
		}
	}
	doc := map[string]any{"name": key, "version": "0.0.0"}
	if real != nil {
		if r, _, _ := extend.Parse(real.File, real.Data, extend.Options{Form: form.Options{MaxBytes: form.MaxBytes, Name: real.Name}, Recipes: recipes}); r != nil {
			doc["name"], doc["version"] = r.Name, cmp.Or(real.Version, r.Version, "0.0.0")
			if r.InputSchema != nil {
				doc["inputSchema"] = r.InputSchema
			}
			if r.InputPolicy != "" {
				doc["inputPolicy"] = r.InputPolicy
			}
			if r.OutputSchema != nil {
				doc["outputSchema"] = r.OutputSchema
			}
			if len(r.Outputs) > 0 {
				names = map[string]bool{}
				for name := range r.Outputs {
					names[name] = true
				}
			}
		}
	}
	outputs := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		quoted, _ := json.Marshal(name)
		outputs[name] = fmt.Sprintf("%s in answer ? answer[%s] : null", quoted, quoted)
	}
	doc["steps"] = []any{map[string]any{
		"id": "answer", "action": map[string]any{"name": stubAction, "parameters": map[string]any{"recipe": key}},
		"inputBindings": map[string]any{"input": "input"}, "outputBinding": "answer",
	}}
	if len(outputs) > 0 {
		doc["outputs"] = outputs
	}
	data, err := jsonx.Marshal(doc)
	return &compile.Text{File: "mocked:" + key + ".json", Data: data}, err
}

// stepIDs returns the ids of the steps of a plan and of those below it.
func stepIDs(p *plan.Plan) (ids []string) {
	for i := range p.Steps {
		ids = append(ids, p.Steps[i].ID)
	}
	for _, e := range p.Embedded {
		ids = append(ids, stepIDs(e)...)
	}
	for _, r := range p.Registered {
		if r.Plan != nil {
			ids = append(ids, stepIDs(r.Plan)...)
		}
	}
	return ids
}

// idOf returns the id of the step that a path names.
func idOf(path string) string {
	path = path[strings.LastIndexAny(path, "./")+1:]
	id, _, _ := strings.Cut(path, "[")
	return id
}
