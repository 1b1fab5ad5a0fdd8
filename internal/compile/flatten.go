// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// flatten turns the nested recipe into flat arrays: one graph per scope, the steps of a
// graph next to each other, inner graphs after the graph that owns them. So the index of
// an owner is always smaller than the indices of what it owns.
func (c *compiler) flatten() {
	if len(c.r.Steps) == 0 {
		c.fail(fault.RecipeInvalid, "no-steps", c.keyAt(c.base+"/steps"), "the recipe has no steps", `give "steps" at least one step`)
	}
	all := 0
	c.r.Each(func(*recipe.Step) { all++ })
	c.nodes, c.p.Steps = make([]node, 0, all), make([]plan.Step, 0, all) // steps are large to copy
	c.flattenScope(c.r.Steps, c.base+"/steps", plan.Graph{Owner: plan.None, Role: plan.Root}, plan.None)
}

// flattenScope appends a scope and everything below it, and returns its graph index.
func (c *compiler) flattenScope(steps []*recipe.Step, ptr string, g plan.Graph, parent int32) int32 {
	id := int32(len(c.p.Graphs))
	g.First, g.N, g.Out = int32(len(c.p.Steps)), int32(len(steps)), plan.None
	g.Frame = id
	if parent != plan.None {
		g.Depth = c.p.Graphs[parent].Depth + 1
		if g.Role != plan.Body {
			g.Frame = c.p.Graphs[parent].Frame
		}
	}
	if g.N > 0 {
		g.Out = g.First + g.N - 1
	}
	c.p.Graphs = append(c.p.Graphs, g)
	for i, s := range steps {
		at := s.Ptr
		if at == "" {
			at = ptr + "/" + strconv.Itoa(i)
		}
		c.nodes = append(c.nodes, node{src: s, ptr: at})
		c.p.Steps = append(c.p.Steps, plan.Step{
			Graph: id, Action: plan.None, Then: plan.None, Else: plan.None, Body: plan.None,
			Fallback: plan.None, Compensate: plan.None, Slot: plan.None,
		})
	}
	for i := range steps {
		c.flattenOwned(g.First+int32(i), id)
	}
	return id
}

// flattenOwned appends the graphs that one step owns.
func (c *compiler) flattenOwned(i, g int32) {
	n := &c.nodes[i]
	s, ptr := n.src, n.ptr
	kind, ok := c.kind(i)
	if kind == plan.Action && c.waitAction(s.Action) != nil {
		if kind = plan.Wait; c.p.Graphs[g].Role == plan.Compensation {
			ok = false
			c.fail(fault.RecipeInvalid, "not-for-kind", c.valueAt(ptr+"/action/name"),
				fmt.Sprintf("the action %q only waits; it cannot undo anything", s.Action.Name), "compensate with an action that undoes what the step did")
		}
	}
	if kind == plan.Wait && ok && s.Wait != nil && c.callApproval(i) {
		kind = plan.Action
	}
	n.invalid = !ok
	c.p.Steps[i].Kind = kind
	own := func(steps []*recipe.Step, at string, role plan.Role, ordinal int) int32 {
		return c.flattenScope(steps, at, plan.Graph{Owner: i, Role: role, Ordinal: int32(ordinal)}, g)
	}
	if ok {
		switch kind {
		case plan.Condition:
			c.p.Steps[i].Then = own(s.Condition.Then, ptr+"/condition/then", plan.Then, 0)
			if len(s.Condition.Else) > 0 { // an empty side is the same as none
				c.p.Steps[i].Else = own(s.Condition.Else, ptr+"/condition/else", plan.Else, 0)
			}
		case plan.Parallel:
			for b, branch := range s.Parallel.Branches {
				id := own(branch, fmt.Sprintf("%s/parallel/branches/%d", ptr, b), plan.Branch, b)
				c.p.Steps[i].Branches = append(c.p.Steps[i].Branches, id)
			}
		case plan.Loop:
			c.p.Steps[i].Body = own(s.Loop.Steps, ptr+"/loop/steps", plan.Body, 0)
		}
	}
	if s.OnError != nil && s.OnError.FallbackStep != nil {
		f := *s.OnError.FallbackStep
		f.Ptr = cmp.Or(f.Ptr, ptr+"/onError/fallbackStep")
		c.p.Steps[i].Fallback = own([]*recipe.Step{&f}, ptr+"/onError", plan.Fallback, 0)
	}
	if k := s.Compensate; k != nil {
		// A compensation is an action step of its own in a scope of its own.
		undo := &recipe.Step{
			Type: "action", Action: k.Action, Common: recipe.Common{
				InputBindings: k.InputBindings,
			},
			RetryPolicy: k.RetryPolicy, Timeout: k.Timeout, Ptr: ptr + "/compensate",
		}
		c.p.Steps[i].Compensate = own([]*recipe.Step{undo}, ptr, plan.Compensation, 0)
		for at := g; at != plan.None && !c.p.Graphs[at].Compensates; at = c.outer(at) {
			c.p.Graphs[at].Compensates = true
		}
	}
}

