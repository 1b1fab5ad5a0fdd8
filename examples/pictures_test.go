// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/picture"
)

var rewrite = flag.Bool("rewrite", false, "draw the pictures of the examples again")

// Every recipe has a picture, NAME.svg, as `roux graph` draws it, and there is
// no picture without a recipe.
func TestPicturesAreCurrent(t *testing.T) {
	var decls []*action.Action
	for _, a := range builtin.Actions(builtin.Config{}) {
		decls = append(decls, &a)
	}
	recipes, err := filepath.Glob("*.yaml")
	if err != nil || len(recipes) == 0 {
		t.Fatalf("no recipes: %v", err)
	}
	wanted := map[string]bool{}
	for _, name := range recipes {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p, r, _, diags := compile.Source(name, text, compile.Options{Actions: catalogue.New(decls...)})
		if p == nil {
			t.Errorf("%s: %v", name, diags)
			continue
		}
		svg, err := picture.FromPlan(p, r.Name, false).SVG(picture.Options{})
		if err != nil {
			t.Fatal(err)
		}
		file := strings.TrimSuffix(name, ".yaml") + ".svg"
		wanted[file] = true
		if *rewrite {
			if err := os.WriteFile(file, []byte(svg), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if old, err := os.ReadFile(file); err != nil || !bytes.Equal(old, []byte(svg)) {
			t.Errorf("%s is not what `roux graph examples/%s` draws (%v): go test ./examples -rewrite, then look at it", file, name, err)
		}
	}
	pictures, err := filepath.Glob("*.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pictures {
		if !wanted[file] {
			t.Errorf("%s is the picture of no recipe", file)
		}
	}
}
