// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
)

// onePlan returns a valid plan of one step.
func onePlan() *Plan {
	return &Plan{
		Version: Version,
		Graphs:  []Graph{{N: 1, Owner: None, Waves: 1, Out: 0}},
		Steps: []Step{{
			ID: "a", Kind: Transform, Action: None, Then: None, Else: None, Body: None, Fallback: None, Compensate: None, Slot: None,
			Expr: &Expr{Src: "1"},
		}},
		TTLMS: 1000, Limits: Limits{TotalSteps: 10, LoopItems: 10, ScopeDepth: 4, MemoryBytes: 1 << 20},
	}
}

// parent returns a plan of one step that runs a recipe.
func parent(ref ChildRef) *Plan {
	p := onePlan()
	p.Children = []ChildRef{ref}
	p.Steps[0].Kind, p.Steps[0].Expr = Recipe, nil
	p.Steps[0].Child = &Child{Outputs: []ChildOutput{{Name: "x", Path: []string{"x"}}}}
	return p
}

func keyOf(t *testing.T, p *Plan) string {
	t.Helper()
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	return p.Key()
}

// TestPlansWithoutChildrenAreAsBefore: the hash and the key of a plan without child runs
// are those of releases that had none. The values were computed by such a release.
func TestPlansWithoutChildrenAreAsBefore(t *testing.T) {
	const hash = "8d7e3dd9b65259418cc241a9342edab28236262cf44c929c759dc0e198fa5148"
	p := onePlan()
	if got := keyOf(t, p); got != hash {
		t.Errorf("the key is %s, want %s", got, hash)
	}
	p.Labels = map[string]string{"a": "The first"}
	if got, want := keyOf(t, p), hash+".aa84b8f4b0ca25c680563803864d8ec0"; got != want {
		t.Errorf("with a label the key is %s, want %s", got, want)
	}
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.ToLower(string(data)); strings.Contains(text, "child") || strings.Contains(text, "embedded") || strings.Contains(text, "registered") {
		t.Errorf("the stored form mentions child runs: %s", data)
	}
}

// TestChildrenInKeys: the hash covers what a child means, the key also what it and its
// steps are called.
func TestChildrenInKeys(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	base := ChildRef{Name: "b", Version: "1.0.0", Key: hash + ".11"}
	first := keyOf(t, parent(base))
	for what, c := range map[string]struct {
		ref               ChildRef
		sameHash, sameKey bool
	}{
		"equal":                {base, true, true},
		"another meaning":      {ChildRef{Name: "b", Version: "1.0.0", Key: strings.Repeat("cd", 32) + ".11"}, false, false},
		"other names of steps": {ChildRef{Name: "b", Version: "1.0.0", Key: hash + ".22"}, true, false},
		"another name":         {ChildRef{Name: "c", Version: "1.0.0", Key: base.Key}, true, false},
		"another version":      {ChildRef{Name: "b", Version: "2.0.0", Key: base.Key}, true, false},
		"in a file":            {ChildRef{Name: "b", Version: "1.0.0", Key: base.Key, File: "b.yaml"}, true, false},
		"a registered one":     {ChildRef{Name: "b", Version: "1.0.0"}, false, false},
	} {
		key := keyOf(t, parent(c.ref))
		if (HashOf(key) == HashOf(first)) != c.sameHash || (key == first) != c.sameKey {
			t.Errorf("%s: the key is %s, that of the first one %s", what, key, first)
		}
	}
	if a, b := keyOf(t, parent(ChildRef{Name: "b"})), keyOf(t, parent(ChildRef{Name: "c"})); a == b {
		t.Error("another registered recipe gives the same plan")
	}
}

// TestChildrenAreStored: what is stored has the references, and none of the plans.
func TestChildrenAreStored(t *testing.T) {
	p := parent(ChildRef{Name: "b", Key: strings.Repeat("ab", 32)})
	p.Steps[0].Child.Depth, p.Steps[0].Child.MaxCredits = 3, 7
	e := onePlan()
	if err := e.Freeze(); err != nil {
		t.Fatal(err)
	}
	p.Embedded = []*Plan{e}
	p.Registered = []Registered{{Plan: p}}
	key := keyOf(t, p)
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if again.Key() != key || again.Embedded != nil || again.Registered != nil || again.Check() != nil {
		t.Errorf("read again: key %s, want %s; %v", again.Key(), key, again.Check())
	}
	if c := again.Steps[0].Child; again.Children[0] != p.Children[0] || c.Depth != 3 || c.MaxCredits != 7 || c.Outputs[0].Path[0] != "x" {
		t.Errorf("read again: %+v, %+v", again.Children[0], c)
	}
	if p.EmbeddedPlan(e.Key()) != e || p.EmbeddedPlan("x") != nil {
		t.Error("an embedded plan is not found by its key")
	}
}

// TestCheckChildren: a plan from outside is refused when code that follows its children
// could not.
func TestCheckChildren(t *testing.T) {
	if err := parent(ChildRef{Name: "b"}).Check(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(p *Plan){
		"no child":             func(p *Plan) { p.Steps[0].Child = nil },
		"a child of a wait":    func(p *Plan) { p.Steps[0].Kind = Wait },
		"an index below":       func(p *Plan) { p.Steps[0].Child.Ref = -1 },
		"an index above":       func(p *Plan) { p.Steps[0].Child.Ref = 1 },
		"a negative depth":     func(p *Plan) { p.Steps[0].Child.Depth = -1 },
		"negative steps":       func(p *Plan) { p.Steps[0].Child.TotalSteps = -1 },
		"negative memory":      func(p *Plan) { p.Steps[0].Child.MemoryBytes = -1 },
		"negative credits":     func(p *Plan) { p.Steps[0].Child.MaxCredits = -1 },
		"an output of nothing": func(p *Plan) { p.Steps[0].Child.Outputs[0].Path = nil },
		"a child without name": func(p *Plan) { p.Children[0].Name = "" },
		"a key that is none":   func(p *Plan) { p.Children[0].Key = "abc" },
		"an unknown kind":      func(p *Plan) { p.Steps[0].Kind = Recipe + 1 },
	} {
		p := parent(ChildRef{Name: "b"})
		spoil(p)
		if p.Check() == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
