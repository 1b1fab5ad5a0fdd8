// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// whole is a recipe with every field that has a meaning.
const whole = `
name: whole
description: what it does
version: 1.0.0
category: test
ttl: 3h
limits: {max_total_steps: 50, max_loop_items: 60, max_scope_depth: 7, memory_limit_mb: 8}
creditEstimation: {strategy: calculated, formula: "10 + size(fileHashes)", fixedCredits: 3, perFileCredits: 2, maxCredits: 99}
credit_policy: refund_all
inputSchema: {type: object, properties: {n: {type: integer, minimum: 1}, names: {type: array}}}
outputSchema: {type: object, properties: {r: {}}}
outputs: {r: steps.first.output, q: second}
steps:
  - id: first
    name: The first
    action: {name: echo, version: "1.9", parameters: {b: [1, 2.5, "{{ parameters.n }}"], a: {y: 1, x: 2}}}
    when: parameters.n > 0
    timeout: 90s
    total_timeout: 1h
    retryPolicy: {maxAttempts: 4, initialDelay: 1s, maxDelay: 20s, backoffMultiplier: 3, jitter: 0.25, retryableErrors: [TIMEOUT, rate_limit]}
    contracts: {input: {type: object, minProperties: 1}, output: {type: object, maxProperties: 9}}
    continue_on_error: true
    on_parent_failure: skip
  - id: second
    action: {name: echo}
    inputBindings: {one: parameters.n, two: "'x'"}
    outputBinding: second
    onError: {strategy: fallback, fallbackStep: {id: spare, action: {name: echo, parameters: {k: 1}}}}
    compensate: {action: {name: echo, parameters: {undo: true}}, inputBindings: {id: second.id}, timeout: 7s}
  - id: cond
    condition:
      expression: second.ok == true
      then: [{id: t, transform: {expression: "1", outputBinding: side}}]
      else: [{id: e, fail: {code: NO, message: "no {{ second }}"}}]
  - id: par
    dependsOn: [first]
    parallel:
      waitFor: any
      failureStrategy: continue
      branches:
        - [{id: p1, action: {name: pdf-to-markdown}}]
        - [{id: p2, wait: {duration: 4s}}]
  - id: loop
    loop:
      over: parameters.names
      as: name
      index: i
      maxConcurrency: 3
      failureStrategy: ignore
      steps: [{id: body, transform: {expression: "[name, i, side]"}}]
  - {id: pause, wait: {signal: go, timeout: 2h}}
  - {id: until, wait: {until: "'2030-01-01T00:00:00Z'"}}
  - id: named
    recipe:
      ref: digest@1
      inputs: {k: 7}
      files: fileHashes
      outputs: [o1, {path: a.b, as: o2}, {path: r, extract: [o3]}]
      limits: {max_depth: 4, max_total_steps: 30, memory_limit_mb: 5}
      maxCredits: 12
  - {id: within, recipe: {inline: {name: child, version: 1.5.0, ttl: 11m, steps: [{id: c1, name: The inner, transform: {expression: "17"}}]}}}
`

func planOf(t *testing.T, file string, text []byte) *plan.Plan {
	t.Helper()
	p, _, _, diags := Source(file, text, Options{Actions: testActions()})
	if p == nil {
		t.Fatalf("%s does not compile:\n%s\n%s", file, dumpDiagnostics(diags), text)
	}
	return p
}

