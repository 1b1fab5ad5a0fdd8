// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/dialecttest"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/pipeline"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

func options() compile.Options {
	prompt := json.RawMessage(`{"type":"object","properties":{"prompt":{"type":"string"},"model":{"type":"string"}},"required":["prompt"],"additionalProperties":false}`)
	return compile.Options{Actions: catalogue.New(
		&action.Action{Name: "echo", Version: "1.0.0", Description: "Gives its input.", Metadata: action.Metadata{Parallelizable: new(true)}},
		&action.Action{Name: "claude", Version: "1.0.0", Description: "Asks a model.", Input: prompt, Metadata: action.Metadata{Parallelizable: new(true)}},
	), Lenses: catalogue.NewLenses(&catalogue.Lens{ID: "summarize", Version: "3", Template: "Summarize: {{ data }}"})}
}

// TestX14_Fields: every field of a pipeline, with the model that they become (X13–X19, X59).
func TestX14_Fields(t *testing.T) { dialecttest.Fields(t, pipeline.Form, options()) }

// TestDiagnostics: each broken text has all its problems reported at their places, and with what is wanted
// there (X15, A09).
func TestDiagnostics(t *testing.T) { dialecttest.Diagnostics(t, options()) }

// TestConverted: a pipeline keeps its plan in the other dialects and back.
func TestConverted(t *testing.T) {
	text, err := os.ReadFile("testdata/valid/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	from, want := dialect.Named("pipeline"), dialecttest.Build(t, string(text), options()).Hash()
	for _, to := range []string{"recipe", "dag", "flow", "pipeline", "recipe", "pipeline"} {
		r, src, diags := dialect.Parse("test.yaml", text, form.Options{})
		if r == nil {
			t.Fatal(src.Format(diags[0]))
		}
		tree, err := dialect.Named(to).Encode(r, from)
		if err != nil {
			t.Fatal(err)
		}
		text, from = yamlx.Encode(tree), dialect.Named(to)
		if p := dialecttest.Build(t, string(text), options()); p.Hash() != want {
			t.Errorf("in %s it has another plan:\n%s", to, text)
		}
	}
	dialecttest.Golden(t, "valid/everything.converted.golden", string(text))
}

// files are the recipes of a directory.
type files map[string]string

func (f files) File(_, path string) (*compile.Text, error) {
	text, ok := f[path]
	if !ok {
		return nil, fault.New(fault.RecipeNotFound, "there is no %s", path)
	}
	return &compile.Text{File: path, Data: []byte(text)}, nil
}

func (files) Find(name, _ string) (*compile.Text, error) {
	return nil, fault.New(fault.RecipeNotFound, "no recipe %q is registered", name)
}

func (files) Names() []string { return nil }

// TestX38_X18_InFiles: a pipeline in a file has the functions, the providers and the context that its step hands
// on, and those only; what it has itself comes first; what it hands on in turn is handed on (R24).
func TestX38_X18_InFiles(t *testing.T) {
	inner := `workflow:
  own: 1
  functions: {both: {params: [x], expression: x + 1}}
  steps:
    - {name: a, type: transform, expression: "both(half(inputs.n)) + workflow.outer + workflow.own + steps.one.result"}
    - {name: b, type: claude, prompt: hello}
`
	middle := `workflow:
  steps:
    - {name: k, type: pipeline, pipeline_file: inner.yaml, config: {inherit_context: true, inherit_functions: true, inherit_providers: true}}
`
	outer := func(config string) string {
		return `workflow:
  name: x
  outer: 2
  providers: {claude: {model: small}}
  functions: {half: {params: [x], expression: x / 2}, both: {params: [x], expression: x}}
  steps:
    - {name: one, type: set_variable, value: 1}
    - {name: k, type: pipeline, pipeline_file: middle.yaml, config: {` + config + `}}
`
	}
	opt := options()
	opt.Recipes = files{"inner.yaml": inner, "middle.yaml": middle}
	p := dialecttest.Build(t, outer("inherit_context: true, inherit_functions: true, inherit_providers: true"), opt)
	var deep *plan.Plan
	for _, e := range p.Embedded {
		if len(e.Steps) == 2 {
			deep = e
		}
	}
	if deep == nil || deep.Steps[0].Expr.Src != "cel.bind(both_x, cel.bind(half_x, inputs.n, half_x / 2), both_x + 1) + workflow.outer + workflow.own + steps.one.result" ||
		string(deep.Steps[1].Params) != `{"model":"small","prompt":"hello"}` {
		t.Fatalf("%+v", deep)
	}
	want := []plan.Inherited{{Of: plan.OfInput, Name: "n"}, {Of: plan.OfWorkflow, Name: "outer"}, {Of: plan.OfSteps, Name: "one"}}
	if !slices.Equal(deep.Inherits, want) {
		t.Errorf("it inherits %+v, want %+v", deep.Inherits, want)
	}
	for _, tt := range []struct{ config, wrong string }{
		{"inherit_functions: true, inherit_providers: true", "no step has the id"},
		{"inherit_context: true, inherit_providers: true", "undefined function: half"},
	} {
		_, _, _, diags := compile.Source("test.yaml", []byte(outer(tt.config)), opt)
		if !slices.ContainsFunc(diags, func(d fault.Diagnostic) bool { return strings.Contains(d.Msg, tt.wrong) }) {
			t.Errorf("%s: %v, want %q", tt.config, diags, tt.wrong)
		}
	}
	q := dialecttest.Build(t, outer("inherit_context: true, inherit_functions: true"), opt)
	if slices.ContainsFunc(q.Embedded, func(e *plan.Plan) bool { return bytes.Contains(e.Steps[len(e.Steps)-1].Params, []byte("small")) }) {
		t.Error("providers are inherited by a pipeline that is not to have them")
	}
}

// TestX71_InFiles: files that include each other in a circle are refused, also where they inherit something (X125).
func TestX71_InFiles(t *testing.T) {
	opt := options()
	opt.Recipes = files{"a.yaml": "workflow: {name: a, steps: [{name: k, type: pipeline, pipeline_file: a.yaml, config: {inherit_context: true, inherit_functions: true}}]}"}
	_, _, _, diags := compile.Source("test.yaml", []byte("workflow: {name: x, functions: {f: {expression: '1'}}, steps: [{name: k, type: pipeline, pipeline_file: a.yaml, config: {inherit_functions: true}}]}"), opt)
	if !slices.ContainsFunc(diags, func(d fault.Diagnostic) bool { return d.Code == fault.CircularDependency }) {
		t.Error(diags)
	}
}

// TestX37_Names: which parts of steps expressions of a pipeline select, whatever stands around them.
func TestX37_Names(t *testing.T) {
	for written, want := range map[string]string{
		"steps.a.n":                                  "steps.a.output.n",
		"steps.a.result.n + steps.a.output.n":        "steps.a.result.n + steps.a.output.n",
		"steps.a.error == null":                      "steps.a.error == null",
		"steps . a . n":                              "steps . a.output . n",
		"steps.a['n'] + steps['a'].n":                "steps.a.output['n'] + steps['a'].output.n",
		"steps.a['error'] == null":                   "steps.a['error'] == null",
		"steps.a.?n.orValue(1)":                      "steps.a.?output.?n.orValue(1)",
		"!has(steps.a.n) || has( steps['a'].n.m )":   "!(has(steps.a.output) && has(steps.a.output.n)) || (has(steps['a'].output) && has(steps['a'].output.n.m))",
		"has(steps.a.output)":                        "has(steps.a.output)",
		"inputs.steps.a.n + 'steps.a.n' + mysteps.a": "inputs.steps.a.n + 'steps.a.n' + mysteps.a",
		"steps.load-it.n + 1":                        "steps['load-it'].output.n + 1",
		"1 // steps.a.n":                             "1 // steps.a.n",
	} {
		text, err := json.Marshal(map[string]any{"workflow": map[string]any{"name": "x", "steps": []any{
			map[string]any{"name": "load-it", "type": "set_variable", "value": 1}, map[string]any{"name": "b", "type": "transform", "expression": written},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		r, src, diags := dialect.Parse("x.json", text, form.Options{})
		if r == nil {
			t.Fatal(src.Format(diags[0]))
		}
		if got := r.Steps[1].Transform.Expression; got != want {
			t.Errorf("%s: %s, want %s", written, got, want)
		}
	}
}

// TestX38_Tested: what a child tests before it reads it need not be there.
func TestX38_Tested(t *testing.T) {
	text := func(values, expression string) string {
		return "workflow:\n  name: x\n" + values + `  steps:
    - name: k
      type: pipeline
      pipeline: {steps: [{name: a, type: transform, expression: "` + expression + `"}]}
      config: {inherit_context: true}
`
	}
	for _, expression := range []string{"has(workflow.most) ? workflow.most : 1", "has(steps.gone.n) ? 2 : 1"} {
		p := dialecttest.Build(t, text("", expression), options())
		if captures := p.Steps[0].Child.Captures; len(captures) > 0 {
			t.Errorf("%s: %+v", expression, captures)
		}
	}
	if p := dialecttest.Build(t, text("  most: 3\n", "has(workflow.most) ? workflow.most : 1"), options()); len(p.Steps[0].Child.Captures) != 1 {
		t.Errorf("%+v", p.Steps[0].Child)
	}
	_, _, _, diags := compile.Source("test.yaml", []byte(text("", "(has(workflow.most) ? 1 : 2) + workflow.most + workflow.other")), options())
	if !slices.ContainsFunc(diags, func(d fault.Diagnostic) bool {
		return strings.Contains(d.Msg, `"other"`) && d.Severity == fault.SeverityError && len(d.Related) == 1
	}) {
		t.Error(diags)
	}
}

// TestPlaceInBinding: the place of a problem in an expression of which a part was rewritten is that in the text, also
// where a binding is short for its expression.
func TestPlaceInBinding(t *testing.T) {
	for _, binding := range []string{"'steps.load.pages + nope'", "{from: ['steps.load.pages + nope']}", "{expression: 'steps.load.pages + nope'}"} {
		line := "    - {name: count, type: echo, inputBindings: {text: " + binding + "}}"
		_, _, _, diags := compile.Source("test.yaml", []byte("workflow:\n  name: x\n  steps:\n    - {name: load, type: set_variable, value: {pages: 1}}\n"+line+"\n"), options())
		want := fault.Pos{File: "test.yaml", Line: 5, Col: strings.Index(line, "nope") + 1, Len: len("nope")}
		if len(diags) != 1 || diags[0].Pos != want {
			t.Errorf("%s: %v, want a problem at %v", binding, diags, want)
		}
	}
}

// TestNamesInForm: the templates in the form of an approval name results as other templates do.
func TestNamesInForm(t *testing.T) {
	opt := options()
	opt.Actions = catalogue.New(&action.Action{Name: "@approval", Version: "1.0.0"})
	p := dialecttest.Build(t, `workflow:
  name: x
  steps:
    - {name: load-it, type: set_variable, value: {pages: 1}}
    - {name: ask, type: wait, wait: {approval: {title: Good?, form: {properties: {n: {title: "of {{ steps.load-it.pages }}"}}}}}}
`, opt)
	if ask := p.Steps[1]; !strings.Contains(string(ask.Params), `"of {{ steps['load-it'].output.pages }}"`) || len(ask.ParamRef) != 1 {
		t.Errorf("it asks for %s, with %+v", ask.Params, ask.ParamRef)
	}
}

// TestX38_DashedNames: a text that inherits a context names the outer steps whose ids have dashes as its dialect names its
// own, in a file and within the other text, directly below that or further down.
func TestX38_DashedNames(t *testing.T) {
	// How each dialect begins, with a step of a recipe that %s runs, and how a step of its own is read there.
	outer := map[string]string{
		"recipe":   "name: x\nsteps:\n  - {id: fetch-data, transform: {expression: \"{'n': 1}\"}}\n  - {id: k, recipe: %s}\n",
		"dag":      "name: x\nnodes:\n  - {id: fetch-data, handler: transform, config: {expression: \"{'n': 1}\"}}\n  - {id: k, handler: recipe, config: %s}\n",
		"flow":     "name: x\nnodes:\n  - {id: fetch-data, transform: {expression: \"{'n': 1}\"}}\n  - {id: k, recipe: %s}\nedges: []\n",
		"pipeline": "workflow:\n  name: x\n  steps:\n    - {name: fetch-data, type: transform, expression: \"{'n': 1}\"}\n    - {name: k, type: pipeline, config: {inherit_context: true}, %s}\n",
	}
	inner := map[string]string{
		"recipe":   `{name: y, steps: [{id: a, fail: {message: "{{ steps['fetch-data'].output.n }}"}}]}`,
		"dag":      `{name: y, nodes: [{id: a, handler: fail, config: {message: "{{ fetch-data.output.n - steps.fetch-data.output.n }}"}}]}`,
		"flow":     `{name: y, nodes: [{id: a, fail: {message: "{{ steps['fetch-data'].output.n }}"}}], edges: []}`,
		"pipeline": `{workflow: {name: y, steps: [{name: a, type: transform, expression: "fetch-data.output.n - steps.fetch-data.n"}]}}`,
	}
	want := map[string]string{
		"recipe": "{{ steps['fetch-data'].output.n }}", "dag": "{{ steps['fetch-data'].output.n - steps['fetch-data'].output.n }}",
		"flow": "{{ steps['fetch-data'].output.n }}", "pipeline": "steps['fetch-data'].output.n - steps['fetch-data'].output.n",
	}
	for above, text := range outer {
		for below, child := range inner {
			for name, said := range map[string]string{
				"inline": "inline: " + child, "file": "file: y.yaml",
				"below a text": "inline: {name: z, steps: [{id: m, recipe: {inherit: [context], inline: " + child + "}}]}",
				"below a file": "file: z.yaml", "a file below a text": "inline: {name: z, steps: [{id: m, recipe: {inherit: [context], file: y.yaml}}]}",
			} {
				opt := options()
				opt.Recipes = files{"y.yaml": child, "z.yaml": "workflow: {name: z, steps: [{name: m, type: pipeline, inline: " + child + ", config: {inherit_context: true}}]}"}
				if above == "pipeline" {
					said = strings.Replace(said, "file: ", "pipeline_file: ", 1)
					if strings.HasPrefix(said, "inline: ") {
						said = strings.Replace(said, "pipeline_file: ", "file: ", 1)
					}
				} else {
					said = "{inherit: [context], " + said + "}"
				}
				p, _, _, diags := compile.Source("test.yaml", []byte(fmt.Sprintf(text, said)), opt)
				if p == nil {
					t.Errorf("%s, in it %s (%s): %v", above, below, name, diags)
					continue
				}
				for _, to := range []string{"recipe", "dag", "flow", "pipeline"} {
					r, _, _ := dialect.Parse("test.yaml", []byte(fmt.Sprintf(text, said)), form.Options{})
					tree, err := dialect.Named(to).Encode(r, dialect.Named(above))
					if err != nil {
						t.Errorf("%s, in it %s (%s), to %s: %v", above, below, name, to, err)
					} else if q := dialecttest.Build(t, string(yamlx.Encode(tree)), opt); q.Hash() != p.Hash() {
						t.Errorf("%s, in it %s (%s): in %s it has another plan:\n%s", above, below, name, to, yamlx.Encode(tree))
					}
				}
				i := slices.IndexFunc(p.Embedded, func(e *plan.Plan) bool { return e.Steps[0].ID == "a" })
				raw, err := json.Marshal(p.Embedded[i])
				if err != nil {
					t.Fatal(err)
				}
				quoted, _ := json.Marshal(want[below])
				if in := p.Embedded[i].Inherits; !slices.Equal(in, []plan.Inherited{{Of: plan.OfSteps, Name: "fetch-data"}}) || !bytes.Contains(raw, quoted) {
					t.Errorf("%s, in it %s (%s): it inherits %+v, and is %s", above, below, name, in, raw)
				}
			}
		}
	}
}

// TestX38_DashedNamesOfItsOwn: an outer id that begins with a name of the text itself is a subtraction there, and where
// a dialect has no such names, the error says how to write it.
func TestX38_DashedNamesOfItsOwn(t *testing.T) {
	p := dialecttest.Build(t, `workflow:
  name: x
  steps:
    - {name: total-count, type: set_variable, value: 1}
    - name: k
      type: pipeline
      pipeline:
        steps:
          - {name: total, type: set_variable, value: 3}
          - {name: each, type: for_loop, over: "[1]", as: count, steps: [{name: a, type: transform, expression: total.output-count}]}
      config: {inherit_context: true}
`, options())
	if len(p.Embedded) != 1 || len(p.Embedded[0].Inherits) > 0 {
		t.Errorf("%+v", p.Embedded[0].Inherits)
	}
	for _, text := range []string{
		`{name: x, steps: [{id: fetch-data, transform: {expression: "1"}}, {id: a, transform: {expression: steps.fetch-data.output}}]}`,
		`{name: x, steps: [{id: fetch-data, transform: {expression: "1"}}, {id: k, recipe: {inherit: [context], inline: {name: y, steps: [{id: a, transform: {expression: steps.fetch-data.output}}]}}}]}`,
	} {
		_, _, _, diags := compile.Source("test.yaml", []byte(text), options())
		if !slices.ContainsFunc(diags, func(d fault.Diagnostic) bool {
			return d.Rule == "unknown-step" && d.Hint == "an id with a dash is written steps['fetch-data']"
		}) {
			t.Errorf("%s: %+v", text, diags)
		}
	}
}
