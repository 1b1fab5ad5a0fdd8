// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sort"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// maxDefaults bounds what defaults add to one value, in bytes of JSON. A default in a list is added for each entry.
const maxDefaults = 1 << 20

// WithDefaults returns a value in which each property has its default that an object lacks: those of the value itself,
// and of objects in it that are there, also in lists. What a default contains is added as it is. Defaults count that are
// under properties, items, prefixItems, allOf and $ref, because these hold for every value that fits; the first one found
// for a property is taken. added is false if the value has them all. The value does not change. The names are those of
// top-level properties that are left alone.
func (s *Schema) WithDefaults(v any, except ...string) (_ any, added bool, err error) {
	if !s.defaults {
		return v, false, nil
	}
	c := s.pool.Get().(*compiledSchema)
	defer s.pool.Put(c)
	f := &filler{left: maxSteps + jsonx.Parts(v, maxSteps), bytes: maxDefaults, except: except}
	out, added := f.fill(c.Schema, v, nil)
	switch {
	case f.left < 0:
		return nil, false, fault.New(fault.InputInvalid, "adding the defaults of the schema takes more than %d steps: it refers to itself too often", maxSteps)
	case f.bytes < 0:
		return nil, false, fault.New(fault.InputInvalid, "the defaults of the schema add more than %d bytes", maxDefaults)
	}
	return out, added, nil
}

// A filler adds defaults.
type filler struct {
	left   int // steps
	bytes  int
	except []string // of the outermost object
	depth  int
}

// fill returns a value with the defaults that a schema has for it, and whether there are any. on are the schemas that are
// being applied to the same value, so that references in a circle end.
func (f *filler) fill(s *jsonschema.Schema, v any, on []*jsonschema.Schema) (_ any, changed bool) {
	if s == nil || f.bytes < 0 || !f.step(s, on) {
		return v, false
	}
	on = append(on, s)
	switch value := v.(type) {
	case map[string]any:
		v, changed = f.object(s, value)
	case []any:
		v, changed = f.list(s, value)
	default:
		return v, false
	}
	for _, also := range append([]*jsonschema.Schema{s.Ref}, s.AllOf...) {
		got, more := f.fill(also, v, on)
		v, changed = got, changed || more
	}
	return v, changed
}

// step reports whether a schema is still to be applied: there are steps left, and it is not being applied. A step is to
// compare it with one of those that are.
func (f *filler) step(s *jsonschema.Schema, on []*jsonschema.Schema) bool {
	f.left -= 1 + len(on)
	return f.left >= 0 && !slices.Contains(on, s)
}

func (f *filler) object(s *jsonschema.Schema, v map[string]any) (any, bool) {
	var made map[string]any
	f.depth++
	defer func() { f.depth-- }()
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if f.depth == 1 && slices.Contains(f.except, name) {
			continue
		}
		got, add := v[name]
		if add {
			got, add = f.fill(s.Properties[name], got, nil)
		} else if d := f.defaultOf(s.Properties[name], nil); d != nil {
			got, add = f.pay(*d)
		}
		if !add {
			continue
		}
		if made == nil {
			made = make(map[string]any, len(v)+1)
			maps.Copy(made, v)
		}
		made[name] = got
	}
	if made == nil {
		return v, false
	}
	return made, true
}

// defaultOf returns the default of a property: its own, else that of a schema that it refers to.
func (f *filler) defaultOf(s *jsonschema.Schema, on []*jsonschema.Schema) *any {
	if s == nil || !f.step(s, on) {
		return nil
	}
	if s.Default != nil {
		return s.Default
	}
	on = append(on, s)
	for _, also := range append([]*jsonschema.Schema{s.Ref}, s.AllOf...) {
		if d := f.defaultOf(also, on); d != nil {
			return d
		}
	}
	return nil
}

func (f *filler) list(s *jsonschema.Schema, v []any) (any, bool) {
	var made []any
	f.depth++
	defer func() { f.depth-- }()
	for i, have := range v {
		got, changed := f.fill(itemOf(s, i), have, nil)
		if !changed {
			continue
		}
		if made == nil {
			made = slices.Clone(v)
		}
		made[i] = got
	}
	if made == nil {
		return v, false
	}
	return made, true
}

// itemOf returns the schema of an entry of a list, or nil.
func itemOf(s *jsonschema.Schema, i int) *jsonschema.Schema {
	if i < len(s.PrefixItems) {
		return s.PrefixItems[i]
	}
	if s.Items2020 != nil {
		return s.Items2020
	}
	switch items := s.Items.(type) { // of older drafts
	case *jsonschema.Schema:
		return items
	case []*jsonschema.Schema:
		if i < len(items) {
			return items[i]
		}
	}
	return nil
}

// pay returns a copy of a default, if it may still be added.
func (f *filler) pay(v any) (any, bool) {
	raw, err := jsonx.Canonical(v)
	if f.bytes -= len(raw); err != nil || f.bytes < 0 {
		f.bytes = min(f.bytes, -1)
		return nil, false
	}
	v, err = jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	return v, err == nil
}

// CheckDefaults returns what is wrong with the defaults in a schema: the pointer of each violation is that of the default
// in the schema. All of them together take at most twice the steps of one validation.
func CheckDefaults(raw []byte) (all []Violation) {
	if !bytes.Contains(raw, []byte(`"default"`)) {
		return nil
	}
	c, err := compile(raw)
	if err != nil {
		return nil // reported where the schema is compiled
	}
	seen, left := map[*jsonschema.Schema]bool{}, maxSteps
	var visit func(s *jsonschema.Schema)
	visit = func(s *jsonschema.Schema) {
		if s == nil || seen[s] || left < 0 {
			return
		}
		seen[s] = true
		if s.Default != nil && strings.HasPrefix(s.Location, schemaURL) {
			at := pointerOf(s) + "/default"
			c.Schema = s
			for _, v := range c.check(*s.Default) {
				all = append(all, Violation{Pointer: at, Keyword: v.Keyword, Msg: strings.TrimPrefix(v.Pointer+": ", ": ") + v.Msg})
			}
			if left -= c.taken; left < 0 {
				all = append(all, Violation{Pointer: at, Keyword: "$ref", Msg: fmt.Sprintf("checking the defaults up to this one takes more than %d steps: the schema refers to itself too often", maxSteps)})
			}
		}
		for _, below := range subschemas(s) {
			visit(below)
		}
	}
	visit(c.Schema)
	sort.SliceStable(all, func(i, k int) bool { return all[i].Pointer < all[k].Pointer })
	return all
}

// pointerOf returns where a schema is in the text that it was compiled from. Its location is a URL.
func pointerOf(s *jsonschema.Schema) string {
	_, at, _ := strings.Cut(s.Location, "#")
	if pointer, err := url.PathUnescape(at); err == nil {
		return pointer
	}
	return at
}

// subschemas returns the schemas that a schema is made of.
func subschemas(s *jsonschema.Schema) (list []*jsonschema.Schema) {
	list = append(list, s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema)
	list = slices.Concat(list, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems)
	for _, of := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			list = append(list, of[name])
		}
	}
	for _, below := range s.PatternProperties {
		list = append(list, below)
	}
	for _, below := range s.Dependencies {
		if below, ok := below.(*jsonschema.Schema); ok {
			list = append(list, below)
		}
	}
	for _, below := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch below := below.(type) {
		case *jsonschema.Schema:
			list = append(list, below)
		case []*jsonschema.Schema:
			list = append(list, below...)
		}
	}
	return list
}
