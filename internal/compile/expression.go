// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A site is the place of an expression, which determines the names it can use.
type site struct {
	step         int32 // None outside of steps, such as in outputs, which run after all steps
	graph        int32 // innermost graph whose names are visible
	at           location
	leading      int    // runes of white space trimmed before it
	src          string // "" for a tree
	want         string // type the result must have; "" = any
	secrets      bool   // a reference to a secret is allowed
	compensation bool   // in a compensation, which runs after everything, so it waits for no step
	ahead        bool   // before an iteration of the loop, none of whose steps has run
}

type problem = expr.Problem

// resolve compiles every expression and resolves its names.
func (c *compiler) resolve() {
	for i := range c.nodes {
		if !c.nodes[i].invalid {
			c.resolveStep(int32(i))
		}
	}
	c.resolveOutputs()
	c.resolveFormula()
}

func (c *compiler) resolveStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	here := func(ptr, want string) site {
		return site{step: i, graph: st.Graph, at: c.valueAt(n.ptr + ptr), want: want, compensation: c.compensates(st.Graph)}
	}
	if n.src.When != "" {
		st.When = c.cel(here("/when", "bool"), n.src.When)
	}
	switch st.Kind {
	case plan.Action:
		c.resolveInputs(i, here)
		c.resolveCache(i, here)
	case plan.Recipe:
		c.resolveInputs(i, here)
		if n.src.Recipe.Files != "" {
			st.Expr = c.cel(here("/recipe/files", "list"), n.src.Recipe.Files)
		}
		c.resolveReference(i, here)
		c.captures(i, here("/recipe", ""))
	case plan.Condition:
		st.Expr = c.cel(here("/condition/expression", "bool"), n.src.Condition.Expression)
	case plan.Transform:
		c.resolveTransform(i, here)
	case plan.Loop:
		c.resolveLoop(i, here)
	case plan.Wait:
		if c.isWaitAction(i) {
			c.resolveWaitAction(i, here)
		} else if n.src.Wait.Until != "" {
			st.Expr = c.cel(here("/wait/until", "timestamp|string"), n.src.Wait.Until)
			c.checkTime(st.Expr, c.valueAt(n.ptr+"/wait/until"))
		}
	case plan.Fail:
		if n.src.Fail.Message != "" {
			st.Expr = c.template(here("/fail/message", ""), n.src.Fail.Message)
		}
	}
}

// resolveReference compiles the expression that says which recipe a step runs (X251).
func (c *compiler) resolveReference(i int32, here func(ptr, want string) site) {
	k, child := c.nodes[i].src.Recipe, c.p.Steps[i].Child
	switch {
	case len(k.Sources()) != 1: // reported
	case k.Definition != "":
		child.RefExpr = c.cel(here("/recipe/definition", "map|string"), k.Definition)
	case k.Ref != "" && k.Named() == "":
		child.RefExpr = c.template(here("/recipe/ref", ""), k.Ref)
	}
}

func (c *compiler) resolveTransform(i int32, here func(ptr, want string) site) {
	st, t := &c.p.Steps[i], c.nodes[i].src.Transform
	if len(t.Value) == 0 {
		st.Expr = c.cel(here("/transform/expression", ""), t.Expression)
		return
	}
	if st.Params = c.canonical(t.Value, c.nodes[i].ptr+"/transform/value"); st.Params != nil {
		st.ParamRef = c.tree(here("/transform/value", ""), st.Params)
	}
}

// checkTime checks a time that is a constant string.
func (c *compiler) checkTime(e *plan.Expr, at location) {
	written, ok := c.constant(e).(string)
	if !ok {
		return
	}
	if _, err := time.Parse(time.RFC3339, written); err != nil {
		c.fail(fault.RecipeInvalid, "bad-time", at, fmt.Sprintf("%q is not a point in time", written), `want RFC 3339, such as "2027-01-31T18:00:00Z"`)
	}
}

func (c *compiler) resolveInputs(i int32, here func(ptr, want string) site) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	for k := range st.Bindings {
		name, want := st.Bindings[k].Name, ""
		if n.decl != nil {
			want = celType(n.decl.props[name])
		}
		st.Bindings[k] = c.binding(here, name, n.src.InputBindings[name], want)
	}
	c.resolvePrompt(i, here)
	if text := string(st.Params); strings.Contains(text, "{{") || strings.Contains(text, "{%") {
		_, ptr := c.fixedInputs(i)
		at := here(strings.TrimPrefix(ptr, n.ptr), "")
		at.secrets = st.Kind == plan.Action && !c.isApproval(i) // people read what a request says
		st.ParamRef = c.tree(at, st.Params)
	}
}

// celTypes maps the types of JSON Schema to those of CEL.
var celTypes = map[string]string{
	"string": "string", "boolean": "bool", "array": "list", "integer": "int", "number": "number", "object": "map",
}

// celType returns the CEL type that a property's schema requires, or "" when it allows
// several. With it the output of one action is checked against the input of the next
// (X11).
func celType(prop any) string {
	p, _ := prop.(map[string]any)
	name, _ := p["type"].(string)
	return celTypes[name]
}

