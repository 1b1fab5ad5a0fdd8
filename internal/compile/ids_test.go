// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

// FuzzA14_StepIDs: compile accepts exactly the ids of 1 to 64 letters, digits, underscores
// and dashes (A14). Generated ids are of this form too (X53).
func FuzzA14_StepIDs(f *testing.F) {
	for _, id := range []string{"a", "a.b", "a/b", "..", "a\x00", "\u202ea", "ä", " ", "a\n", "{{x}}", "__proto__", "constructor", "A-_9",
		strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 1<<20), "a:b", "a@b", "`", "[", "{", "é\xff"} {
		f.Add(id)
	}
	good := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}\z`)
	f.Fuzz(func(t *testing.T, id string) {
		if id == "" {
			return // without an id, one is generated
		}
		inner := []*recipe.Step{{Transform: &recipe.Transform{Expression: "1"}}}
		p, diags := Compile(&recipe.Recipe{Head: recipe.Head{Name: "x"}, Steps: []*recipe.Step{{ID: id, Parallel: &recipe.Parallel{Branches: [][]*recipe.Step{inner}}}}}, nil, Options{})
		if (p != nil) != good.MatchString(id) {
			t.Fatalf("id %.80q: accepted %v, %s", id, p != nil, dumpDiagnostics(diags))
		}
		if p == nil && rules(diags) != "bad-id" {
			t.Errorf("id %.80q: %s", id, rules(diags))
		}
		if p != nil && (p.Steps[0].ID != id || !good.MatchString(p.Steps[1].ID)) {
			t.Errorf("the ids of the plan are %q and %q", p.Steps[0].ID, p.Steps[1].ID)
		}
	})
}
