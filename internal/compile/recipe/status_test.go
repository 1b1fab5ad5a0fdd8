// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"errors"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// X3: draft, active and deprecated are the statuses; a draft does not run.
func TestX3_Status(t *testing.T) {
	for status, want := range map[string]error{"": nil, "active": nil, "deprecated": nil, "draft": fault.RecipeInvalid} {
		src := "name: x\nsteps: [{id: a, transform: {expression: '1'}}]\n"
		if status != "" {
			src += "status: " + status + "\n"
		}
		r, _, diags := Parse("x.yaml", []byte(src), Options{})
		if r == nil {
			t.Fatalf("status %q: %v", status, diags)
		}
		if err := r.Runnable(); !errors.Is(err, want) {
			t.Errorf("status %q: %v, want %v", status, err, want)
		}
	}
	if _, _, diags := Parse("x.yaml", []byte("name: x\nstatus: retired\nsteps: [{id: a, transform: {expression: '1'}}]\n"), Options{}); len(diags) != 1 || diags[0].Rule != "unknown-value" {
		t.Errorf("status retired: %v", diags)
	}
}
