// SPDX-License-Identifier: Apache-2.0

package form

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	"github.com/roux-engine/roux/internal/plan"
)

// A Choice is one of the forms that a document within a text may have.
type Choice struct {
	Name string
	Form *Form
	When map[string]any // the JSON Schema of documents that have it; nil = of those that have no other
}

// Schema returns the JSON Schema (2020-12) of the texts of a form, for editors. It is derived from
// the same shapes as [Decoder.Decode] and accepts exactly the values that it accepts; only [Read] has
// limits on the text itself (bytes, depth). Documents within a text ([Rule].Document) have one of the
// forms of choices, of which one has no When.
func (f *Form) Schema(title, description string, choices []Choice) []byte {
	defs := map[string]any{}
	reference := func(c Choice) map[string]any {
		d := describer{defs: defs, prefix: c.Name + "."}
		if c.Form == f {
			d.prefix = ""
		}
		root := c.Form.shapes().root
		d.describe(root)
		return d.ref(root)
	}
	var document map[string]any
	for _, c := range choices {
		if c.When == nil {
			document = reference(c)
		}
	}
	for _, c := range choices {
		if c.When != nil {
			document = map[string]any{"if": c.When, "then": reference(c), "else": document}
		}
	}
	defs["unwrapped"] = document
	defs["document"] = wrapped(map[string]any{"$ref": "#/$defs/unwrapped"})
	doc := wrapped(reference(Choice{Form: f}))
	doc["$schema"], doc["title"], doc["description"], doc["$defs"] = "https://json-schema.org/draft/2020-12/schema", title, description, defs
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		panic("form: the schema of the format is no JSON: " + err.Error())
	}
	return b.Bytes()
}

// wrapped is the schema of a document that may be in plan_definition.
func wrapped(doc map[string]any) map[string]any {
	return map[string]any{
		"type": "object",
		"if":   map[string]any{"required": []string{wrapper}},
		"then": map[string]any{
			"properties":           map[string]any{wrapper: doc},
			"additionalProperties": false,
		},
		"else": maps.Clone(doc),
	}
}

// A describer adds the definitions of objects to a schema.
type describer struct {
	defs   map[string]any
	prefix string // of their names
}

func (d describer) ref(o *object) map[string]any {
	return map[string]any{"$ref": "#/$defs/" + d.prefix + o.name}
}

// describe adds the definition of o and of every object below it.
func (d describer) describe(o *object) {
	if d.defs[d.prefix+o.name] != nil {
		return
	}
	def := map[string]any{
		"type":                 "object",
		"title":                strings.ToUpper(o.noun[:1]) + o.noun[1:],
		"additionalProperties": false,
	}
	d.defs[d.prefix+o.name] = def
	if o.rest != nil {
		def["additionalProperties"] = d.schema(o.rest.shape.elem)
	}
	properties := map[string]any{}
	var required []string
	var all []any
	for _, f := range o.fields {
		properties[f.name] = d.schema(f.shape)
		switch r := f.shape.rule; {
		case r.Required && r.Unless != "":
			all = append(all, map[string]any{"anyOf": []any{map[string]any{"required": []string{f.name}}, map[string]any{"required": []string{r.Unless}}}})
		case r.Required:
			required = append(required, f.name)
		}
	}
	def["properties"] = properties
	if required != nil {
		def["required"] = required
	}
	for _, b := range o.bonds {
		all = append(all, b.schemas()...)
	}
	for _, f := range o.fields {
		all = append(all, d.variants(f)...)
	}
	if all != nil {
		def["allOf"] = all
	}
	if o.also != nil {
		d.describe(o.also)
		own := maps.Clone(def)
		clear(def)
		def["if"], def["then"], def["else"] = map[string]any{"required": []string{o.key}}, d.ref(o.also), own
	}
}

