// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGuards: every removable guard is used in code that ships, because otherwise its
// tag would remove nothing; and the scripts that build releases do not use the tag.
func TestGuards(t *testing.T) {
	files := load(t)
	constants := guardConstants(files)
	if len(constants) < 11 {
		t.Fatalf("%d guards found: %v", len(constants), constants)
	}
	for name, uses := range constants {
		if uses == 0 {
			t.Errorf("no code asks mutation.%s: to remove it changes nothing", name)
		}
	}
	for _, pattern := range []string{".ci/*", ".ci/*/*", "Makefile"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "tags mutation") || strings.Contains(string(text), "ROUX_MUTATION") {
				t.Errorf("%s builds with the tag mutation, or removes a guard: only sim/guards does", path)
			}
		}
	}
}

// TestGuardRuleCatches: an unused constant is detected.
func TestGuardRuleCatches(t *testing.T) {
	var files []*source
	for path, body := range map[string]string{
		"internal/mutation/guards.go": "package mutation\n\nconst (\n\tUsed = false\n\tUnused = false\n)\n",
		"internal/machine/x.go":       "package machine\n\nvar x = mutation.Used\n",
		"internal/machine/x_test.go":  "package machine\n\nvar y = mutation.Unused\n",
	} {
		f, err := parse(path, []byte(spdx+"\n"+body))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if got := guardConstants(files); !maps.Equal(got, map[string]int{"Used": 1, "Unused": 0}) {
		t.Errorf("got %v", got)
	}
}

// guardConstants counts, for every guard of package mutation, its uses outside
// tests.
func guardConstants(files []*source) map[string]int {
	uses := map[string]int{}
	for _, f := range files {
		if f.path != "internal/mutation/guards.go" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, spec := range d.Specs {
					if name := spec.(*ast.ValueSpec).Names[0].Name; name != "Removable" {
						uses[name] += 0
					}
				}
			}
			return true
		})
	}
	names := slices.Collect(maps.Keys(uses))
	for _, f := range files {
		if f.pkg == "internal/mutation" || f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "mutation" && slices.Contains(names, sel.Sel.Name) {
					uses[sel.Sel.Name]++
				}
			}
			return true
		})
	}
	return uses
}
