// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/spell"
)

func rules(diags []fault.Diagnostic) string {
	var s []string
	for _, d := range diags {
		s = append(s, d.Rule)
	}
	return strings.Join(s, " ")
}

// TestX4_Kinds: a step does one thing, which its type or its one kind field defines. The
// parser refuses these texts too, but other dialects do not use it.
func TestX4_Kinds(t *testing.T) {
	do := &recipe.Transform{Expression: "1"}
	act := &recipe.Action{Name: "echo"}
	for _, tt := range []struct {
		name string
		step *recipe.Step
		want string
	}{
		{"by its field", &recipe.Step{Transform: do}, ""},
		{"by type and field", &recipe.Step{Type: "transform", Transform: do}, ""},
		{"nothing said", &recipe.Step{}, "no-kind"},
		{"a type without its field", &recipe.Step{Type: "loop"}, "missing-field"},
		{"two fields", &recipe.Step{Transform: do, Action: act}, "two-kinds"},
		{"another field than the type", &recipe.Step{Type: "action", Transform: do}, "two-kinds"},
		{"a type and two fields", &recipe.Step{Type: "action", Action: act, Transform: do}, "two-kinds"},
		{"no such type", &recipe.Step{Type: "transfrm", Transform: do}, "unknown-type"},
		{"a recipe by its field", &recipe.Step{Recipe: &recipe.Child{Ref: "other"}}, ""},
		{"a recipe without a source", &recipe.Step{Recipe: &recipe.Child{}}, "no-source"},
		{"a recipe with two sources", &recipe.Step{Recipe: &recipe.Child{Ref: "other", File: "x"}}, "two-sources"},
		{"an empty branch list", &recipe.Step{Parallel: &recipe.Parallel{}}, "no-branches"},
		{"an empty loop", &recipe.Step{Loop: &recipe.Loop{Over: "[1]"}}, "no-steps"},
		{"a bad id", &recipe.Step{ID: "a b", Transform: do}, "bad-id"},
		{"a bad join rule", &recipe.Step{Parallel: &recipe.Parallel{WaitFor: "al", Branches: [][]*recipe.Step{{}}}}, "bad-value"},
		{"an empty expression", &recipe.Step{Transform: &recipe.Transform{Expression: "  "}}, "missing-field"},
		{"a wait for nothing", &recipe.Step{Wait: &recipe.Wait{}}, "bad-wait"},
		{"a wait for two things", &recipe.Step{Wait: &recipe.Wait{Duration: "1s", Signal: "x"}}, "bad-wait"},
		{"a fallback without a step", &recipe.Step{Action: act, Common: recipe.Common{OnError: &recipe.OnError{Strategy: "fallback"}}}, "missing-field"},
		{"an unknown strategy", &recipe.Step{Action: act, Common: recipe.Common{OnError: &recipe.OnError{Strategy: "retrry"}}}, "bad-value"},
		{"a negative concurrency", &recipe.Step{Loop: &recipe.Loop{Over: "[1]", MaxConcurrency: -1, Steps: []*recipe.Step{{Transform: do}}}}, "bad-concurrency"},
		{"a negative retry count", &recipe.Step{Action: act, Common: recipe.Common{OnError: &recipe.OnError{Strategy: "retry", MaxRetries: -1}}}, "bad-retry"},
		{"jitter beyond 1", &recipe.Step{Action: act, RetryPolicy: &recipe.RetryPolicy{MaxAttempts: 2, Jitter: new(2.0)}}, "bad-retry"},
		{"a shrinking backoff", &recipe.Step{Action: act, RetryPolicy: &recipe.RetryPolicy{MaxAttempts: 2, BackoffMultiplier: 0.5}}, "bad-retry"},
		{"a duration without unit", &recipe.Step{Action: act, Timeout: "5"}, "bad-duration"},
		{"a name bound twice in one step", &recipe.Step{Common: recipe.Common{OutputBinding: "x"}, Transform: &recipe.Transform{Expression: "1", OutputBinding: "y"}}, "two-bindings"},
		{"a binding of a fail step", &recipe.Step{Common: recipe.Common{OutputBinding: "x"}, Fail: &recipe.Fail{}}, "not-for-kind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, diags := Compile(&recipe.Recipe{Head: recipe.Head{Name: "kinds"}, Steps: []*recipe.Step{tt.step}}, nil, Options{Actions: testActions()})
			if got := rules(diags); got != tt.want {
				t.Errorf("rules %q, want %q\n%s", got, tt.want, dumpDiagnostics(diags))
			}
			if (p == nil) != HasErrors(diags) {
				t.Error("a plan and an error, or neither")
			}
		})
	}
	if _, diags := Compile(&recipe.Recipe{Head: recipe.Head{Name: "empty"}}, nil, Options{}); rules(diags) != "no-steps" {
		t.Errorf("an empty recipe: %s", dumpDiagnostics(diags))
	}
}

