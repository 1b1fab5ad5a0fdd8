// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

func TestWithDefaults(t *testing.T) {
	for _, tt := range []struct{ schema, given, want string }{
		{`{"properties":{"a":{"default":1},"b":{"default":2}}}`, `{"b":3}`, `{"a":1,"b":3}`},
		{`{"properties":{"a":{"default":1}}}`, `{"a":null}`, `{"a":null}`},
		{`{"properties":{"a":{"default":null},"f":{"default":false}}}`, `{}`, `{"a":null,"f":false}`},
		{`{"properties":{"o":{"properties":{"x":{"default":"y"}}}}}`, `{}`, `{}`},
		{`{"properties":{"o":{"properties":{"x":{"default":"y"}}}}}`, `{"o":{}}`, `{"o":{"x":"y"}}`},
		{`{"properties":{"o":{"default":{},"properties":{"x":{"default":"y"}}}}}`, `{}`, `{"o":{}}`}, // as it is
		{`{"properties":{"l":{"items":{"properties":{"x":{"default":1}}}}}}`, `{"l":[{},{"x":2},3]}`, `{"l":[{"x":1},{"x":2},3]}`},
		{`{"properties":{"l":{"prefixItems":[{"properties":{"x":{"default":1}}}]}}}`, `{"l":[{},{}]}`, `{"l":[{"x":1},{}]}`},
		{`{"$defs":{"o":{"properties":{"x":{"default":1}}}},"properties":{"o":{"$ref":"#/$defs/o"}}}`, `{"o":{}}`, `{"o":{"x":1}}`},
		{`{"$defs":{"n":{"default":7}},"properties":{"n":{"$ref":"#/$defs/n"}}}`, `{}`, `{"n":7}`},
		{`{"allOf":[{"properties":{"x":{"default":1}}},{"properties":{"x":{"default":2}}}]}`, `{}`, `{"x":1}`},
		{`{"anyOf":[{"properties":{"x":{"default":1}}}],"if":true,"then":{"properties":{"y":{"default":1}}}}`, `{}`, `{}`},
		{`{"properties":{"fileHashes":{"default":[]},"a":{"properties":{"fileHashes":{"default":1}}}}}`, `{"a":{}}`, `{"a":{"fileHashes":1}}`},
		{`{"$ref":"#"}`, `{}`, `{}`},
		{`{"$defs":{"t":{"properties":{"t":{"$ref":"#/$defs/t"},"n":{"default":0}}}},"$ref":"#/$defs/t"}`, `{"t":{"t":{}}}`, `{"n":0,"t":{"n":0,"t":{"n":0}}}`},
	} {
		s, err := Compile([]byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		given, _ := jsonx.Decode([]byte(tt.given), jsonx.Limits{})
		got, _, err := s.WithDefaults(given, "fileHashes")
		if err != nil {
			t.Errorf("%s: %v", tt.schema, err)
			continue
		}
		if raw, _ := jsonx.Canonical(got); string(raw) != tt.want {
			t.Errorf("%s with %s: %s, want %s", tt.schema, tt.given, raw, tt.want)
		}
		if raw, _ := jsonx.Canonical(given); string(raw) != tt.given {
			t.Errorf("%s: what was given is now %s", tt.schema, raw)
		}
	}
}

// What a default contains belongs to the value alone.
func TestDefaultsAreCopies(t *testing.T) {
	s, err := Compile([]byte(`{"properties":{"a":{"default":{"x":[1]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := s.WithDefaults(map[string]any{})
	first.(map[string]any)["a"].(map[string]any)["x"].([]any)[0] = int64(2)
	second, added, _ := s.WithDefaults(map[string]any{})
	if fmt.Sprint(second) != "map[a:map[x:[1]]]" || !added {
		t.Error(second)
	}
}

// A small schema and a small value cannot make a large one (A11).
func TestA11_DefaultsAreBounded(t *testing.T) {
	s, err := Compile([]byte(`{"items":{"properties":{"x":{"default":"` + strings.Repeat("a", 10_000) + `"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, 1000)
	for i := range list {
		list[i] = map[string]any{}
	}
	if _, _, err := s.WithDefaults(list); fault.CodeOf(err) != fault.InputInvalid {
		t.Error(err)
	}
	if _, _, err := s.WithDefaults(list[:50]); err != nil {
		t.Error(err)
	}
}

// doubled returns definitions that double the work at each of n levels, and lead to nothing.
func doubled(n int) string {
	defs := fmt.Sprintf(`"d%d":{}`, n)
	for i := range n {
		next := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		defs += fmt.Sprintf(`,"d%d":{"allOf":[%s,%s]}`, i, next, next)
	}
	return `"$defs":{` + defs + `}`
}

// References cannot make a small schema a lot of work, also where no value is (A11).
func TestA11_StepsOfDefaultsAreBounded(t *testing.T) {
	s, err := Compile([]byte(`{"properties":{"x":{"$ref":"#/$defs/d0"},"y":{"default":1}},` + doubled(22) + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.WithDefaults(map[string]any{}); fault.CodeOf(err) != fault.InputInvalid {
		t.Errorf("%v, want a refusal", err)
	}
	zeros := make([]any, 1_000_100)
	for i := range zeros {
		zeros[i] = int64(0)
	}
	if s, err = Compile([]byte(`{"items":{"type":"integer","default":1}}`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.WithDefaults(zeros); err != nil {
		t.Errorf("a list of many values: %v", err)
	}
	properties := make([]string, 500)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"p%d":{"$ref":"#/$defs/d0","default":1}`, i)
	}
	all := CheckDefaults([]byte(`{"properties":{` + strings.Join(properties, ",") + `},` + doubled(22) + `}`))
	if len(all) == 0 || len(all) >= len(properties) || !slices.ContainsFunc(all, func(v Violation) bool { return strings.Contains(v.Msg, "up to this one") }) {
		t.Errorf("%d defaults were checked, want an end", len(all))
	}
}

func TestCheckDefaults(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"a":{"type":"integer","default":1}}}`:                                 ``,
		`{"properties":{"a":{"type":"integer","default":"1"}}}`:                               `/properties/a/default type`,
		`{"properties":{"a/b":{"minLength":2,"default":"x"}}}`:                                `/properties/a~1b/default minLength`,
		`{"properties":{"ä 50%":{"type":"null","default":1}}}`:                                `/properties/ä 50%/default type`,
		`{"properties":{"o":{"required":["x"],"default":{}}}}`:                                `/properties/o/default required`,
		`{"anyOf":[{"items":{"default":1,"type":"null"}}]}`:                                   `/anyOf/0/items/default type`,
		`{"$defs":{"n":{"type":"null","default":1}},"properties":{"a":{"$ref":"#/$defs/n"}}}`: `/$defs/n/default type`,
		`{"properties":{"default":{"type":"string"}}}`:                                        ``,
		`{"properties":{"a":{"const":{"default":1},"default":{"default":1}}}}`:                ``,
		`false`: ``,
	} {
		var got []string
		for _, v := range CheckDefaults([]byte(schema)) {
			got = append(got, v.Pointer+" "+v.Keyword)
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%s: %q, want %q", schema, s, want)
		}
	}
}
