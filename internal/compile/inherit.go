// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/extend"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A recipe that inherits a context may name what it does not have itself: the step that runs it has to
// have that, or to inherit it in turn (X38, R24). The step hands the values over when the child run
// starts, so that what a child run reads is known, and never changes.

// An inheritance is what a unit has from the one that includes it.
type inheritance struct {
	context   bool
	dashed    map[string]bool // with the context: ids with dashes, which some dialects write as names
	functions map[string]*recipe.Function
	providers map[string]map[string]json.RawMessage
}

// A variant is a recipe in a file, with what it inherits from a unit.
type variant struct {
	file, what string
	from       *unit // nil = only names, which are the same wherever they lead, unless ids with dashes are some
}

// inheriting returns the unit of a recipe that inherits from another one.
func (in *includer) inheriting(u, from *unit, k *recipe.Child) (*unit, error) {
	if len(k.Inherit) == 0 || u.r == nil || !u.inline && (u.text == nil || in.compiles(u) != nil) {
		return u, nil // one that is being compiled is reported as a circle
	}
	h := inheritance{context: k.Inherits(recipe.InheritContext)}
	if h.context {
		h.dashed = dialect.OuterIDs(from.r, from.inheritance.dashed)
	}
	if k.Inherits(recipe.InheritFunctions) {
		h.functions = from.functions()
	}
	if k.Inherits(recipe.InheritProviders) {
		h.providers = from.providers()
	}
	if u.inline {
		u.inheritance = h
		return u, nil
	}
	key := variant{file: path.Clean(u.file), what: strings.Join(slices.Sorted(slices.Values(k.Inherit)), " ")}
	if h.functions != nil || h.providers != nil || h.dashed != nil {
		key.from = from
	}
	if v := in.variants[key]; v != nil {
		return v, nil
	}
	if err := in.admit(len(u.text.Data)); err != nil {
		return nil, err
	}
	v := &unit{file: u.file, text: u.text, r: u.r, src: u.src, inheritance: h}
	if len(h.functions)+len(h.dashed) > 0 { // they are put in place of calls and names, which changes the recipe
		v.r, v.src, _ = extend.Parse(u.file, u.text.Data, in.opt.extending(u.text.Name))
		v.r.Version = u.r.Version
		dialect.NameOuter(v.r, v.src, h.dashed)
		dialect.Inherit(v.r, v.src, h.functions)
	}
	in.variants[key] = v
	return v, nil
}

// functions are those of the unit, and of what it inherits.
func (u *unit) functions() map[string]*recipe.Function {
	return dialect.Functions(u.r, u.inheritance.functions)
}

// providers are those of the unit, and of what it inherits.
func (u *unit) providers() map[string]map[string]json.RawMessage {
	all := maps.Clone(u.inheritance.providers)
	if all == nil {
		all = map[string]map[string]json.RawMessage{}
	}
	maps.Copy(all, u.r.Providers)
	return all
}

// provider returns the parameters for an action: under the name that the step has for it, else under its own name or
// an alias; those of the unit before those that it inherits.
func (u *unit) provider(names []string) map[string]json.RawMessage {
	for _, all := range []map[string]map[string]json.RawMessage{u.r.Providers, u.inheritance.providers} {
		for _, name := range names {
			if found := all[name]; found != nil {
				return found
			}
		}
	}
	return nil
}

// useProviders gives a step the parameters that the recipe has for its action, and that the step does not
// have itself.
func (c *compiler) useProviders(i int32) {
	n := &c.nodes[i]
	names := []string{n.src.Action.Name}
	if n.decl != nil {
		names = append(append(names, n.decl.Name), slices.Sorted(slices.Values(n.decl.Aliases))...)
	}
	found := c.unit.provider(names)
	if len(found) == 0 {
		return
	}
	own, step := *n.src.Action, *n.src
	own.Parameters = maps.Clone(found)
	maps.Copy(own.Parameters, n.src.Action.Parameters)
	for name := range n.src.InputBindings {
		if _, given := n.src.Action.Parameters[name]; !given {
			delete(own.Parameters, name)
		}
	}
	step.Action = &own
	n.src = &step
}

// maxValues is how many bytes the fields of `workflow` have.
const maxValues = 256 << 10

// maxInherits is how many values a recipe inherits.
const maxInherits = 200

// A read is where a recipe reads a value that it inherits.
type read struct {
	fault.Place
	tested bool // each place that reads it tests first whether there is one
}

// inherited returns the number of a value that the recipe inherits; ok is false if it inherits no context. tested says
// that the place tests whether there is one.
func (c *compiler) inherited(of plan.Context, name string, where location, tested bool) (k int32, ok bool) {
	if !c.unit.inheritance.context {
		return 0, false
	}
	in := plan.Inherited{Of: of, Name: name}
	if k := slices.Index(c.p.Inherits, in); k >= 0 {
		c.unit.reads[k].tested = c.unit.reads[k].tested && tested
		return int32(k), true
	}
	if len(c.p.Inherits) >= maxInherits {
		c.fail(fault.RecipeInvalid, "inherits-too-much", where, fmt.Sprintf("the recipe reads more than %d values that it has not itself", maxInherits), "give them as inputs")
		return 0, false
	}
	c.p.Inherits = append(c.p.Inherits, in)
	c.unit.reads = append(c.unit.reads, read{c.place(where, fmt.Sprintf("the recipe %q inherits the context and reads it", c.unit.label())), tested})
	return int32(len(c.p.Inherits) - 1), true
}