// TestX6_Versions: "" is the active version, "1" and "1.2" are ranges.
func TestX6_Versions(t *testing.T) {
	cat := testActions()
	for want, got := range map[string]string{"": "1.10.0", "1": "1.10.0", "1.9": "1.9.3", "1.9.3": "1.9.3", "1.1": "", "2": "", "2.0.0-beta.1": "2.0.0-beta.1", "1.10.0.0": ""} {
		version := ""
		if a := cat.Find("echo", want); a != nil {
			version = a.Version
		}
		if version != got {
			t.Errorf("echo@%q is %q, want %q", want, version, got)
		}
	}
	order := []string{"1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1", "1.9.0", "1.10.0", "2.0.0"}
	for i := range order {
		for j := range order {
			if got, want := catalogue.CompareVersions(order[i], order[j]), i-j; (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("catalogue.CompareVersions(%s, %s) = %d", order[i], order[j], got)
			}
		}
	}
	if catalogue.CompareVersions("1.0.0+a", "1.0.0+b") != 0 {
		t.Error("build metadata counts")
	}
}

// TestX238_OperatorLimits: no form of a timeout exceeds the operator's limit.
func TestX238_OperatorLimits(t *testing.T) {
	const text = `
name: limits
ttl: 100h
steps:
  - {id: none, action: {name: echo}}
  - {id: own, action: {name: echo}, timeout: 10m, compensate: {action: {name: echo}, timeout: PT9M}}
  - {id: composite, timeout: 8m, condition: {expression: size(fileHashes) > 0, then: []}}
`
	opt := Options{Actions: testActions(), Limits: Limits{MaxTimeoutMS: 5 * minuteMS, MaxTTLMS: 24 * hourMS}}
	p, _, _, diags := Source("x.yaml", []byte(text), opt)
	if p == nil {
		t.Fatal(dumpDiagnostics(diags))
	}
	for i, st := range p.Steps {
		if st.TimeoutMS > 5*minuteMS || st.TotalTimeoutMS > 5*minuteMS || st.TimeoutMS == 0 && st.TotalTimeoutMS == 0 {
			t.Errorf("step %d: timeout %d, total %d", i, st.TimeoutMS, st.TotalTimeoutMS)
		}
	}
	if p.TTLMS != 24*hourMS {
		t.Errorf("ttl %d", p.TTLMS)
	}
	if got := rules(diags); got != "timeout-capped timeout-capped timeout-capped timeout-capped" {
		t.Errorf("diagnostics: %s", got)
	}
}

// TestExpressionCost: the recipe can set the cost limit of expressions, within the
// operator's bound; with the default the plan is the same as before this limit existed.
func TestExpressionCost(t *testing.T) {
	src := func(limits string) string {
		return "name: costs\n" + limits + "steps:\n  - {id: a, transform: {expression: '1'}}\n"
	}
	few := Limits{Max: plan.Limits{ExpressionCost: 50_000}}
	lower := Limits{Default: plan.Limits{ExpressionCost: 70_000}}
	for _, tt := range []struct {
		limits string
		server Limits
		want   int64 // -1 = refused
	}{
		{"", Limits{}, 0},
		{"limits: {max_expression_cost: 100000}\n", Limits{}, 0},
		{"limits: {max_expression_cost: 1}\n", Limits{}, 1},
		{"limits: {max_expression_cost: 1000000}\n", Limits{}, 1_000_000},
		{"limits: {max_expression_cost: 1000001}\n", Limits{}, -1},
		{"limits: {max_expression_cost: -1}\n", Limits{}, -1},
		{"", few, 50_000},
		{"limits: {max_expression_cost: 50000}\n", few, 50_000},
		{"limits: {max_expression_cost: 50001}\n", few, -1},
		{"", lower, 70_000},
		{"limits: {max_expression_cost: 100000}\n", lower, 0},
		{"", Limits{Max: plan.Limits{ExpressionCost: 9_000_000}}, 0},
		{"limits: {max_expression_cost: 2000000}\n", Limits{Max: plan.Limits{ExpressionCost: 9_000_000}}, -1},
	} {
		p, _, _, diags := Source("x.yaml", []byte(src(tt.limits)), Options{Limits: tt.server})
		switch {
		case tt.want < 0 && p != nil:
			t.Errorf("%q: a cost of %d was taken", tt.limits, p.Limits.ExpressionCost)
		case tt.want >= 0 && p == nil:
			t.Errorf("%q: %v", tt.limits, diags)
		case p != nil && p.Limits.ExpressionCost != tt.want:
			t.Errorf("%q: a cost of %d, want %d", tt.limits, p.Limits.ExpressionCost, tt.want)
		}
	}
	a, _, _, _ := Source("x.yaml", []byte(src("")), Options{})
	b, _, _, _ := Source("x.yaml", []byte(src("limits: {max_expression_cost: 100000}\n")), Options{})
	const before = "23adc938006a17e9293e1f4da991a4c869861796d682ea2f1164e23f8af80a17"
	if a.Hash() != b.Hash() || a.Hash().String() != before {
		t.Errorf("the default is plan %s, the same in words %s; before there was the field it was %s", a.Hash(), b.Hash(), before)
	}
}

