// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
)

// hover answers textDocument/hover.
func (s *server) hover(d *document, p *documentParams) (any, error) {
	offset := d.offset(p.Position)
	if d.is(s.cfg.Ignore) == aLens {
		return nil, nil
	}
	if o := s.reading(d).at(offset); o != nil {
		r := d.rangeOf(o.from, o.to)
		return hoverResult{markup{"markdown", s.symbolText(o.sym)}, &r}, nil
	}
	c := s.cursorAt(d, offset)
	if c == nil {
		return nil, nil
	}
	text := s.hoverText(d, c)
	if text == "" {
		return nil, nil
	}
	return hoverResult{Contents: markup{"markdown", text}}, nil
}

// hoverText says what is at a cursor that is at no name of the author's.
func (s *server) hoverText(d *document, c *cursor) string {
	if code, template, ok := c.inCode(); ok {
		return s.codeText(c, code, template)
	}
	field := c.field()
	name := strings.Replace(c.node.Text, stand, "", 1)
	switch {
	case c.key:
	case strings.HasSuffix(c.pointer, "/version"):
	case strings.HasSuffix(field, "/action/lens"), strings.HasSuffix(field, "/action/lens/id"):
		if text := s.lensText(d, name, ""); text != "" {
			return text
		}
	case strings.HasSuffix(field, "/action/name"), strings.HasSuffix(field, "/action/version"):
		name, version, _ := strings.Cut(name, "@")
		if text := s.actionText(name, version); text != "" {
			return text
		}
	case strings.HasSuffix(field, "/recipe/ref"), strings.HasSuffix(field, "/recipe/file"):
		if text := s.childText(d, name, strings.HasSuffix(field, "/file")); text != "" {
			return text
		}
	}
	if c.key && c.step != nil && (strings.Contains(field, "/action/parameters/") || strings.Contains(field, "/inputBindings/")) {
		for _, p := range s.properties(c.action(), "") {
			if p.name == c.text {
				return "**" + p.name + "**: " + p.kind + "\n\n" + p.text()
			}
		}
	}
	if c.key {
		for _, f := range c.inside.Fields(c.parent) {
			if f.Name == c.text {
				return fieldText(f)
			}
		}
		return ""
	}
	if f, ok := c.spot.Field(); ok {
		return fieldText(f)
	}
	return ""
}

// codeText says what a word in an expression is.
func (s *server) codeText(c *cursor, code string, template bool) string {
	rest := c.text[c.at:]
	word := code[len(strings.TrimRightFunc(code, nameRune)):] + rest[:len(rest)-len(strings.TrimLeftFunc(rest, nameRune))]
	chain := chainBefore(code)
	if word == "" {
		return ""
	}
	if len(chain) == 0 {
		for _, n := range everyName {
			if n.name == word {
				return "**" + word + "**: " + n.what
			}
		}
	} else {
		for _, p := range s.members(c, chain) {
			if p.name == word {
				return "**" + p.name + "**: " + p.kind + "\n\n" + p.text()
			}
		}
	}
	list := functions()
	if template && filterBefore(code) {
		list = filters()
	}
	for _, f := range list {
		short := f.name[strings.LastIndexByte(f.name, '.')+1:]
		if short == word {
			return "**" + f.name + "**\n\n" + f.doc
		}
	}
	return ""
}

// fieldText describes a field of the form.
func fieldText(f form.Field) string {
	text := fmt.Sprintf("**%s**: %s\n\n%s", f.Name, f.Takes, f.Doc)
	switch {
	case f.Required:
		text += "\n\nRequired."
	case f.Default != "" && f.Default != "none":
		text += "\n\nDefault: " + f.Default + "."
	}
	return text + "\n\n```yaml\n" + f.Example + "\n```"
}

// kindOf says in a few words what a symbol is.
func (s *server) kindOf(sym *symbol) string {
	by := sym.by[0]
	switch {
	case sym.kind == aBinding:
		return "output of " + stepName(by)
	case sym.kind == aLoopVariable && by.Loop != nil && cmp.Or(by.Loop.Index, "index") == sym.name:
		return "number of the item of the loop " + stepName(by) + ", from 0"
	case sym.kind == aLoopVariable && by.Loop != nil && by.Loop.Accumulate != nil && by.Loop.Accumulate.As == sym.name:
		return "what the loop " + stepName(by) + " accumulates"
	case sym.kind == aLoopVariable:
		return "item of the loop " + stepName(by)
	case by.Action != nil && by.Action.Name != "":
		return "step that calls " + by.Action.Name
	}
	for _, k := range []struct {
		name string
		is   bool
	}{
		{"condition", by.Condition != nil}, {"parallel", by.Parallel != nil}, {"transform", by.Transform != nil},
		{"loop", by.Loop != nil}, {"wait", by.Wait != nil}, {"fail", by.Fail != nil}, {"recipe", by.Recipe != nil},
	} {
		if k.is {
			return k.name + " step"
		}
	}
	return "step"
}

