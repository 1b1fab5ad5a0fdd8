// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// An Env is what is known about the variables of an expression before run time.
type Env struct {
	// Vars maps each name in scope to the JSON Schema of its value; nil = any.
	Vars map[string]json.RawMessage
	// Cost is the cost limit of an evaluation. Default CostLimit.
	Cost int64
	// Secrets is set for the parameters of an action, as in [CompileParameters].
	Secrets bool
}

func (e *Env) cost() uint64 {
	if e == nil || e.Cost == 0 {
		return CostLimit
	}
	return within(e.Cost)
}

// Check finds all errors in a source that can be found before it runs: syntax errors,
// names and fields that do not exist, types that do not fit, a cost that is always too
// high, a result of the wrong type.
//
// template is set when src is a template. want is the type of the result: "bool",
// "string", "int", "number", "list", "map", "timestamp", "duration", or "" for any. A nil
// env allows every name.
func Check(src string, template bool, env *Env, want string) []Problem {
	if !template {
		c := checker{env: env}
		ps, typ := c.expression(src, 0, nil)
		if len(ps) == 0 {
			ps = checkResultType(ps, typ, want, src)
		}
		return sorted(ps)
	}
	p := newParser(src, env.cost())
	p.secrets = env != nil && env.Secrets
	c := checker{env: env}
	var last *types.Type
	p.compile = func(s string, offset int) (*celExpr, problems) {
		ps, typ := c.expression(s, offset, p.bound)
		last = typ
		return &celExpr{}, ps
	}
	prog, ps := p.parse()
	switch {
	case len(ps) > 0:
	case prog.single == nil:
		ps = checkResultType(ps, types.StringType, want, src)
	case len(prog.single.filters) == 0:
		ps = checkResultType(ps, last, want, src)
	}
	return sorted(ps)
}

// CheckTree checks every template in a JSON value. Problem.Pointer is that of the string.
func CheckTree(raw []byte, env *Env) []Problem {
	v, err := jsonx.DecodeLenient(raw)
	if err != nil {
		return []Problem{{Rule: RuleSyntax, Msg: "no JSON: " + err.Error()}}
	}
	var out []Problem
	checkTree(v, "", env, &out)
	return out
}

func checkTree(v any, pointer string, env *Env, out *[]Problem) {
	switch x := v.(type) {
	case string:
		if !IsTemplate(x) {
			return
		}
		for _, p := range Check(x, true, env, "") {
			p.Pointer = pointer
			*out = append(*out, p)
		}
	case []any:
		for i, e := range x {
			checkTree(e, pointer+"/"+strconv.Itoa(i), env, out)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if k == jsonx.LargeName {
				*out = append(*out, Problem{Rule: RuleSyntax, Pointer: pointer + "/" + k, Msg: fault.Message(reservedKey())})
			}
			checkTree(x[k], pointer+"/"+jsonx.EscapeToken(k), env, out)
		}
	}
}

func sorted(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int { return a.Offset - b.Offset })
	return ps
}

// A checker checks the expressions of one source.
type checker struct{ env *Env }

// expression checks one expression. locals are names of any type that hide those of the
// environment.
func (c *checker) expression(src string, offset int, locals []string) (problems, *types.Type) {
	env := base()
	parsed, iss := env.Parse(src)
	if ps := issues(src, offset, iss); ps != nil {
		return ps, nil
	}
	w := walkAST(env, parsed, offset)
	if ps := w.wrong(src); ps != nil {
		return ps, nil
	}
	indexFields(parsed.NativeRep().Expr())
	var ps problems
	st := newSchemaTypes()
	opts := []cel.EnvOption{cel.CustomTypeProvider(st)}
	for _, name := range w.names {
		if c.env == nil || slices.Contains(locals, name) {
			opts = append(opts, cel.Variable(name, cel.DynType))
			continue
		}
		raw, known := c.env.Vars[name]
		if !known {
			// Declared nevertheless, so that the rest is checked too.
			opts = append(opts, cel.Variable(name, cel.DynType))
			ps = append(ps, c.undefined(name, w)...)
			continue
		}
		opts = append(opts, st.variable(name, raw))
	}
	typed, err := env.Extend(opts...)
	if err != nil {
		return append(ps, Problem{Offset: offset, Len: runes(src), Rule: RuleType, Msg: err.Error()}), nil
	}
	checked, iss := typed.Check(parsed)
	if selectsFromNonObject(iss) && selectSizes(parsed.NativeRep().Expr()) {
		st.missing = nil
		checked, iss = typed.Check(parsed)
	}
	if mistyped := issues(src, offset, iss); mistyped != nil {
		return append(ps, c.explain(mistyped, st)...), nil
	}
	if _, err := typed.Program(checked, cel.CustomDecoratorV2(decorateWith(w.mapComprehensions, w.comprehensionRanges))); err != nil {
		// Errors that only planning finds, such as an invalid pattern.
		return append(ps, Problem{Offset: offset, Len: runes(src), Rule: RuleType, Msg: err.Error()}), nil
	}
	if est, err := typed.EstimateCost(checked, sizeEstimator{}); err == nil && est.Min > c.env.cost() {
		ps = append(ps, Problem{Offset: offset, Len: runes(src), Rule: RuleCost,
			Msg:  fmt.Sprintf("the expression costs at least %d; the limit is %d", est.Min, c.env.cost()),
			Hint: costHint(c.env.cost())})
	}
	return ps, checked.OutputType()
}