// variants says what the field is for each value of the one that it depends on.
func (d describer) variants(f *field) (list []any) {
	if f.shape.form != formVariant {
		return nil
	}
	r := &f.shape.rule
	is := func(values []string, s *shape) {
		list = append(list, map[string]any{
			"if":   map[string]any{"required": []string{r.By}, "properties": map[string]any{r.By: map[string]any{"enum": values}}},
			"then": map[string]any{"properties": map[string]any{f.name: d.schema(s)}},
		})
	}
	var values []string
	for _, c := range r.Cases {
		is([]string{c.Value}, f.shape.cases[c.Value])
		values = append(values, c.Value)
	}
	is(values, f.shape.elem)
	last := list[len(list)-1].(map[string]any)
	last["else"] = last["then"]
	delete(last, "then")
	return list
}

func (d describer) schema(s *shape) map[string]any {
	m := map[string]any{}
	switch s.form {
	case formText:
		m["type"] = "string"
	case formDuration:
		m["type"], m["pattern"] = "string", plan.DurationPattern
		if s.rule.Positive {
			m["allOf"] = []any{map[string]any{"pattern": "[1-9]"}}
		}
	case formBool:
		m["type"] = "boolean"
	case formInt:
		m["type"] = "integer"
	case formNumber:
		m["type"] = "number"
	case formRaw:
		switch s.rule.Shape {
		case JSONSchema:
			m["type"] = "object"
		case Amount:
			m["anyOf"] = []any{
				map[string]any{"type": "string", "pattern": s.rule.Pattern.Expr},
				map[string]any{"type": "integer", "minimum": 0, "maximum": maxAmount},
			}
		}
	case formList:
		m["type"], m["items"] = "array", d.schema(s.elem)
	case formMap:
		m["type"], m["additionalProperties"] = "object", d.schema(s.elem)
	case formObject:
		if s.rule.Document {
			m["$ref"] = "#/$defs/document"
			break
		}
		d.describe(s.object)
		m = d.ref(s.object)
		if f := s.object.byName[s.rule.Short]; f != nil {
			m = map[string]any{"anyOf": []any{d.schema(f.shape), m}}
		}
		if s.rule.Toggle {
			m = map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, m}}
		}
	}
	if s.rule.Null {
		m = map[string]any{"anyOf": []any{m, map[string]any{"type": "null"}}}
	}
	if s.rule.Doc != "" {
		m["description"] = s.rule.described()
	}
	if s.rule.Example != nil {
		m["examples"] = []any{s.rule.Example}
	}
	if s.rule.Enum != nil {
		m["enum"] = s.rule.Enum
	}
	if s.rule.Pattern != nil && s.rule.Shape != Amount {
		m["pattern"] = s.rule.Pattern.Expr
	}
	if s.rule.Min != nil {
		m["minimum"], m["maximum"] = *s.rule.Min, *s.rule.Max
	}
	if s.rule.MinItems > 0 {
		m["minItems"] = s.rule.MinItems
	}
	return m
}

// schemas expresses a constraint in JSON Schema.
func (b Constraint) schemas() []any {
	is := func(field, value string) map[string]any {
		return map[string]any{
			"required":   []string{field},
			"properties": map[string]any{field: map[string]any{"const": value}},
		}
	}
	if b.AnyOf != nil {
		var some []any
		for _, name := range b.AnyOf {
			some = append(some, map[string]any{"required": []string{name}})
		}
		anyOf := map[string]any{"anyOf": some}
		if b.Field == "" {
			return []any{anyOf}
		}
		return []any{map[string]any{"if": is(b.Field, b.Value), "then": anyOf}}
	}
	if b.OneOf == nil {
		return []any{map[string]any{"if": is(b.Field, b.Value), "then": map[string]any{"required": []string{b.Needs}}}}
	}
	var one []any
	for _, name := range b.OneOf {
		one = append(one, map[string]any{"required": []string{name}})
	}
	list := []any{map[string]any{"oneOf": one}}
	if b.KindField != "" {
		for _, name := range b.OneOf {
			list = append(list, map[string]any{"if": is(b.KindField, name), "then": map[string]any{"required": []string{name}}})
		}
	}
	return list
}
