// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// promotedOperators maps the operators of a formula to our functions of two numbers, which
// convert an integer to a double when the other argument is one.
var promotedOperators = map[string]string{
	operators.Add:      "add",
	operators.Subtract: "subtract",
	operators.Multiply: "multiply",
	operators.Divide:   "divide",
}

// CompileFormula compiles a credit formula (X147). It is CEL, except that the operators
// accept an integer and a double and convert the integer; two integers stay integers, and
// their division truncates (R14).
func CompileFormula(src string) (*Program, error) {
	e, err := compileAST(src, 0, CostLimit, promote)
	if err != nil {
		return nil, err.fault("formula", src)
	}
	return &Program{src: src, cost: CostLimit, expr: e, refs: e.refs, inputs: distinctRefs(e.refs)}, nil
}

func promote(tree *cel.Ast) {
	fac := ast.NewExprFactory()
	ast.PostOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
			return
		}
		if name, ok := promotedOperators[e.AsCall().FunctionName()]; ok {
			e.SetKindCase(fac.NewCall(e.ID(), name, e.AsCall().Args()...))
		}
	}))
}
