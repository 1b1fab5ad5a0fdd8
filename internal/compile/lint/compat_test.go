// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/lint"
)

func compiled(t *testing.T, file, text string) lint.Text {
	t.Helper()
	p, r, src, diags := compile.Source(file, []byte(text), compile.Options{Actions: actions})
	if p == nil {
		t.Fatalf("%s does not compile: %v\n%s", file, diags, text)
	}
	return lint.Text{Bytes: []byte(text), Recipe: r, Plan: p, Source: src, Diags: diags}
}

// TestX211_Compatible: what has changed for those who use a recipe, and nothing else.
func TestX211_Compatible(t *testing.T) {
	const (
		head = "name: x\nversion: 1.0.0\n"
		one  = "steps: [{id: one, transform: {expression: '1', outputBinding: a}}]\n"
	)
	for _, tt := range []struct {
		name, old, now string
		want           []string // severity and rule, and the line
	}{
		{"the same", head + one, head + one, nil},
		{"only the text", head + one, head + "description: D.\n# c\n" + one, nil},
		{"input added", head + "inputSchema: {type: object, properties: {a: {type: string}}}\n" + one, head + "inputSchema: {type: object, properties: {a: {type: string}, b: {type: string}}}\n" + one, nil},
		{
			"input required", head + "inputSchema: {type: object, properties: {a: {type: string}}}\n" + one, strings.Replace(head, "1.0", "2.0", 1) + "inputSchema:\n  type: object\n  required: [a]\n  properties: {a: {type: string}}\n" + one,
			[]string{"breaking input-required 5"},
		},
		{
			"no schema before", head + one, strings.Replace(head, "1.0", "2.0", 1) + "inputSchema: {type: object, required: [a], properties: {a: {type: string}}}\n" + one,
			[]string{"breaking input-required 3"},
		},
		{
			"input retyped", head + "inputSchema: {type: object, properties: {a: {type: number}}}\n" + one, head + "inputSchema:\n  type: object\n  properties:\n    a: {type: integer}\n" + one,
			[]string{"breaking input-type 6", "note version-not-raised 2"},
		},
		{"input widened", head + "inputSchema: {type: object, properties: {a: {type: integer, maximum: 5}}}\n" + one, head + "inputSchema: {type: object, properties: {a: {type: [number, string], maximum: 9}}}\n" + one, nil},
		{
			"bounds", strings.Replace(head, "1.0", "0.1", 1) + "inputSchema: {type: object, properties: {a: {type: array, maxItems: 9, items: {enum: [x, y]}}}}\n" + one,
			strings.Replace(head, "1.0", "0.1", 1) + "inputSchema: {type: object, properties: {a: {type: array, maxItems: 5, minItems: 1, items: {enum: [x]}}}}\n" + one,
			[]string{"breaking input-narrowed 3", "breaking input-narrowed 3", "breaking input-narrowed 3"},
		},
		{
			"closed", strings.Replace(head, "1.0", "0.1", 1) + "inputSchema: {type: object, properties: {a: {}, b: {}}}\n" + one, strings.Replace(head, "1.0", "0.1", 1) + "inputSchema: {type: object, properties: {a: {}}, additionalProperties: false}\n" + one,
			[]string{"breaking input-removed 3", "breaking input-narrowed 3"},
		},
		{
			"output removed", strings.Replace(head, "1.0", "0.1", 1) + one + "outputs:\n  r: a\n  s: a\n", strings.Replace(head, "1.0", "0.1", 1) + one + "outputs:\n  t: a\n  s: a\n",
			[]string{"breaking output-removed 5", "note output-added 5"},
		},
		{
			"binding removed", strings.Replace(head, "1.0", "0.1", 1) + one, strings.Replace(head, "1.0", "0.1", 1) + strings.Replace(one, "outputBinding: a", "outputBinding: b", 1),
			[]string{"breaking output-removed 3", "note output-added 3"},
		},
		{
			"output retyped", strings.Replace(head, "1.0", "0.1", 1) + one + "outputs: {r: a}\noutputSchema: {type: object, required: [r], properties: {r: {type: integer}}}\n",
			strings.Replace(head, "1.0", "0.1", 1) + one + "outputs: {r: a}\noutputSchema: {type: object, properties: {r: {type: [integer, string]}}}\n",
			[]string{"breaking output-optional 5", "breaking output-type 5"},
		},
		{
			"limits", strings.Replace(head, "1.0", "0.1", 1) + one, strings.Replace(head, "1.0", "0.1", 1) + "ttl: 1h\nlimits: {max_loop_items: 10}\n" + one,
			[]string{"breaking limit-lowered 3", "breaking limit-lowered 4"},
		},
		{
			"names of steps", head + "steps: [{id: one, wait: {signal: go, timeout: 1h}}]\n", strings.Replace(head, "1.0", "2.0", 1) + "steps: [{id: two, wait: {signal: stop, timeout: 1h}}]\n",
			[]string{"breaking signal-removed 3", "note step-removed 3"},
		},
		{
			"credits", strings.Replace(head, "1.0", "0.1", 1) + "creditEstimation: {strategy: fixed, fixedCredits: 2, maxCredits: 5}\n" + one,
			strings.Replace(head, "1.0", "0.1", 1) + "creditEstimation: {strategy: fixed, fixedCredits: 2, maxCredits: 7}\nsteps:\n  - {id: one, transform: {expression: '1', outputBinding: a}}\n  - {id: two, action: {name: pdf-to-markdown}}\n",
			[]string{"breaking credits-raised 3", "note costs-more 5"},
		},
		{"name and status", head + one, "name: y\nversion: 2.0.0\nstatus: draft\n" + one, []string{"breaking name-changed 1", "breaking now-a-draft 3"}},
	} {
		var got []string
		for _, c := range lint.Compatible(compiled(t, "old.yaml", tt.old), compiled(t, "new.yaml", tt.now), actions) {
			got = append(got, c.Severity+" "+c.Rule+" "+strings.Split(c.Pos.String(), ":")[1])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
