// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/jsonx"
)

// A schema is a decoded JSON Schema. nil accepts everything.
type schema = map[string]any

func decoded(raw json.RawMessage) schema {
	if len(raw) == 0 {
		return nil
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return nil
	}
	s, _ := v.(schema)
	return s
}

// A reporter adds a change.
type reporter func(severity, rule, pointer, format string, args ...any)

// input finds the inputs that the old recipe accepts and the new one refuses.
func (k *comparer) input() {
	k.narrower(decoded(k.old.Recipe.InputSchema), decoded(k.now.Recipe.InputSchema), "/inputSchema", "input", "the input", k.inNew)
}

// narrower reports the values that schema a accepts and schema b refuses, as far as schemas can be compared word by
// word. at is the pointer of the schema that changed, rule what rules begin with, and what how a message calls the
// value.
func (k *comparer) narrower(a, b schema, at, rule, what string, report reporter) {
	if b == nil || reflect.DeepEqual(a, b) {
		return
	}
	say := func(name, pointer, format string, args ...any) {
		report(Breaking, rule+"-"+name, at+pointer, "%s", fmt.Sprintf(format, args...))
	}
	before, after := typesOf(a), typesOf(b)
	if after != nil && (before == nil || slices.ContainsFunc(before, func(t string) bool { return !accepts(after, t) })) && (before != nil || len(a) != 0 || !slices.Contains(after, "object") || strings.Count(at, "/") != 1) {
		say("type", "/type", "%s could be %s, and %s", what, oneOf(before), must(rule, after))
	}
	k.fieldsOf(a, b, at, rule, what, report)
	if allowed, ok := b["enum"].([]any); ok {
		was, listed := a["enum"].([]any)
		for _, v := range was {
			if !slices.ContainsFunc(allowed, func(o any) bool { return reflect.DeepEqual(v, o) }) {
				say("narrowed", "/enum", "%s could be %v, which is not in the list any more", what, v)
			}
		}
		if !listed && a["const"] == nil {
			say("narrowed", "/enum", "%s could be anything, and must be one of a list", what)
		}
	}
	for _, bound := range []struct {
		field string
		least bool
	}{
		{"minimum", true}, {"exclusiveMinimum", true}, {"minLength", true}, {"minItems", true}, {"minProperties", true},
		{"maximum", false}, {"exclusiveMaximum", false}, {"maxLength", false}, {"maxItems", false}, {"maxProperties", false},
	} {
		is, set := number(b[bound.field])
		was, had := number(a[bound.field])
		if set && (!had || bound.least && is > was || !bound.least && is < was) {
			before := "had none"
			if had {
				before = fmt.Sprintf("was %v", a[bound.field])
			}
			say("narrowed", "/"+bound.field, "%s of %s is %v, and %s", bound.field, what, b[bound.field], before)
		}
	}
	for _, field := range []string{"pattern", "format", "multipleOf", "uniqueItems", "const"} {
		if v, set := b[field]; set && v != false && !reflect.DeepEqual(a[field], v) {
			say("narrowed", "/"+field, "%s must fit %s: %v", what, field, v)
		}
	}
	for _, field := range []string{"$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "prefixItems", "contains", "$defs", "definitions"} {
		if !reflect.DeepEqual(a[field], b[field]) {
			report(Note, rule+"-changed", at+"/"+field, "%s of the schema of %s has changed, and cannot be compared here: look at it", field, what)
		}
	}
	if items, ok := b["items"].(schema); ok {
		was, _ := a["items"].(schema)
		k.narrower(was, items, at+"/items", rule, "an item of "+what, report)
	}
}

// must says what values are now.
func must(rule string, types []string) string {
	if rule == "output" {
		return "was only " + oneOf(types)
	}
	return "must be " + oneOf(types)
}

// fieldsOf compares the fields of objects.
func (k *comparer) fieldsOf(a, b schema, at, rule, what string, report reporter) {
	was, _ := a["properties"].(schema)
	is, _ := b["properties"].(schema)
	for _, name := range textsOf(b["required"]) {
		if slices.Contains(textsOf(a["required"]), name) {
			continue
		}
		if rule == "output" {
			report(Breaking, "output-optional", "/outputSchema/required", "%s always had %q, and may be without it", what, name)
			continue
		}
		report(Breaking, "input-required", at+"/required", "%s must have %q, which was not needed", what, name)
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, there := is[name]; there {
			continue
		}
		switch {
		case rule == "output": // a new field, in this direction
		case b["additionalProperties"] == false:
			report(Breaking, "input-removed", at, "%s could have %q, which is refused now", what, name)
		default:
			report(Note, "input-removed", at, "%s names no %q any more, which nothing reads then", what, name)
		}
	}
	if b["additionalProperties"] == false && a["additionalProperties"] != false && rule == "input" {
		report(Breaking, "input-narrowed", at+"/additionalProperties", "%s could have any fields, and those that it does not name are refused now", what)
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		inner, ok := is[name].(schema)
		before, had := was[name].(schema)
		if !ok || !had && (rule == "output" || a["additionalProperties"] == false || was[name] == nil && a != nil) {
			continue // a field that nobody could give, or knew of
		}
		if had {
			k.narrower(before, inner, at+"/properties/"+jsonx.EscapeToken(name), rule, fmt.Sprintf("%q", name), report)
		}
	}
}

// typesOf returns the types that a schema allows, nil = any.
func typesOf(s schema) []string {
	if t, ok := s["type"].(string); ok {
		return []string{t}
	}
	return textsOf(s["type"])
}

func accepts(types []string, t string) bool {
	return slices.Contains(types, t) || t == "integer" && slices.Contains(types, "number")
}

func oneOf(types []string) string {
	if len(types) == 0 {
		return "of any type"
	}
	return strings.Join(types, " or ")
}

func textsOf(v any) (list []string) {
	all, _ := v.([]any)
	for _, item := range all {
		if s, ok := item.(string); ok {
			list = append(list, s)
		}
	}
	return list
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
