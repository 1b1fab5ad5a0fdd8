// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
)

// X162: a path stays in the workspace on every system, and what stands for the step is replaced.
func TestX162_WorkspacePaths(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"./nested/${step.name}", "nested/load-1"},
		{"a", "a"},
		{"a//./b/", "a/b"},
		{"a b/ä.txt", "a b/ä.txt"},
		{"...a", "...a"},
		{"", ""}, {".", ""}, {"./", ""}, {"..", ""}, {"a/../b", ""}, {"a/..", ""}, {"/etc", ""}, {"~/../../x", ""},
		{"a\x00b", ""}, {"a\nb", ""}, {`a\b`, ""}, {`\\server\share`, ""}, {"C:", ""}, {"c:/x", ""}, {"a/b?", ""}, {"a*", ""}, {"x:stream", ""},
		{"CON", ""}, {"a/nul.txt", ""}, {"COM1", ""}, {"lpt9.x", ""}, {"aux .x", ""}, {"a.", ""}, {"a /b", ""}, {" a", ""}, {"a\xff", ""},
		{"${step.name", ""}, {"${run.id}", ""}, {"{{ inputs.x }}", ""},
		{strings.Repeat("a", 100), strings.Repeat("a", 100)}, {strings.Repeat("a", 101), ""},
		{strings.Repeat("a/", 16), strings.TrimSuffix(strings.Repeat("a/", 16), "/")}, {strings.Repeat("a/", 17), ""},
		{strings.Repeat(strings.Repeat("a", 60)+"/", 9), ""},
	} {
		got, err := ChildWorkspace(tt.text, "load-1")
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%.40q: %.40q, %v; want %.40q", tt.text, got, err, tt.want)
		}
	}
	// A step's id is a part of the path like any other.
	if got, err := ChildWorkspace("x/${step.name}", "CON"); err == nil {
		t.Errorf("a step called CON: %q", got)
	}
}