// inputField notes a field of the input that a recipe may inherit. There need not be one.
func (c *compiler) inputField(r expr.Ref, where location) {
	if len(r.Path) > 0 && r.Path[0] != fileHashes {
		c.inherited(plan.OfInput, r.Path[0], where, true)
	}
}

// workflowField checks a field of `workflow`; captured says that a child inherits it.
func (c *compiler) workflowField(at site, r expr.Ref, where location, captured bool) bool {
	if len(r.Path) == 0 || c.r.Values[r.Path[0]] != nil || r.Path[0] == "name" || r.Path[0] == "version" {
		return true
	}
	name := r.Path[0]
	tested := !captured && c.handlesAbsence(at, "workflow."+name)
	if _, ok := c.inherited(plan.OfWorkflow, name, where, tested); ok || tested {
		return true
	}
	known := append(slices.Sorted(maps.Keys(c.r.Values)), "name", "version")
	hint := didYouMean(name, known)
	if hint == "" {
		hint = available(known)
	}
	if len(c.r.Values) == 0 && !captured { // a recipe without values may be older than they are
		c.warn("undefined-field", where, fmt.Sprintf("workflow has no field %q", name), hint)
		return true
	}
	c.fail(fault.RecipeInvalid, "undefined-field", where, fmt.Sprintf("workflow has no field %q", name), hint)
	return false
}

// captures resolves what the child of a step inherits.
func (c *compiler) captures(i int32, at site) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if n.child == nil || n.child.p == nil {
		return
	}
	for k, in := range n.child.p.Inherits {
		before := c.findings
		h, ok := c.capture(n, at, in)
		switch {
		case ok:
			st.Child.Captures = append(st.Child.Captures, h)
		case n.child.reads[k].tested: // it may have no value
			c.diags, c.count = before.diags, before.count
		}
		for d := range c.diags[len(before.diags):] {
			more := &c.diags[len(before.diags)+d]
			more.Related = append(more.Related, n.child.reads[k].Place)
		}
	}
}

// capture resolves a value that the child of a step inherits; ok is false if there is none, or the child has it as input.
func (c *compiler) capture(n *node, at site, in plan.Inherited) (h plan.Capture, ok bool) {
	h.Inherited = in
	switch in.Of {
	case plan.OfInput:
		_, fixed := n.src.Recipe.Inputs[in.Name]
		_, bound := n.src.InputBindings[in.Name]
		if ok = !fixed && !bound; ok {
			c.inherited(plan.OfInput, in.Name, at.at, true)
		}
		h.Var, h.Field = plan.Var{Name: "input", Kind: plan.VarInput}, in.Name
	case plan.OfWorkflow:
		ok = c.workflowField(at, expr.Ref{Name: "workflow", Path: []string{in.Name}}, at.at, true)
		h.Var, h.Field = plan.Var{Name: "workflow", Kind: plan.VarInput}, in.Name
	case plan.OfSteps:
		h.Var, ok = c.resolveMember(at, expr.Ref{Name: "steps", Path: []string{in.Name}}, at.at)
	case plan.OfNames:
		h.Var, ok = c.resolveName(at, expr.Ref{Name: in.Name}, at.at)
	}
	return h, ok
}

// checkInherit warns of a registered recipe that is to inherit something.
func (c *compiler) checkInherit(i int32) {
	n := &c.nodes[i]
	if k := n.src.Recipe; len(k.Inherit) > 0 && k.Ref+k.Definition != "" {
		c.warn("no-effect", c.keyAt(n.ptr+"/recipe/inherit"), "only a recipe in a file or in this text inherits something", "give it what it needs as inputs")
	}
}

// values compiles the fields of `workflow`, and checks the providers.
func (c *compiler) values() {
	for _, name := range slices.Sorted(maps.Keys(c.r.Providers)) {
		for _, param := range slices.Sorted(maps.Keys(c.r.Providers[name])) {
			if expr.IsTemplate(string(c.r.Providers[name][param])) {
				c.fail(fault.RecipeInvalid, "template-in-value", c.valueAt(c.base+"/providers/"+jsonx.EscapeToken(name)+"/"+jsonx.EscapeToken(param)),
					"a provider has fixed values, and this is a template", "write it in the steps")
			}
		}
	}
	if len(c.r.Values) == 0 {
		return
	}
	at := c.base + "/values"
	for _, name := range []string{"name", "version"} {
		if c.r.Values[name] != nil {
			c.fail(fault.RecipeInvalid, "reserved-name", c.keyAt(at+"/"+name), fmt.Sprintf("workflow.%s is that of the recipe", name), "give the value another name")
		}
	}
	all := map[string]any{}
	for name, v := range c.r.Values {
		all[name] = v
	}
	raw, err := jsonx.Canonical(all)
	if err != nil {
		c.fail(fault.RecipeInvalid, "bad-json", c.valueAt(at), err.Error(), "")
		return
	}
	if e := jsonx.Valid(raw, jsonx.Limits{Bytes: maxValues, Depth: 100}); e != nil {
		c.fail(fault.RecipeInvalid, "values-too-large", c.keyAt(at), fmt.Sprintf("the values of workflow have at most %d bytes and 100 levels", maxValues), "give what is larger as an input")
		return
	}
	c.p.Values = raw
}
