// SPDX-License-Identifier: Apache-2.0

package form

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

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
	var names []string
	for t := range f.shapes().objects {
		names = append(names, t.Name())
	}
	slices.Sort(names)
	return names
}

// Fields returns the fields of an object of the form (Recipe, Step, Loop, …), in the order in which
// they are written, or nil when there is no such object.
func (f *Form) Fields(object string) []Field {
	for t, o := range f.shapes().objects {
		if t.Name() == object {
			return o.describeFields()
		}
	}
	return nil
}

func (o *object) describeFields() []Field {
	var list []Field
	for _, f := range o.fields {
		list = append(list, o.describeField(f))
	}
	return list
}

func (o *object) describeField(f *field) Field {
	r := f.shape.rule
	return Field{
		Name: f.name, Doc: r.Doc, Takes: f.shape.describe(), Default: r.Def, Example: f.name + ": " + flow(r.Example), Required: r.Required,
	}
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
