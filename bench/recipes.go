// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// planOf compiles a recipe whose action steps call act.
func planOf(r *recipe.Recipe, act *action.Action) (*plan.Plan, error) {
	r.Limits = &recipe.Limits{MaxTotalSteps: 200_000}
	p, diags := compile.Compile(r, nil, compile.Options{Actions: catalogue.New(act)})
	if p == nil {
		return nil, fmt.Errorf("the recipe %s does not compile: %v", r.Name, diags)
	}
	return p, nil
}

const actionName = "noop"

func call(id string, after ...string) *recipe.Step {
	return &recipe.Step{ID: id, Action: &recipe.Action{Name: actionName}, DependsOn: &after}
}

func stepID(i int) string { return "s" + strconv.Itoa(i) }

// chainOf returns a recipe of n steps in a row.
func chainOf(n int) *recipe.Recipe {
	r := &recipe.Recipe{Head: recipe.Head{Name: "chain"}}
	for i := range n {
		r.Steps = append(r.Steps, &recipe.Step{ID: stepID(i), Action: &recipe.Action{Name: actionName}})
	}
	return r
}

// transformsOf returns a recipe of n steps in a row that only compute.
func transformsOf(n int) *recipe.Recipe {
	r := &recipe.Recipe{Head: recipe.Head{Name: "transforms"}, Steps: []*recipe.Step{
		{ID: stepID(0), Transform: &recipe.Transform{Expression: "input.n"}},
	}, Settings: recipe.Settings{InputSchema: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}}
	for i := 1; i < n; i++ {
		r.Steps = append(r.Steps, &recipe.Step{ID: stepID(i), Transform: &recipe.Transform{
			Expression: fmt.Sprintf("steps.%s.output + 1", stepID(i-1)),
		}})
	}
	return r
}

// fanOf returns a recipe of n parallel steps and one that joins them.
func fanOf(n int) *recipe.Recipe {
	r := &recipe.Recipe{Head: recipe.Head{Name: "fan"}, Settings: recipe.Settings{Order: "none"}}
	ids := make([]string, n)
	for i := range n {
		ids[i] = stepID(i)
		r.Steps = append(r.Steps, call(ids[i]))
	}
	r.Steps = append(r.Steps, call("join", ids...))
	return r
}

// boundOf returns a recipe of n steps in a row, each of which reads a value of
// the one before.
func boundOf(n int) *recipe.Recipe {
	r := &recipe.Recipe{Head: recipe.Head{Name: "many"}, Settings: recipe.Settings{InputSchema: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}}
	from := "input.n"
	for i := range n {
		r.Steps = append(r.Steps, &recipe.Step{
			ID: stepID(i), Action: &recipe.Action{Name: actionName}, Common: recipe.Common{
				InputBindings: map[string]recipe.Binding{"n": {Expression: from}},
			},
		})
		from = fmt.Sprintf("steps.%s.output.n", stepID(i))
	}
	return r
}

// waitingOf returns a recipe of n steps, a wait for a signal, and one more
// step.
func waitingOf(n int) *recipe.Recipe {
	r := chainOf(n)
	r.Name = "waiting"
	r.Steps = append(r.Steps,
		&recipe.Step{ID: "asked", Wait: &recipe.Wait{Signal: signalName, Timeout: "40h"}},
		&recipe.Step{ID: lastStep, Action: &recipe.Action{Name: actionName}})
	return r
}

const (
	signalName = "go"
	lastStep   = "last"
)

// lanesOf returns a recipe of `lanes` parallel chains of n steps each.
func lanesOf(lanes, n int) *recipe.Recipe {
	r := &recipe.Recipe{Head: recipe.Head{Name: "lanes"}, Settings: recipe.Settings{Order: "none"}}
	for l := range lanes {
		id := "l" + strconv.Itoa(l) + "-"
		r.Steps = append(r.Steps, call(id+"0"))
		for i := 1; i < n; i++ {
			r.Steps = append(r.Steps, call(id+strconv.Itoa(i), id+strconv.Itoa(i-1)))
		}
	}
	return r
}

// walkGraph is the lowest floor: it walks the graph in memory, calls one function per
// step and records nothing. It returns how many steps ran.
func walkGraph(p *plan.Plan, call func()) (int, error) {
	left := make([]int32, len(p.Steps))
	var ready []int32
	for i := range p.Steps {
		if left[i] = int32(len(p.Steps[i].Preds)); left[i] == 0 {
			ready = append(ready, int32(i))
		}
	}
	done := 0
	for ; len(ready) > 0; done++ {
		s := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		call()
		for _, next := range p.Steps[s].Succs {
			if left[next]--; left[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	if done != len(p.Steps) {
		return done, errors.New("the walk did not reach every step")
	}
	return done, nil
}
