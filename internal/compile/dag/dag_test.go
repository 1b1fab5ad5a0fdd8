// SPDX-License-Identifier: Apache-2.0

package dag_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dag"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/dialecttest"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/plan"
)

func options() compile.Options {
	text := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`)
	return compile.Options{Actions: catalogue.New(
		&action.Action{Name: "echo", Version: "1.0.0", Description: "Gives its text.", Input: text, Output: text, Metadata: action.Metadata{Parallelizable: new(true)}},
		&action.Action{Name: "call", Aliases: []string{"call_external_service"}, Version: "1.0.0", Description: "Calls a service.", Faults: []fault.Code{fault.ServiceUnavailable}},
	)}
}

func build(t *testing.T, text string) *plan.Plan {
	t.Helper()
	return dialecttest.Build(t, text, options())
}

// TestX20_Fields: every field of a node, and each kind of handler, with the model that they become.
func TestX20_Fields(t *testing.T) { dialecttest.Fields(t, dag.Form, options()) }

// TestDiagnostics: each broken text has all its problems reported at their places, and with what is
// wanted there (X21, X70, A09).
func TestDiagnostics(t *testing.T) { dialecttest.Diagnostics(t, options()) }

// TestSamePlan: a workflow has the plan of the recipe that says the same, with the defaults written
// out (X55, X118, R7).
func TestSamePlan(t *testing.T) {
	flow := build(t, `
nodes:
  - {id: a, handler: echo, config: {text: x}}
  - {id: b, handler: echo, config: {text: "{{ a.result.text }}"}, timeout_seconds: 30}
  - {id: c, handler: call_external_service, dependencies: [a]}
  - {id: d, handler: call, config: {n: 1}, retry: {maxAttempts: 2}, dependencies: [b, c]}
`)
	steps := build(t, `
name: other
order: none
on_upstream_failure: fail
result: steps
steps:
  - {id: a, action: {name: echo, parameters: {text: x}}}
  - {id: b, action: {name: echo, parameters: {text: "{{ a.result.text }}"}}, timeout: 30s}
  - {id: c, action: {name: call}, dependsOn: [a], retryPolicy: {maxAttempts: 3, initialDelay: 1s, maxDelay: 60s, backoffMultiplier: 2}}
  - {id: d, action: {name: call, parameters: {n: 1}}, retryPolicy: {maxAttempts: 2}, dependsOn: [b, c]}
`)
	if flow.Hash() != steps.Hash() {
		t.Errorf("the plans differ:\n%+v\n%+v", flow, steps)
	}
}

// TestNamelessTexts: a text without a name is called like its file.
func TestNamelessTexts(t *testing.T) {
	r, _, diags := dialect.Parse("dir/daily.dag.yaml", []byte("nodes: [{id: a, handler: echo}]"), form.Options{})
	if r == nil || r.Name != "daily" {
		t.Errorf("%+v, %v", r, diags)
	}
	for _, file := range []string{"stdin", "body", "", "dir/.yaml"} { // texts that are in no file
		if r, _, diags := dialect.Parse(file, []byte("nodes: [{id: a, handler: echo}]"), form.Options{}); r != nil || len(diags) != 1 || diags[0].Rule != "missing-field" || diags[0].Pos.Line != 1 {
			t.Errorf("%q: %+v, %v", file, r, diags)
		}
	}
}

// TestResultOfSteps: a step that runs a workflow may take the outputs of its nodes, and nothing else;
// what a generated id has is not known before.
func TestResultOfSteps(t *testing.T) {
	for text, want := range map[string]string{
		"{nodes: [{id: a, handler: echo, config: {text: x}}]}":                        `has no output "b"`,
		"{name: n, result: steps, steps: [{id: a, transform: {expression: '1'}}]}":    `has no output "b"`,
		"{nodes: [{id: b, handler: echo, config: {text: x}}]}":                        "",
		"{name: n, result: steps, steps: [{transform: {expression: '1'}}]}":           "",
		"{name: n, steps: [{id: b, outputBinding: c, transform: {expression: '1'}}]}": `has no output "b"`,
	} {
		_, _, _, diags := compile.Source("test.yaml", []byte("name: outer\nsteps: [{id: s, recipe: {inline: "+text+", outputs: [b]}}]"), options())
		if want == "" && compile.HasErrors(diags) || want != "" && (len(diags) == 0 || !strings.Contains(diags[0].Msg, want)) {
			t.Errorf("%s: %v, want %q", text, diags, want)
		}
	}
	// A binding that nothing reads is not part of such a result.
	_, _, _, diags := compile.Source("test.yaml", []byte("nodes: [{id: a, handler: echo, config: {text: x}, outputBinding: unread}]"), options())
	if len(diags) != 1 || diags[0].Rule != "unused-binding" {
		t.Errorf("%v", diags)
	}
}
