// SPDX-License-Identifier: Apache-2.0

//go:build !small

package roux_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// configKeys are the keys of the config of a step that runs a pipeline (X18): what runs without them and with them.
var configKeys = []struct{ key, value, steps, without, with string }{
	{"inherit_context", "true", `{name: a, type: transform, expression: "workflow.base + steps.one.result"}`, `RECIPE_INVALID`, `completed {"child":8,"one":1}`},
	{"inherit_functions", "true", `{name: a, type: transform, expression: "twice(4)"}`, `RECIPE_INVALID`, `completed {"child":8,"one":1}`},
	{"inherit_providers", "true", `{name: a, type: echo, inputs: {text: x}}`, `completed {"child":{"text":"x"},"one":1}`, `completed {"child":{"model":"small","text":"x"},"one":1}`},
	{"workspace_dir", "'./nested/${step.name}'", `{name: a, type: look}`, `completed {"child":{"has":false},"one":1}`, `completed {"child":{"has":true},"one":1}`},
	// The first of two steps is carried out again, unless the pipeline goes on where it has failed.
	{"checkpoint_enabled", "true, max_retries: 1", `{name: n, type: count}, {name: a, type: flaky}, {name: b, type: transform, expression: steps.n.calls}`, `failed STEP_FAILED`, `completed {"child":1,"one":1}`},
	{"timeout_seconds", "0.05", `{name: w, type: wait, wait: {duration: 2s}}, {name: a, type: transform, expression: "1"}`, `completed {"child":1,"one":1}`, `failed STEP_TIMEOUT`},
	{"max_retries", "1", `{name: n, type: count}, {name: a, type: flaky}, {name: b, type: transform, expression: steps.n.calls}`, `failed STEP_FAILED`, `completed {"child":2,"one":1}`},
	{"continue_on_error", "true", `{name: a, type: fail, fail: {code: BROKEN, message: on purpose}}`, `failed BROKEN`, `completed {"one":1}`},
	{"max_depth", "1", `{name: a, type: pipeline, pipeline: {name: deeper, steps: [{name: b, type: transform, expression: "1"}]}}`, `completed {"child":1,"one":1}`, `DEPTH_EXCEEDED`},
	{"memory_limit_mb", "1", `{name: m, type: for_loop, over: "[1, 2, 3, 4, 5, 6, 7, 8]", as: i, steps: [{name: t, type: transform, expression: inputs.text}]}, ` + `{name: a, type: transform, expression: "1"}`, `completed {"child":1,"one":1}`, `failed MEMORY_LIMIT`},
}

// tried are actions that count how often a step has called them since anew: flaky fails the first time, and look has a
// workspace or none.
func tried() (list []action.Action, anew func()) {
	var mu sync.Mutex
	calls := map[string]int{}
	anew = func() {
		mu.Lock()
		defer mu.Unlock()
		clear(calls)
	}
	call := func(task *action.Task) int {
		mu.Lock()
		defer mu.Unlock()
		calls[task.Step]++
		return calls[task.Step]
	}
	anything := json.RawMessage(`{"type":"object"}`)
	return []action.Action{
		{Name: "echo", Version: "1.0.0", Input: anything, Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			return action.Result{Output: task.Input}, nil
		}},
		{Name: "count", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			return action.Result{Output: map[string]any{"calls": call(task)}}, nil
		}},
		{Name: "flaky", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			if call(task) == 1 {
				return action.Result{}, fault.New(fault.StepFailed, "the first time")
			}
			return action.Result{Output: map[string]any{}}, nil
		}},
		{Name: "look", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			_, err := task.Workspace()
			if err != nil && !errors.Is(err, fault.NotAvailable) {
				return action.Result{}, err
			}
			return action.Result{Output: map[string]any{"has": err == nil}}, nil
		}},
	}, anew
}

// TestX18_EachConfigKey: each key of the config of a nested pipeline makes a difference to a run (X18, X38, X104, X117, X122,
// X123, X162, X232, X233).
func TestX18_EachConfigKey(t *testing.T) {
	actions, anew := tried()
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: actions})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, tt := range configKeys {
		t.Run(tt.key, func(t *testing.T) {
			for config, want := range map[string]string{"": tt.without, ", config: {" + tt.key + ": " + tt.value + "}": tt.with} {
				anew()
				if got := outcome(t, e, tt.steps, config); got != want {
					t.Errorf("with the config %q: %s, want %s", config, got, want)
				}
			}
		})
	}
}

// outcome runs a pipeline within another one, and says how that ends: with a refusal, a failure or outputs.
func outcome(t *testing.T, e *roux.Engine, steps, config string) string {
	t.Helper()
	text := fmt.Sprintf(`workflow:
  name: outer
  base: 7
  providers: {echo: {model: small}}
  functions: {twice: {params: [x], expression: x * 2}}
  steps:
    - {name: one, type: set_variable, value: 1}
    - {name: child, type: pipeline, inputs: {text: "{{ inputs.text }}"}, pipeline: {name: inner, steps: [%s]}%s}
`, steps, config)
	id, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text), Input: map[string]any{"text": strings.Repeat("x", 200_000)}})
	if err != nil {
		var f *fault.Error
		if !errors.As(err, &f) || len(f.Diags) == 0 {
			t.Fatal(err)
		}
		return string(f.Diags[0].Code)
	}
	res, err := e.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if res.Err != nil {
		return res.Status + " " + string(fault.CodeOf(res.Err))
	}
	return res.Status + " " + string(res.Outputs)
}
