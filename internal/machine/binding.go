// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// A bindingCode is the compiled code of a binding: that of its expression, or of each of its sources.
type bindingCode []*expr.Program

func (g *Program) compileBinding(b *plan.Binding) (c bindingCode, err error) {
	for _, e := range b.Exprs() {
		p, err := g.compile(e)
		if err != nil {
			return nil, err
		}
		c = append(c, p)
	}
	return c, nil
}

// selectRaw is [vars.selectRaw] of a binding, which is never possible where values are merged.
func (c bindingCode) selectRaw(b *plan.Binding, vs *vars) (raw []byte, ok bool) {
	if b.Merge != 0 {
		return nil, false
	}
	return vs.selectRaw(c[0])
}

// value returns the value of the binding.
func (c bindingCode) value(b *plan.Binding, vs *vars) (any, error) {
	if b.Merge == 0 {
		return c[0].Eval(vs)
	}
	if mutation.MergeOrder {
		c = slices.Clone(c)
		slices.Reverse(c)
	}
	if b.Merge == plan.MergeConcat {
		return c.concat(vs)
	}
	return c.stringify(b, vs)
}

// concat joins the texts of values with an empty line between them (X67).
func (c bindingCode) concat(vs *vars) (any, error) {
	var out strings.Builder
	for i := range c {
		v, err := c[i].Eval(vs)
		if err != nil {
			return nil, err
		}
		text, err := expr.Text(v, expr.MaxResult)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("\n\n")
		}
		if out.WriteString(text); out.Len() > expr.MaxResult {
			return nil, mergedTooLarge()
		}
	}
	return out.String(), nil
}

// stringify returns the JSON of a list of values (X68), or of an object of them by their labels (X69), as
// JSON.stringify of JavaScript writes it: without spaces, with names that are array indices first, in their
// order, and the others in the order of the sources. The values themselves are canonical.
func (c bindingCode) stringify(b *plan.Binding, vs *vars) (any, error) {
	order := make([]int, len(c))
	for i := range order {
		order[i] = i
	}
	brackets := "[]"
	if b.Merge == plan.MergeObject {
		brackets = "{}"
		slices.SortStableFunc(order, func(x, y int) int { return compareKeys(b.From[x].Label, b.From[y].Label) })
	}
	out := []byte{brackets[0]}
	for n, i := range order {
		if n > 0 {
			out = append(out, ',')
		}
		v, err := c[i].Eval(vs)
		if err != nil {
			return nil, err
		}
		if _, err := expr.Text(v, expr.MaxResult); err != nil { // such as of a large value
			return nil, err
		}
		ok := true
		if b.Merge == plan.MergeObject {
			if out, ok = jsonx.AppendLimited(out, b.From[i].Label, expr.MaxResult); ok {
				out = append(out, ':')
			}
		}
		if ok {
			out, ok = jsonx.AppendLimited(out, v, expr.MaxResult)
		}
		if !ok {
			return nil, mergedTooLarge()
		}
	}
	return string(append(out, brackets[1])), nil
}

// compareKeys orders names of an object as JavaScript does; 0 = by their insertion.
func compareKeys(a, b string) int {
	x, isX := arrayIndex(a)
	y, isY := arrayIndex(b)
	switch {
	case isX && isY && x < y, isX && !isY:
		return -1
	case isX && isY && x > y, isY && !isX:
		return 1
	}
	return 0
}

// arrayIndex returns the array index that a name is: a whole number below 2^32-1 in its shortest form.
func arrayIndex(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return n, err == nil && n < 1<<32-1 && strconv.FormatUint(n, 10) == name
}

func mergedTooLarge() error {
	return fault.New(fault.ValueTooLarge, "the merged values have more than %s", sizeText(expr.MaxResult))
}

// bound evaluates a binding of the task.
func (t *Task) bound(b *plan.Binding, c bindingCode) (any, *Failure) {
	v, err := c.value(b, &t.vars)
	if err == nil {
		return v, nil
	}
	if src := t.absent(b); src != "" {
		return nil, &Failure{Code: fault.InputMissing, Msg: fmt.Sprintf(
			"input %q is bound to %q, which has no value: its step did not run", b.Name, src)}
	}
	f := failureOf(err, fault.TemplateError)
	f.Msg = fmt.Sprintf("input %q: %s", b.Name, f.Msg)
	return nil, f
}

// absent returns an expression of the binding of which a root name has no value at all, as when its
// branch was not taken (R40); "" = there is none.
func (t *Task) absent(b *plan.Binding) string {
	for _, e := range b.Exprs() {
		for k := range e.Vars {
			v := &e.Vars[k]
			if v.Kind != plan.VarBinding {
				continue
			}
			if _, ok := t.vars.Lookup(v.Name); !ok {
				return e.Src
			}
		}
	}
	return ""
}

// promptInput is the input of an action that the template of a lens becomes.
const promptInput = "prompt"

// A promptCode is the compiled code of a prompt.
type promptCode struct {
	template *expr.Program
	values   []bindingCode
	contract *jsonschema.Schema // of the values; nil = none
}

func (g *Program) compilePrompt(st *plan.Step) (*promptCode, error) {
	c := new(promptCode)
	var err error
	if c.template, err = expr.CompileTemplateWithin(st.Prompt.Template, g.cost); err != nil {
		return nil, err
	}
	for k := range st.Prompt.Values {
		v, err := g.compileBinding(&st.Prompt.Values[k])
		if err != nil {
			return nil, err
		}
		c.values = append(c.values, v)
	}
	if len(st.InputC) > 0 {
		if c.contract, err = jsonschema.Compile(st.InputC); err != nil {
			return nil, fault.Wrap(fault.RecipeInvalid, err, "the input contract cannot be used: %v", err)
		}
	}
	return c, nil
}

// prompt renders the template of the step's lens, once the values of its placeholders fit their contract
// (X166).
func (t *Task) prompt() (string, *Failure) {
	p, c := t.step.Prompt, t.code.prompt
	values := make(map[string]any, len(p.Values))
	for k := range p.Values {
		v, fail := t.bound(&p.Values[k], c.values[k])
		if fail != nil {
			return "", fail
		}
		values[p.Values[k].Name] = v
	}
	if c.contract != nil {
		var list []string
		for _, bad := range c.contract.Validate(values) {
			list = append(list, "input"+bad.Pointer+": "+bad.Msg)
		}
		if list != nil {
			return "", &Failure{Code: fault.InputContractViolation, Phase: "input", Violations: list,
				Msg: "the input does not fit its contract: " + strings.Join(list, "; ")}
		}
	}
	v, err := c.template.Eval(expr.MapVars(values))
	if err != nil {
		return "", failureOf(err, fault.TemplateError)
	}
	text, err := expr.Text(v, expr.MaxResult)
	if err != nil {
		return "", failureOf(err, fault.TemplateError)
	}
	return text, nil
}