func stepName(s *recipe.Step) string { return cmp.Or(s.ID, s.Name, "a step without id") }

// symbolText describes a name that the author has chosen, with its type where that is known.
func (s *server) symbolText(sym *symbol) string {
	text := "**" + sym.name + "**: " + s.kindOf(sym)
	by := sym.by[0]
	if sym.kind == aStep && by.Name != "" {
		text += "\n\n" + by.Name
	}
	if len(sym.by) > 1 && sym.kind == aBinding {
		var names []string
		for _, b := range sym.by {
			names = append(names, stepName(b))
		}
		text = "**" + sym.name + "**: output of one of " + strings.Join(names, ", ")
	}
	if a := s.actionOf(by); a != nil && sym.kind != aLoopVariable {
		if sym.kind == aStep && a.Description != "" {
			text += "\n\n" + a.Description
		}
		if list := propertyList(a.Output); list != "" {
			text += "\n\nOutput:\n\n" + list
		}
	}
	if by.Transform != nil && sym.kind != aLoopVariable {
		text += "\n\n```\n" + cmp.Or(by.Transform.Expression, string(by.Transform.Value)) + "\n```"
	}
	return text
}

func (s *server) actionOf(st *recipe.Step) *action.Action {
	if st == nil || st.Action == nil {
		return nil
	}
	return s.cfg.Actions.Find(strings.Replace(st.Action.Name, stand, "", 1), st.Action.Version)
}

// actionText describes an action; "" = there is none.
func (s *server) actionText(name, version string) string {
	a := s.cfg.Actions.Find(name, version)
	if a == nil {
		return ""
	}
	text := fmt.Sprintf("**%s** %s\n\n%s", a.Name, a.Version, a.Description)
	if list := propertyList(a.Input); list != "" {
		text += "\n\nInputs:\n\n" + list
	}
	if list := propertyList(a.Output); list != "" {
		text += "\n\nOutput:\n\n" + list
	}
	return text
}

// lensText describes a lens; "" = there is none.
func (s *server) lensText(d *document, id, version string) string {
	lenses := s.cfg.Options(d.file).Lenses
	if lenses == nil {
		return ""
	}
	l, err := lenses.Lens(id, version)
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("**%s** lens, version %s", l.ID, l.Version)
	if names, err := l.Placeholders(); err == nil && len(names) > 0 {
		text += "\n\nPlaceholders: `" + strings.Join(names, "`, `") + "`"
	}
	if l.Model != "" {
		text += "\n\nModel: " + l.Model
	}
	return text + "\n\n```\n" + cut(l.Template, 600) + "\n```"
}

// childText describes a recipe that a step names; "" = it cannot be read.
func (s *server) childText(d *document, name string, file bool) string {
	recipes := s.cfg.Options(d.file).Recipes
	if recipes == nil {
		return ""
	}
	found := recipes.Find
	if file {
		found = func(name, _ string) (*compile.Text, error) { return recipes.File(d.file, name) }
	}
	name, version, _ := strings.Cut(name, "@")
	t, err := found(name, version)
	if err != nil {
		return ""
	}
	r := read(newDocument("", t.File, 0, string(t.Data), false), s.cache)
	if len(r.recipes) == 0 {
		return ""
	}
	of := r.recipes[0].r
	out := fmt.Sprintf("**%s** recipe %s in %s", cmp.Or(of.Name, t.Name), cmp.Or(of.Version, "without a version"), t.File)
	if of.Description != "" {
		out += "\n\n" + of.Description
	}
	if list := propertyList(of.InputSchema); list != "" {
		out += "\n\nInput:\n\n" + list
	}
	if names := slices.Sorted(maps.Keys(of.Outputs)); len(names) > 0 {
		out += "\n\nOutputs: `" + strings.Join(names, "`, `") + "`"
	}
	return out
}