// TestX231_StepsInSource: as many steps as the limit allows, and one more. The default
// is 100,000; the source documents have 1,000, for their own dialect.
func TestX231_StepsInSource(t *testing.T) {
	recipeOf := func(n int) []byte {
		return []byte("name: many\nsteps:\n" + strings.Repeat("  - transform: {expression: \"1\"}\n", n))
	}
	if p, _, _, diags := Source("x.yaml", recipeOf(1001), Options{}); p == nil || p.Limits.TotalSteps != 100_000 {
		t.Errorf("1,001 steps: %s", dumpDiagnostics(diags))
	}
	few := Limits{Default: plan.Limits{TotalSteps: 1_000}}
	if p, _, _, diags := Source("x.yaml", recipeOf(1000), Options{Limits: few}); p == nil {
		t.Errorf("1,000 steps: %s", dumpDiagnostics(diags))
	}
	p, _, _, diags := Source("x.yaml", recipeOf(1001), Options{Limits: few})
	if p != nil || len(diags) != 1 || diags[0].Code != fault.StepLimit {
		t.Errorf("1,001 steps of 1,000: %s", dumpDiagnostics(diags))
	}
	// The recipe may raise the limit, up to the server's maximum.
	raised := append([]byte("limits: {max_total_steps: 1001}\n"), recipeOf(1001)...)
	if p, _, _, diags := Source("x.yaml", raised, Options{Limits: few}); p == nil {
		t.Errorf("raised: %s", dumpDiagnostics(diags))
	}
	_, _, _, diags = Source("x.yaml", raised, Options{Limits: Limits{Max: plan.Limits{TotalSteps: 500}}})
	if rules(diags) != "limit-too-high" && rules(diags) != "limit-too-high too-many-steps" {
		t.Errorf("past the server's maximum: %s", dumpDiagnostics(diags))
	}
}

// TestSourceLimit: the caller can raise the size limit of the text; the recipe cannot.
func TestSourceLimit(t *testing.T) {
	text := []byte("name: big\ndescription: " + strings.Repeat("x", 2<<20) + "\nsteps: [{transform: {expression: \"1\"}}]\n")
	if p, _, _, diags := Source("x.yaml", text, Options{}); p != nil || len(diags) != 1 {
		t.Errorf("2 MiB pass the default limit: %s", rules(diags))
	}
	if p, _, _, diags := Source("x.yaml", text, Options{MaxSource: 4 << 20}); p == nil {
		t.Errorf("2 MiB do not pass a limit of 4 MiB: %s", dumpDiagnostics(diags))
	}
}

// TestManyMistakes: the diagnostics of a recipe with many mistakes are few and fast.
func TestManyMistakes(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: many\nlimits: {max_total_steps: 20000}\nsteps:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - {id: step%d, dependsOn: [stepp%d], transform: {expression: bindng%d, outputBinding: binding%d}}\n", i, i, i, i)
	}
	for _, text := range []string{b.String(), "name: x\nsteps:\n" + strings.Repeat("  - {action: {name: echo}, outputBinding: input}\n", 200)} {
		_, _, _, diags := Source("x.yaml", []byte(text), Options{MaxSource: 16 << 20, Actions: testActions()})
		if len(diags) != form.MaxDiagnostics {
			t.Errorf("%d diagnostics, want %d", len(diags), form.MaxDiagnostics)
		}
	}
}

