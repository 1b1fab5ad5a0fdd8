// SPDX-License-Identifier: Apache-2.0

package texts_test

import (
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/texts"
)

// TestEveryPlaceOfAnExpression: each field that takes an expression or a template is found, with what it reads.
func TestEveryPlaceOfAnExpression(t *testing.T) {
	const text = `
name: x
creditEstimation: {strategy: calculated, formula: n01, maxCredits: 1}
outputs: {r: n02}
steps:
  - id: a
    when: n03
    action: {name: work, parameters: {p: ["{{ n04 }}", {q: "{{ secret('s') }} {{ n05 }}"}], plain: n99}}
    inputBindings: {b: n06, c: {merge: array, from: [n07, {expression: n08, label: n99}]}}
    cache: {key: n09}
    compensate: {action: {name: undo, parameters: {p: "{{ n10 }}"}}, inputBindings: {b: n11}}
    onError: {strategy: fallback, fallbackStep: {id: f, transform: {expression: n12}}}
  - {id: b, condition: {expression: n13, then: [{id: c, fail: {message: "{{ n14 }}"}}], else: [{id: d, wait: {until: n15}}]}}
  - {id: e, loop: {over: n16, steps: [{id: g, transform: {expression: n17}}]}}
  - {id: h, parallel: {branches: [[{id: i, wait: {approval: {title: "{{ n18 }}", text: "{{ n19 }}", form: {properties: {f: {default: "{{ n24 }}"}}}, value: ["{{ n20 }}"]}}}]]}}
  - {id: j, recipe: {ref: other, inputs: {p: "{{ n21 }}"}, files: n22}, inputBindings: {b: n23}}
`
	r, _, diags := dialect.Parse("x.yaml", []byte(text), form.Options{})
	if r == nil {
		t.Fatal(diags)
	}
	var got []string
	for _, e := range texts.Uses(r) {
		for _, ref := range e.Refs {
			got = append(got, ref.Name)
		}
	}
	slices.Sort(got)
	if len(got) != 24 || got[0] != "n01" || got[23] != "n24" || len(slices.Compact(got)) != 24 {
		t.Errorf("found %v", got)
	}
}
