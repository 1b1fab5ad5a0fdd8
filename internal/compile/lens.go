// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A lensUse is the lens of a step.
type lensUse struct {
	*catalogue.Lens
	names  []string // of its placeholders
	ptr    string   // of the reference to it
	values map[string]recipe.Binding
}

const promptInput, modelInput = "prompt", "model"

// useLens finds the lens of an action step. The bindings of the step are the values of its placeholders
// then, and its model is an input of the action if the step names none.
func (c *compiler) useLens(i int32) {
	n := &c.nodes[i]
	ref, at := n.src.Action.Lens, n.ptr+"/action/lens"
	if ref == nil {
		return
	}
	own, step := *n.src.Action, *n.src
	u := &lensUse{ptr: at, values: step.InputBindings}
	step.Action, step.InputBindings = &own, nil
	n.src = &step
	if n.decl != nil && n.decl.closed && n.decl.props[promptInput] == nil {
		c.fail(fault.RecipeInvalid, "not-for-action", c.keyAt(at), fmt.Sprintf("%s takes no lens: it has no input %q", n.decl.what, promptInput), "")
		n.invalid = true
		return
	}
	if _, clash := own.Parameters[promptInput]; clash {
		c.fail(fault.RecipeInvalid, "input-clash", c.keyAt(n.ptr+"/action/parameters/"+promptInput),
			fmt.Sprintf("%q is given twice, as a parameter and by a lens", promptInput), "remove one of them", c.place(c.keyAt(at), "given here too"))
	}
	if !c.findLens(u, ref) {
		n.invalid = true
		return
	}
	_, given := own.Parameters[modelInput]
	switch {
	case given || u.Model == "":
	case expr.HasTemplate(u.Model):
		c.fail(fault.RecipeInvalid, "bad-lens", c.valueAt(at), fmt.Sprintf("the model of the lens %s is a template, and none is evaluated there", u.label()), "register a version of it with the name of a model")
	case n.decl != nil && n.decl.closed && n.decl.props[modelInput] == nil:
		c.fail(fault.RecipeInvalid, "not-for-action", c.valueAt(at), fmt.Sprintf("the lens %s has a model, and %s takes none", u.label(), n.decl.what), "")
	default:
		all := map[string]json.RawMessage{}
		maps.Copy(all, own.Parameters)
		all[modelInput], _ = jsonx.Canonical(u.Model)
		own.Parameters = all
	}
	n.lens = u
}

// findLens finds the lens of a use, and reports why it cannot be used.
func (c *compiler) findLens(u *lensUse, ref *recipe.Lens) bool {
	f := c.in.lens(ref.ID, ref.Version)
	u.Lens, u.names = f.lens, f.names
	where, hint := c.valueAt(u.ptr+"/id"), "no lenses are registered"
	switch {
	case f.err == nil:
		return true
	case u.Lens != nil:
		c.fail(fault.RecipeInvalid, "bad-lens", c.valueAt(u.ptr), fmt.Sprintf("the lens %s cannot be used: %s", u.label(), fault.Message(f.err)), "")
		return false
	case ref.Version != "":
		where, hint = c.valueAt(u.ptr+"/version"), ""
	default:
		if ids := c.in.opt.Lenses.LensIDs(); len(ids) > 0 {
			hint = cmp.Or(didYouMean(ref.ID, ids), available(ids[:min(len(ids), 12)]))
		}
	}
	c.fail(fault.CodeOf(f.err), "unknown-lens", where, fault.Message(f.err), hint)
	return false
}

// lens asks Lenses, once per question, so that all steps have the same version. The error may be one of the
// lens that was found.
func (in *includer) lens(id, version string) found {
	key := lookup{name: id, version: version, lens: true}
	f, ok := in.found[key]
	if !ok {
		if f.lens, f.err = in.opt.Lenses.Lens(id, version); f.err == nil {
			f.names, f.err = f.lens.Placeholders()
		}
		in.found[key] = f
	}
	return f
}

// lensContracts gives a step the contracts of its lens where it has none of its own.
func (c *compiler) lensContracts(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if n.lens == nil {
		return
	}
	if st.InputC == nil {
		st.InputC = c.schema(n.lens.Input, n.lens.ptr)
	}
	if st.OutputC != nil {
		return // it is about the action's output, like every step's
	}
	if of := c.schema(n.lens.Output, n.lens.ptr); of != nil {
		answer := "json" // the value that the text of the answer is the JSON of
		if jsonschema.Type(of) == "string" {
			answer = "text"
		}
		if st.OutputC = jsonschema.OfField(answer, of); n.decl != nil && !jsonschema.MayHave(n.decl.Output, answer) {
			c.fail(fault.RecipeInvalid, "not-for-action", c.valueAt(n.lens.ptr), fmt.Sprintf("the lens %s has an output contract, and the output of %s has no %q", n.lens.label(), n.decl.what, answer), "")
		}
	}
}

func (u *lensUse) label() string { return u.ID + "@" + u.Version }

// resolvePrompt compiles the template of a step's lens, and the values of its placeholders: each is bound
// by the step, or the input of the run of that name (X41).
func (c *compiler) resolvePrompt(i int32, here func(ptr, want string) site) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	u := n.lens
	if u == nil {
		return
	}
	names := u.names
	st.Prompt = &plan.Prompt{Lens: u.label(), Template: u.Template}
	for _, name := range slices.Sorted(maps.Keys(u.values)) {
		if _, has := slices.BinarySearch(names, name); !has {
			c.fail(fault.RecipeInvalid, "unknown-input", c.keyAt(n.ptr+"/inputBindings/"+jsonx.EscapeToken(name)),
				fmt.Sprintf("the lens %s has no placeholder %q", u.label(), name), cmp.Or(didYouMean(name, names), available(names)))
		}
	}
	for _, name := range names {
		if b, bound := u.values[name]; bound {
			st.Prompt.Values = append(st.Prompt.Values, c.binding(here, name, b, ""))
			continue
		}
		quoted, _ := jsonx.Canonical(name)
		if e := c.cel(here("/action/lens", ""), "input["+string(quoted)+"]"); e != nil {
			st.Prompt.Values = append(st.Prompt.Values, plan.Binding{Name: name, Expr: *e})
		}
	}
}
