// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/failpoint"
)

// TestFailpoints: every failpoint in the code is in the table that sim/kill goes through,
// with the kind it has there, and every failpoint in the table occurs in the code,
// because sim/kill would otherwise wait for it in vain.
func TestFailpoints(t *testing.T) {
	for _, problem := range failpointProblems(load(t), pointsByName()) {
		t.Error(problem)
	}
}

// TestFailpointRulesCatch violates the rule in each way.
func TestFailpointRulesCatch(t *testing.T) {
	body := func(call string) []*source {
		f, err := parse("internal/engine/x.go", []byte(spdx+"\npackage engine\n\nfunc f() { "+call+" }\n"))
		if err != nil {
			t.Fatal(err)
		}
		return []*source{f}
	}
	one := map[string]string{"CommitBefore": "Hit"}
	for _, tt := range []struct{ call, want string }{
		{"failpoint.Hit(failpoint.Forgotten)", "not in failpoint.Points"},
		{"failpoint.Hit(\"store.commit.before\")", "want a constant"},
		{"failpoint.Pass(failpoint.CommitBefore)", "says Hit"},
		{"", "no line passes"},
	} {
		if got := failpointProblems(body(tt.call), one); len(got) == 0 || !strings.Contains(strings.Join(got, " "), tt.want) {
			t.Errorf("%q: got %q, want a problem with %q", tt.call, got, tt.want)
		}
	}
	if got := failpointProblems(body("failpoint.Hit(failpoint.CommitBefore)"), one); len(got) != 0 {
		t.Errorf("a point that is listed: got %q", got)
	}
}

// pointsByName returns the names of the table's failpoints with the function that
// triggers them.
func pointsByName() map[string]string {
	names := map[string]string{}
	for _, p := range failpoint.Points {
		call := "Pass"
		if p.Fails {
			call = "Hit"
		}
		names[string(p.Point)] = call
	}
	return names
}

func failpointProblems(files []*source, points map[string]string) (problems []string) {
	value := map[string]string{} // of the constants
	for _, f := range files {
		if f.pkg != "internal/failpoint" || f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == 1 && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					value[spec.Names[0].Name] = strings.Trim(lit.Value, `"`)
				}
			}
			return true
		})
	}
	passed := map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if x, is := qualifier(fun, ok); !is || x != "failpoint" {
				return true
			}
			arg, ok := call.Args[0].(*ast.SelectorExpr)
			if !ok {
				problems = append(problems, fmt.Sprintf("%s: want a constant of package failpoint", f.fset.Position(n.Pos())))
				return true
			}
			name := arg.Sel.Name
			if v, ok := value[name]; ok {
				name = v
			}
			switch how, known := points[name]; {
			case !known:
				problems = append(problems, fmt.Sprintf("%s: %s is not in failpoint.Points", f.fset.Position(n.Pos()), name))
			case how != fun.Sel.Name:
				problems = append(problems, fmt.Sprintf("%s: %s is passed by %s, the table says %s", f.fset.Position(n.Pos()), name, fun.Sel.Name, how))
			}
			passed[name] = true
			return true
		})
	}
	for name := range points {
		if !passed[name] {
			problems = append(problems, fmt.Sprintf("failpoint.Points has %s, which no line passes", name))
		}
	}
	return problems
}

// qualifier returns the package name in a call.
func qualifier(fun *ast.SelectorExpr, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	x, ok := fun.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	return x.Name, true
}
