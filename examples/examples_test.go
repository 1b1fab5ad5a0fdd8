// SPDX-License-Identifier: Apache-2.0

// Package examples_test checks the examples against the README.
package examples_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
)

// Every recipe here compiles with the built-in actions without a warning.
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
		p, _, _, diags := compile.Source(e.Name(), text, compile.Options{Actions: catalogue.New(decls...)})
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

// Everything in this directory is embedded: every recipe has a title, the
// command that runs it, and each file that the command names.
func TestEmbedded(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	recipes := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".yaml") {
			recipes++
		}
	}
	all := examples.All()
	if len(all) != recipes {
		t.Errorf("%d examples are embedded, %d recipes lie here", len(all), recipes)
	}
	for _, e := range all {
		if e.Title == "" || !strings.HasPrefix(e.Command, "roux run examples/"+e.Recipe) {
			t.Errorf("%s: its comment must say what it shows and hold `roux run examples/%s …`; got %q, %q", e.Recipe, e.Recipe, e.Title, e.Command)
		}
		for _, f := range append([]string{e.Recipe}, e.Files...) {
			want, err := os.ReadFile(f)
			if err != nil {
				t.Errorf("%s: %v", e.Recipe, err)
				continue
			}
			if got, err := examples.Read(f); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s is not embedded as it lies here (%v): add its pattern to embed.go", e.Recipe, f, err)
			}
		}
		if got, ok := examples.Find(e.Name); !ok || got.Recipe != e.Recipe {
			t.Errorf("Find(%q) = %v, %t", e.Name, got, ok)
		}
	}
	if _, ok := examples.Find("no such example"); ok {
		t.Error("an example of no name was found")
	}
}
