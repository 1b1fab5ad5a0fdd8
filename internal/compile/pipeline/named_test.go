// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"pgregory.net/rapid"
)

// TestNamed: code that is left as it is without a closer look would be left with one, too.
func TestNamed(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		code := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"steps", ".a", ".b", ".output", ".?output", ".error", ".outputs", "has(", ")", " ", "['a']", "'", "x", "+", ".", "//", "\n", "steps.a.output", "steps.a.b"}), 0, 8).Draw(t, "parts"), "")
		if !named(code) {
			return
		}
		if strings.Contains(code, "steps") {
			found++
		}
		for _, m := range references.FindAllStringSubmatch(code, -1) {
			if m[1] != "" && m[2] != ".output" && m[2] != ".error" || m[4] != "" && m[5]+m[6]+m[7] != "output" && m[5]+m[6]+m[7] != "error" {
				t.Fatalf("%q: %q", code, m)
			}
		}
		r := &recipe.Recipe{Steps: []*recipe.Step{{ID: "s", Common: recipe.Common{When: code}}}}
		if nameResults(r, nil); r.Steps[0].When != code {
			t.Fatalf("%q becomes %q", code, r.Steps[0].When)
		}
	})
	if found == 0 {
		t.Error("no code with steps was drawn")
	}
	for code, want := range map[string]bool{"": true, "x": true, "steps": false, "steps.a": false, "steps.a.output.b + steps.c.error": true, "steps.a.text": false, "steps.a.outputs": false, "steps['a'].output": false, "steps .a.output": false, "steps..output": false} {
		if named(code) != want {
			t.Errorf("named(%q) is %v", code, !want)
		}
	}
}
