// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/roux-engine/roux/internal/jsonx"
)

// violations flattens what the library found into an ordered list, because the
// library visits the properties of objects in random order.
func violations(e *jsonschema.ValidationError) []Violation {
	var out []Violation
	collect(e, &out)
	// Not slices.SortFunc, whose instance for a struct takes 12 KB of a small binary.
	sort.Slice(out, func(i, k int) bool {
		a, b := &out[i], &out[k]
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Keyword, b.Keyword), cmp.Compare(a.Msg, b.Msg)) < 0
	})
	return slices.Compact(out)
}

func collect(e *jsonschema.ValidationError, out *[]Violation) {
	at := pointer(e.InstanceLocation)
	add := func(at, keyword, format string, args ...any) {
		*out = append(*out, Violation{at, keyword, fmt.Sprintf(format, args...)})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		add(at, "anyOf", "fits none of the alternatives: %s", alternatives(e))
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			add(at, "oneOf", "fits more than one of the alternatives, want exactly one")
		} else {
			add(at, "oneOf", "fits none of the alternatives: %s", alternatives(e))
		}
	case *kind.Required:
		for _, name := range k.Missing {
			add(at, "required", "missing property %q", name)
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			add(at+"/"+jsonx.EscapeToken(name), "additionalProperties", "unknown property %q", name)
		}
	case *kind.PropertyNames:
		add(at, "propertyNames", "property name %q is not allowed", k.Property)
	default:
		if len(e.Causes) > 0 {
			for _, c := range e.Causes {
				collect(c, out)
			}
			return
		}
		keyword := ""
		if path := k.KeywordPath(); len(path) > 0 {
			keyword = path[0]
		}
		*out = append(*out, Violation{at, cmp.Or(keyword, keywordOf(k)), message(k)})
	}
}

// alternatives summarizes why each alternative does not fit.
func alternatives(e *jsonschema.ValidationError) string {
	const most = 3
	var parts []string
	for _, c := range e.Causes {
		vs := violations(c)
		if len(vs) == 0 {
			continue
		}
		v := vs[0]
		s := v.Msg
		if v.Pointer != pointer(e.InstanceLocation) {
			s = v.Pointer + " " + s
		}
		if !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	if len(parts) > most {
		parts = append(parts[:most], "…")
	}
	return strings.Join(parts, "; ")
}

func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(jsonx.EscapeToken(p))
	}
	return b.String()
}

// keywordOf returns the keyword of error kinds that do not know their own.
func keywordOf(k jsonschema.ErrorKind) string {
	switch k.(type) {
	case *kind.Not:
		return "not"
	case *kind.FalseSchema:
		return "false"
	case *kind.RefCycle:
		return "$ref"
	}
	return "type"
}

// message returns the text of one violation.
func message(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("want %s, got %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		return "want one of " + list(k.Want)
	case *kind.Const:
		return "want " + short(k.Want)
	case *kind.Format:
		return fmt.Sprintf("%s is no %s: %v", short(k.Got), k.Want, k.Err)
	case *kind.Pattern:
		return fmt.Sprintf("%s does not match %q", short(k.Got), k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("want at least %d characters, got %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("want at most %d characters, got %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("want at least %d elements, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("want at most %d elements, got %d", k.Want, k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("want at least %d properties, got %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("want at most %d properties, got %d", k.Want, k.Got)
	case *kind.Minimum:
		return "want at least " + number(k.Want) + ", got " + number(k.Got)
	case *kind.Maximum:
		return "want at most " + number(k.Want) + ", got " + number(k.Got)
	case *kind.ExclusiveMinimum:
		return "want more than " + number(k.Want) + ", got " + number(k.Got)
	case *kind.ExclusiveMaximum:
		return "want less than " + number(k.Want) + ", got " + number(k.Got)
	case *kind.MultipleOf:
		return "want a multiple of " + number(k.Want) + ", got " + number(k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("elements %d and %d are equal, want all different", k.Duplicates[0], k.Duplicates[1])
	case *kind.DependentRequired:
		return fmt.Sprintf("with the property %q there must be %s", k.Prop, quoted(k.Missing))
	case *kind.Contains, *kind.MinContains:
		return "too few elements fit the schema under contains"
	case *kind.MaxContains:
		return "too many elements fit the schema under contains"
	case *kind.Not:
		return "fits a schema that it must not fit"
	case *kind.FalseSchema:
		return "no value is allowed here"
	case *kind.AdditionalItems:
		return fmt.Sprintf("the last %d elements are not allowed", k.Count)
	case *kind.RefCycle:
		return "the schema refers to itself without an end"
	case *kind.InvalidJsonValue:
		return "the value is no JSON"
	}
	return "does not fit"
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return string(jsonx.AppendFloat(nil, f))
}

func list(vs []any) string {
	const most = 10
	var parts []string
	for i, v := range vs {
		if i == most {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, short(v))
	}
	return strings.Join(parts, ", ")
}

// short returns the JSON of a value, cut to the length that a message can hold.
func short(v any) string {
	const most = 60
	if s, ok := v.(string); ok && len(s) > 2*most {
		v = string([]rune(s[:min(len(s), 4*most)]))
	}
	b, _ := jsonx.AppendLimited(nil, v, 4*most)
	s := []rune(string(b))
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}

func quoted(names []string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(parts, ", ")
}
