// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
)

// TestCompare: step instances stand in the order of the definition, iterations in
// that of their items, also from ten on; what a step owns follows it.
func TestCompare(t *testing.T) {
	p, _, _, diags := compile.Source("x.yaml", []byte(`name: x
steps:
  - id: a
    transform: {expression: "1"}
  - id: each
    loop:
      over: "[1]"
      steps:
        - id: fork
          parallel:
            branches:
              - [{id: l, transform: {expression: "1"}}]
              - [{id: r, transform: {expression: "1"}}]
        - id: inner
          loop: {over: "[1]", steps: [{id: in, transform: {expression: "1"}}]}
  - id: z
    condition: {expression: "true", then: [{id: y, transform: {expression: "1"}}], else: [{id: n, transform: {expression: "1"}}]}
`), compile.Options{})
	if p == nil {
		t.Fatal(diags)
	}
	var refs []Ref
	want := strings.Fields(`a each each[2].fork each[2].fork[0].l each[2].fork[1].r each[2].inner each[2].inner[1].in each[2].inner[10].in
		each[10].fork each[10].inner z z.then.y z.else.n`)
	for _, name := range want {
		ref, err := ParseRef(p, name)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		dice.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
		slices.SortFunc(refs, func(a, b Ref) int { return Compare(p, a, b) })
		var got []string
		for _, ref := range refs {
			got = append(got, StepPath(p, ref))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	}
	at, err := ParseRef(p, "each[10].inner[3].in")
	if err != nil {
		t.Fatal(err)
	}
	its := Iterations(p, at.Path)
	if len(its) != 2 || its[0].N != 10 || its[1].N != 3 || StepPath(p, its[0].Loop) != "each" || StepPath(p, its[1].Loop) != "each[10].inner" || its[1].Scope(p) != at.Path {
		t.Errorf("%+v", its)
	}
}
