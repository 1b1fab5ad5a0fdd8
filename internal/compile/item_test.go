// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"
)

// The type of a loop's items is known if the loop is over the files or a list of the input,
// so a misspelt field of an item is a compile error and not a failure at run time.
func TestLoopItemsAreTyped(t *testing.T) {
	for _, tt := range []struct{ over, expression, want string }{
		{"files", "x.mimetype", `x has no mimetype; did you mean "mimeType"?`},
		{"files", "x.sizeBytes + 1", ""},
		{"files", "x.extended.whatever", ""},
		{"files", "x.name + 1", "operator + does not take (string, int)"},
		{"input.people", "x.nme", `x has no nme; did you mean "name"?`},
		{"inputs.people", "x.name.size()", ""},
		{"parameters.people", "x.nme", `x has no nme; did you mean "name"?`},
		{"input.anything", "x.nme", ""},
		{"input.numbers", "x.nme", "int has no fields"},
		{"input.people.filter(p, true)", "x.nme", ""}, // too complex for the type of an item to be known
		{"input.unknown", "x.nme", "input has no unknown"},
		// A list whose schema has more than items has an unknown type.
		{"input.pair", "x.size()", ""},
		{"input.either", "x.size()", ""},
		{"input.more", "x.age", ""},
		{"input.linked", "x.first.size()", ""},
		{"input.people.old", "x.nme", ""},
	} {
		text := `name: r
inputSchema:
  type: object
  additionalProperties: false
  properties:
    people: {type: array, items: {type: object, additionalProperties: false, properties: {name: {type: string}}}}
    numbers: {type: array, items: {type: integer}}
    anything: {type: array}
    pair: {type: array, prefixItems: [{type: string}], items: {type: integer}}
    either: {type: [array, string], items: {type: integer}}
    more:
      type: array
      items: {type: object, properties: {name: {type: string}}}
      allOf: [{items: {type: object, properties: {age: {type: integer}}}}]
    name: {type: string}
    linked: {type: array, items: {type: object, properties: {first: {$ref: "#/properties/name"}, name: {type: integer}}}}
    people.old: {type: array, items: {type: integer}}
steps:
  - id: each
    loop: {over: "` + tt.over + `", as: x, steps: [{id: one, transform: {expression: "` + tt.expression + `"}}]}
`
		_, _, _, diags := Source("r.yaml", []byte(text), Options{})
		var got []string
		for _, d := range diags {
			got = append(got, d.String())
		}
		if said := strings.Join(got, "\n"); !strings.Contains(said, tt.want) || tt.want == "" && HasErrors(diags) {
			t.Errorf("over %s, %s: %q, want %q", tt.over, tt.expression, said, tt.want)
		}
	}
}