// TestX27_HashCoversMeaning changes one field after the other: every change of meaning
// gives another hash (also A09: JSON and YAML give the same plan).
func TestX27_HashCoversMeaning(t *testing.T) {
	base := planOf(t, "whole.yaml", []byte(whole)).Hash()
	for _, change := range [][2]string{
		{"ttl: 3h", "ttl: 4h"},
		{"ttl: 3h", "ttl: 3h\norder: none"},
		{"ttl: 3h", "ttl: 3h\nscheduling: waves"},
		{"ttl: 3h", "ttl: 3h\nfailure_policy: drain"},
		{"ttl: 3h", "ttl: 3h\non_upstream_failure: fail"},
		{"ttl: 3h", "ttl: 3h\nresult_rule: leaves"},
		{"max_total_steps: 50", "max_total_steps: 51"},
		{"max_loop_items: 60", "max_loop_items: 61"},
		{"max_scope_depth: 7", "max_scope_depth: 8"},
		{"memory_limit_mb: 8", "memory_limit_mb: 9"},
		{"memory_limit_mb: 8", "memory_limit_mb: 8, max_expression_cost: 200000"},
		{"strategy: calculated", "strategy: fixed"},
		{"10 + size", "11 + size"},
		{"fixedCredits: 3", "fixedCredits: 4"},
		{"perFileCredits: 2", "perFileCredits: 3"},
		{"maxCredits: 99", "maxCredits: 98"},
		{"refund_all", "no_refund"},
		{"minimum: 1", "minimum: 0"},
		{"properties: {r: {}}", "properties: {r: {type: string}}"},
		{"r: steps.first.output", "r: steps.second.output"},
		{"q: second", "z: second"},
		{"id: until", "id: unto"},
		{`version: "1.9"`, `version: "1.10"`},
		{"[1, 2.5,", "[2, 2.5,"},
		{"2.5", "2.25"},
		{"{{ parameters.n }}", "{{ input.n }}"},
		{"x: 2}", "x: 3}"},
		{"when: parameters.n > 0", "when: parameters.n > 1"},
		{"timeout: 90s", "timeout: 91s"},
		{"total_timeout: 1h", "total_timeout: 2h"},
		{"maxAttempts: 4", "maxAttempts: 5"},
		{"initialDelay: 1s", "initialDelay: 2s"},
		{"maxDelay: 20s", "maxDelay: 21s"},
		{"backoffMultiplier: 3", "backoffMultiplier: 4"},
		{"jitter: 0.25", "jitter: 0.5"},
		{"[TIMEOUT, rate_limit]", "[TIMEOUT]"},
		{"minProperties: 1", "minProperties: 2"},
		{"maxProperties: 9", "maxProperties: 8"},
		{"continue_on_error: true", "continue_on_error: false"},
		{"on_parent_failure: skip", "on_parent_failure: propagate"},
		{"two: \"'x'\"", "two: \"'y'\""},
		{"two: \"'x'\"", "three: \"'x'\""},
		{"fallbackStep: {id: spare", "fallbackStep: {id: backup"},
		{"{k: 1}", "{k: 2}"},
		{"undo: true", "undo: false"},
		{"id: second.id", "id: second.key"},
		{"timeout: 7s", "timeout: 8s"},
		{"second.ok == true", "second.ok == false"},
		{"expression: \"1\", outputBinding: side", "expression: \"2\", outputBinding: side"},
		{"code: NO", "code: NOT"},
		{"no {{ second }}", "not {{ second }}"},
		{"dependsOn: [first]", "dependsOn: [second]"},
		{"waitFor: any", "waitFor: first_success"},
		{"failureStrategy: continue", "failureStrategy: fail_fast"},
		{"name: pdf-to-markdown", "name: file-inspect"},
		{"duration: 4s", "duration: 5s"},
		{"over: parameters.names", "over: fileHashes"},
		{"maxConcurrency: 3", "maxConcurrency: 2"},
		{"failureStrategy: ignore", "failureStrategy: continue"},
		{"[name, i, side]", "[i, name, side]"},
		{"signal: go", "signal: stop"},
		{"timeout: 2h", "timeout: 1h"},
		{"2030", "2031"},
		{"max_scope_depth: 7", "max_scope_depth: 7, max_depth: 9"},
		{"ref: digest@1", "ref: digest@2"},
		{"ref: digest@1", "ref: digester@1"},
		{"{k: 7}", "{k: 8}"},
		{"files: fileHashes", "files: fileHashes.map(f, f)"},
		{"[o1, ", "[o4, "},
		{"path: a.b", "path: a.c"},
		{"as: o2", "as: o5"},
		{"[o3]", "[o3, o6]"},
		{"max_depth: 4", "max_depth: 5"},
		{"max_total_steps: 30", "max_total_steps: 31"},
		{"memory_limit_mb: 5", "memory_limit_mb: 6"},
		{"maxCredits: 12", "maxCredits: 13"},
		{"ttl: 11m", "ttl: 12m"},
		{"id: c1", "id: c2"},
		{"17", "18"},
	} {
		text := strings.Replace(whole, change[0], change[1], 1)
		if text == whole {
			t.Errorf("%q is not in the recipe", change[0])
		} else if planOf(t, "whole.yaml", []byte(text)).Hash() == base {
			t.Errorf("%q instead of %q is the same plan", change[1], change[0])
		}
	}
}

