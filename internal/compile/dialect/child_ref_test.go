// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dialect_test

import (
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

// childRefs are texts with a recipe whose name is a template, and one that a step has made, as each dialect writes the
// output of a step whose id has a dash.
var childRefs = map[string]string{
	"recipe": `name: x
steps:
  - {id: pick-one, transform: {expression: "{'name': 'Child', 'text': 'name: y'}"}}
  - {id: named, recipe: {ref: "{{ steps['pick-one'].output.name | lower }}@1", inputs: {n: "{{ steps['pick-one'].output.name }}"}}}
  - {id: made, recipe: {definition: "steps['pick-one'].output.text"}}
outputs: {r: steps.made.output}
`,
	"dag": `name: x
nodes:
  - {id: pick-one, handler: transform, config: {expression: "{'name': 'Child', 'text': 'name: y'}"}}
  - {id: named, handler: recipe, dependencies: [pick-one], config: {ref: "{{ pick-one.output.name | lower }}@1", inputs: {n: "{{ pick-one.output.name }}"}}}
  - {id: made, handler: recipe, dependencies: [named], config: {definition: "steps['pick-one'].output.text"}}
outputs: {r: steps.made.output}
`,
	"flow": `{"name": "x", "nodes": [
  {"id": "pick-one", "transform": {"expression": "{'name': 'Child', 'text': 'name: y'}"}},
  {"id": "named", "recipe": {"ref": "{{ steps['pick-one'].output.name | lower }}@1", "inputs": {"n": "{{ steps['pick-one'].output.name }}"}}},
  {"id": "made", "recipe": {"definition": "steps['pick-one'].output.text"}}
], "edges": [{"source_node_id": "pick-one", "target_node_id": "named"}, {"source_node_id": "named", "target_node_id": "made"}],
"outputs": {"r": "steps.made.output"}}
`,
	"pipeline": `workflow:
  name: x
  steps:
    - {name: pick-one, type: transform, expression: "{'name': 'Child', 'text': 'name: y'}"}
    - {name: named, type: pipeline, pipeline_ref: "{{ steps.pick-one.name | lower }}@1", inputs: {n: "{{ steps.pick-one.name }}"}}
    - {name: made, type: pipeline, pipeline_definition: "steps.pick-one.text"}
  outputs: {r: steps.made.result}
`,
}

// Recipes that a run chooses or makes are the same after fmt, and in each dialect (X251).
func TestX251_ChildRefsInEachDialect(t *testing.T) {
	for name, text := range childRefs {
		p, _, _, diags := compile.Source("x.yaml", []byte(text), compile.Options{})
		if p == nil {
			t.Errorf("%s: %v", name, diags)
			continue
		}
		for _, want := range []string{"{{ steps['pick-one'].output.name | lower }}@1", `steps['pick-one'].output.text`} {
			if !slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return s.Child != nil && s.Child.RefExpr != nil && s.Child.RefExpr.Src == want }) {
				t.Errorf("%s: no step runs what %s says", name, want)
			}
		}
		out, diags := dialect.Format("x.yaml", []byte(text), 0)
		if q, _, _, _ := compile.Source("x.yaml", out, compile.Options{}); q == nil || q.Hash() != p.Hash() {
			t.Errorf("%s: formatted it has another plan: %v\n%s", name, diags, out)
		}
		for _, to := range dialect.All() {
			_, r, _, _ := compile.Source("x.yaml", []byte(text), compile.Options{})
			tree, err := to.Encode(r, dialect.Named(name))
			if err != nil {
				t.Errorf("%s to %s: %v", name, to.Name, err)
				continue
			}
			for language, written := range map[string][]byte{"YAML": yamlx.Encode(tree), "JSON": yamlx.EncodeJSON(tree)} {
				if q, _, _, diags := compile.Source("x.yaml", written, compile.Options{}); q == nil || q.Hash() != p.Hash() {
					t.Errorf("%s to %s in %s has another plan: %v\n%s", name, to.Name, language, diags, written)
				}
			}
		}
	}
}
