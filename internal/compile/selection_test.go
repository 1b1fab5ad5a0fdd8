// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
)

// Selections, which are compiled without CEL, are judged as CEL judges the same in parentheses, whatever the
// schema of the output is.
func TestSelectionsAreJudgedAsByCEL(t *testing.T) {
	for _, output := range []string{
		`{}`, `true`, `{"type":"object"}`, `{"type":"string"}`, `{"type":["object","null"],"properties":{"a":{}}}`,
		`{"type":"object","properties":{"a":{"type":"string"}}}`,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"object","properties":{"b":{}}}}}`,
		`{"type":"object","additionalProperties":true,"properties":{"a":{"type":"object"}}}`,
		`{"type":"object","additionalProperties":{"type":"string"},"properties":{"a":{"type":"array"}}}`,
		`{"type":"object","additionalProperties":{"type":"string"}}`,
		`{"type":"object","patternProperties":{"^a":{"type":"string"}}}`,
		`{"anyOf":[{"type":"object","properties":{"a":{}}}]}`, `{"$ref":"#/$defs/x","$defs":{"x":{"type":"object"}}}`,
	} {
		opt := Options{Actions: catalogue.New(&action.Action{Name: "f", Version: "1.0.0", Output: json.RawMessage(output)})}
		for _, e := range []string{
			"steps.a.output", "steps.a.output.a", "steps.a.output.a.b", "steps.a.output['a']['b c']", "steps.a.output.nope", "steps.a.nope", "steps.a",
			"steps.a.status", "steps.a.error.code", "steps.nope.output", "steps['a'].output[\"a\"]", "steps.a.output.in", "steps.a.output.package",
			"steps.a.output.a.b.c.d", "steps.a.output[0]", "steps.a.output." + strings.Repeat("x", 20_000), "steps.a.output" + strings.Repeat(".b", 3_000),
		} {
			judged := func(e string) (rules []string) {
				text, _ := json.Marshal(map[string]any{"name": "x", "steps": []any{
					map[string]any{"id": "a", "action": map[string]any{"name": "f"}}, map[string]any{"id": "b", "transform": map[string]any{"expression": e}},
				}})
				_, _, _, diags := Source("x.json", text, opt)
				for _, d := range diags {
					rules = append(rules, d.Rule)
				}
				return rules
			}
			if got, want := judged(e), judged("("+e+")"); !slices.Equal(got, want) {
				t.Errorf("output %s: %.60s: %v, and in parentheses %v", output, e, got, want)
			}
		}
	}
}
