// SPDX-License-Identifier: Apache-2.0

//go:build !small

package extend_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/sample"
	"github.com/roux-engine/roux/internal/plan"
)

// texts are recipes by their files.
type texts map[string]string

func (f texts) File(from, name string) (*compile.Text, error) {
	at := path.Join(path.Dir(from), name)
	if text, ok := f[at]; ok {
		return &compile.Text{File: at, Data: []byte(text)}, nil
	}
	return nil, fault.New(fault.RecipeNotFound, "%s: no such file", at)
}

func (f texts) Find(name, _ string) (*compile.Text, error) { return f.File(".", name+".yaml") }

func (f texts) Names() []string { return nil }

func options(f texts) compile.Options {
	anything := json.RawMessage(`{"type":"object"}`)
	return compile.Options{
		Recipes: f,
		Actions: catalogue.New(
			&action.Action{Name: "work", Version: "1.0.0", Input: anything},
			&action.Action{Name: "once", Version: "1.0.0", Input: anything, Delivery: action.AtMostOnce},
			&action.Action{Name: "undo", Version: "1.0.0", Input: anything},
			&action.Action{Name: "@approval", Version: "1.0.0"},
			&action.Action{Name: "sleep", Version: "1.0.0", Waits: "duration", Input: json.RawMessage(`{"type":"object","required":["duration"],"properties":{"duration":{"type":"string"}}}`)},
		),
		Lenses: catalogue.NewLenses(&catalogue.Lens{ID: "ask", Version: "1", Template: "{{ q }} of {{ list }}"}),
	}
}

func build(t *testing.T, f texts, file string) (*plan.Plan, *recipe.Recipe, string) {
	t.Helper()
	p, r, src, diags := compile.Source(file, []byte(f[file]), options(f))
	var b strings.Builder
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			b.WriteString(src.Format(d))
		}
	}
	return p, r, b.String()
}

// A recipe that is cut into two texts, one of which extends the other, has the plan of the whole: the steps in their order,
// and each named part and each setting in one of the two (X242).
func TestX242_HalvesHaveThePlanOfTheWhole(t *testing.T) {
	n, schemas := uint64(400), 0
	if testing.Short() {
		n = 80
	}
	for seed := range n {
		dice := rand.New(rand.NewPCG(seed, 9))
		drawn := sample.Recipe(rand.New(rand.NewPCG(seed, 1)), sample.Shape{Written: true, Steps: 2 + int(seed%30), Depth: int(seed % 4), Actions: []string{"work", "once"}, Undo: "undo", Lens: "ask",
			Sleep: "sleep", Signals: []string{"go"}, Approvals: true, Recipes: int(seed % 3 * 10)})
		drawn.Functions = map[string]*recipe.Function{"one": {Expression: "1"}, "two": {Params: []string{"x"}, Expression: "x + one()"}}
		drawn.InputSchema = json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a","b"]}`)
		drawn.Providers = map[string]map[string]json.RawMessage{"work": {"w": json.RawMessage("1")}, "once": {"o": json.RawMessage("2")}}
		drawn.Limits = &recipe.Limits{MaxLoopItems: 77, MaxTotalSteps: 5000}
		whole := mustJSON(t, drawn)
		f := texts{"whole.json": string(whole)}
		want, _, problems := build(t, f, "whole.json")
		if want == nil { // it reads other inputs
			drawn.InputSchema = nil
			whole = mustJSON(t, drawn)
			f["whole.json"] = string(whole)
			want, _, problems = build(t, f, "whole.json")
		} else {
			schemas++
		}
		if want == nil {
			t.Fatalf("seed %d: %s", seed, problems)
		}
		cut(t, f, whole, dice)
		got, _, problems := build(t, f, "own.json")
		if got == nil {
			t.Fatalf("seed %d: %s\n%s\n%s", seed, problems, f["base.json"], f["own.json"])
		}
		if got.Hash() != want.Hash() {
			t.Fatalf("seed %d: another plan than that of the whole\n%s\n%s", seed, f["base.json"], f["own.json"])
		}
	}
	if schemas < 10 {
		t.Errorf("%d recipes have an inputSchema", schemas)
	}
}