func (c *compiler) compensates(g int32) bool { return c.p.Graphs[g].Role == plan.Compensation }

// resolveOutputs compiles the run's result (R41), which sees the names of the root.
func (c *compiler) resolveOutputs() {
	for _, name := range slices.Sorted(maps.Keys(c.r.Outputs)) {
		at := c.valueAt(c.base + "/outputs/" + jsonx.EscapeToken(name))
		b := plan.Binding{Name: name}
		if e := c.cel(site{step: plan.None, at: at}, c.r.Outputs[name]); e != nil {
			b.Expr = *e
		}
		c.p.Outputs = append(c.p.Outputs, b)
	}
}

// resolveFormula checks the credit formula. Its names may be unknown (R15), and its
// integers and doubles mix (R14), so only its syntax can be wrong.
func (c *compiler) resolveFormula() {
	e := c.r.CreditEstimation
	if e == nil || e.Formula == "" {
		return
	}
	at := c.valueAt(c.base + "/creditEstimation/formula")
	src := trimmed(e.Formula)
	prog := c.programs.Program(src, false)
	for _, p := range prog.Problems {
		if p.Rule != expr.RuleType {
			c.fail(fault.RecipeInvalid, p.Rule, at.in(p.Offset, p.Len), "the formula is not a CEL expression: "+p.Msg, p.Hint)
		}
	}
	fields := inputFields(c.r.InputSchema)
	for _, r := range prog.Refs {
		if isReserved(r.Name) {
			continue
		}
		if slot, ok := c.frames[0].slots[r.Name]; ok {
			c.slotRead[graphSlot{0, slot}] = true
			if reads := &c.p.Estimate.Reads; !slices.ContainsFunc(*reads, func(v plan.Var) bool { return v.Name == r.Name }) {
				*reads = append(*reads, plan.Var{Name: r.Name, Kind: plan.VarBinding, Index: slot})
			}
			continue
		}
		if slices.Contains(FileSums, r.Name) || slices.Contains(fields, r.Name) {
			continue
		}
		c.warn("unknown-variable", at.in(r.Offset, r.Len),
			fmt.Sprintf("%q is not defined in this recipe, so every run reserves maxCredits", r.Name), didYouMean(r.Name, c.frames[0].names))
	}
}

// inputFields returns the properties of an input schema, which a formula can also use
// without `input.`.
func inputFields(schema json.RawMessage) []string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil // reported where schemas are compiled, or a boolean schema
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

func trimmed(src string) string { return strings.TrimSpace(src) }

// cel compiles one CEL expression.
func (c *compiler) cel(at site, src string) *plan.Expr {
	cut := strings.TrimLeft(src, " \t\r\n")
	at.leading = utf8.RuneCountInString(src) - utf8.RuneCountInString(cut)
	at.src = trimmed(src)
	if at.src == "" {
		c.fail(fault.RecipeInvalid, "missing-field", at.at, "the expression is empty", "")
		return nil
	}
	if expr.IsTemplate(at.src) && c.programs.Program(at.src, false).Broken() {
		c.fail(fault.RecipeInvalid, "template-in-cel", at.at, "this field takes a CEL expression, not a template",
			"write the expression alone, without {{ }}")
		return nil
	}
	return c.compiled(at, false)
}

// template compiles text with placeholders.
func (c *compiler) template(at site, src string) *plan.Expr {
	at.src = src
	return c.compiled(at, true)
}

func (c *compiler) compiled(at site, template bool) *plan.Expr {
	if c.hasSecret(at.at, at.src, template) {
		return nil
	}
	prog := c.programs.Program(at.src, template)
	if len(prog.Problems) > 0 {
		c.problems(at, prog.Problems)
		return nil
	}
	vars := c.resolveNames(at, prog.Refs)
	c.check(at, template, prog.Refs, vars)
	return &plan.Expr{Src: at.src, Template: template, Vars: vars}
}

// tree compiles the templates in a JSON value and returns their variables.
func (c *compiler) tree(at site, raw json.RawMessage) []plan.Var {
	if c.treeSecret(at, raw) {
		return nil
	}
	tree, ps := c.programs.Tree(raw, at.secrets)
	if len(ps) > 0 {
		c.problems(at, ps)
		return nil
	}
	refs := tree.Refs()
	vars := c.resolveNames(at, refs)
	c.checkTree(at, raw, refs, vars)
	return vars
}

// problems reports what expr found, at the places in the recipe.
func (c *compiler) problems(at site, ps []problem) {
	for _, p := range ps {
		where := at.at
		where.ptr += p.Pointer
		c.fail(fault.RecipeInvalid, p.Rule, where.in(p.Offset+at.leading, p.Len), p.Msg, p.Hint)
	}
}

// FileSums are the names that a formula can use for totals over the run's files (R15).
var FileSums = []string{"fileCount", "file_count", "mimeType", "mime_type", "pageCount", "page_count",
	"sizeBytes", "size_bytes", "sizeMb", "size_mb"}
