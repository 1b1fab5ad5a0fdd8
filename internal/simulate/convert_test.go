// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

var drawnCases = flag.Uint64("cases", 50, "how many drawn recipes TestOnePlan writes in all dialects")

// Drawn recipes have the same plan in every dialect, there and back, in JSON and in YAML; what is
// written twice is the same.
func TestOnePlan(t *testing.T) {
	kinds := map[plan.Kind]int{}
	for n := range *drawnCases {
		c, err := Drawn{}.Case(n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Plan.Steps {
			kinds[c.Plan.Steps[i].Kind]++
		}
		opt := c.shelf.options()
		file := c.text.File
		from, text := dialect.Of(file, c.Recipe), c.Recipe
		for _, to := range append(dialect.All(), dialect.All()...) {
			r, src, diags := dialect.Parse(file, text, form.Options{})
			if r == nil {
				t.Fatalf("case %d: %s\n%s", n, src.Format(diags[0]), text)
			}
			tree, err := to.Encode(r, from)
			if err != nil {
				t.Fatalf("case %d in %s: %v\n%s", n, to.Name, err, text)
			}
			from, text, file = to, yamlx.EncodeJSON(tree), "drawn.json"
			for name, text := range map[string][]byte{"drawn.json": text, "drawn.yaml": yamlx.Encode(tree)} {
				p, _, src, diags := compile.Source(name, text, opt)
				switch {
				case p == nil:
					t.Fatalf("case %d in %s: %s\n%s", n, to.Name, src.Format(diags[0]), text)
				case p.Hash() != c.Plan.Hash():
					a, _ := c.Plan.Encode()
					b, _ := p.Encode()
					t.Fatalf("case %d in %s: another plan\n%s\n%s\n%s\n%s", n, to.Name, a, b, c.Recipe, text)
				}
			}
		}
	}
	for k, n := range kinds {
		t.Logf("%s: %d steps", k, n)
	}
	if len(kinds) < 8 {
		t.Errorf("only these kinds: %v", kinds)
	}
}
