// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/yamlx"
)

// recipesOfTests returns all recipes in the repository: the examples, those that init
// writes, and those of the transcripts.
func recipesOfTests(t *testing.T) map[string][]byte {
	t.Helper()
	list := map[string][]byte{}
	for _, source := range []fs.FS{examples.FS(), os.DirFS("starter"), os.DirFS("../compile/recipe/testdata/valid")} {
		names, err := fs.Glob(source, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if list[name], err = fs.ReadFile(source, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if ext := filepath.Ext(f.Name); ext == ".yaml" || ext == ".json" {
				list[filepath.Base(name)+"/"+f.Name] = f.Data
			}
		}
	}
	return list
}

// TestFormatKeepsThePlan: the plan of a formatted recipe has the same hash.
func TestFormatKeepsThePlan(t *testing.T) {
	actions := node.Catalogue(append(builtin.Actions(builtin.Config{}), testActions()...))
	compared := 0
	for name, text := range recipesOfTests(t) {
		form := yamlx.Format
		if dialect.IsJSON(name, text) {
			form = yamlx.FormatJSON
		}
		out, problems := form(text, jsonx.Limits{}, recipe.Form.KeyOrder())
		before, _, _, _ := compile.Source(name, text, compile.Options{Actions: actions})
		if before == nil {
			continue // invalid on purpose
		}
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		after, _, _, diags := compile.Source(name, out, compile.Options{Actions: actions})
		if after == nil || after.Hash() != before.Hash() {
			t.Errorf("%s became another plan: %v\n%s", name, diags, out)
		}
		compared++
	}
	if compared < 20 {
		t.Errorf("only %d recipes were compared", compared)
	}
	text, err := starter.ReadFile("starter/documents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := yamlx.Format(text, jsonx.Limits{}, recipe.Form.KeyOrder()); !bytes.Equal(out, text) {
		t.Errorf("what init writes is not formatted:\n%s", out)
	}
}
