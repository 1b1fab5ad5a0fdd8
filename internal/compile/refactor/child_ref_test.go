// SPDX-License-Identifier: Apache-2.0

package refactor_test

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/refactor"
)

// TestX210_X251_ChildRefs: what says which recipe a step runs is passed on like other expressions, into the new recipe and
// out of it, in each dialect.
func TestX210_X251_ChildRefs(t *testing.T) {
	for name, tt := range map[string]struct{ text, in, out string }{
		"recipe": {`name: x
steps:
  - {id: pick-one, transform: {expression: "{'name': 'child', 'text': 'name: y'}"}}
  - {id: named, recipe: {ref: "{{ steps['pick-one'].output.name | lower }}@1"}}
  - {id: made, recipe: {definition: steps.named.output.text}}
  - {id: last, recipe: {ref: "{{ named.output.name }}"}}
outputs: {r: steps.last.output}
`, `recipe: {ref: "{{ input.pick_one.name | lower }}@1"}`, "recipe: {definition: steps.part.output.named.text}}\n  - {id: last, recipe: {ref: \"{{ steps.part.output.named.name }}\"}}"},
		"dag": {`name: x
nodes:
  - {id: pick-one, handler: transform, config: {expression: "{'name': 'child', 'text': 'name: y'}"}}
  - {id: named, handler: recipe, dependencies: [pick-one], config: {ref: "{{ pick-one.output.name | lower }}@1"}}
  - {id: made, handler: recipe, dependencies: [named], config: {definition: steps.named.output.text}}
  - {id: last, handler: recipe, dependencies: [named], config: {ref: "{{ named.output.name }}"}}
outputs: {r: steps.last.output}
`, `config: {ref: "{{ input.pick_one.name | lower }}@1"}`, "dependencies: [part], config: {definition: steps.part.output.named.text}}\n  - {id: last, handler: recipe, dependencies: [part], config: {ref: \"{{ steps.part.output.named.name }}\"}}"},
		"flow": {`name: x
nodes:
  - {id: pick-one, transform: {expression: "{'name': 'child', 'text': 'name: y'}"}}
  - {id: named, recipe: {ref: "{{ steps['pick-one'].output.name | lower }}@1"}}
  - {id: made, recipe: {definition: steps.named.output.text}}
  - {id: last, recipe: {ref: "{{ named.output.name }}"}}
edges:
  - {source_node_id: pick-one, target_node_id: named}
  - {source_node_id: named, target_node_id: made}
  - {source_node_id: named, target_node_id: last}
outputs: {r: steps.last.output}
`, `recipe: {ref: "{{ input.pick_one.name | lower }}@1"}`, "recipe: {definition: steps.part.output.named.text}}\n  - {id: last, recipe: {ref: \"{{ steps.part.output.named.name }}\"}}"},
		"pipeline": {`workflow:
  name: x
  steps:
    - {name: pick-one, type: transform, expression: "{'name': 'child', 'text': 'name: y'}"}
    - {name: named, type: pipeline, pipeline_ref: "{{ steps.pick-one.name | lower }}@1"}
    - {name: made, type: pipeline, pipeline_definition: steps.named.text}
    - {name: last, type: pipeline, pipeline_ref: "{{ steps.named.result.name }}"}
  outputs: {r: steps.last.result}
`, `pipeline_ref: "{{ input.pick_one.name | lower }}@1"`, "pipeline_definition: steps.part.named.text}\n    - {name: last, type: pipeline, pipeline_ref: \"{{ steps.part.named.name }}\"}"},
	} {
		res, err := extract(t, tt.text, refactor.Extraction{First: "named", Last: "named", Name: "part", Path: "part.yaml"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(string(res.New), tt.in) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, res.New, tt.in)
		}
		if !strings.Contains(string(res.Text), tt.out) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, res.Text, tt.out)
		}
	}
}
