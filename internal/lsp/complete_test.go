// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"slices"
	"strings"
	"testing"
)

const twoSteps = `name: two
inputSchema: {type: object, properties: {text: {type: string, description: What is counted.}}}
steps:
  - id: first
    action: {name: word-count, parameters: {text: "{{ input.text }}"}}
    outputBinding: counted
  - id: dashed-one
    transform: {expression: counted.words, outputBinding: sum}
`

// TestCompletion completes at the mark ^: each of the words in want is offered, and none of those in not.
func TestCompletion(t *testing.T) {
	for _, tt := range []struct {
		name, file, text string
		want, not        string
	}{
		{"fields of the text", "a.recipe.yaml", "name: a\n^", "version steps outputs inputSchema", "name id2 dependsOn"},
		{"a word that is no field yet", "a.yaml", "name: a\nsteps:\n  - id: x\n    act^\n", "action", "id when"},
		{"an empty line in a step", "a.yaml", "name: a\nsteps:\n  - id: x\n    ^\n", "action when dependsOn outputBinding transform", "id nodes"},
		{"the first field of a step", "a.yaml", "name: a\nsteps:\n  - ^\n", "id action when", "steps"},
		{"fields of an object in a line", "a.yaml", "steps:\n  - {id: x, re^}\n", "retryPolicy recipe", "id action"},
		{"fields of an object within", "a.yaml", "steps:\n  - id: x\n    retryPolicy:\n      ^\n", "maxAttempts initialDelay", "id"},
		{"a field before a colon", "a.yaml", "steps:\n  - i^: x\n", "id", "when"},
		{"between broken steps", "a.yaml", "name: a\nsteps:\n  - id: x\n    wh^\n  - id: y\n    when: [\n", "when", "steps"},
		{"values of a field", "a.yaml", "name: a\nstatus: ^\nsteps: [{id: x}]\n", "draft active deprecated", "id"},
		{"truth", "a.yaml", "steps:\n  - id: x\n    continue_on_error: ^\n", "true false", "id"},
		{"actions", "a.yaml", "steps:\n  - id: x\n    action: {name: word^}\n", "word-count", "text-join"},
		{"inputs of an action", "a.yaml", "steps:\n  - id: x\n    action:\n      name: text-join\n      parameters:\n        ^\n", "items separator", "id when"},
		{"what a step depends on", "a.yaml", twoSteps + "  - id: last\n    dependsOn: [^]\n", "first dashed-one", "last word-count"},
		{"steps in an expression", "a.yaml", twoSteps + "  - id: last\n    when: steps.^\n", "first", "dashed-one last input"},
		{"steps in an index", "a.yaml", twoSteps + "  - id: last\n    when: steps['^']\n", "first dashed-one", "last input"},
		{"fields of a step", "a.yaml", twoSteps + "  - id: last\n    when: steps.first.^\n", "output status error", "words"},
		{"the output of a step", "a.yaml", twoSteps + "  - id: last\n    when: steps.first.output.^\n", "words", "status"},
		{"the output of a binding", "a.yaml", twoSteps + "  - id: last\n    when: 1 > counted.w^\n", "words", "status"},
		{"names", "a.yaml", twoSteps + "  - id: last\n    when: ^\n", "counted sum input steps first size budget", "dashed-one last"},
		{"names in a template", "a.yaml", twoSteps + "  - id: last\n    fail: {message: \"Sum {{ ^ }} x\"}\n", "counted sum input", "last"},
		{"input in a template", "a.yaml", twoSteps + "  - id: last\n    action: {name: text-join, parameters: {items: [\"{{ input.t^\"]}}\n", "text", "items"},
		{"filters", "a.yaml", twoSteps + "  - id: last\n    fail: {message: \"{{ sum | ^\"}\n", "upper default tojson", "counted input"},
		{"outputs", "a.yaml", twoSteps + "outputs:\n  n: ^\n", "counted sum first", "word-count"},
		{"functions of a value", "a.yaml", twoSteps + "outputs:\n  n: input.text.^\n", "startsWith split", "counted"},
		{"a loop", "a.yaml", "steps:\n  - id: each\n    loop:\n      over: input.list\n      as: page\n      steps:\n        - {id: in, transform: {expression: \"^\"}}\n  - {id: out, transform: {expression: '1'}}\n", "page index out each", "in item"},
		{"what a loop accumulates", "a.yaml", "steps:\n  - id: each\n    loop:\n      over: input.list\n      accumulate: {as: sofar, initial: 0, expression: sofar + 1}\n      steps:\n        - {id: in, transform: {expression: \"^\"}}\n", "sofar item index", "in"},
		{"between iterations", "a.yaml", "steps:\n  - id: each\n    loop:\n      until: ^\n      maxIterations: 3\n      accumulate: {as: sofar, initial: 0, expression: sofar + 1}\n      steps:\n        - {id: asks, transform: {expression: '1', outputBinding: made}}\n", "sofar index asks made", "item"},
		{"not into a loop", "a.yaml", "steps:\n  - id: each\n    loop: {over: input.list, as: page, steps: [{id: in, transform: {expression: '1'}}]}\n  - {id: out, transform: {expression: ^}}\n", "each input", "page in out"},
		{"a block of text", "a.yaml", twoSteps + "  - id: last\n    transform:\n      expression: >-\n        1 +\n        coun^\n", "counted", "sum"},
		{"dag: handlers", "a.yaml", "nodes:\n  - {id: x, handler: ^}\n", "word-count transform loop", "id"},
		{"dag: inputs of the handler", "a.yaml", "nodes:\n  - id: x\n    handler: transform\n    config:\n      ^\n", "expression", "id handler"},
		{"dag: dependencies", "a.dag.yaml", "nodes:\n  - {id: one, handler: transform, config: {expression: '1'}}\n  - id: x\n    handler: word-count\n    dependencies:\n      - ^\n", "one", "x word-count"},
		{"flow: ends of edges", "a.yaml", "nodes:\n  - {id: one, transform: {expression: '1'}}\n  - {id: two, transform: {expression: '2'}}\nedges:\n  - source_node_id: one\n    target_node_id: ^\n", "one two", "transform"},
		{"flow: fields of an edge", "a.yaml", "nodes:\n  - {id: one, transform: {expression: '1'}}\nedges:\n  - ^\n", "source_node_id target_node_id", "id2 transform"},
		{"JSON: a field", "a.json", "{\"name\": \"a\", \"steps\": [{\"id\": \"x\", \"^\"}]}", "action when", "id name2"},
		{"JSON: a value", "a.json", "{\"name\": \"a\", \"status\": \"^\", \"steps\": [{\"id\": \"x\"}]}", "draft active", "id"},
		{"JSON: an expression", "a.json", "{\"name\": \"a\", \"steps\": [{\"id\": \"x\", \"outputBinding\": \"b\"}, {\"id\": \"y\", \"when\": \"steps.^\"}]}", "x", "y b"},
		{"a recipe within", "a.yaml", "steps:\n  - id: x\n    recipe:\n      inline:\n        name: i\n        steps:\n          - {id: inner, transform: {expression: '1'}}\n          - {id: other, when: steps.^}\n", "inner", "x other"},
		{"in plan_definition", "a.yaml", "plan_definition:\n  name: a\n  steps:\n    - id: x\n      act^\n", "action", "id"},
		{"not in some other text", "compose.yaml", "services:\n  web:\n    im^\n", "", "action"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, config(t.TempDir()))
			text, p := marked(t, tt.text)
			uri := "file:///w/" + tt.file
			c.open(uri, text)
			var list completionList
			if err := c.call("textDocument/completion", at(uri, p), &list); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range list.Items {
				got = append(got, i.Label)
			}
			for _, w := range strings.Fields(tt.want) {
				if !slices.Contains(got, w) {
					t.Errorf("%q is not offered: %.300q", w, got)
				}
			}
			for _, w := range strings.Fields(tt.not) {
				if slices.Contains(got, w) {
					t.Errorf("%q is offered: %.300q", w, got)
				}
			}
		})
	}
}

