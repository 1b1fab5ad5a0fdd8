// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/plan"
)

// TestRename renames what is at the mark ^ and compares the whole text.
func TestRename(t *testing.T) {
	for _, tt := range []struct{ name, file, text, to, want string }{
		{"a step, everywhere", "a.yaml", `name: a # first stays here
steps:
  - id: fir^st
    action: {name: word-count, parameters: {text: "first"}}
  - id: second
    dependsOn: [first]
    when: steps.first.output.words > 1 && 'first' != first.status && has(steps['first'].output)
    action:
      name: text-join
      parameters:
        items: ["{{ steps.first.output.words }} first", "{% if first.output %}x{% endif %}", "{{ [1].map(first, first) }}"]
    compensate: {action: {name: word-count, parameters: {text: "{{ steps.first.status }}"}}}
outputs:
  first: steps . first . output
`, "begin", `name: a # first stays here
steps:
  - id: begin
    action: {name: word-count, parameters: {text: "first"}}
  - id: second
    dependsOn: [begin]
    when: steps.begin.output.words > 1 && 'first' != begin.status && has(steps['begin'].output)
    action:
      name: text-join
      parameters:
        items: ["{{ steps.begin.output.words }} first", "{% if begin.output %}x{% endif %}", "{{ [1].map(first, first) }}"]
    compensate: {action: {name: word-count, parameters: {text: "{{ steps.begin.status }}"}}}
outputs:
  first: steps . begin . output
`},
		{"a step, to an id with a dash", "a.yaml", `steps:
  - {id: one, transform: {expression: '1'}}
  - id: two
    when: 'steps.o^ne.output == 1 && one.output == 1 && has(steps.one.output)'
    fail: {message: "{{ one.status }} {{ steps.one.status }}"}
`, "number-one", `steps:
  - {id: number-one, transform: {expression: '1'}}
  - id: two
    when: 'steps["number-one"].output == 1 && steps["number-one"].output == 1 && has(steps["number-one"].output)'
    fail: {message: "{{ steps['number-one'].status }} {{ steps['number-one'].status }}"}
`},
		{"a step, whose new name is that of a binding", "a.yaml", `steps:
  - {id: one, transform: {expression: '1', outputBinding: n}}
  - {id: two, transform: {expression: one.output + n}}
  - {id: ot^her, transform: {expression: '2'}}
  - {id: last, transform: {expression: other.output + n}}
`, "n", `steps:
  - {id: one, transform: {expression: '1', outputBinding: n}}
  - {id: two, transform: {expression: one.output + n}}
  - {id: n, transform: {expression: '2'}}
  - {id: last, transform: {expression: steps.n.output + n}}
`},
		{"a binding", "a.yaml", `steps:
  - {id: count, action: {name: word-count, parameters: {text: a}}, outputBinding: count}
  - id: both
    inputBindings:
      text: string(cou^nt.words)
    action: {name: word-count}
  - id: steps-of-count
    when: steps.count.status == 'completed'
    transform:
      expression: |-
        {"count": count.words,
         "again": count}
outputs: {count: count.words}
`, "counted", `steps:
  - {id: count, action: {name: word-count, parameters: {text: a}}, outputBinding: counted}
  - id: both
    inputBindings:
      text: string(counted.words)
    action: {name: word-count}
  - id: steps-of-count
    when: steps.count.status == 'completed'
    transform:
      expression: |-
        {"count": counted.words,
         "again": counted}
outputs: {count: counted.words}
`},
		{"a binding that a loop hides", "a.yaml", `steps:
  - {id: a, transform: {expression: '1', outputBinding: n}}
  - id: each
    loop:
      over: '[n]'
      steps:
        - {id: b, transform: {expression: item, outputBinding: n}}
        - {id: c, transform: {expression: n + 1}}
  - {id: d, transform: {expression: ^n + 1}}
`, "total", `steps:
  - {id: a, transform: {expression: '1', outputBinding: total}}
  - id: each
    loop:
      over: '[total]'
      steps:
        - {id: b, transform: {expression: item, outputBinding: n}}
        - {id: c, transform: {expression: n + 1}}
  - {id: d, transform: {expression: total + 1}}
`},
		{"a variable of a loop", "a.yaml", `steps:
  - id: each
    loop:
      over: input.pages
      as: page
      steps:
        - {id: b, transform: {expression: "{'page': p^age, 'n': index}"}}
`, "sheet", `steps:
  - id: each
    loop:
      over: input.pages
      as: sheet
      steps:
        - {id: b, transform: {expression: "{'page': sheet, 'n': index}"}}
`},
		{"a recipe within has ids of its own", "a.yaml", `steps:
  - {id: on^e, transform: {expression: '1'}}
  - id: child
    recipe:
      inline:
        name: inner
        steps:
          - {id: one, transform: {expression: '2'}}
          - {id: two, dependsOn: [one], transform: {expression: one.output}}
      inputs: {n: "{{ one.output }}"}
`, "first", `steps:
  - {id: first, transform: {expression: '1'}}
  - id: child
    recipe:
      inline:
        name: inner
        steps:
          - {id: one, transform: {expression: '2'}}
          - {id: two, dependsOn: [one], transform: {expression: one.output}}
      inputs: {n: "{{ first.output }}"}
`},
		{"JSON", "a.json", `{"name": "a", "steps": [
  {"id": "on^e", "transform": {"expression": "\"é\\n\" + 'x'"}},
  {"id": "two", "dependsOn": ["one"], "when": "\"é\" != steps[\"one\"].status && one.output != ''", "transform": {"expression": "steps.one.output"}}
]}`, "uno", `{"name": "a", "steps": [
  {"id": "uno", "transform": {"expression": "\"é\\n\" + 'x'"}},
  {"id": "two", "dependsOn": ["uno"], "when": "\"é\" != steps[\"uno\"].status && uno.output != ''", "transform": {"expression": "steps.uno.output"}}
]}`},
		{"dag", "a.yaml", `nodes:
  - {id: fetch-page, handler: word-count, config: {text: a}}
  - id: show
    handler: text-join
    dependencies: [fetch-page]
    config:
      items: ["{{ fetch-page.output.words }} and {{ steps.fetch-page.output }}", "{{ steps['fetch-p^age'].status }}"]
    when: steps['fetch-page'].status == 'completed'
`, "load-page", `nodes:
  - {id: load-page, handler: word-count, config: {text: a}}
  - id: show
    handler: text-join
    dependencies: [load-page]
    config:
      items: ["{{ load-page.output.words }} and {{ steps.load-page.output }}", "{{ steps['load-page'].status }}"]
    when: steps['load-page'].status == 'completed'
`},
		{"dag: within a condition", "a.yaml", `nodes:
  - {id: one, handler: transform, config: {expression: '1'}}
  - id: choose
    handler: condition
    dependencies: [o^ne]
    config:
      expression: one.output == 1
      then:
        - {id: yes, handler: text-join, config: {items: ["{{ one.output }}"]}}
`, "first", `nodes:
  - {id: first, handler: transform, config: {expression: '1'}}
  - id: choose
    handler: condition
    dependencies: [first]
    config:
      expression: first.output == 1
      then:
        - {id: yes, handler: text-join, config: {items: ["{{ first.output }}"]}}
`},
		{"pipeline: bindings, and the form of an approval", "a.yaml", `workflow:
  name: a
  steps:
    - {name: lo^ad, type: set_variable, value: {pages: 1, links: 2}}
    - {name: count, type: word-count, inputBindings: {text: "steps.load.pages + load.output.links + steps.load.links"}}
    - {name: ask, type: wait, wait: {approval: {title: Good?, form: {properties: {n: {title: "of {{ steps.load.pages }}"}}}}}}
`, "load-all", `workflow:
  name: a
  steps:
    - {name: load-all, type: set_variable, value: {pages: 1, links: 2}}
    - {name: count, type: word-count, inputBindings: {text: "steps['load-all'].pages + steps['load-all'].output.links + steps['load-all'].links"}}
    - {name: ask, type: wait, wait: {approval: {title: Good?, form: {properties: {n: {title: "of {{ steps['load-all'].pages }}"}}}}}}
`},
		{"flow", "a.yaml", `nodes:
  - {id: draft, action: {name: word-count, parameters: {text: a}}}
  - {id: review, transform: {expression: "'x'"}}
  - {id: join, action: {name: text-join}, when: steps.draft.output.words > 0}
edges:
  - {source_node_id: draf^t, target_node_id: join, target_param_label: items, source_output_key: words}
  - {source_node_id: "review", target_node_id: 'draft'}
  - {source_node_id: review, target_node_id: join}
`, "first-draft", `nodes:
  - {id: first-draft, action: {name: word-count, parameters: {text: a}}}
  - {id: review, transform: {expression: "'x'"}}
  - {id: join, action: {name: text-join}, when: "steps['first-draft'].output.words > 0"}
edges:
  - {source_node_id: first-draft, target_node_id: join, target_param_label: items, source_output_key: words}
  - {source_node_id: "review", target_node_id: 'first-draft'}
  - {source_node_id: review, target_node_id: join}
`},
		{"what says which recipe runs", "a.yaml", `steps:
  - {id: pi^ck, transform: {expression: "{'name': 'a', 'text': 'b'}"}}
  - {id: named, recipe: {ref: "{{ steps.pick.output.name | lower }}@1", inputs: {n: "{{ pick.output.name }}"}}}
  - {id: made, recipe: {definition: steps.pick.output.text}}
`, "pick-one", `steps:
  - {id: pick-one, transform: {expression: "{'name': 'a', 'text': 'b'}"}}
  - {id: named, recipe: {ref: "{{ steps['pick-one'].output.name | lower }}@1", inputs: {n: "{{ steps['pick-one'].output.name }}"}}}
  - {id: made, recipe: {definition: "steps['pick-one'].output.text"}}
`},
		{"what says which recipe runs, in a dag", "a.yaml", `nodes:
  - {id: pick, handler: transform, config: {expression: "{'name': 'a', 'text': 'b'}"}}
  - {id: named, handler: recipe, dependencies: [pick], config: {ref: "{{ pi^ck.output.name | lower }}@1"}}
  - {id: made, handler: recipe, dependencies: [pick], config: {definition: steps.pick.output.text}}
`, "choose", `nodes:
  - {id: choose, handler: transform, config: {expression: "{'name': 'a', 'text': 'b'}"}}
  - {id: named, handler: recipe, dependencies: [choose], config: {ref: "{{ choose.output.name | lower }}@1"}}
  - {id: made, handler: recipe, dependencies: [choose], config: {definition: steps.choose.output.text}}
`},
		{"what says which recipe runs, in a flow", "a.json", `{"nodes": [
  {"id": "pick", "transform": {"expression": "{'name': 'a', 'text': 'b'}"}},
  {"id": "named", "recipe": {"ref": "{{ steps.pick.output.name | lower }}@1"}},
  {"id": "made", "recipe": {"definition": "steps.pi^ck.output.text"}}
], "edges": [{"source_node_id": "pick", "target_node_id": "named"}, {"source_node_id": "pick", "target_node_id": "made"}]}
`, "pick-one", `{"nodes": [
  {"id": "pick-one", "transform": {"expression": "{'name': 'a', 'text': 'b'}"}},
  {"id": "named", "recipe": {"ref": "{{ steps['pick-one'].output.name | lower }}@1"}},
  {"id": "made", "recipe": {"definition": "steps['pick-one'].output.text"}}
], "edges": [{"source_node_id": "pick-one", "target_node_id": "named"}, {"source_node_id": "pick-one", "target_node_id": "made"}]}
`},
		{"what says which recipe runs, in a pipeline", "a.yaml", `workflow:
  name: a
  steps:
    - {name: pick-one, type: set_variable, value: {name: a, text: b}}
    - {name: named, type: pipeline, pipeline_ref: "{{ steps.pick-on^e.name | lower }}@1"}
    - {name: made, type: pipeline, pipeline_definition: "pick-one.result.text"}
`, "choose", `workflow:
  name: a
  steps:
    - {name: choose, type: set_variable, value: {name: a, text: b}}
    - {name: named, type: pipeline, pipeline_ref: "{{ steps.choose.name | lower }}@1"}
    - {name: made, type: pipeline, pipeline_definition: "choose.result.text"}
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, config(t.TempDir()))
			text, p := marked(t, tt.text)
			uri := "file:///w/" + tt.file
			c.open(uri, text)
			params := at(uri, p)
			params["newName"] = tt.to
			var edit workspaceEdit
			err := c.call("textDocument/rename", params, &edit)
			if err != nil {
				t.Fatal(err)
			}
			if got := apply(t, text, edit.Changes[uri]); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestRenameRefused are names with which a text would mean something else.
func TestRenameRefused(t *testing.T) {
	for _, tt := range []struct{ name, text, to, want string }{
		{"no name", "name: ^a\nsteps: [{id: x, transform: {expression: '1'}}]\n", "b", "there is no id"},
		{"no id", "steps: [{id: ^x, transform: {expression: '1'}}]\n", "a b", "is no id"},
		{"taken", "steps: [{id: ^x, transform: {expression: '1'}}, {id: y, transform: {expression: '1'}}]\n", "y", "another step"},
		{"no name of a binding", "steps: [{id: x, transform: {expression: '1', outputBinding: ^n}}]\n", "a-b", "is no name of a binding"},
		{"reserved", "steps: [{id: x, transform: {expression: '1', outputBinding: ^n}}]\n", "input", "every expression"},
		{"a binding that would hide a step", "steps:\n- {id: x, transform: {expression: '1', outputBinding: ^n}}\n- {id: y, transform: {expression: x.output}}\n", "x", "line 3"},
		{"a binding that another is", "steps:\n- {id: x, transform: {expression: '1', outputBinding: ^n}}\n- {id: y, transform: {expression: n, outputBinding: k}}\n- {id: z, transform: {expression: n + k}}\n", "k", "mean something else"},
		{"a variable of a macro that would hide it", "steps:\n- {id: x, transform: {expression: '1', outputBinding: ^n}}\n- {id: y, transform: {expression: '[1].map(k, k + n)'}}\n", "k", "mean something else"},
		{"the usual name of a variable", "steps:\n- {id: x, loop: {over: '[1]', steps: [{id: y, transform: {expression: ite^m}}]}}\n", "k", "usual name"},
		{"two steps of that id", "steps:\n- {id: ^x, transform: {expression: '1'}}\n- {id: x, transform: {expression: '1'}}\n", "k", "2 steps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, config(t.TempDir()))
			text, p := marked(t, tt.text)
			c.open("file:///w/a.yaml", text)
			params := at("file:///w/a.yaml", p)
			params["newName"] = tt.to
			err := c.call("textDocument/rename", params, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestEveryNameOfTheExamples renames each step and binding of every example and looks whether the text
// compiles as before, and whether the old name is gone from where it was.
func TestEveryNameOfTheExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"../compile/dag/testdata/valid/*", "../compile/flow/testdata/valid/*"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(more), err)
		}
		files = append(files, more...)
	}
	renamed := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{cfg: config(filepath.Dir(file)), cache: expressions.NewLasting()}
		d := newDocument("file:///"+file, filepath.Base(file), 1, string(text), false)
		done := map[*symbol]bool{}
		for _, o := range s.reading(d).occurs {
			if done[o.sym] {
				continue
			}
			done[o.sym] = true
			for _, name := range []string{"renamed_x", "renamed-x"} {
				if o.sym.kind != aStep && name == "renamed-x" {
					continue
				}
				edit, err := s.rename(d, &documentParams{Position: d.position(o.from), NewName: name})
				if err != nil {
					t.Errorf("%s: %s to %s: %v", file, o.sym.name, name, err)
					continue
				}
				after := newDocument(d.uri, d.file, 2, apply(t, d.text, edit.(workspaceEdit).Changes[d.uri]), false)
				was, problems := edges(s, d)
				is, now := edges(s, after)
				if problems != now || !slices.Equal(was, is) {
					t.Errorf("%s: %s to %s: %d problems became %d, and what steps wait for %v became %v", file, o.sym.name, name, problems, now, was, is)
				}
				renamed++
			}
		}
	}
	if renamed < 100 {
		t.Errorf("only %d names were changed", renamed)
	}
	t.Logf("%d changes of names in %d texts", renamed, len(files))
}

// edges returns what each step of a text waits for and how many names its expressions have, and the number of problems.
func edges(s *server, d *document) (all []string, problems int) {
	p, _, _, diags := compile.Source(d.file, []byte(d.text), s.cfg.Options(d.file))
	if p != nil {
		for i := range p.Steps {
			st := &p.Steps[i]
			names := len(st.ParamRef)
			for _, e := range []*plan.Expr{st.When, st.Expr} {
				if e != nil {
					names += len(e.Vars)
				}
			}
			all = append(all, fmt.Sprint(st.Preds, names))
		}
	}
	return all, len(diags)
}
