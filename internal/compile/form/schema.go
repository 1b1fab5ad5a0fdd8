// SPDX-License-Identifier: Apache-2.0

package form

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
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
	own := describer{defs: defs}
	own.describe(f.root.object)
	if choices != nil {
		document := wrapped(f.table.Wrapper, map[string]any{"$ref": "#/$defs/unwrapped"})
		document["type"], defs["document"] = "object", document
		var chain map[string]any
		for _, c := range choices {
			d := describer{defs: defs, prefix: c.Name + "."}
			if c.Form == f {
				d = own
			}
			d.describe(c.Form.root.object)
			if c.When == nil {
				chain = d.ref(c.Form.root.object)
			}
		}
		for _, c := range choices {
			d := describer{defs: defs, prefix: c.Name + "."}
			if c.Form == f {
				d = own
			}
			if c.When != nil {
				chain = map[string]any{"if": c.When, "then": d.ref(c.Form.root.object), "else": chain}
			}
		}
		defs["unwrapped"] = chain
	}
	doc := wrapped(f.table.Wrapper, own.ref(f.root.object))
	doc["$schema"], doc["title"], doc["description"], doc["type"], doc["$defs"] = "https://json-schema.org/draft/2020-12/schema", title, description, "object", defs
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		panic("form: the schema of the format is no JSON: " + err.Error())
	}
	return b.Bytes()
}

// wrapped is the schema of a document that may be in a wrapper.
func wrapped(wrapper string, doc map[string]any) map[string]any {
	return map[string]any{
		"if": map[string]any{"required": []string{wrapper}},
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
	properties := map[string]any{}
	var required []string
	for _, f := range o.fields {
		properties[f.name] = d.schema(f.shape)
		if f.shape.rule.Required {
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

// described returns what a field is for, and its default.
func (r Rule) described() string {
	if r.Def == "" || r.Def == "none" {
		return r.Doc
	}
	return r.Doc + " Default: " + r.Def + "."
}

// A Field is a field of the format, as in the reference.
type Field struct {
	Name, Doc, Takes string
	Default          string // in words; "" of a required field
	Example          string // the field and a value, as YAML
	Required         bool
}

// Objects returns the names of the objects of the form, for [Form.Fields].
func (f *Form) Objects() []string {
	all := map[string]bool{}
	var visit func(*shape)
	visit = func(s *shape) {
		if s.elem != nil {
			visit(s.elem)
		}
		for _, c := range s.cases {
			visit(c)
		}
		for o := s.object; o != nil && !all[o.name]; o = o.also {
			all[o.name] = true
			for _, f := range o.fields {
				visit(f.shape)
			}
		}
	}
	visit(f.root)
	return slices.Sorted(maps.Keys(all))
}

// Fields returns the fields of an object of the form (Recipe, Step, Loop, …), in the
// order of the struct, or nil when there is no such object.
func (f *Form) Fields(object string) []Field {
	o := find(f.root.object, object, map[string]bool{})
	if o == nil {
		return nil
	}
	var list []Field
	for _, f := range o.fields {
		r := f.shape.rule
		list = append(list, Field{
			Name: f.name, Doc: r.Doc, Takes: f.shape.describe(), Default: r.Def, Example: f.name + ": " + flow(r.Example), Required: r.Required,
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
		panic("form: an example is no JSON: " + err.Error()) // they are constants
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
		for _, c := range f.shape.cases {
			if found := find(c.object, name, seen); found != nil {
				return found
			}
		}
	}
	return find(o.also, name, seen)
}

// describe describes a value of the shape in a few words.
func (s *shape) describe() string {
	switch {
	case s.rule.Enum != nil:
		return "`" + strings.Join(s.rule.Enum, "`, `") + "`"
	case s.form == formVariant:
		return "depends on `" + s.rule.By + "`"
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
	case s.rule.Shape == JSONSchema:
		return "a JSON Schema"
	case s.rule.Shape == Amount:
		return "credits, as a whole number or as text"
	case s.rule.Toggle:
		return "true, false or " + s.object.noun
	case s.object != nil:
		return s.object.noun
	case s.form == formRaw:
		return "any value"
	}
	return "text"
}
