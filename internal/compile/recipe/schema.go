// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/plan"
)

// Schema returns the JSON Schema (2020-12) of the file format, for editors. It is derived
// from the same shapes as [Parse] and accepts exactly the values that Parse accepts; only
// Parse has limits on the text itself (bytes, depth).
func Schema() []byte {
	defs := map[string]any{}
	describe(root.object, defs)
	doc := map[string]any{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "Roux recipe",
		"description": "A recipe in the recipe dialect, also wrapped in plan_definition.",
		"type":        "object",
		"if":          map[string]any{"required": []string{"plan_definition"}},
		"then": map[string]any{
			"properties":           map[string]any{"plan_definition": ref(root.object)},
			"additionalProperties": false,
		},
		"else":  ref(root.object),
		"$defs": defs,
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		panic("recipe: the schema of the format is no JSON: " + err.Error())
	}
	return b.Bytes()
}

func ref(o *object) map[string]any { return map[string]any{"$ref": "#/$defs/" + o.name} }

// describe adds the definition of o and of every object below it.
func describe(o *object, defs map[string]any) {
	if defs[o.name] != nil {
		return
	}
	def := map[string]any{
		"type":                 "object",
		"title":                strings.ToUpper(objectNouns[o.name][:1]) + objectNouns[o.name][1:],
		"additionalProperties": false,
	}
	defs[o.name] = def
	properties := map[string]any{}
	var required []string
	for _, f := range o.fields {
		properties[f.name] = f.shape.schema(defs)
		if f.shape.rule.required {
			required = append(required, f.name)
		}
	}
	def["properties"] = properties
	if required != nil {
		def["required"] = required
	}
	var all []any
	for _, b := range o.bonds {
		all = append(all, b.schemas()...)
	}
	if all != nil {
		def["allOf"] = all
	}
}

func (s *shape) schema(defs map[string]any) map[string]any {
	m := map[string]any{}
	switch s.form {
	case formText:
		m["type"] = "string"
	case formDuration:
		m["type"], m["pattern"] = "string", plan.DurationPattern
		if s.rule.positive {
			m["allOf"] = []any{map[string]any{"pattern": "[1-9]"}}
		}
	case formBool:
		m["type"] = "boolean"
	case formInt:
		m["type"] = "integer"
	case formNumber:
		m["type"] = "number"
	case formRaw:
		switch s.rule.shape {
		case jsonSchema:
			m["type"] = "object"
		case amount:
			m["anyOf"] = []any{
				map[string]any{"type": "string", "pattern": s.rule.pattern.expr},
				map[string]any{"type": "integer", "minimum": 0, "maximum": maxAmount},
			}
		}
	case formList:
		m["type"], m["items"] = "array", s.elem.schema(defs)
	case formMap:
		m["type"], m["additionalProperties"] = "object", s.elem.schema(defs)
	case formObject:
		describe(s.object, defs)
		m = ref(s.object)
		if f := s.object.byName[s.rule.short]; f != nil {
			m = map[string]any{"anyOf": []any{f.shape.schema(defs), m}}
		}
		if s.rule.toggle {
			m = map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, m}}
		}
	}
	if s.rule.doc != "" {
		m["description"] = s.rule.described()
	}
	if s.rule.example != nil {
		m["examples"] = []any{s.rule.example}
	}
	if s.rule.enum != nil {
		m["enum"] = s.rule.enum
	}
	if s.rule.pattern != nil && s.rule.shape != amount {
		m["pattern"] = s.rule.pattern.expr
	}
	if s.rule.min != nil {
		m["minimum"], m["maximum"] = *s.rule.min, *s.rule.max
	}
	if s.rule.minItems > 0 {
		m["minItems"] = s.rule.minItems
	}
	return m
}

// schemas expresses a constraint in JSON Schema.
func (b constraint) schemas() []any {
	is := func(field, value string) map[string]any {
		return map[string]any{
			"required":   []string{field},
			"properties": map[string]any{field: map[string]any{"const": value}},
		}
	}
	if b.oneOf == nil {
		return []any{map[string]any{"if": is(b.field, b.value), "then": map[string]any{"required": []string{b.needs}}}}
	}
	var one []any
	for _, name := range b.oneOf {
		one = append(one, map[string]any{"required": []string{name}})
	}
	list := []any{map[string]any{"oneOf": one}}
	if b.kindField != "" {
		for _, name := range b.oneOf {
			list = append(list, map[string]any{"if": is(b.kindField, name), "then": map[string]any{"required": []string{name}}})
		}
	}
	return list
}

// described returns what a field is for, and its default.
func (r rule) described() string {
	if r.def == "" || r.def == "none" {
		return r.doc
	}
	return r.doc + " Default: " + r.def + "."
}

// A Field is a field of the format, as in the reference.
type Field struct {
	Name, Doc, Takes string
	Default          string // in words; "" of a required field
	Example          string // the field and a value, as YAML
	Required         bool
}

// Objects returns the names of the objects of the format, for [Fields].
func Objects() []string { return slices.Sorted(maps.Keys(objectNouns)) }

// Fields returns the fields of an object of the format (Recipe, Step, Loop, …), in the
// order in which the formatter writes them, or nil when there is no such object.
func Fields(object string) []Field {
	o := find(root.object, object, map[string]bool{})
	if o == nil {
		return nil
	}
	var list []Field
	for _, f := range o.fields {
		r := f.shape.rule
		list = append(list, Field{
			Name: f.name, Doc: r.doc, Takes: f.shape.describe(), Default: r.def, Example: f.name + ": " + flow(r.example), Required: r.required,
		})
	}
	return list
}

// plainText matches text that YAML reads as text without quotes, also inside a list.
var plainText = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_ .+*'()/<>=-]*$`)

// flow formats an example as YAML on one line.
func flow(v any) string {
	switch x := v.(type) {
	case string:
		if plainText.MatchString(x) && x != "true" && x != "false" && x != "null" {
			return x
		}
		return asJSON(x)
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, k+": "+flow(x[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range x {
			parts = append(parts, flow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return asJSON(v)
}

// asJSON formats a value as JSON for people.
func asJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("recipe: an example is no JSON: " + err.Error()) // they are constants
	}
	return strings.TrimSpace(b.String())
}

// find finds an object of that name, o itself or below it.
func find(o *object, name string, seen map[string]bool) *object {
	if o == nil || seen[o.name] {
		return nil
	}
	seen[o.name] = true
	if o.name == name {
		return o
	}
	for _, f := range o.fields {
		for s := f.shape; s != nil; s = s.elem {
			if found := find(s.object, name, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// describe describes a value of the shape in a few words.
func (s *shape) describe() string {
	switch {
	case s.rule.enum != nil:
		return "`" + strings.Join(s.rule.enum, "`, `") + "`"
	case s.form == formDuration:
		return "a duration"
	case s.form == formBool:
		return "true or false"
	case s.form == formInt:
		return "a whole number" + between(s)
	case s.form == formNumber:
		return "a number" + between(s)
	case s.form == formList:
		return "a list of " + s.elem.plural()
	case s.form == formMap:
		return "names and " + s.elem.plural()
	case s.rule.shape == jsonSchema:
		return "a JSON Schema"
	case s.rule.shape == amount:
		return "credits, as a whole number or as text"
	case s.rule.toggle:
		return "true, false or " + objectNouns[s.object.name]
	case s.object != nil:
		return objectNouns[s.object.name]
	case s.form == formRaw:
		return "any value"
	}
	return "text"
}
