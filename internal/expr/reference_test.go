// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cel.dev/cel-go/common/ast"

	"github.com/roux-engine/roux/internal/reference"
)

// TestReferenceIsWhole: each function, macro and operator of the language and each filter of
// templates is in an example of the reference. All examples are run.
func TestReferenceIsWhole(t *testing.T) {
	shown := map[string]bool{}
	macro := regexp.MustCompile(`(?:^|[^A-Za-z_])([A-Za-z_]+)\(`)
	for _, group := range reference.Examples {
		for _, e := range group.List {
			tree, iss := base().Parse(e.Source)
			if iss.Err() != nil {
				t.Fatal(iss.Err())
			}
			ast.PostOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
				if x.Kind() == ast.CallKind {
					call := x.AsCall()
					shown[strings.TrimPrefix(call.FunctionName(), "cel.@")] = true
					if call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind {
						shown[call.Target().AsIdent()+"."+call.FunctionName()] = true
					}
				}
			}))
			for _, m := range macro.FindAllStringSubmatch(e.Source, -1) {
				shown["macro "+m[1]] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(base().Functions())) {
		if !strings.Contains(name, "@") && !strings.Contains(name, "not_strictly_false") && name != "in" && name != "_in_" && !shown[name] {
			t.Errorf("no example shows %s", name)
		}
	}
	for _, m := range base().Macros() {
		// A recipe of the reference shows the functions of the step.
		if name := m.Function(); name != "now" && name != "uuid" && !shown["macro "+name] {
			t.Errorf("no example shows the macro %s", name)
		}
	}
	templates := fmt.Sprint(reference.Templates)
	for _, name := range filterNames {
		if !strings.Contains(templates, "| "+name) {
			t.Errorf("no example shows the filter %s", name)
		}
	}
}
