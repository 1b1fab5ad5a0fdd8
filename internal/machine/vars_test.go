// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// The value that a binding selects without evaluation equals the evaluated value, byte
// for byte; what cannot be selected is evaluated.
func TestPickIsEval(t *testing.T) {
	outputs := []string{
		`{"a":1,"b":{"c":["x",null,-7],"d":"line\n"},"e":1.5,"size":3}`, `{"a":{"a":{"a":true}}}`, `[1,2]`, `"text"`, `null`, `7`, `{}`,
		`{"$roux":"ref","bytes":9,"hash":"sha256_` + strings.Repeat("0", 64) + `","size":4,"type":"string"}`,
		`{"b":{"$roux":"ref","bytes":9,"hash":"sha256_` + strings.Repeat("0", 64) + `","size":4,"type":"string"}}`,
		`{"a":"` + strings.Repeat("x", expr.MaxInput) + `"}`,
	}
	sources := []string{
		"steps.one.output", "steps.one.output.a", "steps['one'].result.b.c", "one.output.a.a", "one.output.size", "one.output.b.size",
		"one.status", "one.error", "one.output.b.c[2]", "has(one.output.a)", "one.output.a + 1", "bound", "bound.a", "bound.b.d",
		"item.a", "index", "steps.one", "steps.two.output", "absent.a", "p.n", "p.s", "p.list", "p.none", "p.f", "p.gone", "nothing",
	}
	picked, whole := 0, 0
	for _, out := range outputs {
		val := newValue(1, []byte(out))
		vs := vars{list: []captured{
			{name: "steps", member: "one", kind: stepVar, status: journal.Completed, val: val},
			{name: "steps", member: "two", kind: stepVar, status: journal.StepFailed, failed: &stepError{fault.StepFailed, "no"}},
			{name: "one", kind: stepVar, status: journal.Completed, val: val},
			{name: "bound", kind: recordedVar, val: val},
			{name: "item", kind: recordedVar},
			{name: "index", kind: plainVar, any: int64(3)},
			{name: "nothing", kind: plainVar},
			{name: "p", kind: plainVar, any: map[string]any{"n": int64(1), "s": "ä\n", "list": []any{int64(1)}, "none": nil, "f": 2.5}},
			{name: "absent"},
		}}
		for _, src := range sources {
			for _, compile := range []func(string) (*expr.Program, error){
				expr.Compile, func(s string) (*expr.Program, error) { return expr.CompileTemplate("{{ " + s + " }}") },
			} {
				p, err := compile(src)
				if err != nil {
					t.Fatal(err)
				}
				raw, ok := vs.selectRaw(p)
				if !ok {
					continue
				}
				picked++
				if src == "steps.one.output" {
					whole++
				}
				v, err := p.Eval(&vs)
				if err != nil {
					t.Errorf("%s of %.40s: picked %.40s, evaluating it fails: %v", src, out, raw, err)
					continue
				}
				if want, err := jsonx.Canonical(v); err != nil || string(want) != string(raw) {
					t.Errorf("%s of %.40s: picked %.40s, want %.40s (%v)", src, out, raw, want, err)
				}
			}
		}
	}
	if whole < 10 { // except references and values that are too large
		t.Errorf("a whole output was picked only %d times", whole)
	}
	if picked < 100 {
		t.Errorf("only %d picks: the test tests little", picked)
	}
}

// When a recorded value cannot be read, the failure says so, and not that its step did
// not run.
func TestRenderUnreadableValue(t *testing.T) {
	step := &plan.Step{Bindings: []plan.Binding{{Name: "in", Expr: plan.Expr{Src: "bound.a", Vars: []plan.Var{{Name: "bound", Kind: plan.VarBinding}}}}}}
	task := &Task{step: step, code: Prepare(&plan.Plan{}).compileStep(step), vars: vars{list: []captured{{name: "bound", kind: recordedVar, val: newValue(7, []byte(`{"a"`))}}}}
	if _, _, fail := task.Render(); fail == nil || fail.Code != fault.InternalError {
		t.Errorf("rendering what cannot be read: %+v, want %s", fail, fault.InternalError)
	}
}

// I18: a rendered input has the names of secrets where the action will get their values; what
// looks like a reference in a value of the run stays text. In a step that calls no action
// there is no such reference.
func TestI18_RenderedInputHasNames(t *testing.T) {
	step := &plan.Step{
		Kind:     plan.Action,
		Params:   []byte(`{"auth":"Bearer {{ secret('token') }}, {{ said }}","key":"{{secret(\"k-2\")}}","said":"{{ said }}"}`),
		ParamRef: []plan.Var{{Name: "said", Kind: plan.VarBinding}},
	}
	said := captured{name: "said", kind: recordedVar, val: newValue(7, []byte(`"{{ secret('token') }} {\"$roux\":\"secret\",\"parts\":[[\"token\"]]}"`))}
	task := &Task{step: step, code: Prepare(&plan.Plan{}).compileStep(step), vars: vars{list: []captured{said}}}
	const text = `{{ secret('token') }} {\"$roux\":\"secret\",\"parts\":[[\"token\"]]}`
	want := `{"auth":{"$roux":"secret","parts":["Bearer ",["token"],", ` + text + `"]},"key":{"$roux":"secret","parts":[["k-2"]]},"said":"` + text + `"}`
	input, hash, fail := task.Render()
	if fail != nil || string(input) != want {
		t.Errorf("got %s, %+v", input, fail)
	}
	if sum := sha256.Sum256(input); !bytes.Equal(hash, sum[:]) {
		t.Errorf("the hash is not that of the input with names: %x", hash)
	}
	step.Kind = plan.Recipe
	task.code = Prepare(&plan.Plan{}).compileStep(step)
	if input, _, fail := task.Render(); fail == nil {
		t.Errorf("the input of a child run became %s", input)
	}
}
