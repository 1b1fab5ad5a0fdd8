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
// recognised and not reported as unknown fields.
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
	if _, _, diags := Parse("", []byte(`{"plan_definition": {"workflow": []}}`), form.Options{}); diags[0].Pointer != "/plan_definition/workflow" {
		t.Errorf("%+v", diags)
	}
}
