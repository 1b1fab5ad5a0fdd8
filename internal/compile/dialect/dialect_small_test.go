// SPDX-License-Identifier: Apache-2.0

//go:build small

package dialect

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
)

// TestX13_OtherDialectsAreNotAvailable: the keys of dialects that a small program does not read are
// recognised and not reported as unknown fields. The same is true of functions.
func TestX13_OtherDialectsAreNotAvailable(t *testing.T) {
	for _, text := range []string{
		"workflow: {name: x, steps: []}", "dialect: pipeline", `{"plan_definition": {"workflow": []}}`, "name: x\nnodes: []",
		"name: x\nsteps: [{recipe: {inline: {workflow: []}}}]",
	} {
		_, _, diags := Parse("", []byte(text), form.Options{})
		if len(diags) != 1 || diags[0].Code != fault.NotAvailable || !strings.Contains(diags[0].Msg, "does not read") || diags[0].Pos.Line == 0 {
			t.Errorf("%s: %v, want one NOT_AVAILABLE", text, diags)
		}
	}
	_, src, diags := Parse("", []byte("name: x\nfunctions: {f: {expression: '1'}}\nsteps: [{transform: {expression: f()}}]"), form.Options{})
	if list := src.SemanticErrors(); len(diags) > 0 || len(list) != 1 || list[0].Code != fault.NotAvailable || list[0].Pointer != "/functions/f" {
		t.Errorf("functions: %v, %v, want one NOT_AVAILABLE", diags, list)
	}
	if _, _, diags := Parse("", []byte(`{"plan_definition": {"workflow": []}}`), form.Options{}); diags[0].Pointer != "/plan_definition/workflow" {
		t.Errorf("%+v", diags)
	}
}