// A property is one of an object, as a JSON Schema has it.
type property struct {
	name, kind, what string
	required         bool
	schema           map[string]any
}

func (p property) text() string {
	text := p.what
	if d, ok := p.schema["default"]; ok {
		if raw, err := jsonx.Canonical(d); err == nil && len(raw) <= 80 {
			return strings.TrimSpace(text + " Default `" + string(raw) + "`.")
		}
		return text
	}
	if p.required {
		text = strings.TrimSpace(text + " Required.")
	}
	return text
}

// propertiesOf returns the properties of the objects that a schema describes, sorted.
func propertiesOf(schema map[string]any) (list []property) {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		of, _ := properties[name].(map[string]any)
		p := property{name: name, kind: "any value", required: slices.Contains(required, any(name)), schema: of}
		p.what, _ = of["description"].(string)
		switch t := of["type"].(type) {
		case string:
			p.kind = t
		case []any:
			var names []string
			for _, one := range t {
				names = append(names, fmt.Sprint(one))
			}
			p.kind = strings.Join(names, " or ")
		}
		if of["format"] == "file" {
			p.kind = "file"
		}
		list = append(list, p)
	}
	return list
}

func schemaOf(raw json.RawMessage) map[string]any {
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return nil
	}
	schema, _ := v.(map[string]any)
	return schema
}

func propertyList(raw json.RawMessage) string {
	var b strings.Builder
	for _, p := range propertiesOf(schemaOf(raw)) {
		fmt.Fprintf(&b, "- `%s`: %s. %s\n", p.name, p.kind, p.text())
	}
	return strings.TrimSpace(b.String())
}

// properties returns the inputs of an action.
func (s *server) properties(name, version string) []property {
	if a := s.cfg.Actions.Find(name, version); a != nil {
		return propertiesOf(schemaOf(a.Input))
	}
	return nil
}

// members returns what may be selected of a chain of names, as far as its type is known.
func (s *server) members(c *cursor, chain []string) []property {
	var schema map[string]any
	switch head := chain[0]; {
	case head == "steps" && len(chain) > 1:
		sym := c.scope.steps[chain[1]]
		if sym == nil {
			return nil
		}
		return s.stepMembers(sym, chain[2:])
	case head == "input", head == "inputs", head == "parameters":
		schema = schemaOf(c.scope.r.InputSchema)
		if head != "parameters" && len(chain) == 1 {
			return append(propertiesOf(schema), property{name: "fileHashes", kind: "array", what: "The hashes of the run's files."})
		}
	case head == "workflow" && len(chain) == 1:
		return []property{{name: "name", kind: "string"}, {name: "version", kind: "string"}}
	case head == "_context" && len(chain) == 1:
		return []property{{name: "runId", kind: "string"}, {name: "accountId", kind: "string"}}
	case head == "budget" && len(chain) == 1:
		return []property{{name: "used", kind: "number"}, {name: "remaining", kind: "number"}}
	default:
		sym := c.frame.find(c.scope, head)
		if sym == nil || sym.kind == aLoopVariable {
			return nil
		}
		if sym.kind == aStep {
			return s.stepMembers(sym, chain[1:])
		}
		if a := s.actionOf(sym.by[0]); a != nil && len(sym.by) == 1 {
			schema = schemaOf(a.Output)
		}
	}
	return propertiesOf(within(schema, chain[1:]))
}

// stepMembers returns what may be selected of a step.
func (s *server) stepMembers(sym *symbol, chain []string) []property {
	if len(chain) == 0 {
		return []property{
			{name: "output", kind: "any value", what: "What the step has returned."}, {name: "result", kind: "any value", what: "The same as output."},
			{name: "status", kind: "string", what: "How the step has settled."}, {name: "error", kind: "object", what: "Why it has failed: code, message."},
		}
	}
	switch a := s.actionOf(sym.by[0]); {
	case chain[0] == "error" && len(chain) == 1:
		return []property{{name: "code", kind: "string"}, {name: "message", kind: "string"}}
	case a != nil && (chain[0] == "output" || chain[0] == "result"):
		return propertiesOf(within(schemaOf(a.Output), chain[1:]))
	}
	return nil
}

func within(schema map[string]any, path []string) map[string]any {
	for _, name := range path {
		properties, _ := schema["properties"].(map[string]any)
		schema, _ = properties[name].(map[string]any)
	}
	return schema
}

// cut shortens a text to about n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