// TestX27_HashLeavesOutTheRest: fields without a meaning do not change the hash.
func TestX27_HashLeavesOutTheRest(t *testing.T) {
	base := planOf(t, "whole.yaml", []byte(whole))
	for _, change := range [][2]string{
		{"name: whole", "name: other"},
		{"description: what it does\n", ""},
		{"version: 1.0.0", "version: 2.0.0"},
		{"category: test", "category: other"},
		{"name: The first", "name: The very first"},
		{"name: child", "name: other"},
		{"version: 1.5.0", "version: 1.6.0"},
		{"name: The inner", "name: The innermost"},
		{"[o1, {path: a.b, as: o2}", "[{path: a.b, as: o2}, {path: o1}"},
		{"ttl: 3h", "ttl: PT180M"},
		{"ttl: 3h", "ttl: 3h\norder: sequence\nscheduling: eager\nfailure_policy: fail_fast\non_upstream_failure: skip\nresult_rule: strict\nstatus: active\ndialect: recipe"},
		{"\"1\", outputBinding: side", "\" 1\\n\", outputBinding: side"},
		{"a: {y: 1, x: 2}", "a: {x: 2, y: 1}"},
		{"{one: parameters.n, two: \"'x'\"}", "{two: \"'x'\", one: parameters.n}"},
		{"{type: integer, minimum: 1}", "{minimum: 1, type: integer}"},
		{"[TIMEOUT, rate_limit]", "[rate_limit, STEP_TIMEOUT, TIMEOUT]"},
		{"{id: pause, wait", "{id: pause, type: wait, wait"},
		{"{id: pause, wait", "{id: pause, onError: {strategy: fail}, wait"},
		{"\n  - id: cond", "\n\n  # a remark\n  - id: cond"},
	} {
		text := strings.Replace(whole, change[0], change[1], 1)
		if text == whole {
			t.Errorf("%q is not in the recipe", change[0])
		} else if planOf(t, "whole.yaml", []byte(text)).Hash() != base.Hash() {
			t.Errorf("%q instead of %q is another plan", change[1], change[0])
		}
	}
	// Of these, only the names of steps change the key.
	for text, same := range map[string]bool{
		strings.Replace(whole, "name: The first", "name: The very first", 1):         false,
		strings.Replace(whole, "name: child", "name: other", 1):                      false,
		strings.Replace(whole, "version: 1.5.0", "version: 1.6.0", 1):                false,
		strings.Replace(whole, "name: The inner", "name: The innermost", 1):          false,
		strings.Replace(whole, "name: whole", "name: other", 1):                      true,
		strings.Replace(whole, "description: what it does\n", "description: x\n", 1): true,
	} {
		key := planOf(t, "whole.yaml", []byte(text)).Key()
		if (key == base.Key()) != same || plan.HashOf(key) != base.Hash().String() {
			t.Errorf("the key is %s, that of the first one %s", key, base.Key())
		}
	}
	if base.Label(0) != "The first" || base.Label(1) != "second" {
		t.Errorf("the names for people are lost: %v", base.Labels)
	}
}

// TestX27_SchemasHaveOneForm: compile canonicalizes schemas, because not every caller uses
// the parser, which does too.
func TestX27_SchemasHaveOneForm(t *testing.T) {
	hash := func(schema, contract string) plan.Hash {
		r := &recipe.Recipe{Head: recipe.Head{Name: "x"}, Settings: recipe.Settings{InputSchema: json.RawMessage(schema)}, Steps: []*recipe.Step{{
			Action: &recipe.Action{Name: "echo"}, Common: recipe.Common{
				Contracts: &recipe.Contracts{Input: json.RawMessage(contract)},
			},
		}}}
		p, diags := Compile(r, nil, Options{Actions: testActions()})
		if p == nil {
			t.Fatal(dumpDiagnostics(diags))
		}
		return p.Hash()
	}
	a := hash(`{"type":"object","minProperties":1}`, `{"type":"object","required":["a"]}`)
	b := hash(`{ "minProperties": 1e0, "type": "object" }`, `{"required": ["a"], "type": "object"}`)
	if a != b {
		t.Error("white space and the order of keys make another plan")
	}
}

// TestA09_JSONAndYAMLAreOnePlan writes recipes in both forms, with the keys in
// the order of the model and in that of the alphabet.
func TestA09_JSONAndYAMLAreOnePlan(t *testing.T) {
	p, r, _, _ := Source("whole.yaml", []byte(whole), Options{Actions: testActions()})
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.MarshalIndent(map[string]any{"plan_definition": tree}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"model.json": text, "sorted.json": sorted, "flow.yaml": text} {
		if planOf(t, name, text).Hash() != p.Hash() {
			t.Errorf("%s is another plan than its YAML form", name)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := drawRecipe(rt)
		p, _ := Compile(r, nil, Options{Actions: testActions()})
		text, err := json.Marshal(r)
		if err != nil {
			rt.Fatal(err)
		}
		again, _, _, diags := Source("random.json", text, Options{Actions: testActions()})
		if (p == nil) != (again == nil) || p != nil && p.Hash() != again.Hash() {
			rt.Fatalf("the JSON form is another plan:\n%s\n%s", text, dumpDiagnostics(diags))
		}
	})
}
