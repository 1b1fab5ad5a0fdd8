// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"testing"
)

// TestEveryGuardIsInBothFiles: each listed guard is false in one file, and in the
// other it depends on its name in the environment. The files contain no others.
func TestEveryGuardIsInBothFiles(t *testing.T) {
	declared := func(file string) map[string]string {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, d := range f.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok == token.IMPORT {
				continue
			}
			for _, spec := range group.Specs {
				v := spec.(*ast.ValueSpec)
				if v.Names[0].Name == "Removable" {
					continue
				}
				switch value := v.Values[0].(type) {
				case *ast.Ident:
					found[v.Names[0].Name] = value.Name
				case *ast.CallExpr:
					found[v.Names[0].Name] = value.Args[0].(*ast.BasicLit).Value
				}
			}
		}
		return found
	}
	stands, removable := declared("guards.go"), declared("guards_removable.go")
	var names []string
	for _, g := range Guards() {
		names = append(names, `"`+g.Name+`"`)
		if g.Keeps == "" {
			t.Errorf("%s has no description", g.Name)
		}
	}
	if got := slices.Sorted(maps.Values(removable)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("the environment removes %v, listed are %v", got, names)
	}
	for constant, value := range stands {
		if value != "false" || removable[constant] == "" {
			t.Errorf("%s is %s without the tag and %q with it", constant, value, removable[constant])
		}
	}
	if len(stands) != len(names) {
		t.Errorf("%d constants for %d guards", len(stands), len(names))
	}
}

// TestNoGuardIsRemoved: without the tag no guard is removed, whatever the environment
// says.
func TestNoGuardIsRemoved(t *testing.T) {
	t.Setenv(Variable, "fence")
	if got := Removed(); len(got) != 0 || Removable {
		t.Errorf("this build is without %v, removable %t", got, Removable)
	}
}
