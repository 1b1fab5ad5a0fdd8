// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
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
		opt := c.sources.options()
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

// settled draws recipes of which no newer versions are registered meanwhile.
type settled struct{ Source }

// Case implements [Source].
func (s settled) Case(n uint64) (*Case, error) {
	c, err := s.Source.Case(n)
	if err == nil {
		c.Later = nil
	}
	return c, err
}

// translated draws the recipes of [Drawn] as a dialect writes them.
type translated struct{ to *dialect.Dialect }

// Case implements [Source].
func (s translated) Case(n uint64) (*Case, error) {
	c, err := Drawn{}.Case(n)
	if err != nil {
		return nil, err
	}
	r, src, diags := dialect.Parse(c.text.File, c.text.Data, form.Options{})
	if r == nil {
		return nil, errors.New(src.Format(diags[0]))
	}
	tree, err := s.to.Encode(r, dialect.Of(c.text.File, c.text.Data))
	if err != nil {
		return nil, err
	}
	was := c.Plan
	if c.Plan, _, src, diags = compile.Source("drawn.json", yamlx.EncodeJSON(tree), c.sources.options()); c.Plan == nil {
		return nil, errors.New(src.Format(diags[0]))
	}
	if c.Plan == was {
		return nil, errors.New("it was not compiled")
	}
	return c, nil
}

// TestOneTrace: what happens in the schedules of drawn recipes, with failures, retries, cancels and crashes, is the
// same to the last durable byte in whatever dialect they are written.
func TestOneTrace(t *testing.T) {
	cases := max(10, *drawnCases/5)
	if testing.Short() {
		cases = 3
	}
	drawn, steps := NewPlayer(Options{Source: settled{Drawn{}}}), 0
	var others []*Player
	for _, to := range dialect.All() {
		others = append(others, NewPlayer(Options{Source: settled{translated{to}}}))
	}
	for n := range cases {
		seed := n*SeedsPerCase + n%SeedsPerCase
		want, err := drawn.Play(seed)
		if err != nil || want.Err != nil {
			t.Fatal(err, want.Err)
		}
		steps += len(want.Case.Plan.Steps)
		for i, pl := range others {
			got, err := pl.Play(seed)
			if err != nil || got.Err != nil {
				t.Fatalf("seed %d in %s: %v %v", seed, dialect.All()[i].Name, err, got.Err)
			}
			if got.Hash != want.Hash {
				t.Fatalf("seed %d in %s: the history is %016x, and %016x as it was drawn", seed, dialect.All()[i].Name, got.Hash, want.Hash)
			}
		}
	}
	t.Logf("%d recipes with %d steps, in %d dialects", cases, steps, len(others))
}
