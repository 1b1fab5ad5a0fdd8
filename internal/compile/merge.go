// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

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
	refs := c.programs.Program(trimmed(src), false).Refs
	if len(refs) == 0 {
		return "value"
	}
	first := slices.MinFunc(refs, func(a, b expr.Ref) int { return cmp.Compare(a.Offset, b.Offset) })
	if first.Name == "steps" && len(first.Path) > 0 {
		return first.Path[0]
	}
	return first.Name
}