// outer returns the graph of the step that owns g, or None for the root.
func (c *compiler) outer(g int32) int32 {
	owner := c.p.Graphs[g].Owner
	if owner == plan.None {
		return plan.None
	}
	return c.p.Steps[owner].Graph
}

// ancestorIn returns the step of graph g that is i or contains it, at any depth, or
// None when i is not inside g.
func (c *compiler) ancestorIn(i, g int32) int32 {
	for i != plan.None && c.p.Steps[i].Graph != g {
		i = c.p.Graphs[c.p.Steps[i].Graph].Owner
	}
	return i
}

// scopeName returns the name of a graph for messages.
func (c *compiler) scopeName(g int32) string {
	gr := &c.p.Graphs[g]
	if gr.Owner == plan.None {
		return "the recipe's own steps"
	}
	owner := strconv.Quote(c.p.Steps[gr.Owner].ID)
	switch gr.Role {
	case plan.Then, plan.Else:
		return "the " + gr.Role.String() + " side of " + owner
	case plan.Branch:
		return fmt.Sprintf("branch %d of %s", gr.Ordinal, owner)
	case plan.Body:
		return "the loop body of " + owner
	case plan.Fallback:
		return "the fallback of " + owner
	default:
		return "the compensation of " + owner
	}
}

// kindFields are the fields of a step that define its kind.
var kindFields = [...]struct {
	name string
	kind plan.Kind
	has  func(*recipe.Step) bool
}{
	{"action", plan.Action, func(s *recipe.Step) bool { return s.Action != nil }},
	{"condition", plan.Condition, func(s *recipe.Step) bool { return s.Condition != nil }},
	{"parallel", plan.Parallel, func(s *recipe.Step) bool { return s.Parallel != nil }},
	{"loop", plan.Loop, func(s *recipe.Step) bool { return s.Loop != nil }},
	{"transform", plan.Transform, func(s *recipe.Step) bool { return s.Transform != nil }},
	{"wait", plan.Wait, func(s *recipe.Step) bool { return s.Wait != nil }},
	{"fail", plan.Fail, func(s *recipe.Step) bool { return s.Fail != nil }},
	{"recipe", plan.Recipe, func(s *recipe.Step) bool { return s.Recipe != nil }},
}

// kind infers the kind of a step from its type, else from the one kind field that is
// present (the example of X53 has only `action`).
func (c *compiler) kind(i int32) (plan.Kind, bool) {
	s, ptr := c.nodes[i].src, c.nodes[i].ptr
	kind, found, fields := plan.Action, s.Type == "", []string{}
	for _, f := range kindFields {
		fields = append(fields, f.name)
		if s.Type == f.name {
			kind, found = f.kind, true
		}
	}
	if !found {
		c.fail(fault.RecipeInvalid, "unknown-type", c.valueAt(ptr+"/type"),
			fmt.Sprintf("%q is not a type of step; want one of %s", s.Type, list(fields)), didYouMean(s.Type, fields))
		return 0, false
	}
	var present []string
	for _, f := range kindFields {
		if !f.has(s) {
			continue
		}
		present = append(present, f.name)
		if s.Type == "" {
			kind = f.kind
		}
	}
	switch {
	case len(present) == 0 && s.Type == "":
		c.fail(fault.RecipeInvalid, "no-kind", c.valueAt(ptr), "the step does not say what it does", "give it one of "+list(fields))
		return 0, false
	case len(present) == 0:
		c.fail(fault.RecipeInvalid, "missing-field", c.valueAt(ptr),
			fmt.Sprintf("a step of type %q needs the field %q", s.Type, s.Type), "")
		return 0, false
	case len(present) > 1 && s.Type == "":
		c.fail(fault.RecipeInvalid, "two-kinds", c.keyAt(ptr+"/"+present[1]),
			fmt.Sprintf("the step has both %q and %q; it can do only one thing", present[0], present[1]), "make two steps of it")
		return 0, false
	case len(present) > 1 || present[0] != kind.String():
		for _, name := range present {
			if name != kind.String() {
				c.fail(fault.RecipeInvalid, "two-kinds", c.keyAt(ptr+"/"+name),
					fmt.Sprintf("a step of type %q has no field %q", kind, name), "remove it, or change the type")
			}
		}
		return kind, c.has(s, kind)
	}
	return kind, true
}

func (c *compiler) has(s *recipe.Step, kind plan.Kind) bool {
	for _, f := range kindFields {
		if f.kind == kind {
			return f.has(s)
		}
	}
	return false
}
