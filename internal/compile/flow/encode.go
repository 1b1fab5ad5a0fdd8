// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// Encode returns the workflow that means the same as a recipe, with the defaults of the recipe written out.
// Steps within steps stay as they are, which a workflow may have as well. The error names what a workflow
// cannot say.
func Encode(r *recipe.Recipe) (*Workflow, error) {
	w := &Workflow{Head: r.Head, Settings: r.Settings, Edges: []*Edge{}}
	w.Dialect = ""
	w.Order = cmp.Or(w.Order, "sequence")
	w.FailurePolicy = cmp.Or(w.FailurePolicy, "fail_fast")
	w.OnUpstreamFailure = cmp.Or(w.OnUpstreamFailure, "skip")
	w.ResultRule = cmp.Or(w.ResultRule, "strict")
	w.Result = cmp.Or(w.Result, "bindings")
	e := &writer{w: w, byID: map[string]*recipe.Step{}}
	r.NameSteps(false)
	for _, s := range r.Steps {
		n, err := node(s)
		if err != nil {
			return nil, err
		}
		e.byID[n.ID] = s
		w.Nodes = append(w.Nodes, n)
	}
	if w.Order == "none" { // else an edge would drop the rule that a step waits for the one before it
		for _, n := range w.Nodes {
			e.edges(n)
		}
	}
	return w, nil
}

// node returns the node that a step is, without the edges to it.
func node(s *recipe.Step) (*Node, error) {
	n := &Node{
		ID: s.ID, Label: s.Name, Action: s.Action, Condition: s.Condition, Parallel: s.Parallel, Transform: s.Transform, Loop: s.Loop,
		Wait: s.Wait, Fail: s.Fail, Recipe: s.Recipe, Common: s.Common, DependsOn: s.DependsOn,
	}
	c := &Config{}
	if s.Timeout != "" {
		ms, err := plan.ParseDuration(string(s.Timeout))
		if err != nil {
			return nil, fmt.Errorf("the timeout of the step %q: %w", s.ID, err)
		}
		c.TimeoutMS = ms
	}
	if k := s.RetryPolicy; k != nil {
		c.Retry = &Retry{Attempts: k.MaxAttempts, BackoffMultiplier: k.BackoffMultiplier, Jitter: k.Jitter, RetryOn: k.RetryableErrors}
		for _, d := range []struct {
			of recipe.Duration
			to **int64
		}{{k.InitialDelay, &c.Retry.BackoffMS}, {k.MaxDelay, &c.Retry.MaxBackoffMS}} {
			if d.of == "" {
				continue
			}
			ms, err := plan.ParseDuration(string(d.of))
			if err != nil {
				return nil, fmt.Errorf("the retry policy of the step %q: %w", s.ID, err)
			}
			*d.to = &ms
		}
	}
	if isLens(s) {
		n.LensID, n.VersionID, n.Action = s.Action.Lens.ID, s.Action.Lens.Version, nil
		c.Moderation, n.Moderation = n.Moderation, nil
		c.OnParentFailure, n.OnParentFailure = n.OnParentFailure, ""
		c.parameters(s.Action.Parameters)
	}
	if c.TimeoutMS != 0 || c.Retry != nil || c.Moderation != nil || c.OnParentFailure != "" || c.Model != "" || c.Parameters != nil {
		n.Config = c
	}
	return n, nil
}

// isLens reports whether a step is one that a lens makes.
func isLens(s *recipe.Step) bool {
	return s.Action != nil && s.Action.Lens != nil && s.Action.Name == lensAction && s.Action.Version == ""
}

func (c *Config) parameters(all map[string]json.RawMessage) {
	model, named := all[modelInput]
	if named && json.Unmarshal(model, &c.Model) == nil && c.Model != "" {
		all = maps.Clone(all)
		delete(all, modelInput)
	}
	if len(all) > 0 {
		c.Parameters = all
	}
}

// A writer writes the edges of a workflow.
type writer struct {
	w    *Workflow
	byID map[string]*recipe.Step
}

// edges makes edges of the inputs of a node that are outputs of other nodes, and of what else it waits for.
func (e *writer) edges(n *Node) {
	from := map[string]bool{}
	for _, label := range slices.Sorted(maps.Keys(n.InputBindings)) {
		list := e.carried(n.InputBindings[label], label)
		if list == nil {
			continue
		}
		rest := maps.Clone(n.InputBindings)
		delete(rest, label)
		n.InputBindings = rest
		for _, edge := range list {
			edge.TargetNodeID, from[edge.SourceNodeID] = n.ID, true
			e.w.Edges = append(e.w.Edges, edge)
		}
	}
	if len(n.InputBindings) == 0 {
		n.InputBindings = nil
	}
	if n.DependsOn == nil {
		return
	}
	for _, id := range *n.DependsOn {
		if !from[id] {
			from[id] = true
			e.w.Edges = append(e.w.Edges, &Edge{SourceNodeID: id, TargetNodeID: n.ID})
		}
	}
	n.DependsOn = nil
}

// carried returns the edges that carry the value of a binding; nil = edges cannot.
func (e *writer) carried(b recipe.Binding, label string) (list []*Edge) {
	if len(b.From) == 0 {
		if edge := e.edge(b.Expression, label); edge != nil {
			list = append(list, edge)
		}
		return list
	}
	for _, part := range b.From {
		edge := e.edge(part.Expression, label)
		if edge == nil || len(b.From) == 1 || b.Merge == "json_object" && part.Label != cmp.Or(e.byID[edge.SourceNodeID].Name, edge.SourceNodeID) {
			return nil
		}
		edge.MergeStrategy = cmp.Or(b.Merge, recipe.Merges[0])
		list = append(list, edge)
	}
	return list
}

// carries is the form of expressions that an edge may carry: steps.a.output, steps['a-b'].output["key"].
var carries = regexp.MustCompile(`^steps(?:\.(\w+)|\['([\w-]+)'\])\.output(?:\.text|\["([^"\\]+)"\])?$`)

// edge returns the edge that carries the value of an expression; nil = none does.
func (e *writer) edge(expression, label string) *Edge {
	found := carries.FindStringSubmatch(expression)
	if found == nil {
		return nil
	}
	edge := &Edge{SourceNodeID: found[1] + found[2], SourceOutputKey: found[3], TargetParamLabel: label}
	source := e.byID[edge.SourceNodeID]
	if source == nil || strings.TrimSpace(label) == "" || found[3] != "" && strings.TrimSpace(found[3]) == "" || Carried(edge.SourceNodeID, edge.SourceOutputKey, isLens(source)) != expression || edge.SourceOutputKey == wholeOutput {
		return nil
	}
	return edge
}
