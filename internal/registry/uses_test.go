// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
)

// X240: what a version uses is known from its registration, and which versions run a recipe.
func TestX240_Uses(t *testing.T) {
	s := inMemory(t)
	s.register("acme", text("leaf", "1.0.0", 1))
	s.register("acme", text("leaf", "2.0.0", 2))
	s.register("other", text("leaf", "1.0.0", 1))
	one := s.register("acme", []byte("name: one\nversion: 1.0.0\nsteps: [{id: a, recipe: {ref: leaf@1}}, {id: b, recipe: {inline: {name: in, steps: [{recipe: {ref: leaf@1}}]}}}]\n"))
	s.register("acme", []byte("name: two\nversion: 1.0.0\nsteps: [{id: a, recipe: {ref: leaf}}, {id: b, recipe: {ref: one}}]\n"))
	s.register("acme", []byte("name: gone\nversion: 1.0.0\nsteps: [{id: a, recipe: {ref: leaf}}]\n"))
	if err := s.Delete(t.Context(), "acme", "gone"); err != nil {
		t.Fatal(err)
	}
	uses, err := s.Uses(t.Context(), "acme", one)
	if err != nil || !slices.Equal(uses, []Use{{UsesRecipe, "leaf", "1"}}) {
		t.Errorf("one uses %v, %v", uses, err)
	}
	base := s.register("acme", []byte("name: base\nversion: 1.0.0\nextends: [{ref: leaf @1}]\nsteps: [{id: zz, transform: {expression: '1'}}]\n"))
	if uses, err := s.Uses(t.Context(), "acme", base); err != nil || !slices.Equal(uses, []Use{{UsesRecipe, "leaf", "1"}}) { // X242
		t.Errorf("base uses %v, %v", uses, err)
	}
	s.open() // what is known is stored
	for _, tt := range []struct {
		ref, want string
		any       bool
	}{
		{"leaf", "base@1.0.0 one@1.0.0 two@1.0.0", true},
		{"leaf@1.0.0", "base@1.0.0 one@1.0.0 two@1.0.0", false},
		{"leaf@2.0.0", "two@1.0.0", false},
		{"one", "two@1.0.0", true},
		{"two", "", true},
	} {
		v, err := s.Find(t.Context(), "acme", tt.ref)
		if err != nil {
			t.Fatal(err)
		}
		users, more, err := s.UsedBy(t.Context(), "acme", v, tt.any)
		var got []string
		for _, u := range users {
			got = append(got, u.Version.Name+"@"+u.Version.Version)
		}
		if strings.Join(got, " ") != tt.want || more || err != nil {
			t.Errorf("%s is used by %q, %v, %v; want %q", tt.ref, got, more, err, tt.want)
		}
	}
	// A version of an earlier release has no uses, which are then found in its text.
	v, err := s.Find(t.Context(), "acme", "one")
	if err != nil {
		t.Fatal(err)
	}
	v.Uses = nil
	if err := s.write(t.Context(), "acme", v, nil, nil); err != nil {
		t.Fatal(err)
	}
	leaf, err := s.Find(t.Context(), "acme", "leaf@1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	s.cfg.Actions = func(string) catalogue.Actions { compiled++; return catalogue.New() }
	for range 3 {
		if users, _, err := s.UsedBy(t.Context(), "acme", leaf, false); err != nil || len(users) != 3 || compiled != 1 {
			t.Errorf("with a version of an earlier release: %v, %v, compiled %d times", users, err, compiled)
		}
	}
	// One that cannot run is not compiled again until something changes.
	if err := s.Delete(t.Context(), "acme", "leaf"); err != nil {
		t.Fatal(err)
	}
	if v, err = s.Find(t.Context(), "acme", "two"); err != nil {
		t.Fatal(err)
	}
	v.Uses, compiled = nil, 0
	for range 2 {
		if _, err := s.Uses(t.Context(), "acme", v); fault.CodeOf(err) != fault.RecipeNotFound || compiled != 1 {
			t.Errorf("without a recipe that it runs: %v, compiled %d times", err, compiled)
		}
	}
	s.register("acme", text("leaf", "1.0.0", 1))
	if uses, err := s.Uses(t.Context(), "acme", v); err != nil || len(uses) != 2 {
		t.Errorf("when it can run again: %v, %v", uses, err)
	}
}
