// SPDX-License-Identifier: Apache-2.0

package texts_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
)

// noTexts are the fields that may have any text or JSON and take neither expressions nor templates, with why.
var noTexts = map[string]string{
	"Action.name":                 "compile looks for it",
	"Child.file":                  "compile reads it",
	"Contracts.input":             "a schema that is compiled",
	"Contracts.output":            "a schema that is compiled",
	"Function.expression":         "it reads nothing but its parameters, and calls become what it is",
	"Head.name":                   "for people",
	"Head.description":            "for people",
	"Head.category":               "for people",
	"Head.createdAt":              "kept, not used",
	"Head.updatedAt":              "kept, not used",
	"Base.file":                   "the path of a text",
	"Child.workspace":             "a path, and compile refuses templates in it",
	"Base.with":                   "values as they are, which become those of the base",
	"Head.override":               "names",
	"Head.templateParameters":     "what values a text takes from those that extend it",
	"Head.createdBy":              "kept, not used",
	"Lens.id":                     "compile looks for it",
	"Lens.version":                "compile looks for it",
	"Part.label":                  "the name of a field",
	"Approval.approvers":          "compile refuses templates in it",
	"RetryPolicy.retryableErrors": "names of errors",
	"Review.by":                   "names of keys",
	"Settings.inputSchema":        "a schema that is compiled",
	"Settings.outputSchema":       "a schema that is compiled",
	"Settings.providers":          "compile refuses templates in it",
	"Settings.values":             "values as they are, with their braces",
	"Step.name":                   "for people",
	"Wait.default":                "compile refuses templates in it",
}

// TestEveryField: each field of the model that may have any text or JSON is visited wherever it is, under its pointer,
// and can be replaced, or is in the list above. What has a pattern of its own or is one of a few words is no code.
func TestEveryField(t *testing.T) {
	b := builder{visited: map[string]bool{}, fields: map[string]string{}}
	r := &recipe.Recipe{}
	b.fill(reflect.ValueOf(r).Elem(), "", "", nil)
	texts.Each(r, func(x *texts.Text) {
		b.visited[x.Pointer] = strings.Trim(x.Source, `"`) == x.Pointer
		x.Source = strings.ToUpper(x.Source)
	})
	texts.Each(r, func(x *texts.Text) {
		if x.Source != strings.ToUpper(x.Source) {
			t.Errorf("%s is %s after it was replaced", x.Pointer, x.Source)
		}
	})
	skipped := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(b.fields)) {
		field := b.fields[path]
		switch why := noTexts[field]; {
		case b.visited[path] && why != "":
			t.Errorf("%s is visited, and is no text: %s", path, why)
		case !b.visited[path] && why == "":
			t.Errorf("%s, which is %s, is not visited", path, field)
		}
		skipped[field] = !b.visited[path]
	}
	for field := range noTexts {
		if !skipped[field] {
			t.Errorf("the list has %s, and the model has no such field, or none of any text", field)
		}
	}
	if len(b.fields) < 40 {
		t.Errorf("the model has %d fields with texts", len(b.fields))
	}
}

// A builder fills a recipe: each field that takes any text has its path as its value.
type builder struct {
	fields  map[string]string // the names of the fields by path
	visited map[string]bool
}

// fill fills a value, which belongs to a field and is in values of the types within.
func (b *builder) fill(v reflect.Value, path, field string, within []reflect.Type) {
	mark := func() string {
		rule := recipe.Table.Rules[field]
		for rule.Item != nil && v.Kind() == reflect.String {
			rule = *rule.Item
		}
		if rule.Enum == nil && (rule.Pattern == nil || rule.Pattern == form.Text) {
			b.fields[path] = field
		}
		return path
	}
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`"` + mark() + `"`))
	case v.Type() == reflect.TypeFor[form.Duration]():
	case v.Kind() == reflect.String:
		v.SetString(mark())
	case v.Kind() == reflect.Pointer && slices.Contains(within, v.Type().Elem()):
		if _, ok := v.Interface().(*recipe.Step); ok { // a step within a step
			b.fields[path+"/when"] = "Common.when"
			v.Set(reflect.ValueOf(&recipe.Step{Ptr: path, Common: recipe.Common{When: path + "/when"}}))
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		b.fill(v.Elem(), path, field, within)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		b.fill(v.Index(0), path+"/0", field, within)
	case v.Kind() == reflect.Map:
		e := reflect.New(v.Type().Elem()).Elem()
		b.fill(e, path+"/k", field, within)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), e)
	case v.Kind() == reflect.Struct:
		if s, ok := v.Addr().Interface().(*recipe.Step); ok {
			s.Ptr = path
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous:
				b.fill(v.Field(i), path, field, within)
			case name != "-":
				b.fill(v.Field(i), path+"/"+name, v.Type().Name()+"."+name, append(within[:len(within):len(within)], v.Type()))
			}
		}
	}
}
