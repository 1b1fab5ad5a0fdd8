// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

var stageType = reflect.TypeFor[Stage]()

// Encode returns the pipeline that means the same as a recipe, with the defaults of the recipe written out.
// written is false for a recipe of another dialect. The error names what a pipeline cannot say.
func Encode(r *recipe.Recipe, written bool) (*Document, error) {
	if was := texts.Subtraction(r, true); was != "" && !written {
		return nil, fmt.Errorf("%s in a template would be the step of that name, and no subtraction: write %s", was, strings.ReplaceAll(was, "-", " - "))
	}
	w := &Workflow{Head: r.Head, Settings: r.Settings}
	w.Dialect, w.Result = "", cmp.Or(w.Result, "bindings")
	for name := range w.Values {
		if slices.ContainsFunc(Form.Fields("Workflow"), func(f form.Field) bool { return f.Name == name }) {
			return nil, fmt.Errorf("the value %q would be another field of a workflow", name)
		}
	}
	r.NameSteps(true)
	var err error
	if w.Steps, err = stages(r.Steps); err != nil {
		return nil, err
	}
	return &Document{Workflow: w}, nil
}

// stages returns the steps of a scope, each with a name.
func stages(steps []*recipe.Step) ([]*Stage, error) {
	list := []*Stage{}
	for _, s := range steps {
		n, err := encode(s)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

func encode(s *recipe.Step) (*Stage, error) {
	n := &Stage{Name: s.ID, Label: s.Name, DependsOn: s.DependsOn, RetryPolicy: s.RetryPolicy, Common: s.Common}
	n.Condition, n.When = n.When, ""
	if n.OnError != nil && n.OnError.FallbackStep != nil {
		onError, fallback := *n.OnError, *n.OnError.FallbackStep
		withoutTypes([]*recipe.Step{&fallback})
		onError.FallbackStep = &fallback
		n.OnError = &onError
	}
	if s.Timeout != "" {
		ms, err := plan.ParseDuration(string(s.Timeout))
		if err != nil {
			return nil, fmt.Errorf("the timeout of the step %q: %w", s.ID, err)
		}
		n.TimeoutSeconds = float64(ms) / 1000
	}
	return n, n.kind(s)
}

// withoutTypes removes the types of steps that are written as in a recipe; what they are follows from their fields.
func withoutTypes(steps []*recipe.Step) {
	for _, s := range steps {
		s.Type = ""
		for _, inner := range s.Scopes() {
			withoutTypes(inner)
		}
		if s.Loop != nil {
			withoutTypes(s.Loop.Steps)
		}
	}
}

// kind gives a stage what a step does.
func (n *Stage) kind(s *recipe.Step) (err error) {
	switch {
	case s.Condition != nil:
		n.Type, n.Expression = "condition", s.Condition.Expression
		if n.Then, err = stages(s.Condition.Then); err == nil && len(s.Condition.Else) > 0 {
			n.Else, err = stages(s.Condition.Else)
		}
	case s.Parallel != nil:
		n.Type, n.WaitFor, n.FailureStrategy = "parallel", s.Parallel.WaitFor, s.Parallel.FailureStrategy
		for _, branch := range s.Parallel.Branches {
			list, err := stages(branch)
			if err != nil {
				return err
			}
			n.Branches = append(n.Branches, list)
		}
	case s.Transform != nil:
		n.OutputBinding = cmp.Or(s.Transform.OutputBinding, n.OutputBinding)
		if n.Type, n.Value = "set_variable", s.Transform.Value; len(n.Value) == 0 {
			n.Type, n.Expression = "transform", s.Transform.Expression
		}
	case s.Loop != nil:
		l := s.Loop
		n.Type, n.Over, n.As, n.Index, n.MaxConcurrency, n.FailureStrategy = "for_loop", l.Over, l.As, l.Index, l.MaxConcurrency, l.FailureStrategy
		n.While, n.Until, n.MaxIterations, n.Accumulate = l.While, l.Until, l.MaxIterations, l.Accumulate
		n.Steps, err = stages(l.Steps)
	case s.Wait != nil:
		n.Type, n.Wait = "wait", s.Wait
	case s.Fail != nil:
		n.Type, n.Fail = "fail", s.Fail
	case s.Recipe != nil:
		n.child(s)
	case s.Action != nil:
		return n.action(s)
	default:
		return fmt.Errorf("the step %q has no kind", s.ID)
	}
	return err
}

// child makes the stage run the recipe of a step.
func (n *Stage) child(s *recipe.Step) {
	k := s.Recipe
	n.Type, n.PipelineRef, n.PipelineFile, n.Inline, n.Definition = "pipeline", k.Ref, k.File, k.Inline, k.Definition
	n.Inputs, n.Outputs, n.Files, n.MaxCredits = k.Inputs, k.Outputs, k.Files, k.MaxCredits
	if n.Result = ""; len(k.Outputs) == 0 && k.Result != "last" {
		n.Result = "result"
	}
	c := Config{InheritContext: k.Inherits(recipe.InheritContext), InheritProviders: k.Inherits(recipe.InheritProviders), InheritFunctions: k.Inherits(recipe.InheritFunctions), InputPolicy: k.InputPolicy, WorkspaceDir: k.Workspace, Checkpoint: k.Resume}
	if l := k.Limits; l != nil {
		c.MaxDepth, c.MaxTotalSteps, c.MemoryLimitMB = l.MaxDepth, l.MaxTotalSteps, l.MemoryLimitMB
	}
	if c != (Config{}) {
		n.Config = &c
	}
}

// action makes the stage call the action of a step.
func (n *Stage) action(s *recipe.Step) error {
	a := s.Action
	if isKind(a.Name) {
		return fmt.Errorf("the step %q calls an action that is called %q, and in a pipeline that is a type of steps", s.ID, a.Name)
	}
	if n.Type = a.Name; a.Version != "" {
		n.Type += "@" + a.Version
	}
	n.Lens, n.Inputs = a.Lens, a.Parameters
	if prompt, ok := a.Parameters[promptInput]; ok {
		n.Prompt, n.Inputs = prompt, maps.Clone(a.Parameters)
		delete(n.Inputs, promptInput)
	}
	return nil
}

// MarshalJSON writes the values beside the other fields.
func (w *Workflow) MarshalJSON() ([]byte, error) {
	type workflow Workflow // without methods
	plain := *(*workflow)(w)
	plain.Values = nil
	data, err := jsonx.Marshal(&plain)
	if err != nil || len(w.Values) == 0 {
		return data, err
	}
	values, err := jsonx.Marshal(w.Values)
	if err != nil {
		return nil, err
	}
	return append(append(data[:len(data)-1], ','), values[1:]...), nil // both are objects with fields
}
