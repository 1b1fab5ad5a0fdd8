// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// A valueKind is the kind of value that a field has.
type valueKind uint8

const (
	formText valueKind = iota
	formDuration
	formBool
	formInt
	formNumber
	formRaw
	formList
	formMap
	formObject
)

// A shape is a type of the model together with its rule. The decoder follows it, and the
// published schema is derived from it.
type shape struct {
	form    valueKind
	rule    rule
	pattern *regexp.Regexp
	elem    *shape  // of a list or map
	object  *object // of an object
}

// An object is a struct of the model.
type object struct {
	name   string
	fields []*field // in the order of the model
	byName map[string]*field
	bonds  []constraint
}

type field struct {
	name  string
	index int // in the struct
	shape *shape
}

// root is the shape of a recipe, built once from the model and its rules.
var root = buildShape(reflect.TypeFor[Recipe](), rule{}, map[reflect.Type]*object{})

func buildShape(t reflect.Type, r rule, seen map[reflect.Type]*object) *shape {
	s := &shape{rule: r}
	if r.pattern != nil {
		s.pattern = regexp.MustCompile(r.pattern.expr)
	}
	var item rule
	if r.item != nil {
		item = *r.item
	}
	switch {
	case t == reflect.TypeFor[Duration]():
		s.form = formDuration
	case t == reflect.TypeFor[json.RawMessage]():
		s.form = formRaw
	case t.Kind() == reflect.String:
		s.form = formText
	case t.Kind() == reflect.Bool:
		s.form = formBool
	case t.Kind() == reflect.Int64:
		s.form = formInt
	case t.Kind() == reflect.Float64:
		s.form = formNumber
	case t.Kind() == reflect.Pointer:
		return buildShape(t.Elem(), r, seen)
	case t.Kind() == reflect.Slice:
		s.form, s.elem = formList, buildShape(t.Elem(), item, seen)
	case t.Kind() == reflect.Map:
		s.form, s.elem = formMap, buildShape(t.Elem(), item, seen)
	case t.Kind() == reflect.Struct:
		s.form, s.object = formObject, buildObject(t, seen)
	default:
		panic(fmt.Sprintf("recipe: the model has a field of type %v, which has no JSON form here", t))
	}
	if (s.form == formInt || s.form == formNumber) && r.min == nil {
		panic("recipe: a number has no bounds: " + r.doc)
	}
	return s
}

func buildObject(t reflect.Type, seen map[reflect.Type]*object) *object {
	if o, ok := seen[t]; ok {
		return o
	}
	o := &object{name: t.Name(), byName: map[string]*field{}, bonds: constraints[t.Name()]}
	seen[t] = o
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		r, ok := rules[o.name+"."+name]
		if !ok {
			panic(fmt.Sprintf("recipe: the field %s.%s has no rule", o.name, name))
		}
		f := &field{name: name, index: i, shape: buildShape(t.Field(i).Type, r, seen)}
		o.fields = append(o.fields, f)
		o.byName[name] = f
	}
	return o
}

// names returns the names of an object's fields.
func (o *object) names() []string {
	names := make([]string, len(o.fields))
	for i, f := range o.fields {
		names[i] = f.name
	}
	return names
}
