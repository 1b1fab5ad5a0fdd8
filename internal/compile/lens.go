// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	ptr    string // of the reference to it
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
	if u.Lens = c.findLens(ref, at); u.Lens == nil {
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

func (c *compiler) findLens(ref *recipe.Lens, at string) *catalogue.Lens {
	l, err := c.in.lens(ref.ID, ref.Version)
	if err == nil {
		return l
	}
	where, hint := c.valueAt(at+"/id"), "no lenses are registered"
	if ref.Version != "" {
		where, hint = c.valueAt(at+"/version"), ""
	} else if ids := c.in.opt.Lenses.LensIDs(); len(ids) > 0 {
		hint = cmp.Or(didYouMean(ref.ID, ids), available(ids[:min(len(ids), 12)]))
	}
	c.fail(fault.CodeOf(err), "unknown-lens", where, fault.Message(err), hint)
	return nil
}

// lens asks Lenses, once per question, so that all steps have the same version.
func (in *includer) lens(id, version string) (*catalogue.Lens, error) {
	key := lookup{name: id, version: version, lens: true}
	f, ok := in.found[key]
	if !ok {
		f.lens, f.err = in.opt.Lenses.Lens(id, version)
		in.found[key] = f
	}
	return f.lens, f.err
}

// lensContracts gives a step the contracts of its lens where it has none of its own.
func (c *compiler) lensContracts(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if n.lens == nil {
		return
	}
	if st.InputC == nil {
		st.InputC = c.lensSchema(i, n.lens.Input)
	}
	if st.OutputC != nil {
		return // it is about the action's output, like every step's
	}
	if of := c.lensSchema(i, n.lens.Output); of != nil {
		answer := "json" // the value that the text of the answer is the JSON of
		if jsonschema.Type(of) == "string" {
			answer = "text"
		}
		if st.OutputC = jsonschema.OfField(answer, of); n.decl != nil && !jsonschema.MayHave(n.decl.Output, answer) {
			c.fail(fault.RecipeInvalid, "not-for-action", c.valueAt(n.lens.ptr), fmt.Sprintf("the lens %s has an output contract, and the output of %s has no %q", n.lens.label(), n.decl.what, answer), "")
		}
	}
}

func (c *compiler) lensSchema(i int32, raw []byte) []byte {
	if len(raw) == 0 {
		return nil
	}
	out, err := jsonx.CanonicalRaw(raw)
	if err == nil {
		_, err = jsonschema.Compile(out)
	}
	if err != nil {
		u := c.nodes[i].lens
		c.fail(fault.RecipeInvalid, "bad-lens", c.valueAt(u.ptr), fmt.Sprintf("a contract of the lens %s is not a JSON Schema: %s", u.label(), fault.Message(err)), "register a version of it with another one")
		return nil
	}
	return out
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
	names, ok := c.placeholders(u)
	if !ok {
		return
	}
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

// placeholders returns what the template of a lens names, sorted; ok is false when it cannot be used.
func (c *compiler) placeholders(u *lensUse) (names []string, ok bool) {
	at, prog := c.valueAt(u.ptr), c.program(u.Template, true)
	for _, p := range prog.problems {
		c.fail(fault.RecipeInvalid, "bad-lens", at, fmt.Sprintf("the template of the lens %s is not valid: %s", u.label(), p.Msg), p.Hint)
	}
	for _, r := range prog.refs {
		if r.Name == expr.NowVar || r.Name == expr.SeedVar {
			c.fail(fault.RecipeInvalid, "bad-lens", at, fmt.Sprintf("the template of the lens %s calls %s, and a template only has its placeholders", u.label(), expr.NameFor(r.Name)), "bind the value to a placeholder")
			continue
		}
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), len(prog.problems) == 0
}

// binding compiles the value of an input of a step, which must have the type want.
func (c *compiler) binding(here func(ptr, want string) site, name string, b recipe.Binding, want string) plan.Binding {
	out, at := plan.Binding{Name: name}, "/inputBindings/"+jsonx.EscapeToken(name)
	if len(b.From) == 0 {
		if e := c.cel(here(at+"/expression", want), b.Expression); e != nil {
			out.Expr = *e
		}
		return out
	}
	out.Merge = merges[b.Merge]
	if out.Merge != 0 {
		if want != "" && !slices.Contains(strings.Split(want, "|"), "string") {
			c.fail(fault.RecipeInvalid, "type-mismatch", here(at+"/merge", "").at, fmt.Sprintf("%s makes a text, and %q takes another type", b.Merge, name), "write one expression")
		}
		want = ""
	}
	taken := map[string]bool{}
	for k, m := range b.From {
		if m == nil || m.Expression == "" {
			continue // reported where the text was read
		}
		e := c.cel(here(fmt.Sprintf("%s/from/%d/expression", at, k), want), m.Expression)
		if e == nil {
			continue
		}
		if out.Merge == 0 {
			out.Expr = *e // the last one counts
			continue
		}
		from := plan.Part{Expr: *e}
		if out.Merge == plan.MergeObject {
			from.Label = unique(cmp.Or(m.Label, c.firstName(m.Expression)), taken)
		}
		out.From = append(out.From, from)
	}
	return out
}

// merges are the merges by the names that recipes have for them.
var merges = map[string]plan.Merge{"concat": plan.MergeConcat, "array": plan.MergeArray, "json_object": plan.MergeObject}

// unique returns a label that is not taken: the second "a" is "a#2" (R37).
func unique(label string, taken map[string]bool) string {
	as := label
	for n := 2; taken[as]; n++ {
		as = fmt.Sprintf("%s#%d", label, n)
	}
	taken[as] = true
	return as
}

// firstName returns the step or the name that an expression begins with.
func (c *compiler) firstName(src string) string {
	refs := c.program(trimmed(src), false).refs
	if len(refs) == 0 {
		return "value"
	}
	first := slices.MinFunc(refs, func(a, b expr.Ref) int { return cmp.Compare(a.Offset, b.Offset) })
	if first.Name == "steps" && len(first.Path) > 0 {
		return first.Path[0]
	}
	return first.Name
}
