// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/plan"
)

// Encode returns the workflow that means the same as a recipe, with the defaults of the recipe written out.
// Steps within steps stay as they are, which a workflow may have as well. written is false for a recipe of
// another dialect. The error names what a workflow cannot say.
func Encode(r *recipe.Recipe, written bool) (*Workflow, error) {
	if !written {
		if was := texts.Subtraction(r, false); was != "" {
			return nil, fmt.Errorf("%s in a template would be the step of that name, and no subtraction: write %s", was, strings.ReplaceAll(was, "-", " - "))
		}
	}
	w := &Workflow{Head: r.Head, Settings: r.Settings}
	w.Dialect = ""
	w.Order = cmp.Or(w.Order, "sequence")
	w.OnUpstreamFailure = cmp.Or(w.OnUpstreamFailure, "skip")
	w.Result = cmp.Or(w.Result, "bindings")
	if w.ServiceRetry == nil {
		w.ServiceRetry = &recipe.RetryPolicy{MaxAttempts: 1}
	}
	r.NameSteps(false)
	for _, s := range r.Steps {
		n, err := encode(s)
		if err != nil {
			return nil, err
		}
		w.Nodes = append(w.Nodes, n)
	}
	return w, nil
}

func encode(s *recipe.Step) (*Node, error) {
	n := &Node{ID: s.ID, Name: s.Name, Dependencies: s.DependsOn, Retry: s.RetryPolicy, Common: s.Common}
	if s.Timeout != "" {
		ms, err := plan.ParseDuration(string(s.Timeout))
		if err != nil {
			return nil, fmt.Errorf("the timeout of the step %q: %w", s.ID, err)
		}
		n.TimeoutSeconds = float64(ms) / 1000
	}
	switch {
	case s.Condition != nil:
		n.Handler, n.Config = "condition", s.Condition
	case s.Parallel != nil:
		n.Handler, n.Config = "parallel", s.Parallel
	case s.Transform != nil:
		n.Handler, n.Config = "transform", s.Transform
	case s.Loop != nil:
		n.Handler, n.Config = "loop", s.Loop
	case s.Wait != nil:
		n.Handler, n.Config = "wait", s.Wait
	case s.Fail != nil:
		n.Handler, n.Config = "fail", s.Fail
	case s.Recipe != nil:
		n.Handler, n.Config = "recipe", s.Recipe
	case s.Action != nil:
		return n, n.action(s)
	default:
		return nil, fmt.Errorf("the step %q has no kind", s.ID)
	}
	return n, nil
}

// action makes the node call the action of a step.
func (n *Node) action(s *recipe.Step) error {
	a := s.Action
	for _, k := range kinds {
		if k.Value == a.Name {
			return fmt.Errorf("the step %q calls an action that is called %q, and in a workflow that is a kind of step", s.ID, a.Name)
		}
	}
	if n.Handler = a.Name; a.Version != "" {
		n.Handler += "@" + a.Version
	}
	n.Lens = a.Lens
	if a.Parameters != nil {
		n.Config = a.Parameters
	}
	return nil
}