// TestCompletionEdits accepts an item and looks at the text.
func TestCompletionEdits(t *testing.T) {
	for _, tt := range []struct{ name, text, item, want string }{
		{"a field", "name: a\nsteps:\n  - id: x\n    act^\n", "action", "name: a\nsteps:\n  - id: x\n    action: \n"},
		{"a field before a colon", "name: a\nsteps:\n  - i^: x\n", "id", "name: a\nsteps:\n  - id: x\n"},
		{"a word in its middle", "steps:\n  - id: x\n    action: {name: wo^rd}\n", "word-count", "steps:\n  - id: x\n    action: {name: word-count}\n"},
		{"a name", "steps:\n  - {id: x, outputBinding: counted}\n  - id: y\n    when: 1 + cou^\n", "counted", "steps:\n  - {id: x, outputBinding: counted}\n  - id: y\n    when: 1 + counted\n"},
		{"behind a character of two units", "steps:\n  - {id: x, outputBinding: counted}\n  - id: y\n    when: \"'😀' + cou^\"\n", "counted", "steps:\n  - {id: x, outputBinding: counted}\n  - id: y\n    when: \"'😀' + counted\"\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, config(t.TempDir()))
			text, p := marked(t, tt.text)
			c.open("file:///a.yaml", text)
			var list completionList
			if err := c.call("textDocument/completion", at("file:///a.yaml", p), &list); err != nil {
				t.Fatal(err)
			}
			for _, i := range list.Items {
				if i.Label == tt.item {
					if got := apply(t, text, []textEdit{*i.TextEdit}); got != tt.want {
						t.Errorf("got\n%s\nwant\n%s", got, tt.want)
					}
					return
				}
			}
			t.Errorf("%q is not offered", tt.item)
		})
	}
}
