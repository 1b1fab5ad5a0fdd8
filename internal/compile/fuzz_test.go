// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/fuzztest"
	"github.com/roux-engine/roux/internal/plan"
)

// FuzzSource: for any text in any dialect there is a plan or an error with a position, never a panic, at a
// bounded cost.
func FuzzSource(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		text, _, _ := strings.Cut(string(data), diagMark)
		f.Add([]byte(text))
	}
	f.Add([]byte(whole))
	files, _ = filepath.Glob("testdata/children/*.txt")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		text, _, _ := strings.Cut(string(data), diagMark)
		_, _, recipes := splitFiles(text + "\n")
		for _, text := range recipes {
			f.Add([]byte(text))
		}
	}
	for _, text := range fuzztest.Recipes(f) {
		f.Add(text)
	}
	f.Add([]byte("name: x\nsteps: [{recipe: {file: y.yaml}}, {recipe: {ref: x}}, {recipe: {file: b.yaml}}]\n"))
	f.Add([]byte("name: x\nsteps: [{recipe: {ref: x, limits: {max_depth: 2}}}, {recipe: {inline: {name: i, steps: [{recipe: {ref: b}}]}}}]\n"))
	actions := testActions()
	f.Fuzz(func(t *testing.T, text []byte) {
		// The text may include itself, under two names, and be registered.
		recipes := textFiles{"x.yaml": string(text), "y.yaml": string(text), "registry/x.yaml": string(text),
			"b.yaml": "name: b\nsteps: [{recipe: {ref: x}}]\n", "registry/b.yaml": "name: b\nversion: 1.0.0\nsteps: [{recipe: {ref: x}}]\n"}
		var p *plan.Plan
		var r *recipe.Recipe
		var src *recipe.Source
		var diags []fault.Diagnostic
		fuzztest.Bounded(t, "Source", func() {
			p, r, src, diags = Source("x.yaml", text, Options{Actions: actions, Recipes: recipes})
		})
		if (p == nil) != HasErrors(diags) {
			t.Errorf("plan %v, diagnostics %s", p != nil, dumpDiagnostics(diags))
		}
		if src == nil {
			t.Error("no source")
		}
		if r == nil {
			return
		}
		for _, d := range diags {
			if d.Pos.Line == 0 || d.Msg == "" || d.Rule == "" || d.Code == "" {
				t.Errorf("an incomplete diagnostic: %+v", d)
			}
		}
	})
}
