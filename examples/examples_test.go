// SPDX-License-Identifier: Apache-2.0

// Package examples_test holds the examples to what the README says of them.
package examples_test

import (
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile"
)

// Every recipe here compiles without a warning against the built-in actions.
func TestRecipesCompile(t *testing.T) {
	var decls []*action.Action
	for _, a := range builtin.Actions(builtin.Config{}) {
		decls = append(decls, &a)
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		found++
		text, err := os.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n >= 60 {
			t.Errorf("%s has %d lines, want less than 60", e.Name(), n)
		}
		p, _, _, diags := compile.Source(e.Name(), text, compile.Options{Actions: compile.NewCatalogue(decls...)})
		for _, d := range diags {
			t.Error(d)
		}
		if p == nil {
			t.Errorf("%s gave no plan", e.Name())
		}
	}
	if found == 0 {
		t.Error("no recipe found")
	}
}
