// SPDX-License-Identifier: Apache-2.0

package flow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/dialecttest"
	"github.com/roux-engine/roux/internal/compile/flow"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

func options() compile.Options {
	prompt := json.RawMessage(`{"type":"object","properties":{"prompt":{"type":"string"},"model":{"type":"string"},"maxTokens":{"type":"integer"}},"required":["prompt"],"additionalProperties":false}`)
	output := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"usage":{"type":"object"}}}`)
	return compile.Options{Actions: catalogue.New(
		&action.Action{Name: "echo", Version: "1.0.0", Description: "Gives its input."},
		&action.Action{Name: "llm", Version: "1.0.0", Description: "Asks a model.", Input: prompt, Output: output},
	), Lenses: catalogue.NewLenses(
		&catalogue.Lens{ID: "summarize", Version: "3", Template: "Summarize: {{ text }}"},
		&catalogue.Lens{ID: "review", Version: "1", Template: "In {{ language }}: {{ text }}"},
	)}
}

func build(t *testing.T, text string) *plan.Plan {
	t.Helper()
	return dialecttest.Build(t, text, options())
}

// TestX22_Fields: every field of a node and of an edge, with the model that they become (X22–X24, X109).
func TestX22_Fields(t *testing.T) { dialecttest.Fields(t, flow.Form, options()) }

// TestDiagnostics: each broken text has all its problems reported at their places, and with what is
// wanted there (X23, X65, X70, A09).
func TestDiagnostics(t *testing.T) { dialecttest.Diagnostics(t, options()) }

// TestConverted: what edges carry to a node is an input of the step, and becomes edges again (X23, X41).
func TestConverted(t *testing.T) {
	text, err := os.ReadFile("testdata/valid/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	from, want := dialect.Named("flow"), build(t, string(text)).Hash()
	for _, to := range []string{"recipe", "dag", "flow"} {
		r, src, diags := dialect.Parse("test.yaml", text, form.Options{})
		if r == nil {
			t.Fatal(src.Format(diags[0]))
		}
		tree, err := dialect.Named(to).Encode(r, from)
		if err != nil {
			t.Fatal(err)
		}
		text, from = yamlx.Encode(tree), dialect.Named(to)
		if p := build(t, string(text)); p.Hash() != want {
			t.Errorf("in %s it has another plan:\n%s", to, text)
		}
	}
	dialecttest.Golden(t, "valid/everything.converted.golden", string(text))
}

// TestNotCarried: what an edge cannot say stays an input, or a dependency, of its node.
func TestNotCarried(t *testing.T) {
	text := `name: x
order: none
steps:
  - {id: a, timeout: 48h, action: {name: echo}, retryPolicy: {maxAttempts: 2, initialDelay: 0s, maxDelay: 31h}}
  - {id: b, action: {name: echo}, dependsOn: [a]}
  - id: c
    action: {name: echo}
    dependsOn: [a]
    inputBindings: {"": steps.a.output, " ": steps.a.output, x: 'steps.a.output[" "]', y: "steps.a.output.text", z: "steps.b.output + 1", w: {merge: array, from: [steps.a.output]}}
  - {id: d, action: {name: echo}, inputBindings: {x: {merge: json_object, from: [{expression: steps.a.output, label: other}, steps.b.output]}}}
`
	r, src, diags := dialect.Parse("test.yaml", []byte(text), form.Options{})
	if r == nil {
		t.Fatal(src.Format(diags[0]))
	}
	tree, err := dialect.Named("flow").Encode(r, dialect.Named("recipe"))
	if err != nil {
		t.Fatal(err)
	}
	if p := build(t, string(yamlx.Encode(tree))); p.Hash() != build(t, text).Hash() {
		t.Errorf("another plan:\n%s", yamlx.Encode(tree))
	}
}

// TestX65_Merges: the strategy of the edges comes before that of their target, which comes before the last
// value; one value is not merged.
func TestX65_Merges(t *testing.T) {
	for _, tt := range []struct{ config, first, second, want string }{
		{"", "", "", ""},
		{"concat", "", "", "concat"},
		{"concat", "array", "", "array"},
		{"concat", "", "json_object", "json_object"},
		{"", "last_write_wins", "", ""},
		{"array", "last_write_wins", "last_write_wins", ""},
	} {
		strategy := func(of string) string {
			if of == "" {
				return ""
			}
			return ", merge_strategy: " + of
		}
		config := ""
		if tt.config != "" {
			config = ", config: {merge: " + tt.config + "}"
		}
		p := build(t, fmt.Sprintf(`name: x
nodes:
  - {id: a, label: A, transform: {expression: "1"}}
  - {id: b, transform: {expression: "2"}}
  - {id: c, action: {name: echo}%s}
edges:
  - {source_node_id: b, target_node_id: c, target_param_label: x%s}
  - {source_node_id: a, target_node_id: c, target_param_label: x%s}
  - {source_node_id: a, target_node_id: c, target_param_label: y%s}
`, config, strategy(tt.first), strategy(tt.second), strategy(tt.first)))
		x, y := p.Steps[2].Bindings[0], p.Steps[2].Bindings[1]
		if got := map[plan.Merge]string{plan.MergeConcat: "concat", plan.MergeArray: "array", plan.MergeObject: "json_object"}[x.Merge]; got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
		switch {
		case tt.want == "" && x.Expr.Src != "steps.a.output", y.Merge != 0 || y.Expr.Src != "steps.a.output":
			t.Errorf("%+v: %+v, %+v", tt, x, y)
		case tt.want != "" && (x.From[0].Expr.Src != "steps.b.output" || x.From[1].Expr.Src != "steps.a.output"):
			t.Errorf("%+v: another order: %+v", tt, x.From)
		case tt.want == "json_object" && (x.From[0].Label != "b" || x.From[1].Label != "A"):
			t.Errorf("other labels: %+v", x.From)
		}
	}
}

// BenchmarkCompile: 1,000 nodes with one lens each in a chain, and with another key of the node before each.
func BenchmarkCompile(b *testing.B) {
	for _, distinct := range []bool{false, true} {
		var nodes, edges strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&nodes, "  - {id: n%d, lens_id: summarize}\n", i)
			key := "output"
			if distinct {
				key = fmt.Sprintf("k%d", i)
			}
			if i > 0 {
				fmt.Fprintf(&edges, "  - {source_node_id: n%d, target_node_id: n%d, source_output_key: %s, target_param_label: text}\n", i-1, i, key)
			}
		}
		text := "nodes:\n" + nodes.String() + "edges:\n" + edges.String()
		opt := options()
		opt.Actions = catalogue.New(&action.Action{Name: "llm", Version: "1.0.0", Output: json.RawMessage(`{"type":"object"}`)})
		dialecttest.Measure(b, distinct, text, opt)
	}
}
