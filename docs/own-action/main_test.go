// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The program of the page runs, and runs again in the same directory.
func TestProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, tt := range []struct{ recipe, input, want string }{
		{"headline.yaml", `{"title": "The ferry sails at noon"}`, `completed {"title":"The ferry sa","words":3}`},
		{"headline.yaml", `{"title": "Fog"}`, `completed {"title":"Fog","words":1}`},
		{"pay-invoice.yaml", "{}", `completed {"number":"R-1","receipt":"sha256_`},
	} {
		var out strings.Builder
		if err := run(t.Context(), dir, tt.recipe, tt.input, &out); err != nil || !strings.HasPrefix(out.String(), tt.want) {
			t.Errorf("%s: %q, %v", tt.recipe, out.String(), err)
		}
	}
	if err := run(t.Context(), dir, "headline.yaml", "noon", &strings.Builder{}); err == nil {
		t.Error("an input that is no JSON was taken")
	}
}
