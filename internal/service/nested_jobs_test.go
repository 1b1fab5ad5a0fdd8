// SPDX-License-Identifier: Apache-2.0

//go:build !small

package service_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/provider/emulate"
)

// X140: the steps of a child run call the providers of its parent, whose account it belongs to: those
// with jobs, with the same slots and prices.
func TestX140_ChildRunsHaveTheProviders(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{After: 20 * time.Millisecond}, nil)
	if status, out := ask(t, "POST", f.url+"/v1/recipes", "", `{"name": "outer", "version": "1.0.0", "steps": [{"id": "nested", "type": "recipe", "recipe": {"inline": {
		"name": "inner", "steps": [{"id": "draw", "action": {"name": "job-plain", "parameters": {"model": "o/n", "input": {"prompt": "a cat"}}}, "outputBinding": "drawn"}],
		"outputs": {"drawn": "drawn"}}}, "outputBinding": "inner"}], "outputs": {"made": "inner.drawn"}}`); status != 201 {
		t.Fatal(status, out)
	}
	status, run := ask(t, "POST", f.url+"/v1/recipes/outer/execute", "", `{"async": false}`)
	text, _ := json.Marshal(run)
	if status != 200 || run["status"] != "completed" || !strings.Contains(string(text), `"prompt":"a cat"`) || !strings.Contains(string(text), `"provider":"plain"`) {
		t.Fatalf("%d %s", status, text)
	}
	if !strings.Contains(string(text), `"credits":{"estimated":0,"reserved":0,"used":3}`) {
		t.Errorf("want 2.5 credits of the provider's price, rounded up: %s", text)
	}
}
