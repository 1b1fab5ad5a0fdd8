// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/plan"
)

// TestCompare: step instances are in the order of the definition, and iterations in
// the order of their items, also from ten on. Steps come before the steps they own.
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

// pathsPlan has every kind of scope.
func pathsPlan(t *testing.T) *plan.Plan {
	t.Helper()
	anything := json.RawMessage(`{"type":"object"}`)
	p, _, _, diags := compile.Source("x.yaml", []byte(`
name: x
steps:
  - {id: a, action: {name: work}, compensate: {action: {name: undo}}, onError: {strategy: fallback, fallbackStep: {id: f, action: {name: work}}}}
  - {id: fork, parallel: {branches: [[{id: l, action: {name: work}}], [{id: r, action: {name: work}}]]}}
  - {id: each, loop: {over: "[1]", steps: [{id: in, action: {name: work}}]}}
  - {id: check, condition: {expression: "true", then: [{id: y, action: {name: work}}]}}
`), compile.Options{Actions: catalogue.New(
		&action.Action{Name: "work", Version: "1.0.0", Input: anything}, &action.Action{Name: "undo", Version: "1.0.0", Input: anything})})
	if p == nil {
		t.Fatal(diags)
	}
	return p
}

// TestParseRef: every name that StepPath writes can be read again; texts that only
// look like one are refused.
func TestParseRef(t *testing.T) {
	p := pathsPlan(t)
	for _, name := range strings.Fields(`a a.fallback.f a.compensation.a-undo fork fork[0].l fork[1].r each each[0].in each[7].in check check.then.y`) {
		ref, err := ParseRef(p, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again := StepPath(p, ref); again != name {
			t.Errorf("%s is written as %s", name, again)
		}
		owner, ok := Owner(p, ref.Path)
		if inner := strings.Contains(name, "."); ok != inner || ok && StepPath(p, owner) != name[:strings.IndexAny(name, ".[")] {
			t.Errorf("%s is owned by %q, %v", name, StepPath(p, owner), ok)
		}
	}
	for _, name := range []string{"", "b", "a.", ".a", "a.f", "a.fallback", "a.then.f", "l", "in", "y", "fork.l", "fork[2].l", "fork[-1].l", "fork[x].l", "fork[1].l",
		"fork[0]", "each[0]", "each[].in", "each[0.in", "each.in", "each[0].y", "check[0].y", "check.else.y", "check.then", "check.then.n", "a[0]", "a[0].f"} {
		if ref, err := ParseRef(p, name); err == nil {
			t.Errorf("%q is taken for %s", name, StepPath(p, ref))
		} else if want := "its first steps are a, fork, each, check"; !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// TestStrangePaths: a path that names no step or scope of the plan has no name, and an
// event about it is shown as one of the run.
func TestStrangePaths(t *testing.T) {
	p := pathsPlan(t)
	for _, step := range []int32{-2, -1, int32(len(p.Steps)), int32(len(p.Steps)) + 1} {
		if got := StepPath(p, Ref{Step: step}); got != "" {
			t.Errorf("step %d is called %q", step, got)
		}
		ev := &Event{Seq: 1, Kind: EvNodeReady, Step: step}
		if env := Render(p, "run_1", ev); env.Payload["step"] != nil || env.Correlation != nil {
			t.Errorf("an event about step %d is shown as %+v", step, env)
		}
	}
	graphs := int32(len(p.Graphs))
	for what, path := range map[string]Path{
		"the root graph":       Path("").Child(0, 0),
		"a graph behind":       Path("").Child(graphs, 0),
		"half a level":         Path("").Child(graphs-1, 0)[:1],
		"half a number":        "\x80",
		"half an ordinal":      "\x01\x80",
		"an impossible item":   Path("").Child(1, 1<<40+1),
		"a level and a half":   Path("").Child(1, 0) + "\x01",
		"a good level and one": Path("").Child(1, 0).Child(graphs, 0),
	} {
		if _, ok := path.Levels(p, nil); ok {
			t.Errorf("%s is a path", what)
		}
		if _, ok := Owner(p, path); ok {
			t.Errorf("%s has an owner", what)
		}
		if got := ScopePath(p, path); got != "?" {
			t.Errorf("%s is called %q", what, got)
		}
		if its := Iterations(p, path); its != nil {
			t.Errorf("%s leads through %v", what, its)
		}
	}
	if _, ok := Path("").Child(1, 1<<40).Levels(p, nil); !ok {
		t.Error("the last item that is possible is none")
	}
}
