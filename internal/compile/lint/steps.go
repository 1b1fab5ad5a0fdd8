// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// maxDepth is how deep steps may be within steps before it is worth a remark.
const maxDepth = 4

// step looks at one step.
func (c *checker) step(s *recipe.Step, in scope, last bool) {
	if s.ID == "" {
		c.advise("missing-step-id", s.Ptr, "the step has no id: its journal, messages and pictures call it by its place, which another step changes", `give it an id, such as "fetch-page"`)
	}
	if in.depth == maxDepth+1 {
		c.advise("deep-nesting", s.Ptr, fmt.Sprintf("%s is %d levels deep in other steps", named(s), in.depth-1), "move the inner steps into a recipe of their own, as `roux refactor` does")
	}
	if s.ContinueOnError && !c.readsOf(s.ID, "error", "status") {
		c.adviseKey("unread-error", s.Ptr+"/continue_on_error", fmt.Sprintf("when %s fails the run goes on, and nothing reads the error", named(s)), "read steps."+s.ID+".status or .error, or let it fail")
	}
	if d := c.declared(s); d != nil {
		c.service(s, d, in)
		c.model(s, d)
		if in.looped && c.r.CreditEstimation == nil && c.root && costs(d) {
			c.advise("missing-credit-estimation", s.Ptr, fmt.Sprintf("each call of %q costs credits, the loop makes any number of them, and nothing estimates how many", d.Name), "add creditEstimation to the recipe, with maxCredits")
		}
	}
	c.unread(s, last)
	c.bounds(s)
	if s.Recipe != nil && s.Recipe.Named() != "" && !strings.Contains(s.Recipe.Ref, "@") {
		c.advise("unpinned-recipe", s.Ptr+"/recipe/ref", fmt.Sprintf("%q names no version: the next one that is registered is run", s.Recipe.Ref), "name at least the major version: "+s.Recipe.Ref+"@1")
	}
}

func costs(d *action.Action) bool {
	price, err := catalogue.Price(d)
	return d.Cost > 0 || err == nil && price > 0
}

// service looks at a step that calls a service over the network.
func (c *checker) service(s *recipe.Step, d *action.Action, in scope) {
	if d.Provider == "" && !slices.Contains(d.Faults, fault.ServiceUnavailable) {
		return
	}
	st := c.steps[s.ID]
	if s.Timeout == "" && s.TotalTimeout == "" && !has(properties(d.Input), "timeout") {
		c.advise("missing-timeout", s.Ptr, fmt.Sprintf("%s calls a service and has no timeout: an attempt may take %s", named(s), c.defaultTimeout(st)), "say how long an attempt may take, such as timeout: 1m")
	}
	handled := s.OnError != nil && s.OnError.Strategy != "fail" || s.ContinueOnError || s.Compensate != nil || in.raced
	once := d.Delivery == action.AtMostOnce || st != nil && st.Retry.Attempts > 1
	if s.RetryPolicy == nil && !s.OnError.Retries() && c.r.ServiceRetry == nil && !handled && !once {
		c.advise("missing-retry", s.Ptr, fmt.Sprintf("%s calls a service, and its first failure fails the run", named(s)), "add retryPolicy: {maxAttempts: 3}, or service_retry to the recipe")
	}
}

// defaultTimeout is the timeout that a step has without one of its own.
func (c *checker) defaultTimeout(st *plan.Step) string {
	if st == nil || st.TimeoutMS == 0 {
		return "10m"
	}
	return plan.FormatMS(st.TimeoutMS)
}

// model looks at a step that asks a model, or uses a lens.
func (c *checker) model(s *recipe.Step, d *action.Action) {
	a := s.Action
	var ofLens string
	if l := a.Lens; l != nil {
		if l.Version == "" {
			c.advise("unpinned-lens", s.Ptr+"/action/lens", fmt.Sprintf("the lens %q has no version: whoever puts another one changes this recipe", l.ID), "name the version, such as lens: {id: "+l.ID+`, version: "1"}`)
		}
		if c.opt.Lenses != nil {
			if known, err := c.opt.Lenses.Lens(l.ID, l.Version); err == nil {
				ofLens = known.Model
			}
		}
	}
	props := properties(d.Input)
	_, bound := s.InputBindings["model"]
	if !has(props, "model") || !has(props, "provider") || ofLens != "" || bound || len(a.Parameters["model"]) > 0 {
		return
	}
	c.advise("unpinned-model", s.Ptr+"/action", fmt.Sprintf("%s names no model: the answer changes when the configuration of the server does", named(s)), "name the model in its parameters")
}

// unread looks for an output that was computed for nothing.
func (c *checker) unread(s *recipe.Step, last bool) {
	st := c.steps[s.ID]
	if s.Transform == nil || last || st == nil || st.Keep || s.OutputBinding != "" || s.Transform.OutputBinding != "" || c.readsOf(s.ID, "output", "status", "error") {
		return
	}
	c.advise("unused-output", s.Ptr, fmt.Sprintf("nothing reads what %s computes", named(s)), "remove it, or read steps."+s.ID+".output")
}

// bounds looks for what has no bound.
func (c *checker) bounds(s *recipe.Step) {
	if s.Loop != nil && (c.r.Limits == nil || c.r.Limits.MaxLoopItems == 0) {
		if field, ok := inputField(s.Loop.Over); ok && !c.bounded(field) {
			c.advise("unbounded-loop", s.Ptr+"/loop/over", fmt.Sprintf("whoever starts a run decides how long the list %q is: up to the default of 100,000 items", s.Loop.Over),
				"give it maxItems in the inputSchema, or the recipe limits: {max_loop_items: 1000}")
		}
	}
	if w := s.Wait; w != nil && (w.Signal != "" || w.Approval != nil) && w.Timeout == "" && s.TotalTimeout == "" {
		c.advise("missing-wait-timeout", s.Ptr+"/wait", fmt.Sprintf("%s waits until the run expires if nobody answers", named(s)), "add a timeout, and onError for what happens then")
	}
}

// inputField returns the field when an expression is a field of the input and nothing else.
func inputField(src string) (string, bool) {
	for _, root := range []string{"input.", "inputs.", "parameters."} {
		if name, ok := strings.CutPrefix(strings.TrimSpace(src), root); ok && !strings.ContainsAny(name, ".[( ") {
			return name, true
		}
	}
	return "", false
}

// bounded reports whether the schema of the input bounds a list.
func (c *checker) bounded(field string) bool {
	prop, _ := properties(c.r.InputSchema)[field].(map[string]any)
	_, most := prop["maxItems"]
	return most || prop["format"] == "file"
}

// properties returns the properties of a JSON Schema of an object.
func properties(schema json.RawMessage) map[string]any {
	if len(schema) == 0 {
		return nil
	}
	v, err := jsonx.Decode(schema, jsonx.Limits{Bytes: len(schema) + 1})
	if err != nil {
		return nil
	}
	s, _ := v.(map[string]any)
	props, _ := s["properties"].(map[string]any)
	return props
}

func has(m map[string]any, name string) bool { _, ok := m[name]; return ok }