// selectsFromNonObject reports whether the checker found a selection from a string or a
// list, whose only field is size.
func selectsFromNonObject(iss *cel.Issues) bool {
	return slices.ContainsFunc(iss.Errors(), func(e *cel.Error) bool { return strings.HasSuffix(e.Message, "does not support field selection") })
}

// undefined reports every use of a name that is not in scope.
func (c *checker) undefined(name string, w *walker) problems {
	hint := suggest(name, slices.Sorted(maps.Keys(c.env.Vars)))
	var ps problems
	for _, r := range w.refs {
		if r.Name == name {
			ps = append(ps, Problem{Offset: r.Offset, Len: r.Len, Rule: RuleUndefinedName, Msg: "undefined: " + NameFor(name), Hint: hint})
		}
	}
	return ps
}

// explain adds suggestions to the checker's errors about fields, which are in the order
// in which it asked the provider. It drops errors about the type of an object, because
// here an object is a map that can be iterated, indexed and compared, unlike the
// checker's structs.
func (c *checker) explain(ps problems, st *schemaTypes) problems {
	var out problems
	for _, p := range ps {
		if p.Rule == RuleUndefinedField {
			st.explain(&p)
		} else if p.Rule == RuleType && st.mentioned(p.Msg) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// explain adds which object lacks the field, and which fields it has.
func (t *schemaTypes) explain(p *Problem) {
	for j, m := range t.missing {
		if p.Msg != "undefined field: "+m.field {
			continue
		}
		p.Msg = fmt.Sprintf("undefined field: %s has no %s", m.object.name, m.field)
		names := m.object.names()
		p.Hint = suggest(m.field, names)
		if p.Hint == "" && len(names) > 0 && len(names) <= 12 {
			p.Hint = "its fields are " + strings.Join(names, ", ")
		}
		t.missing = slices.Delete(t.missing, j, j+1)
		return
	}
}

// mentioned reports whether a message contains the type of an object.
func (t *schemaTypes) mentioned(msg string) bool {
	isPart := func(r rune) bool { return isWordRune(r) || strings.ContainsRune(".[]*'-", r) }
	for _, word := range strings.FieldsFunc(msg, func(r rune) bool { return !isPart(r) }) {
		if t.objects[strings.TrimSuffix(strings.TrimPrefix(word, "'"), "'")] != nil || t.objects[strings.TrimSuffix(word, ".")] != nil {
			return true
		}
	}
	return false
}

// indexFields rewrites x["name"] to x.name and x[other] to dyn(x)[other], because the
// checker knows fields of objects only after a dot.
func indexFields(e ast.Expr) {
	fac := ast.NewExprFactory()
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
			return
		}
		args := e.AsCall().Args()
		if args[1].Kind() == ast.LiteralKind {
			if name, ok := args[1].AsLiteral().(types.String); ok {
				e.SetKindCase(fac.NewSelect(e.ID(), args[0], string(name)))
			}
			return
		}
		// The new call needs an id of its own; parsed expressions have no negative ids.
		e.SetKindCase(fac.NewCall(e.ID(), operators.Index, fac.NewCall(-e.ID(), "dyn", args[0]), args[1]))
	}))
}

// checkResultType checks the type of the result.
func checkResultType(ps problems, typ *types.Type, want, src string) problems {
	if want == "" || typ == nil || assignable(typ, want) {
		return ps
	}
	return append(ps, Problem{Len: runes(src), Rule: RuleType,
		Msg: fmt.Sprintf("the result is %s, want %s", typeText(typ), want)})
}

func assignable(typ *types.Type, want string) bool {
	k := typ.Kind()
	if k == types.DynKind || k == types.AnyKind || k == types.TypeParamKind || k == types.OpaqueKind || k == types.ErrorKind {
		return true
	}
	switch want {
	case "bool":
		return k == types.BoolKind
	case "string":
		return k == types.StringKind
	case "int":
		return k == types.IntKind || k == types.UintKind
	case "number":
		return k == types.IntKind || k == types.UintKind || k == types.DoubleKind
	case "list":
		return k == types.ListKind
	case "map":
		return k == types.MapKind || k == types.StructKind
	case "timestamp":
		return k == types.TimestampKind || k == types.StringKind
	case "duration":
		return k == types.DurationKind || k == types.StringKind
	}
	return true
}

// typeText returns the name of a type for messages.
func typeText(t *types.Type) string {
	switch t.Kind() {
	case types.StructKind:
		return "an object (" + strings.TrimRight(t.TypeName(), "-'") + ")"
	case types.NullTypeKind:
		return "null"
	}
	return t.String()
}

// operatorText returns an operator as it is written, or "" for a function.
func operatorText(name string) string {
	if s, ok := operators.FindReverse(name); ok {
		return s
	}
	return ""
}

// A sizeEstimator tells the cost estimator what is known about sizes, which is only what
// the source itself says. A variable may be empty, so that the minimum is a lower bound.
type sizeEstimator struct{}

// EstimateCallCost implements cost.Estimator with the costs of evaluation.
func (sizeEstimator) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// EstimateSize implements cost.Estimator.
func (sizeEstimator) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if n.Expr() != nil && n.Expr().Kind() == ast.IdentKind {
		return &cost.SizeEstimate{Min: 0, Max: math.MaxUint64}
	}
	return nil
}
