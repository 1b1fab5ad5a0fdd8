// SPDX-License-Identifier: Apache-2.0

package refactor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/refactor"
)

func extract(t *testing.T, text string, x refactor.Extraction) (*refactor.Result, error) {
	t.Helper()
	list := []*action.Action{{Name: "llm", Version: "1.0.0"}}
	for _, a := range pure() {
		list = append(list, &a)
	}
	opt := compile.Options{Actions: catalogue.New(list...), Lenses: catalogue.NewLenses(&catalogue.Lens{ID: "summarize", Version: "1", Template: "{{ text }} {{ parts }} {{ language }}"})}
	m, err := refactor.Load("main.yaml", []byte(text), opt)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m.Extract(x)
}

// TestX210_Pipeline: steps of a pipeline become a pipeline, by the names of results that it has.
func TestX210_Pipeline(t *testing.T) {
	const text = `# The head.
workflow:
  name: big
  limit: 100 # at most
  functions:
    scaled: {params: [x, by], expression: x * by}
    twice: {params: [x], expression: 'scaled(x, 2)'}
  providers: {work: {model: small}}
  steps:
    - name: a-one
      type: set_variable
      value: {n: "{{ inputs.n }}", t: abc}

    # The second.
    - name: b
      type: transform
      expression: "{{ steps.a-one.n + workflow.limit }}"   # braces
    - name: c
      type: work
      condition: "{{ has(steps.a-one.t.x) || steps.b.result > 1 }}"
      inputs: {x: "{{ steps.a-one.t }} {{ steps.b.result | tojson }}", y: "{{ twice(3) }}"}
    # The last.
    - name: d
      type: set_variable
      value: "{{ steps.b.result }} and {{ has(steps.b.x) }}"
  outputs: {d: steps.d.result}
dialect: pipeline
`
	res, err := extract(t, text, refactor.Extraction{First: "b", Last: "c", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	from, to := strings.Index(text, "    # The second."), strings.Index(text, "    # The last.")
	want := text[:from] + `    - name: part
      type: pipeline
      pipeline_file: part.yaml
      inputBindings:
        a_one: "steps['a-one'].output"
        limit: workflow.limit
` + strings.NewReplacer("{{ steps.b.result }}", "{{ steps.part.b }}", "has(steps.b.x)", "has(steps.part.b.x)").Replace(text[to:])
	if string(res.Text) != want {
		t.Errorf("got\n%s\nwant\n%s", res.Text, want)
	}
	const part = `workflow:
  name: part
  description: What the steps b to c of big do.
  inputSchema:
    type: object
    required:
      - a_one
      - limit
    properties:
      a_one: {}
      limit: {}
  functions:
    scaled:
      params:
        - x
        - by
      expression: x * by
    twice:
      params:
        - x
      expression: "scaled(x, 2)"
  providers:
    work:
      model: small

  steps:
    # The second.
    - name: b
      type: transform
      expression: "{{ input.a_one.n + input.limit }}"   # braces
    - name: c
      type: work
      condition: "{{ has(input.a_one.t.x) || steps.b.result > 1 }}"
      inputs: {x: "{{ input.a_one.t }} {{ steps.b.result | tojson }}", y: "{{ twice(3) }}"}

  outputs:
    b: steps.b.output
`
	if string(res.New) != part {
		t.Errorf("got\n%s\nwant\n%s", res.New, part)
	}
}

// TestX210_PipelineResult: the result of a pipeline is that of its steps; where some of them have moved it says so.
func TestX210_PipelineResult(t *testing.T) {
	const text = `workflow:
  name: analysis
  steps:
    - {name: prepare, type: set_variable, value: "{{ inputs.text }}"}
    - {name: detect, type: work, prompt: "{{ steps.prepare.result }}"}
    - name: each
      type: for_loop
      over: [1, 2]
      steps:
        - {name: one, type: work, inputs: {n: "{{ item }}"}}
        - {name: two, type: work, inputs: {n: "{{ steps.one.hash }}"}}
# The end.
`
	text2 := strings.Replace(text, "over: [1, 2]", `over: "[1, 2]"`, 1)
	res, err := extract(t, text2, refactor.Extraction{First: "prepare", Last: "detect", Name: "first", Path: "first.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n\n  outputs:\n    detect: steps.first.detect\n    each: steps.each.output\n    prepare: steps.first.prepare\n# The end.\n"; !strings.HasSuffix(string(res.Text), want) {
		t.Errorf("got\n%s\nwant at the end\n%s", res.Text, want)
	}
	res, err = extract(t, text2, refactor.Extraction{First: "one", Last: "two", Name: "body"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"        - name: body\n          type: pipeline\n          pipeline:\n            name: body\n", "            steps:\n              - {name: one,", "\n        - name: body-output\n          type: transform\n          expression: steps.body.two\n# The end.\n"} {
		if !strings.Contains(string(res.Text), want) {
			t.Errorf("got\n%s\nwant\n%s", res.Text, want)
		}
	}
}

// TestX210_PipelineFields: fields of results are found in their short form, and refused where that says more than a value.
func TestX210_PipelineFields(t *testing.T) {
	const text = `workflow:
  name: x
  steps:
    - {name: maybe, type: work, condition: has(inputs.n)}
    - {name: status, type: set_variable, value: {n: 1}}
    - {name: one, type: transform, expression: "steps.maybe.status == 'completed' ? steps.maybe.hash : 0"}
    - {name: two, type: transform, expression: has(steps.maybe.hash)}
    - {name: last, type: transform, expression: steps.status.n + steps.one.result}
  outputs: {r: steps.last.result}
`
	res, err := extract(t, text, refactor.Extraction{First: "status", Last: "one", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "expression: steps.part.output.status.n + steps.part.one}"; !strings.Contains(string(res.Text), want) {
		t.Errorf("got\n%s\nwant\n%s", res.Text, want)
	}
	if want := "input.maybe.status == 'completed' ? input.maybe.output.hash : 0"; !strings.Contains(string(res.New), want) {
		t.Errorf("got\n%s\nwant\n%s", res.New, want)
	}
	_, err = extract(t, text, refactor.Extraction{First: "two", Last: "two", Name: "part", Path: "part.yaml"})
	if err == nil || !strings.Contains(err.Error(), `the step "two" asks for a field of the step "maybe"`) {
		t.Errorf("got %v", err)
	}
}

const summaries = `name: digest
nodes:
  - {id: first, transform: {expression: input.text}}
  # The short one.
  - id: short
    # With a model.
    lens_id: summarize
  - {id: again, lens_id: summarize} # once more
  - id: both
    lens_id: summarize
    config: {merge: concat}
edges:
  - {id: e0, source_node_id: first, target_node_id: short, target_param_label: text} # in
  # Inside.
  - {id: e1, source_node_id: short, target_node_id: again, target_param_label: text}
  - id: e2 # out
    source_node_id: short
    target_node_id: both
    target_param_label: parts
  - {id: e3, source_node_id: again, target_node_id: both, target_param_label: parts}
  - {source_node_id: first, target_node_id: again}
outputs: {answer: steps.both.output.text}
`

// TestX210_Flow: edges between nodes that move go with them, and those across the border lead to the new node and from it.
func TestX210_Flow(t *testing.T) {
	res, err := extract(t, summaries, refactor.Extraction{First: "short", Last: "again", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `name: digest
nodes:
  - {id: first, transform: {expression: input.text}}
  - id: part
    recipe:
      file: part.yaml
    inputBindings:
      input: input
  - id: both
    lens_id: summarize
    config: {merge: concat}
edges:
  - {id: e0, source_node_id: first, target_node_id: part, target_param_label: text} # in
  - id: e2 # out
    source_node_id: part
    source_output_key: short
    target_node_id: both
    target_param_label: parts
  - {id: e3, source_node_id: part, source_output_key: again, target_node_id: both, target_param_label: parts}
  - {source_node_id: first, target_node_id: part}
outputs: {answer: steps.both.output.text}
`
	if string(res.Text) != want {
		t.Errorf("got\n%s\nwant\n%s", res.Text, want)
	}
	const part = `
nodes:
  # The short one.
  - id: short
    inputBindings: {text: input.text, language: input.input.language, parts: input.input.parts}
    # With a model.
    lens_id: summarize
  - {id: again, inputBindings: {language: input.input.language, parts: input.input.parts}, lens_id: summarize} # once more

edges:
  # Inside.
  - {id: e1, source_node_id: short, target_node_id: again, target_param_label: text}

outputs:
  again: steps.again.output.text
  short: steps.short.output.text
`
	if !strings.HasSuffix(string(res.New), part) {
		t.Errorf("got\n%s\nwant at the end\n%s", res.New, part)
	}
}

// TestX210_FlowMerge: values of several edges into one input are merged before they are passed on, as before.
func TestX210_FlowMerge(t *testing.T) {
	res, err := extract(t, summaries, refactor.Extraction{First: "both", Last: "both", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  - {id: e3, source_node_id: again, target_node_id: part, merge_strategy: concat, target_param_label: parts}\n",
		"    target_node_id: part\n    merge_strategy: concat\n    target_param_label: parts\n", "outputs: {answer: steps.part.output.both.text}\n",
	} {
		if !strings.Contains(string(res.Text), want) {
			t.Errorf("got\n%s\nwant\n%s", res.Text, want)
		}
	}
	if !strings.Contains(string(res.New), "\nedges: []\n") || !strings.Contains(string(res.New), "{parts: input.parts, language:") {
		t.Errorf("got\n%s", res.New)
	}
}

// TestX210_FlowRefused: what edges cannot say is refused at the edge, with a way out.
func TestX210_FlowRefused(t *testing.T) {
	for _, tt := range []struct {
		name, text, first, last string
		line                    int
		want, remedy            string
	}{
		{"merged on both sides", summaries, "again", "both", 16, `merged into "parts" of the step "both"`, "Move all nodes"},
		{"names in an object", strings.Replace(summaries, "merge: concat", "merge: json_object", 1), "short", "again", 16, "json_object", "inputBindings of both"},
		{"a field that may not be selected", strings.NewReplacer("- id: both", "- id: both\n    when: has(input.both)", "target_param_label: parts}", "source_output_key: model, target_param_label: parts}", "outputs: {answer: steps.both.output.text}", "outputs: {}").Replace(summaries),
			"short", "again", 21, `the field "model"`, "whole output"},
		{"a node that may not run", strings.Replace(summaries, "transform: {expression: input.text}", "when: has(input.text), transform: {expression: input.text}", 1), "short", "again", 13, "which may not complete", "Move other steps"},
		{"a failure that no last step sees", strings.Replace(summaries, "edges:", "  - {id: z, transform: {expression: '1'}, on_parent_failure: skip}\nedges:", 1), "first", "short", 12, "result_rule: leaves", "result_rule: strict"},
	} {
		_, err := extract(t, tt.text, refactor.Extraction{First: tt.first, Last: tt.last, Name: "part", Path: "part.yaml"})
		var f *fault.Error
		if !errors.As(err, &f) || len(f.Diags) != 1 || !strings.Contains(f.Msg, tt.want) || !strings.Contains(f.Remedy, tt.remedy) {
			t.Errorf("%s: got %v, want %q and %q", tt.name, err, tt.want, tt.remedy)
			continue
		}
		if got := f.Diags[0].Pos; got.File != "main.yaml" || got.Line != tt.line {
			t.Errorf("%s: at %s, want line %d: %s", tt.name, got, tt.line, f.Msg)
		}
	}
}

// TestX210_FlowWithin: steps within a node are written as in a recipe, and so is the recipe that they become.
func TestX210_FlowWithin(t *testing.T) {
	const text = `name: x
nodes:
  - id: each
    loop:
      over: '[1, 2]'
      steps:
        - {id: a, transform: {expression: item + 1, outputBinding: y}}
        - {id: b, transform: {expression: y * 2}}
        - {id: c, transform: {expression: steps.b.output}}
edges: []
`
	res, err := extract(t, text, refactor.Extraction{First: "a", Last: "b", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(res.New), "\nsteps:\n") || !strings.Contains(string(res.New), "\norder: none\n") || !strings.Contains(string(res.Text), "steps.part.output.b") {
		t.Errorf("got\n%s\nand\n%s", res.Text, res.New)
	}
}
