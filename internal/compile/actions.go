// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// declared is what compile needs of an action's declaration, computed once.
type declared struct {
	*action.Action
	what     string             // for messages: the action "x"
	input    *jsonschema.Schema // nil = accepts everything
	props    map[string]any
	closed   bool     // other properties are refused
	files    []string // inputs of format file
	required []string // without those that have a default
	// oneOf are inputs of which exactly one must be given: the annotation
	// "x-exactlyOne" of the schema, for actions that accept a text or a file.
	oneOf []string
}

func (c *compiler) declare(a *action.Action) *declared {
	if d, ok := c.decls[a]; ok {
		return d
	}
	d := newDeclared(c.programs, a, fmt.Sprintf("the action %q", a.Name))
	c.decls[a] = d
	return d
}

func newDeclared(cache *expressions.Cache, a *action.Action, what string) *declared {
	d := &declared{Action: a, what: what}
	if len(a.Input) == 0 {
		return d
	}
	if s, err := cache.Schema(a.Input); err == nil {
		d.input = s
	}
	d.files = jsonschema.FileFields(a.Input)
	v, _ := jsonx.Decode(a.Input, jsonx.Limits{})
	schema, _ := v.(map[string]any)
	d.props, _ = schema["properties"].(map[string]any)
	_, patterns := schema["patternProperties"]
	d.closed = schema["additionalProperties"] == false && !patterns
	names, _ := schema["x-exactlyOne"].([]any)
	for _, v := range names {
		if name, ok := v.(string); ok {
			d.oneOf = append(d.oneOf, name)
		}
	}
	for _, name := range jsonschema.Required(a.Input) {
		prop, _ := d.props[name].(map[string]any)
		if _, ok := prop["default"]; !ok {
			d.required = append(d.required, name)
		}
	}
	return d
}

// actionStep compiles the action that a step calls, and its inputs.
func (c *compiler) actionStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	ref := n.src.Action
	if ref == nil {
		c.fail(fault.RecipeInvalid, "missing-field", c.valueAt(n.ptr), `the field "action" is missing`, "")
		n.invalid = true
		return
	}
	c.findAction(i)
	c.useLens(i)
	c.useProviders(i)
	ref = n.src.Action
	key := plan.ActionRef{Name: ref.Name, Version: ref.Version}
	if n.decl != nil {
		key.Name = n.decl.Name // an alias makes the same plan
	}
	idx, ok := c.actions[key]
	if !ok {
		idx = int32(len(c.p.Actions))
		c.p.Actions = append(c.p.Actions, key)
		c.actions[key] = idx
	}
	st.Action = idx
	c.parameters(i)
	if n.decl != nil {
		c.serviceRetry(i)
		c.markOutput(i)
		c.checkParameters(i)
		c.fileInput(i)
		c.parallelizable(i)
	}
}

// markOutput records the action's output schema if it marks values that are not to be
// shown, because those who show a run have its plan alone.
func (c *compiler) markOutput(i int32) {
	raw := c.nodes[i].decl.Output
	if bytes.Contains(raw, []byte(`"writeOnly"`)) || bytes.Contains(raw, []byte(`"x-sensitive"`)) {
		c.p.Steps[i].OutputMarks, _ = jsonx.CanonicalRaw(raw) // a schema that is no JSON fails at its first use
	}
}

func (c *compiler) findAction(i int32) {
	n := &c.nodes[i]
	ref, at := n.src.Action, n.ptr+"/action"
	var a *action.Action
	if c.opt.Actions != nil && ref.Name != approvalAction {
		if a = c.opt.Actions.Find(ref.Name, ref.Version); a != nil {
			n.decl = c.declare(a)
			return
		}
		if versions := c.opt.Actions.Versions(ref.Name); len(versions) > 0 {
			c.fail(fault.ActionNotFound, "unknown-version", c.valueAt(at+"/version"),
				fmt.Sprintf("the action %q has no version %q", ref.Name, ref.Version),
				available(versions[:min(len(versions), 5)]))
			return
		}
	}
	c.fail(fault.ActionNotFound, "unknown-action", c.valueAt(at+"/name"),
		fmt.Sprintf("no action is called %q", ref.Name), c.actionHint(ref.Name))
}

