// SPDX-License-Identifier: Apache-2.0

package jsonschema

import "slices"

// A fastSchema is the fast path of a validation: it checks what most schemas consist
// of (types, properties, required names) without the library, which takes as long as
// the rest of a step. It can only accept: the library judges and explains what the
// fast path does not support or does not accept.
type fastSchema struct {
	types    uint8 // of the kinds below; 0 = all
	props    map[string]*fastSchema
	required []string
	closed   bool // no other names
	items    *fastSchema
	enum     []string
	file     bool
	min, max *int64
}

const (
	kindNull = 1 << iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindObject
)

var fastTypes = map[string]uint8{
	"null": kindNull, "boolean": kindBool, "string": kindString, "array": kindList, "object": kindObject,
	"integer": kindInt, // a float without fraction is left to the library
	"number":  kindInt | kindFloat,
}

// compileFast returns the fast path of a schema, or nil when the schema uses a
// keyword that the fast path does not support.
func compileFast(doc any) *fastSchema {
	if doc == true {
		return &fastSchema{}
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	q := &fastSchema{}
	for name, v := range m {
		switch name {
		case "title", "description", "default", "examples", "$comment":
			ok = true
		case "$schema":
			ok = v == "https://json-schema.org/draft/2020-12/schema"
		case "type":
			ok = q.readTypes(v)
		case "properties":
			ok = q.readProperties(v)
		case "required":
			q.required, ok = textList(v)
		case "additionalProperties":
			open, isBool := v.(bool)
			q.closed, ok = !open, isBool
		case "items":
			q.items = compileFast(v)
			ok = q.items != nil
		case "enum":
			q.enum, ok = textList(v)
			ok = ok && len(q.enum) > 0
		case "format":
			q.file, ok = true, v == "file"
		case "minimum":
			q.min, ok = bound(v)
		case "maximum":
			q.max, ok = bound(v)
		default:
			ok = false
		}
		if !ok {
			return nil
		}
	}
	return q
}

func (q *fastSchema) readTypes(v any) bool {
	names := []any{v}
	if list, ok := v.([]any); ok {
		names = list
	}
	for _, n := range names {
		s, _ := n.(string)
		if fastTypes[s] == 0 {
			return false
		}
		q.types |= fastTypes[s]
	}
	return len(names) > 0
}

func (q *fastSchema) readProperties(v any) bool {
	m, ok := v.(map[string]any)
	q.props = make(map[string]*fastSchema, len(m))
	for name, sub := range m {
		p := compileFast(sub)
		if p == nil {
			return false
		}
		q.props[name] = p
	}
	return ok
}

func textList(v any) (out []string, ok bool) {
	list, ok := v.([]any)
	for _, e := range list {
		s, isText := e.(string)
		if !isText {
			return nil, false
		}
		out = append(out, s)
	}
	return out, ok
}

func bound(v any) (*int64, bool) {
	n, ok := v.(int64)
	return &n, ok
}

// fits reports whether a value certainly fits the schema.
func (q *fastSchema) fits(v any) bool {
	kind := uint8(0)
	switch x := v.(type) {
	case nil:
		kind = kindNull
	case bool:
		kind = kindBool
	case int64:
		kind = kindInt
		if q.min != nil && x < *q.min || q.max != nil && x > *q.max {
			return false
		}
	case float64:
		kind = kindFloat
		if q.min != nil || q.max != nil {
			return false
		}
	case string:
		kind = kindString
		if q.file && !fileHash.MatchString(x) {
			return false
		}
	case []any:
		kind = kindList
		if q.items != nil && !q.all(x) {
			return false
		}
	case map[string]any:
		kind = kindObject
		if !q.object(x) {
			return false
		}
	}
	if kind == 0 || q.types != 0 && q.types&kind == 0 {
		return false
	}
	if q.enum != nil {
		s, ok := v.(string)
		return ok && slices.Contains(q.enum, s)
	}
	return true
}

func (q *fastSchema) all(list []any) bool {
	for _, e := range list {
		if !q.items.fits(e) {
			return false
		}
	}
	return true
}

func (q *fastSchema) object(m map[string]any) bool {
	for _, name := range q.required {
		if _, ok := m[name]; !ok {
			return false
		}
	}
	for name, v := range m {
		p := q.props[name]
		if p == nil && q.closed || p != nil && !p.fits(v) {
			return false
		}
	}
	// A value that no part of the schema describes may be any JSON value.
	return true
}
