// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readsTexts are the packages that read and write the texts of recipes, and why. Every other package has
// plans and values, and cannot tell in which dialect they were written.
var readsTexts = map[string]string{
	"internal/lsp":        "texts in an editor",
	"internal/importer":   "texts of other systems",
	"internal/recipetest": "recipes under test",
	"internal/registry":   "the texts of accounts and directories",
	"internal/cli":        "fmt, convert, schema, init",
	"internal/simulate":   "the texts of drawn recipes",
	"sim/kill":            "the recipes that it runs",
}

// metricNames is where the source of a dialect says what metrics are called (X224).
const metricNames = "internal/telemetry/metrics.go"

// TestNoDialectAfterCompile: nothing after compile names a dialect, or imports one.
func TestNoDialectAfterCompile(t *testing.T) {
	files := load(t)
	for _, problem := range dialectProblems(files) {
		t.Error(problem)
	}
	for dir := range readsTexts {
		if !slices.ContainsFunc(files, func(f *source) bool { return path.Dir(f.path) == dir }) {
			t.Errorf("%s may name dialects and does not exist", dir)
		}
	}
	bad, err := parse("internal/engine/x.go", []byte("package engine\n\nimport _ \""+module+"/internal/compile/dag\"\n\nvar x = map[string]bool{\"flow\": true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if found := dialectProblems([]*source{bad}); len(found) != 2 {
		t.Errorf("of an import and a name were found %q", found)
	}
}

func dialectProblems(files []*source) (problems []string) {
	for _, f := range files {
		dir := path.Dir(f.path)
		if f.test || f.foreign || readsTexts[dir] != "" || strings.HasPrefix(dir, "internal/compile") || strings.HasPrefix(dir, "internal/importer/") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			name := strings.TrimPrefix(text, module+"/internal/compile/")
			switch {
			case slices.Contains([]string{"dag", "flow", "pipeline"}, name) && f.path != metricNames, name != text && name == "dialect":
				problems = append(problems, fmt.Sprintf("%s: %q belongs to compile: dialects only differ in what they parse to", f.fset.Position(lit.Pos()), text))
			}
			return true
		})
	}
	return problems
}