func (c *compiler) actionHint(name string) string {
	if !c.gotNames && c.opt.Actions != nil {
		c.names, c.gotNames = c.opt.Actions.Names(), true
	}
	if len(c.names) == 0 {
		return "no actions are registered"
	}
	if hint := didYouMean(name, c.names); hint != "" {
		return hint
	}
	const most = 12
	if len(c.names) > most {
		return "available: " + strings.Join(c.names[:most], ", ") + ", …"
	}
	return available(c.names)
}

// parameters compiles the constant and templated inputs. Parameters and bindings
// share one set of names; a name in both is an error, because neither takes
// precedence.
func (c *compiler) parameters(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	given, at := c.fixedInputs(i)
	word := "a parameter"
	if st.Kind == plan.Recipe {
		word = "an input"
	}
	for _, name := range slices.Sorted(maps.Keys(n.src.InputBindings)) {
		bindAt := n.ptr + "/inputBindings/" + jsonx.EscapeToken(name)
		if _, clash := given[name]; clash {
			c.fail(fault.RecipeInvalid, "input-clash", c.keyAt(bindAt),
				fmt.Sprintf("%q is given twice, as %s and as a binding", name, word), "remove one of them",
				c.place(c.keyAt(at+"/"+jsonx.EscapeToken(name)), "given here too"))
		}
		st.Bindings = append(st.Bindings, plan.Binding{Name: name})
	}
	if len(given) == 0 {
		return
	}
	obj := make(map[string]any, len(given))
	for name, raw := range given {
		obj[name] = raw
	}
	params, err := jsonx.Canonical(obj)
	if err != nil {
		c.fail(fault.RecipeInvalid, "bad-json", c.valueAt(at), err.Error(), "")
		return
	}
	st.Params = params
}

// fixedInputs returns the constant and templated inputs of a step that calls something,
// and the pointer to them.
func (c *compiler) fixedInputs(i int32) (given map[string]json.RawMessage, ptr string) {
	n := &c.nodes[i]
	switch {
	case c.p.Steps[i].Kind == plan.Recipe:
		return n.src.Recipe.Inputs, n.ptr + "/recipe/inputs"
	case c.isApproval(i):
		return nil, n.ptr + "/wait/approval"
	}
	return n.src.Action.Parameters, n.ptr + "/action/parameters"
}

// canonical returns JSON in canonical form, so that equal values make equal plans.
func (c *compiler) canonical(raw []byte, ptr string) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	out, err := jsonx.CanonicalRaw(raw)
	if err != nil {
		c.fail(fault.RecipeInvalid, "bad-json", c.valueAt(ptr), err.Error(), "")
		return nil
	}
	return out
}

// checkParameters checks the inputs against the action's schema as far as they are
// known: their names, and the constant values.
func (c *compiler) checkParameters(i int32) {
	n, d := &c.nodes[i], c.nodes[i].decl
	given, at := c.fixedInputs(i)
	if d.closed {
		known := slices.Sorted(maps.Keys(d.props))
		check := func(name string, where location) {
			if _, ok := d.props[name]; ok {
				return
			}
			hint := didYouMean(name, known)
			if hint == "" && len(known) > 0 {
				hint = "its inputs are " + strings.Join(known, ", ")
			}
			c.fail(fault.RecipeInvalid, "unknown-input", where,
				fmt.Sprintf("%s has no input %q", d.what, name), hint)
		}
		for _, name := range slices.Sorted(maps.Keys(given)) {
			check(name, c.keyAt(at+"/"+jsonx.EscapeToken(name)))
		}
		for _, name := range slices.Sorted(maps.Keys(n.src.InputBindings)) {
			check(name, c.keyAt(n.ptr+"/inputBindings/"+jsonx.EscapeToken(name)))
		}
	}
	if d.input == nil || len(c.p.Steps[i].Params) == 0 {
		return
	}
	v, err := jsonx.Decode(c.p.Steps[i].Params, jsonx.Limits{})
	if err != nil {
		return // reported where it was made canonical
	}
	params, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(params)) {
		c.inputExpressions(at+"/"+jsonx.EscapeToken(name), params[name], d.props[name])
	}
	for name, v := range params {
		if expr.HasTemplate(v) {
			delete(params, name) // known only at run time
		}
	}
	for _, bad := range d.input.Validate(params) {
		first, _, _ := strings.Cut(strings.TrimPrefix(bad.Pointer, "/"), "/")
		name := jsonx.UnescapeToken(first)
		_, known := d.props[name]
		if _, given := params[name]; bad.Pointer == "" || !given || !known {
			continue // the violation is of the object as a whole, and bindings may add what it lacks
		}
		c.fail(fault.RecipeInvalid, "bad-parameter", c.valueAt(at+bad.Pointer),
			fmt.Sprintf("%s does not accept this value for %q: %s", d.what, name, bad.Msg), "")
	}
}

