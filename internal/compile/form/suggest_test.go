// SPDX-License-Identifier: Apache-2.0

package form

import (
	"strings"
	"testing"
)

// TestNearest: case, separators, swaps and a few other letters are ignored.
func TestNearest(t *testing.T) {
	fields := []string{"id", "name", "type", "action", "condition", "parallel", "transform", "loop", "wait", "fail", "recipe", "when", "dependsOn", "inputBindings", "outputBinding",
		"onError", "retryPolicy", "timeout", "total_timeout", "continue_on_error", "on_parent_failure", "compensate", "contracts", "moderation", "cache"}
	for _, tt := range []struct{ text, want string }{
		{"inputbindings", "inputBindings"},
		{"input_bindings", "inputBindings"},
		{"input-bindings", "inputBindings"},
		{"InputBindings", "inputBindings"},
		{"inputBinding", "inputBindings"},
		{"totalTimeout", "total_timeout"},
		{"continueOnError", "continue_on_error"},
		{"INPUTBINDINGS", "inputBindings"},
		{"aciton", "action"},
		{"wiat", "wait"},
		{"retryPolcy", "retryPolicy"},
		{"depends_on", "dependsOn"},
		{"zebra", ""},
		{"x", ""},
		{"", ""},
		{strings.Repeat("a", 1<<20), ""},
	} {
		if got := Nearest(tt.text, fields); got != tt.want {
			t.Errorf("Nearest(%.30q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
