// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/expr"
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

// A selection names what CEL finds in it.
func TestSelectionsNameWhatCELFinds(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		src := "steps" + strings.Join(rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]string{".a", ".output", "['b c']", `["d"]`, ".in", ".true", "[0]", "[a]", ".é", "['']", `['\n']`, "['\x00']", "['a\"b']", ".9", "..", "[", "'", " ", ".a()"}),
			rapid.Map(rapid.StringMatching(`[a-z_]{1,3}`), func(s string) string { return "." + s }),
		), 0, 5).Draw(t, "parts"), "")
		path := selection(src)
		if path == nil {
			return
		}
		found++
		p, err := expr.Compile(src)
		if err != nil {
			t.Fatalf("%q: CEL refuses it: %v", src, err)
		}
		if refs := p.Refs(); len(refs) != 1 || refs[0].Name != "steps" || fmt.Sprint(refs[0].Path) != fmt.Sprint(path) || refs[0].Dynamic || refs[0].Offset != 0 || refs[0].Len != 5 {
			t.Fatalf("%q: CEL finds %+v, the selection is %q", src, refs, path)
		}
	})
	if found == 0 {
		t.Error("no selection was drawn")
	}
}
