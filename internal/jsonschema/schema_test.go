// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// X166, X167: a validation returns every violation, in order, with its pointer.
func TestContractViolations(t *testing.T) {
	s, err := Compile([]byte(`{"type": "object", "required": ["a", "b", "z"], "additionalProperties": false, "properties": {
		"a": {"type": "integer", "minimum": 3}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
		"f": {"type": "string", "format": "file"}, "d": {"type": "string", "format": "date-time"},
		"l": {"type": "array", "items": {"type": "string", "pattern": "^x"}, "uniqueItems": true, "maxItems": 2},
		"e": {"enum": ["p", 1, null]}, "c": {"const": {"k": 1}}, "o": {"oneOf": [{"minimum": 1}, {"maximum": 5}]}, "n": {"not": {"type": "string"}},
		"s/t": {"maxLength": 2}, "no": false, "m": {"multipleOf": 0.5}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Validate(map[string]any{
		"a": int64(1), "b": int64(2), "f": "sha256_short", "d": "yesterday", "l": []any{"x", "x", int64(2)}, "e": "q",
		"c": map[string]any{}, "o": int64(3), "n": "text", "s/t": "long", "no": nil, "m": 0.3, "extra": nil,
	})
	want := []Violation{
		{"", "required", `missing property "z"`},
		{"/a", "minimum", "want at least 3, got 1"},
		{"/b", "anyOf", "fits none of the alternatives: want string, got number; want null, got number"},
		{"/c", "const", `want {"k":1}`},
		{"/d", "format", ""},
		{"/e", "enum", `want one of "p", 1, null`},
		{"/extra", "additionalProperties", `unknown property "extra"`},
		{"/f", "format", `"sha256_short" is no file: want "sha256_" and 64 hexadecimal digits`},
		{"/l", "maxItems", "want at most 2 elements, got 3"},
		{"/l", "uniqueItems", "elements 0 and 1 are equal, want all different"},
		{"/l/2", "type", "want string, got number"},
		{"/m", "multipleOf", "want a multiple of 0.5, got 0.3"},
		{"/n", "not", "fits a schema that it must not fit"},
		{"/no", "false", "no value is allowed here"},
		{"/o", "oneOf", "fits more than one of the alternatives, want exactly one"},
		{"/s~1t", "maxLength", "want at most 2 characters, got 4"},
	}
	for i := range got {
		if got[i].Pointer == "/d" {
			got[i].Msg = "" // the library's words
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	ok := map[string]any{"a": int64(3), "b": nil, "z": int64(0), "f": "sha256_" + strings.Repeat("0a", 32), "l": []any{"x"}}
	if vs := s.Validate(ok); vs == nil || len(vs) != 1 || vs[0].Pointer != "/z" {
		t.Errorf("%v", vs)
	}
}

// Integers are exact at 64 bits; an integral double is an integer to JSON Schema.
func TestContractNumbers(t *testing.T) {
	s, err := Compile([]byte(`{"type": "integer", "maximum": 9007199254740992}`))
	if err != nil {
		t.Fatal(err)
	}
	for v, ok := range map[any]bool{
		int64(9007199254740992): true, int64(9007199254740993): false, 5.0: true, 5.5: false, int64(-1 << 63): true, "5": false, 1e300: false,
	} {
		if got := s.Validate(v) == nil; got != ok {
			t.Errorf("%v: fits %v, want %v", v, got, ok)
		}
	}
}

func TestContractErrors(t *testing.T) {
	for src, want := range map[string]string{
		`{`:                            "no JSON",
		`5`:                            "an object or a boolean",
		`{"type": "strin"}`:            "not valid",
		`{"properties": 3}`:            "/properties",
		`{"pattern": "("}`:             "/pattern",
		`{"$ref": "#/nope"}`:           "nope",
		`{"$ref": "other.json"}`:       "not loaded from elsewhere",
		`{"$schema": "http://x.test"}`: "not loaded from elsewhere",
	} {
		_, err := Compile([]byte(src))
		if !errors.Is(err, fault.RecipeInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want RECIPE_INVALID with %q", src, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "mem:") {
			t.Errorf("%s: the error shows our own name for the schema: %v", src, err)
		}
	}
	s, err := Compile([]byte(`false`))
	if err != nil {
		t.Fatal(err)
	}
	if vs := s.Validate(nil); len(vs) != 1 {
		t.Errorf("%v", vs)
	}
}

// The file inputs of an action and what it requires.
func TestSchemaFields(t *testing.T) {
	raw := []byte(`{"type": "object", "required": ["z", "a", "z"], "properties": {"z": {"type": "string", "format": "file"}, "b": {"format": "file"}, "a": {"type": "string"}, "q": true}}`)
	if got := FileFields(raw); !reflect.DeepEqual(got, []string{"b", "z"}) {
		t.Errorf("FileFields = %v", got)
	}
	if got := Required(raw); !reflect.DeepEqual(got, []string{"a", "z"}) {
		t.Errorf("Required = %v", got)
	}
	for _, raw := range []string{"", "true", "[", `{"properties": 1}`} {
		if FileFields([]byte(raw)) != nil || Required([]byte(raw)) != nil {
			t.Errorf("%q has no fields", raw)
		}
	}
}