// TestLargeShapes compiles recipes for which a naive compiler would take quadratic time.
func TestLargeShapes(t *testing.T) {
	const n = 5_000
	shapes := map[string]func(b *strings.Builder){
		"one name bound again and again": func(b *strings.Builder) {
			b.WriteString("  - transform: {expression: \"[0]\", outputBinding: x}\n")
			b.WriteString(strings.Repeat("  - transform: {expression: x + x, outputBinding: x}\n", n))
		},
		"many readers between two binders": func(b *strings.Builder) {
			b.WriteString("  - transform: {expression: \"[0]\", outputBinding: x}\n")
			b.WriteString(strings.Repeat("  - transform: {expression: x + x}\n", n))
			b.WriteString("  - transform: {expression: \"[1]\", outputBinding: x}\n")
		},
		"bindings that may be missing": func(b *strings.Builder) {
			b.WriteString(strings.Repeat("  - {when: size(fileHashes) > 1, transform: {expression: \"1\", outputBinding: x}}\n", n/2))
			b.WriteString(strings.Repeat("  - transform: {expression: x}\n", n/2))
		},
		"a wide fan": func(b *strings.Builder) {
			b.WriteString("  - {id: top, transform: {expression: \"[0]\"}}\n")
			b.WriteString(strings.Repeat("  - {dependsOn: [top], transform: {expression: steps.top.output}}\n", n))
		},
		"wide branches": func(b *strings.Builder) {
			b.WriteString("  - transform: {expression: \"[0]\", outputBinding: x}\n  - parallel:\n      branches:\n")
			b.WriteString(strings.Repeat("        - - transform: {expression: x}\n", n))
		},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("name: shape\nlimits: {max_total_steps: 20000}\nsteps:\n")
			shape(&b)
			p, _, _, diags := Source("x.yaml", []byte(b.String()), Options{MaxSource: 16 << 20})
			if p == nil {
				t.Fatal(dumpDiagnostics(diags[:1]))
			}
		})
	}
}

// TestA12_ClosedNames: an expression sees the run and nothing of the process.
func TestA12_ClosedNames(t *testing.T) {
	for _, name := range []string{"env", "os", "secrets", "process", "self", "this", "__proto__", "context"} {
		text := fmt.Sprintf("name: x\nsteps: [{transform: {expression: %s}}]\n", name)
		if _, _, _, diags := Source("x.yaml", []byte(text), Options{}); rules(diags) != "undefined-name" {
			t.Errorf("%s: %s", name, dumpDiagnostics(diags))
		}
	}
	for _, name := range reservedNames {
		text := fmt.Sprintf("name: x\nsteps: [{transform: {expression: %s}}]\n", name)
		p, _, _, diags := Source("x.yaml", []byte(text), Options{})
		if p == nil || p.Steps[0].Expr.Vars[0].Kind != plan.VarInput {
			t.Errorf("%s: %s", name, dumpDiagnostics(diags))
		}
	}
}

// TestX11_References: a schema with references to its own definitions has the same type by
// binding, by steps.<id> and by bare id.
func TestX11_References(t *testing.T) {
	acts := catalogue.New(&action.Action{Name: "refs", Version: "1.0.0", Output: json.RawMessage(
		`{"type":"object","properties":{"at":{"$ref":"#/$defs/point"}},"$defs":{"point":{"type":"object","additionalProperties":false,"properties":{"x":{"type":"integer"}}}}}`)})
	for expression, want := range map[string]string{
		"bound.at.x + 1": "", "steps.s.output.at.x + 1": "", "s.result.at.x + 1": "",
		"bound.at.y": "undefined-field", "steps.s.outpt": "undefined-field",
	} {
		text := "name: x\nsteps:\n  - {id: s, action: {name: refs}, outputBinding: bound}\n  - transform: {expression: " + expression + "}\n"
		if _, _, _, diags := Source("x.yaml", []byte(text), Options{Actions: acts}); rules(diags) != want {
			t.Errorf("%s: %s", expression, dumpDiagnostics(diags))
		}
	}
}

