// SPDX-License-Identifier: Apache-2.0

package form

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/roux-engine/roux/internal/jsonx"
)

// A Form is how a kind of text is written: the fields of its objects, their types and their
// rules.
type Form struct {
	shapes func() *shapes // derived when a text is first read
}

// shapes are what is derived from the types of a form.
type shapes struct {
	root    *object
	objects map[reflect.Type]*object // the root and all below it
}

// New returns the form of the texts that are decoded into a T, a struct: what its types and the
// table say of its fields. Its first use panics if a field has no rule.
//
// An embedded struct is part of the one that embeds it, and has rules of its own name.
func New[T any](table *Table) *Form {
	return &Form{sync.OnceValue(func() *shapes {
		b := builder{table: table, seen: map[reflect.Type]*object{}}
		return &shapes{b.object(reflect.TypeFor[T]()), b.seen}
	})}
}

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
	formVariant
)

// A shape is a type together with its rule. The decoder follows it, and the published schema is
// derived from it.
type shape struct {
	form    valueKind
	rule    Rule
	pattern *regexp.Regexp
	elem    *shape  // of a list or map, or of a variant that is an object of any values
	object  *object // of an object
	cases   map[string]*shape
	of      reflect.Type
}

// pick returns the shape of a value of an object, which is that of the case for a variant.
func (s *shape) pick(in *jsonx.Node) *shape {
	if s.form != formVariant {
		return s
	}
	if by := in.Child(s.rule.By); by != nil && s.cases[by.Text] != nil {
		return s.cases[by.Text]
	}
	return s.elem
}

// An object is a struct.
type object struct {
	name   string
	noun   string
	fields []*field // in the order in which they are written
	byName map[string]*field
	bonds  []Constraint
	also   *object // as which it may be written if it has the field key
	key    string
	rest   *field // a map of the fields with other names; nil = there are none
	restAt int    // before which of fields they are written
}

type field struct {
	name  string
	index []int // in the struct, for [reflect.Value.FieldByIndex]
	shape *shape
}

// A builder derives shapes from types.
type builder struct {
	table *Table
	seen  map[reflect.Type]*object
}

func (b *builder) shape(t reflect.Type, r Rule) *shape {
	s := &shape{rule: r, of: t}
	if r.Pattern != nil {
		s.pattern = regexp.MustCompile(r.Pattern.Expr)
	}
	var item Rule
	if r.Item != nil {
		item = *r.Item
	}
	switch {
	case t == reflect.TypeFor[Duration]():
		s.form = formDuration
	case t == reflect.TypeFor[json.RawMessage]():
		s.form = formRaw
	case t == reflect.TypeFor[Variant]():
		s.form, s.elem, s.cases = formVariant, b.shape(reflect.TypeFor[map[string]json.RawMessage](), Rule{}), map[string]*shape{}
		for _, c := range r.Cases {
			s.cases[c.Value] = b.shape(c.Type, Rule{})
		}
	case t.Kind() == reflect.String:
		s.form = formText
	case t.Kind() == reflect.Bool:
		s.form = formBool
	case t.Kind() == reflect.Int64:
		s.form = formInt
	case t.Kind() == reflect.Float64:
		s.form = formNumber
	case t.Kind() == reflect.Pointer:
		return b.shape(t.Elem(), r)
	case t.Kind() == reflect.Slice:
		s.form, s.elem = formList, b.shape(t.Elem(), item)
	case t.Kind() == reflect.Map:
		s.form, s.elem = formMap, b.shape(t.Elem(), item)
	case t.Kind() == reflect.Struct:
		s.form, s.object = formObject, b.object(t)
	default:
		panic(fmt.Sprintf("form: a field has the type %v, which has no JSON form here", t))
	}
	if (s.form == formInt || s.form == formNumber) && r.Min == nil {
		panic("form: a number has no bounds: " + r.Doc)
	}
	return s
}

func (b *builder) object(t reflect.Type) *object {
	if o, ok := b.seen[t]; ok {
		return o
	}
	o := &object{name: t.Name(), noun: b.table.Nouns[t.Name()], byName: map[string]*field{}, bonds: b.table.Constraints[t.Name()]}
	if o.noun == "" {
		panic(fmt.Sprintf("form: the type %v has no noun", t))
	}
	b.seen[t] = o
	b.fields(o, t, nil)
	for _, pair := range b.table.Before[o.name] {
		at := func(name string) int { return slices.Index(o.fields, o.byName[name]) }
		moved := o.byName[pair[0]]
		o.fields = slices.Delete(o.fields, at(pair[0]), at(pair[0])+1)
		o.fields = slices.Insert(o.fields, at(pair[1]), moved)
	}
	if o.rest = o.byName[b.table.Rest[o.name]]; o.rest != nil {
		delete(o.byName, o.rest.name)
		o.restAt = slices.Index(o.fields, o.rest)
		o.fields = slices.Delete(o.fields, o.restAt, o.restAt+1)
	}
	if also, ok := b.table.Also[o.name]; ok {
		o.also, o.key = b.object(also.Type), also.Key
	}
	return o
}

// fields adds the fields of a struct, and of those that it embeds, to an object.
func (b *builder) fields(o *object, t reflect.Type, at []int) {
	for i := range t.NumField() {
		sf, index := t.Field(i), append(at[:len(at):len(at)], i)
		if sf.Anonymous {
			b.fields(o, sf.Type, index)
			continue
		}
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		r, ok := b.table.Rules[t.Name()+"."+name]
		if !ok {
			panic(fmt.Sprintf("form: the field %s.%s has no rule", t.Name(), name))
		}
		f := &field{name: name, index: index, shape: b.shape(sf.Type, r)}
		o.fields = append(o.fields, f)
		o.byName[name] = f
	}
}

// names returns the names of an object's fields.
func (o *object) names() []string {
	names := make([]string, len(o.fields))
	for i, f := range o.fields {
		names[i] = f.name
	}
	return names
}