// fileInput decides which input gets the run's only file, and which inputs are
// required. Of several unbound file inputs the only required one gets the file.
func (c *compiler) fileInput(i int32) {
	n, st, d := &c.nodes[i], &c.p.Steps[i], c.nodes[i].decl
	given := func(name string) bool {
		_, param := n.src.Action.Parameters[name]
		_, bound := n.src.InputBindings[name]
		return param || bound || name == promptInput && n.src.Action.Lens != nil
	}
	c.exactlyOne(i, given)
	free := slices.DeleteFunc(slices.Clone(d.files), func(f string) bool {
		return given(f) || slices.Contains(d.oneOf, f) && slices.ContainsFunc(d.oneOf, given)
	})
	if len(free) > 1 {
		free = slices.DeleteFunc(free, func(f string) bool { return !slices.Contains(d.required, f) })
	}
	if len(free) == 1 {
		st.FileInput = free[0]
	}
	st.Required = d.required
	for _, name := range d.required {
		if given(name) || name == st.FileInput {
			continue
		}
		hint := "give it under " + c.word(n.ptr+"/action/parameters") + " or inputBindings"
		if slices.Contains(d.files, name) {
			hint = "the action has several file inputs: bind each, for example to fileHashes[0]"
		}
		at := c.valueAt(n.ptr + "/action")
		if n.src.Action.Name != "" {
			at = c.valueAt(n.ptr + "/action/name")
		}
		c.fail(fault.RecipeInvalid, "missing-input", at,
			fmt.Sprintf("the action %q needs the input %q", d.Name, name), hint)
	}
}

// exactlyOne refuses several inputs of which the action accepts only one. Whether one
// is given at all is known only at run time, because the run's only file may be it.
func (c *compiler) exactlyOne(i int32, given func(string) bool) {
	n, d := &c.nodes[i], c.nodes[i].decl
	var both []string
	for _, name := range d.oneOf {
		if given(name) {
			both = append(both, name)
		}
	}
	if len(both) < 2 {
		return
	}
	at := n.ptr + "/action/parameters/" + jsonx.EscapeToken(both[1])
	if _, bound := n.src.InputBindings[both[1]]; bound {
		at = n.ptr + "/inputBindings/" + jsonx.EscapeToken(both[1])
	}
	c.fail(fault.RecipeInvalid, "input-clash", c.keyAt(at),
		fmt.Sprintf("the action %q accepts only one of %s, and the step gives %s", d.Name, list(d.oneOf), strings.Join(both, " and ")), "remove all but one")
}

// parallelizable refuses actions that must not run concurrently with themselves in
// parallel branches and concurrent loops (X54). It allows them in compensations, which
// run one at a time.
func (c *compiler) parallelizable(i int32) {
	d := c.nodes[i].decl
	if d.Metadata.MayRunInParallel() {
		return
	}
	for g := c.p.Steps[i].Graph; g != plan.None; g = c.outer(g) {
		gr := &c.p.Graphs[g]
		why := ""
		switch {
		case gr.Role == plan.Compensation:
			return
		case gr.Role == plan.Branch:
			why = "in a parallel branch"
		case gr.Role == plan.Body && c.nodes[gr.Owner].src.Loop.MaxConcurrency > 1:
			why = "in a loop that runs several items at once"
		default:
			continue
		}
		c.fail(fault.RecipeInvalid, "not-parallelizable", c.valueAt(c.nodes[i].ptr+"/action/name"),
			fmt.Sprintf("the action %q is not parallelizable, but this step is %s", d.Name, why),
			"move it out, or run one at a time",
			c.place(c.valueAt(c.nodes[gr.Owner].ptr), c.scopeName(g)))
		return
	}
}