// cut makes two texts of one.
func cut(t *testing.T, f texts, whole []byte, dice *rand.Rand) {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(whole, &doc); err != nil {
		t.Fatal(err)
	}
	own, base := map[string]any{"name": "own", "extends": []any{"base.json"}}, map[string]any{"name": "base", "extends": []any{}}
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		switch key {
		case "name":
		case "steps":
			var steps []json.RawMessage
			if err := json.Unmarshal(doc[key], &steps); err != nil {
				t.Fatal(err)
			}
			at := dice.IntN(len(steps) + 1)
			for _, part := range []struct {
				to    map[string]any
				steps []json.RawMessage
			}{{base, steps[:at]}, {own, steps[at:]}} {
				if len(part.steps) > 0 {
					part.to[key] = part.steps
				}
			}
		case "values", "functions", "outputs", "providers", "limits":
			one, two := halve(t, doc[key], dice)
			if len(one) > 0 {
				base[key] = one
			}
			if len(two) > 0 {
				own[key] = two
			}
		case "inputSchema":
			base[key], own[key] = json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`), json.RawMessage(`{"properties":{"b":{"type":"integer"}},"required":["b"]}`)
		case "order": // it is that of each text
			base[key], own[key] = doc[key], doc[key]
		default:
			if dice.IntN(2) == 0 {
				base[key] = doc[key]
			} else {
				own[key] = doc[key]
			}
		}
	}
	for name, text := range map[string]any{"base.json": base, "own.json": own} {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		f[name] = string(raw)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func halve(t *testing.T, raw json.RawMessage, dice *rand.Rand) (one, two map[string]json.RawMessage) {
	t.Helper()
	one, two = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if dice.IntN(2) == 0 {
			one[key] = all[key]
		} else {
			two[key] = all[key]
		}
	}
	return one, two
}

const flat = `name: flat
functions: {half: {params: [x], expression: x / 2}}
values: {region: eu}
steps:
  - {id: a, transform: {expression: input.n}}
  - {id: b, transform: {expression: half(steps.a.output)}}
  - {id: c, dependsOn: [b], transform: {expression: workflow.region}}
outputs: {c: steps.c.output}
`

// A base may be of any dialect: its steps keep their order and what they read.
func TestX242_DialectsOfBases(t *testing.T) {
	own := "name: own\nextends: [%s]\nsteps:\n  - {id: c, dependsOn: [b], transform: {expression: workflow.region}}\noutputs: {c: steps.c.output}\n"
	for name, base := range map[string]string{
		"base.yaml":     "name: base\nfunctions: {half: {params: [x], expression: x / 2}}\nvalues: {region: eu}\nsteps:\n  - {id: a, transform: {expression: input.n}}\n  - {id: b, transform: {expression: half(steps.a.output)}}\n",
		"pipeline.yaml": "workflow:\n  name: base\n  functions: {half: {params: [x], expression: x / 2}}\n  region: eu\n  steps:\n    - {name: a, type: transform, expression: input.n}\n    - {name: b, type: transform, expression: half(steps.a.result)}\n",
		"dag.yaml":      "name: base\nfunctions: {half: {params: [x], expression: x / 2}}\nvalues: {region: eu}\nnodes:\n  - {id: a, handler: transform, config: {expression: input.n}}\n  - {id: b, dependencies: [a], handler: transform, config: {expression: half(steps.a.output)}}\n",
		"flow.yaml":     "name: base\nfunctions: {half: {params: [x], expression: x / 2}}\nvalues: {region: eu}\nnodes:\n  - {id: a, transform: {expression: input.n}}\n  - {id: b, transform: {expression: half(steps.a.output)}}\nedges: [{source_node_id: a, target_node_id: b}]\n",
	} {
		f := texts{"flat.yaml": strings.ReplaceAll(flat, "steps.a.output)", map[bool]string{true: "steps.a.result)", false: "steps.a.output)"}[name == "pipeline.yaml"]), name: base, "own.yaml": fmt.Sprintf(own, name)}
		want, _, problems := build(t, f, "flat.yaml")
		got, r, more := build(t, f, "own.yaml")
		if want == nil || got == nil {
			t.Errorf("%s: %s%s", name, problems, more)
			continue
		}
		if got.Hash() != want.Hash() {
			t.Errorf("%s: another plan", name)
		}
		if r.OnUpstreamFailure != "" || r.FailurePolicy != "" || r.Order != "" {
			t.Errorf("%s: the policies of its dialect count: %+v", name, r.Settings)
		}
	}
}

// A sequence stays one in a text in which steps have no order, also in the scopes within it.
func TestX242_OrderStays(t *testing.T) {
	f := texts{
		"base.yaml": "name: base\nsteps:\n  - {id: a, transform: {expression: '1'}}\n  - {id: b, transform: {expression: '2'}}\n  - id: l\n    loop: {over: '[1]', steps: [{id: x, transform: {expression: '1'}}, {id: y, transform: {expression: '2'}}]}\n",
		"own.yaml":  "name: own\norder: none\nextends: [base.yaml]\nsteps:\n  - {id: free, transform: {expression: '3'}}\n",
		"flat.yaml": "name: own\norder: none\nsteps:\n  - {id: a, transform: {expression: '1'}}\n  - {id: b, dependsOn: [a], transform: {expression: '2'}}\n  - id: l\n    dependsOn: [b]\n    loop: {over: '[1]', steps: [{id: x, transform: {expression: '1'}}, {id: y, dependsOn: [x], transform: {expression: '2'}}]}\n  - {id: free, transform: {expression: '3'}}\n",
		"free.yaml": "name: base\norder: none\nsteps:\n  - {id: a, transform: {expression: '1'}}\n  - {id: b, transform: {expression: '2'}}\n",
		"then.yaml": "name: own\nextends: [free.yaml]\nsteps:\n  - {id: c, transform: {expression: '3'}}\n",
		"both.yaml": "name: own\nsteps:\n  - {id: a, transform: {expression: '1'}}\n  - {id: b, dependsOn: [], transform: {expression: '2'}}\n  - {id: c, transform: {expression: '3'}}\n",
	}
	for a, b := range map[string]string{"own.yaml": "flat.yaml", "then.yaml": "both.yaml"} {
		got, _, problems := build(t, f, a)
		want, _, more := build(t, f, b)
		if got == nil || want == nil || got.Hash() != want.Hash() {
			t.Errorf("%s is not %s: %s%s", a, b, problems, more)
		}
	}
}

// A text that two bases extend is a part once; what a base gives is data and not a template (A13).
func TestX242_DiamondsAndData(t *testing.T) {
	f := texts{
		"root.yaml": "name: root\nvalues: {v: 1}\nsteps:\n  - {id: r, transform: {expression: workflow.v}}\n",
		"a.yaml":    "name: a\nextends: [root.yaml]\nsteps:\n  - {id: a, transform: {expression: '1'}}\n",
		"b.yaml":    "name: b\nextends: [root.yaml]\ntemplateParameters: {text: {type: string}}\nsteps:\n  - {id: b, transform: {value: '{{ workflow.text }}'}}\n",
		"own.yaml":  "name: own\nextends: [a.yaml, {file: b.yaml, with: {text: '{{ input.secret }}'}}]\noutputs: {b: steps.b.output}\n",
		"flat.yaml": "name: own\nvalues: {v: 1, text: '{{ input.secret }}'}\nsteps:\n  - {id: r, transform: {expression: workflow.v}}\n  - {id: a, transform: {expression: '1'}}\n  - {id: b, transform: {value: '{{ workflow.text }}'}}\noutputs: {b: steps.b.output}\n",
	}
	got, _, problems := build(t, f, "own.yaml")
	want, _, more := build(t, f, "flat.yaml")
	if got == nil || want == nil || got.Hash() != want.Hash() {
		t.Errorf("%s%s", problems, more)
	}
}

// The functions of a text are those of what extends it: one that is overridden is another one everywhere.
func TestX242_OverriddenFunctions(t *testing.T) {
	f := texts{
		"base.yaml": "name: base\nfunctions: {f: {expression: '1'}, g: {expression: f() + 1}}\nsteps:\n  - {id: a, transform: {expression: g()}}\n",
		"own.yaml":  "name: own\nextends: [base.yaml]\noverride: [functions.f, a]\nfunctions: {f: {expression: '2'}}\nsteps:\n  - {id: b, transform: {expression: f()}}\n  - {id: a, transform: {expression: g() + 5}}\n",
		"flat.yaml": "name: own\nfunctions: {f: {expression: '2'}, g: {expression: f() + 1}}\nsteps:\n  - {id: a, transform: {expression: g() + 5}}\n  - {id: b, transform: {expression: f()}}\n",
	}
	got, _, problems := build(t, f, "own.yaml")
	want, _, more := build(t, f, "flat.yaml")
	if got == nil || want == nil || got.Hash() != want.Hash() {
		t.Errorf("%s%s", problems, more)
	}
}

// A deep chain is refused, and so are many texts (A09).
func TestX242_A09_Bounds(t *testing.T) {
	f := texts{"own.yaml": "name: own\nextends: [t0.yaml]\n"}
	for i := range 11 {
		f[fmt.Sprintf("t%d.yaml", i)] = fmt.Sprintf("name: t\nextends: [t%d.yaml]\n", i+1)
	}
	f["t11.yaml"] = "name: t\nsteps: [{transform: {expression: '1'}}]\n"
	if _, _, problems := build(t, f, "own.yaml"); !strings.Contains(problems, "DEPTH_EXCEEDED") {
		t.Errorf("depth: %s", problems)
	}
	f["wide.yaml"] = "name: own\nextends: [" + strings.Repeat("empty.yaml, ", 101) + "]\nsteps: [{transform: {expression: '1'}}]\n"
	f["empty.yaml"] = "name: t\nextends: []\n"
	if _, _, problems := build(t, f, "wide.yaml"); !strings.Contains(problems, "at most 100") {
		t.Errorf("number: %s", problems)
	}
	// Ten texts that extend ten others, and so on, are read up to the bound.
	for i := range 10 {
		f[fmt.Sprintf("p%d.yaml", i)] = fmt.Sprintf("name: t\nextends: [%s]\n", strings.Repeat(fmt.Sprintf("p%d.yaml, ", i+1), 10))
	}
	f["p10.yaml"] = "name: t\nextends: []\n"
	if _, _, problems := build(t, f, "p0.yaml"); !strings.Contains(problems, "at most 100") || len(problems) > 200_000 {
		t.Errorf("powers: %d bytes", len(problems))
	}
}

// countedTexts counts what is read.
type countedTexts struct {
	texts
	read *int
}

func (f countedTexts) File(from, name string) (*compile.Text, error) {
	*f.read++
	return f.texts.File(from, name)
}

// Texts that are of no use are not read without an end either (A09): those of a circle, and those that are not there.
func TestX242_A09_ReadsAreBounded(t *testing.T) {
	for _, name := range []string{"own.yaml", "none.yaml", "empty.yaml"} {
		f := texts{
			"own.yaml":   "name: own\nextends: [" + strings.Repeat(name+", ", 1000) + "]\n",
			"empty.yaml": "name: t\nextends: []\n",
		}
		opt, read := options(f), 0
		opt.Recipes = countedTexts{f, &read}
		if p, _, _, _ := compile.Source("own.yaml", []byte(f["own.yaml"]), opt); p != nil || read > 101 {
			t.Errorf("%s was read %d times", name, read)
		}
	}
}

// The schema of each template parameter is compiled, so there are not many (A09).
func TestX242_A09_ParametersAreBounded(t *testing.T) {
	var params, with strings.Builder
	for i := range 201 {
		fmt.Fprintf(&params, "p%d: {default: 1}, ", i)
		fmt.Fprintf(&with, "unlike_%d: 1, ", i)
	}
	f := texts{
		"own.yaml":  "name: own\nextends: [base.yaml]\n",
		"base.yaml": "name: base\ntemplateParameters: {" + params.String() + "}\nsteps: [{transform: {expression: '1'}}]\n",
	}
	if _, _, problems := build(t, f, "own.yaml"); !strings.Contains(problems, "at most 200 template parameters") {
		t.Error(problems)
	}
	f["base.yaml"] = strings.Replace(f["base.yaml"], "p200: {default: 1}, ", "", 1)
	if p, _, problems := build(t, f, "own.yaml"); p == nil {
		t.Error(problems)
	}
	f["own.yaml"] = "name: own\nextends: [{file: base.yaml, with: {" + with.String() + "}}]\n"
	if _, _, problems := build(t, f, "own.yaml"); !strings.Contains(problems, "it has p0, p1, p10") || strings.Contains(problems, "p99") {
		t.Error(problems)
	}
}

// What extends others and is malformed is reported without what would follow from their absence.
func TestX242_Malformed(t *testing.T) {
	f := texts{
		"base.yaml": "name: base\nsteps:\n  - {id: a, transform: {expression: '1'}}\n",
		"own.yaml":  "name: own\nextends: [base.yaml]\nsteps:\n  - {id: b, dependsOn: [a], transfer: {expression: '1'}}\n",
	}
	_, _, problems := build(t, f, "own.yaml")
	if !strings.Contains(problems, "transfer") || strings.Contains(problems, "unknown-step") {
		t.Error(problems)
	}
}
