// SPDX-License-Identifier: Apache-2.0

package refactor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/refactor"
	"github.com/roux-engine/roux/internal/cputime"
)

func load(t *testing.T, text string) *refactor.Text {
	t.Helper()
	r, err := refactor.Load("main.yaml", []byte(text), compile.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

const report = `# The head.
name: report
inputSchema: {type: object, required: [n], properties: {n: {type: integer}, more: {type: boolean}}}
steps:
  - id: first
    transform: {expression: input.n + 1, outputBinding: x} # one more

  # Of the double.
  - id: double
    transform: {expression: x * 2, outputBinding: y}   # twice
  - id: add
    when: has(input.more)
    transform:
      expression: |
        y + x + # no comment
          input.n
  - id: sum
    dependsOn: [first, double]
    transform: {expression: 'y + x', outputBinding: z}

  # Of the last.
  - id:   last
    transform: {expression:   z + y + steps.sum.output,   outputBinding: r}
# The end.
outputs: {r: r, first: x}
`

// TestX210_Extract: the steps move with their comments, and of the rest only the names change.
func TestX210_Extract(t *testing.T) {
	text := strings.Replace(report, "y + x + # no comment\n          input.n", "y + x + input.n", 1)
	res, err := load(t, text).Extract(refactor.Extraction{First: "double", Last: "sum", Name: "middle", Path: "middle.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `# The head.
name: report
inputSchema: {type: object, required: [n], properties: {n: {type: integer}, more: {type: boolean}}}
steps:
  - id: first
    transform: {expression: input.n + 1, outputBinding: x} # one more

  - id: middle
    recipe:
      file: middle.yaml
    inputBindings:
      input: input
      n: input.n
      x: x
    outputBinding: middle

  # Of the last.
  - id:   last
    transform: {expression:   middle.z + middle.y + steps.middle.output.sum,   outputBinding: r}
# The end.
outputs: {r: r, first: x}
`
	if string(res.Text) != want {
		t.Error("another text was wanted")
	}
}

// TestX210_Refused: what would mean something else is refused, with the reason.
func TestX210_Refused(t *testing.T) {
	const tail = "  - {id: z, transform: {expression: '1', outputBinding: zz}}\n"
	for _, tt := range []struct{ name, text, first, last, want string }{
		{"a signal", "steps:\n  - {id: a, wait: {signal: go}}\n" + tail, "a", "a", "waits for a signal"},
		{"the order of the ids", "steps:\n  - {id: a, transform: {expression: '1'}}\n" + tail, "z", "a", "name the first step first"},
		{"two lists", "steps:\n  - id: a\n    parallel: {branches: [[{id: b, transform: {expression: '1'}}]]}\n" + tail, "b", "z", "not in one list"},
		{"brackets", "steps: [{id: a, transform: {expression: '1'}}, {id: z, transform: {expression: '2'}}]\n", "a", "a", "does not begin on a line of its own"},
		{"JSON", `{"name": "x", "steps": [{"id": "a", "transform": {"expression": "1"}}]}`, "a", "a", "is JSON"},
		{"bound on both sides", "steps:\n  - {id: a, transform: {expression: '1', outputBinding: x}}\n  - {id: b, transform: {expression: x + 1, outputBinding: x}}\n  - {id: c, transform: {expression: x}}\noutputs: {x: x}\n", "b", "b", "steps that move and steps that stay"},
		{"a status", "steps:\n  - {id: a, transform: {expression: '1'}}\n" + tail + "outputs: {s: steps.a.status}\n", "a", "a", "more than an output"},
		{"an output that may be missing", "inputSchema: {type: object, properties: {n: {type: integer}}}\nsteps:\n  - {id: a, when: has(input.n), transform: {expression: '1', outputBinding: x}}\n" + tail, "a", "a", "may have no value"},
		{"leaves", "result_rule: leaves\nfailure_policy: drain\nsteps:\n  - {id: a, transform: {expression: '1'}}\n  - {id: y, on_parent_failure: skip, transform: {expression: '2'}}\n" + tail, "z", "z", "result_rule"},
		{"the run", "steps:\n  - {id: a, transform: {expression: _context.correlationId}}\n" + tail, "a", "a", "reads _context"},
		{"a circle", "order: none\nsteps:\n  - {id: a, transform: {expression: '1'}}\n  - {id: b, dependsOn: [y], transform: {expression: '1'}}\n  - {id: y, dependsOn: [a], transform: {expression: '1'}}\noutputs: {}\n", "a", "b", "does not compile"},
		{"collected errors", "inputSchema: {type: object, required: [l], properties: {l: {type: array}}}\nsteps:\n  - id: each\n    loop:\n      over: input.l\n      failureStrategy: ignore\n      steps:\n        - {id: a, transform: {expression: item.x}}\n    outputBinding: all\n", "a", "a", "others read it"},
		{"a variable of the same name", "steps:\n  - {id: a, transform: {expression: '2', outputBinding: x}}\n  - {id: b, transform: {expression: '[1].map(input, input + x)', outputBinding: y}}\noutputs: {y: y}\n", "b", "b", "a variable \"input\" of its own"},
		{"edges in brackets", "nodes:\n  - {id: a, transform: {expression: '1'}}\n  - {id: b, transform: {expression: '1'}}\nedges: [{source_node_id: a, target_node_id: b}]\n", "a", "b", "an item of a list does not begin on a line of its own"},
		{"empty outputs", "nodes:\n  - {id: a, handler: transform, config: {expression: '1'}}\n  - {id: b, handler: transform, config: {expression: '1'}}\noutputs: {}\n", "a", "a", "its outputs are there and empty"},
		{"empty outputs of a pipeline", "workflow:\n  name: x\n  steps:\n    - {name: a, type: set_variable, value: 1}\n    - {name: b, type: set_variable, value: 1}\n  outputs: {}\n", "a", "a", "its outputs are there and empty"},
		{"a quote in quotes", "order: none\nsteps:\n  - {id: a-b, transform: {expression: '1'}}\n  - {id: c, transform: {expression: 'steps[''a-b''].output'}}\n" + tail + "outputs: {c: steps.c.output}\n", "c", "z", ""},
	} {
		text := "name: x\n" + tt.text
		if tt.text[0] == '{' || strings.HasPrefix(tt.text, "workflow:") {
			text = tt.text
		}
		_, err := load(t, text).Extract(refactor.Extraction{First: tt.first, Last: tt.last, Name: "part", Path: "part.yaml"})
		if tt.want == "" {
			if err != nil && !strings.Contains(err.Error(), "quotes in quotes") {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestX210_Dependencies: lists of what steps depend on, in brackets or on lines, name the new step.
func TestX210_Dependencies(t *testing.T) {
	const text = `name: x
order: none
steps:
  - {id: a, transform: {expression: '1'}}
  - id: b
    dependsOn:
      - a # why
    transform: {expression: '1'}
  - id: c
    dependsOn: [b, a]
    transform: {expression: '1'}
  - id: d
    dependsOn:
      - b
      - a
      - c
    transform: {expression: '1'}
  - {id: e, dependsOn: [c, b, d], transform: {expression: '1', outputBinding: r}}
outputs: {r: r}
`
	res, err := load(t, text).Extract(refactor.Extraction{First: "c", Last: "c", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `  - id: part
    recipe:
      file: part.yaml
    dependsOn:
      - b
      - a
  - id: d
    dependsOn:
      - b
      - a
      - part
    transform: {expression: '1'}
  - {id: e, dependsOn: [part, b, d], transform: {expression: '1', outputBinding: r}}
`
	if !strings.Contains(string(res.Text), want) || !strings.Contains(string(res.New), "dependsOn: []\n") {
		t.Errorf("%s\n%s", res.Text, res.New)
	}
	res, err = load(t, text).Extract(refactor.Extraction{First: "b", Last: "c", Name: "part", Path: "part.yaml"})
	if err == nil || !strings.Contains(err.Error(), "comment") {
		t.Errorf("the comment in the list is lost: %v, %v", err, res)
	}
}

// TestX210_Suggest: parts of long lists, bodies and what is repeated, each of which can be moved.
func TestX210_Suggest(t *testing.T) {
	text := "name: x\nsteps:\n"
	for _, part := range []string{"a", "b", "c", "d"} {
		for i := range 4 {
			from := "1"
			if i > 0 {
				from = part + string(rune('0'+i-1))
			}
			text += "  - {id: " + part + "-" + string(rune('0'+i)) + ", transform: {expression: '" + from + " + " + part[:0] + string(rune('1'+part[0]-'a')) + "', outputBinding: " + part + string(rune('0'+i)) + "}}\n"
		}
	}
	text += "outputs: {r: a3 + b3 + c3 + d3}\n"
	m := load(t, text)
	list := m.Suggest()
	if len(list) == 0 || len(list[0].Inputs)+len(list[0].Outputs) > 3 || list[0].Saved < 3 {
		t.Fatalf("%+v", list)
	}
	for _, s := range list {
		if _, err := m.Extract(refactor.Extraction{First: s.First, Last: s.Last, Name: s.Name, Path: s.Name + ".yaml"}); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestX210_SuggestIsBounded: what is looked at grows with the recipe, and not with the square of it (A09).
func TestX210_SuggestIsBounded(t *testing.T) {
	cost := func(loops int) time.Duration {
		var text strings.Builder
		text.WriteString("name: x\nsteps:\n")
		for i := range loops {
			fmt.Fprintf(&text, "  - id: l%d\n    loop:\n      over: '[1]'\n      steps:\n", i)
			for k := range 12 {
				fmt.Fprintf(&text, "        - {id: s%d-%d, transform: {expression: '%d'}}\n", i, k, i)
			}
		}
		m := load(t, text.String())
		return cputime.Of(2, func() {
			if len(m.Suggest()) == 0 {
				t.Error("nothing is suggested")
			}
		})
	}
	few, many := cost(20), cost(120)
	if many > 12*few {
		t.Errorf("20 loops of 12 steps cost %v, and 120 cost %v", few, many)
	}
}

// TestX210_LineBreaks: a text with the line breaks of Windows, or without one at its end, keeps them.
func TestX210_LineBreaks(t *testing.T) {
	text := "name: x\nsteps:\n  - id: a\n    transform: {expression: '1', outputBinding: y} # why\n  - id: b\n    transform: {expression: y + 1, outputBinding: z}"
	want, err := load(t, text).Extract(refactor.Extraction{First: "a", Last: "a", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := load(t, strings.ReplaceAll(text, "\n", "\r\n")).Extract(refactor.Extraction{First: "a", Last: "a", Name: "part", Path: "part.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if string(got.New) != string(want.New) || string(got.Text) != strings.ReplaceAll(string(want.Text), "\n", "\r\n") {
		t.Errorf("%q and %q", got.Text, got.New)
	}
	if _, err := load(t, text).Extract(refactor.Extraction{First: "b", Last: "b", Name: "part"}); err != nil {
		t.Error(err)
	}
}