// TestCompileLeavesTheRecipeAlone: compiling does not modify the recipe, so that it can be
// compiled concurrently.
func TestCompileLeavesTheRecipeAlone(t *testing.T) {
	r := &recipe.Recipe{Head: recipe.Head{Name: "x"}, Steps: []*recipe.Step{{
		Action: &recipe.Action{Name: "echo"},
		Common: recipe.Common{
			OnError:    &recipe.OnError{Strategy: "fallback", FallbackStep: &recipe.Step{Action: &recipe.Action{Name: "echo"}}},
			Compensate: &recipe.Compensate{Action: &recipe.Action{Name: "echo"}},
		},
	}}}
	before, _ := json.Marshal(r)
	Compile(r, nil, Options{Actions: testActions()})
	if after, _ := json.Marshal(r); string(after) != string(before) || r.Steps[0].Ptr != "" || r.Steps[0].OnError.FallbackStep.Ptr != "" {
		t.Error("compiling changed the recipe")
	}
}

// TestNear: suggestions correct typing errors and do not guess.
func TestNear(t *testing.T) {
	names := []string{"inspection", "markdown", "input", "id"}
	for got, want := range map[string]string{
		"inspecton": "inspection", "Markdown": "markdown", "imput": "input", "inptu": "input", "xd": "id", "translated": "", "zz": "",
	} {
		if n := spell.Closest(got, names); n != want {
			t.Errorf("Closest(%q) = %q, want %q", got, n, want)
		}
	}
}

// TestSecretsAreNoValues: whatever a recipe does with a secret but to name it in a parameter
// is refused, so that its value can be in no expression (A12, A20). The plan has the name.
func TestSecretsAreNoValues(t *testing.T) {
	for _, expression := range []string{
		"secret('k')", "secret('k') == 'a'", "[secret('k')]", "{'a': secret('k')}", "size(secret('k'))", "secret ( 'k' )", "dyn(secret('k'))",
		"has(secret('k').a)", "true ? 'a' : secret('k')", "[1].map(x, secret('k'))", "secret", "secret.k", "input.secret('k')", "secrets.k",
	} {
		for _, recipe := range []string{
			"steps: [{id: a, transform: {expression: %q}}]", "steps: [{id: a, when: %q, transform: {expression: '1'}}]",
			"steps: [{id: a, action: {name: echo}, inputBindings: {text: %q}}]", "steps: [{id: a, transform: {expression: '1'}}]\noutputs: {a: %q}",
			"steps: [{id: a, condition: {expression: %q, then: [{id: b, transform: {expression: '1'}}]}}]",
			"steps: [{id: a, loop: {over: %q, as: x, steps: [{id: b, transform: {expression: '1'}}]}}]", "steps: [{id: a, wait: {until: %q}}]",
		} {
			text := "name: x\ninputSchema: {properties: {n: {type: integer}}, additionalProperties: false}\n" + fmt.Sprintf(recipe, expression) + "\n"
			if p, _, _, _ := Source("x.yaml", []byte(text), Options{Actions: testActions()}); p != nil {
				t.Errorf("compiled:\n%s", text)
			}
		}
	}
	for _, template := range []string{
		"{{ secret('k') | upper }}", "{{ secret('k') + 'a' }}", "{% if secret('k') %}a{% endif %}", "{% for x in secret('k') %}a{% endfor %}", "{{ secret('k').size() }}",
		"{{ 'a' | default(secret('k')) }}", "{{ secret('a b') }}", "{{ secret('../k') }}", "{{ secret(\"k\" ) ~ 'a' }}",
	} {
		text := fmt.Sprintf("name: x\nsteps: [{id: a, action: {name: echo, parameters: {text: %q}}}]\n", template)
		if p, _, _, _ := Source("x.yaml", []byte(text), Options{Actions: testActions()}); p != nil {
			t.Errorf("compiled:\n%s", text)
		}
	}
	text := "name: x\nsteps: [{id: a, action: {name: echo, parameters: {text: \"Bearer {{ secret('api-token') }}\"}}}]\n"
	var asked []string
	p, _, _, diags := Source("x.yaml", []byte(text), Options{Actions: testActions(), Secret: func(name string) error {
		asked = append(asked, name)
		return fault.New(fault.SecretNotFound, "it is nowhere")
	}})
	if p == nil || rules(diags) != "secret-not-found" || diags[0].Msg != "it is nowhere" || fmt.Sprint(asked) != "[api-token]" {
		t.Fatalf("%v, asked for %v", diags, asked)
	}
	if len(p.Steps[0].ParamRef) != 0 || string(p.Steps[0].Params) != `{"text":"Bearer {{ secret('api-token') }}"}` {
		t.Errorf("the plan has %s, which reads %v", p.Steps[0].Params, p.Steps[0].ParamRef)
	}
}
