// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/importer/syntax"
)

// A translator writes expressions of jq and JSONata in CEL.
type translator struct {
	g     *syntax.Grammar
	names int // of variables that it has made
	// root returns the value of the document, and lookup that of a variable.
	root   func() (cel, error)
	lookup func(name string) (cel, error)
}

// translate returns an expression of a language in CEL.
func (t *translator) translate(src string) (cel, error) {
	e, err := syntax.Parse(t.g, src)
	if err != nil {
		return atom("null", isNull), err
	}
	c, err := t.expr(e)
	if err == nil && len(c.src) > syntax.MaxExpression {
		err = syntax.Cannot("the expression would have more than %d characters in CEL", syntax.MaxExpression)
	}
	if err != nil {
		return atom("null", isNull), err
	}
	return c, nil
}

func (t *translator) expr(e *syntax.Expr) (cel, error) {
	switch e.Op {
	case "literal":
		return literal(e.Value), nil
	case "root":
		return t.root()
	case "known":
		return e.Value.(known).cel, nil
	case "var":
		return t.lookup(e.Name)
	case "field", "index":
		return t.selection(e)
	case "list":
		return t.list(e)
	case "object":
		return t.object(e)
	case "text":
		return t.text(e)
	case "negate":
		return t.unary(e.Args[0], func(a cel) cel { return call(isNumber, "subtract(0, %s)", a.src) })
	case "if":
		return t.choose(e)
	case "call":
		return t.call(e)
	case "|":
		return t.pipe(e)
	case "each":
		return cel{}, syntax.Cannot("[] makes several values, which is only supported in a list: [.items[] | .name]")
	}
	return t.binary(e)
}

func (t *translator) unary(e *syntax.Expr, f func(a cel) cel) (cel, error) {
	a, err := t.expr(e)
	if err != nil {
		return a, err
	}
	return f(a), nil
}

// exprs translates several expressions.
func (t *translator) exprs(list []*syntax.Expr) (out []cel, err error) {
	total := 0
	for _, e := range list {
		c, err := t.expr(e)
		if err != nil {
			return nil, err
		}
		if total += len(c.src); total > syntax.MaxExpression {
			return nil, syntax.Cannot("the expression would have more than %d characters in CEL", syntax.MaxExpression)
		}
		out = append(out, c)
	}
	return out, nil
}

// selection translates a path. What is not there is null.
func (t *translator) selection(e *syntax.Expr) (cel, error) {
	var path []syntax.Hop
	base := e
	for base.Op == "field" || base.Op == "index" && constantIndex(base.Args[1]) {
		h := syntax.Hop{Name: base.Name}
		if base.Op == "index" {
			switch v := base.Args[1].Value.(type) {
			case int64:
				h = syntax.Hop{Index: v, List: true}
			case string:
				h = syntax.Hop{Name: v}
			}
		}
		path = append([]syntax.Hop{h}, path...)
		base = base.Args[0]
	}
	if base.Op == "index" {
		all, err := t.exprs(base.Args)
		if err != nil {
			return cel{}, err
		}
		c := atom(all[0].loose()+"[?"+all[1].src+"].orValue(null)", unknown)
		return c.orNull(path), nil
	}
	b, err := t.expr(base)
	if err != nil {
		return b, err
	}
	return b.orNull(path), nil
}

func constantIndex(e *syntax.Expr) bool {
	switch v := e.Value.(type) {
	case int64:
		return e.Op == "literal" && v >= 0
	case string:
		return e.Op == "literal"
	}
	return false
}

func (t *translator) list(e *syntax.Expr) (cel, error) {
	if len(e.Args) == 1 {
		if c, is, err := t.each(e.Args[0]); is {
			return c, err
		}
	}
	parts, err := t.exprs(e.Args)
	return listOf(parts), err
}

// each translates what makes several values in a list: .items[] | f.
func (t *translator) each(e *syntax.Expr) (c cel, is bool, err error) {
	source, then := e, (*syntax.Expr)(nil)
	if e.Op == "|" {
		source, then = e.Args[0], e.Args[1]
	}
	for source.Op == "|" { // to the left: (a | b) | c
		return cel{}, false, nil
	}
	var path []*syntax.Expr
	for source.Op == "field" || source.Op == "index" {
		path = append(path, source)
		source = source.Args[0]
	}
	if source.Op != "each" {
		return cel{}, false, nil
	}
	base, err := t.expr(source.Args[0])
	if err != nil {
		return base, true, err
	}
	inner := &syntax.Expr{Op: "root"}
	for i := len(path) - 1; i >= 0; i-- {
		next := *path[i]
		next.Args = append([]*syntax.Expr{inner}, path[i].Args[1:]...)
		inner = &next
	}
	if then != nil {
		if inner.Op != "root" {
			inner = &syntax.Expr{Op: "|", Args: []*syntax.Expr{inner, then}}
		} else {
			inner = then
		}
	}
	c, err = t.mapped(base, inner)
	return c, true, err
}

// mapped translates a function of each element: map(f), or map(select(f)).
func (t *translator) mapped(base cel, f *syntax.Expr) (cel, error) {
	v := t.variable()
	inner := t.under(atom(v, unknown))
	defer func() { t.names = inner.names }()
	if f.Op == "call" && f.Name == "select" && len(f.Args) == 1 {
		cond, err := inner.expr(f.Args[0])
		return call(isList, "%s.filter(%s, %s)", base.in(), v, truth(cond)), err
	}
	if f.Op == "|" && f.Args[0].Op == "call" && f.Args[0].Name == "select" && len(f.Args[0].Args) == 1 {
		kept, err := t.mapped(base, f.Args[0])
		if err != nil {
			return kept, err
		}
		return t.mapped(kept, f.Args[1])
	}
	c, err := inner.expr(f)
	return call(isList, "%s.map(%s, %s)", base.in(), v, c.src), err
}

// under returns a translator of expressions about another document.
func (t *translator) under(doc cel) *translator {
	inner := *t
	inner.root = func() (cel, error) { return doc, nil }
	return &inner
}

func (t *translator) variable() string {
	t.names++
	return fmt.Sprintf("x%d", t.names)
}

// pipe translates a | b: b about the value of a.
func (t *translator) pipe(e *syntax.Expr) (cel, error) {
	if e.Args[0].Op == "each" {
		return cel{}, syntax.Cannot("[] makes several values, which is only supported in a list: [.items[] | .name]")
	}
	a, err := t.expr(e.Args[0])
	if err != nil {
		return a, err
	}
	if isOutput(a) {
		inner := t.under(a)
		defer func() { t.names = inner.names }()
		return inner.expr(e.Args[1])
	}
	v := t.variable()
	inner := t.under(cel{v, a.shape, true})
	defer func() { t.names = inner.names }()
	b, err := inner.expr(e.Args[1])
	return call(b.shape, "cel.bind(%s, %s, %s)", v, a.src, b.src), err
}

func (t *translator) object(e *syntax.Expr) (cel, error) {
	values, err := t.exprs(e.Args)
	if err != nil {
		return cel{}, err
	}
	var fields []field
	seen := map[string]bool{}
	for i, k := range e.Keys {
		if seen[k] {
			return cel{}, syntax.Cannot("the field %q is there twice", syntax.Short(k))
		}
		seen[k] = true
		fields = append(fields, field{k, values[i]})
	}
	return mapOf(fields), nil
}

func (t *translator) text(e *syntax.Expr) (cel, error) {
	parts, err := t.exprs(e.Args)
	if err != nil {
		return cel{}, err
	}
	var texts []string
	for _, p := range parts {
		if p.src != "''" {
			texts = append(texts, asText(p))
		}
	}
	return cel{src: strings.Join(texts, " + "), shape: isText, atom: len(texts) == 1}, nil
}

// truth returns the condition that a value counts as true: it is neither null nor false.
func truth(c cel) string {
	switch c.shape {
	case isBool:
		return c.src
	case isNull:
		return "false"
	case isNumber, isText, isList, isMap:
		return "true"
	}
	return "!(" + c.loose() + " in [null, false])"
}

func boolean(c cel) cel { return cel{truth(c), isBool, c.shape == isBool && c.atom} }

func (t *translator) choose(e *syntax.Expr) (cel, error) {
	a, err := t.exprs(e.Args)
	if err != nil {
		return cel{}, err
	}
	cond := boolean(a[0])
	if !t.g.JQ {
		cond = a[0]
	}
	c := cel{src: fmt.Sprintf("%s ? %s : %s", cond.in(), a[1].loose(), a[2].loose())}
	if a[1].shape == a[2].shape {
		c.shape = a[1].shape
	}
	return c, nil
}

// bound returns an expression of a value that it names several times.
func (t *translator) bound(c cel, f func(c cel) string) string {
	if isOutput(c) || len(c.src) < 40 && c.atom {
		return f(c)
	}
	v := t.variable()
	return fmt.Sprintf("cel.bind(%s, %s, %s)", v, c.src, f(cel{v, c.shape, true}))
}

func (t *translator) binary(e *syntax.Expr) (cel, error) {
	both, err := t.exprs(e.Args)
	if err != nil {
		return cel{}, err
	}
	a, b := both[0], both[1]
	switch e.Op {
	case "and", "or":
		op := map[string]string{"and": "&&", "or": "||"}[e.Op]
		if t.g.JQ {
			a, b = boolean(a), boolean(b)
		}
		return cel{src: a.in() + " " + op + " " + b.in(), shape: isBool}, nil
	case "==", "=", "!=":
		op := strings.Replace(e.Op, "=", "==", 1)
		if e.Op != "=" {
			op = e.Op
		}
		return cel{src: comparable(a, b) + " " + op + " " + comparable(b, a), shape: isBool}, nil
	case "<", "<=", ">", ">=":
		return cel{src: comparable(a, b) + " " + e.Op + " " + comparable(b, a), shape: isBool}, nil
	case "in":
		return cel{src: a.in() + " in " + b.in(), shape: isBool}, nil
	case "&":
		return cel{src: orEmpty(a) + " + " + orEmpty(b), shape: isText}, nil
	case "//":
		return atom("("+t.bound(a, func(a cel) string {
			return fmt.Sprintf("%s in [null, false] ? %s : %s", a.loose(), b.loose(), a.loose())
		})+")", unknown), nil
	case "+":
		if t.g.JQ {
			return t.plus(a, b), nil
		}
		return call(isNumber, "add(%s, %s)", a.src, b.src), nil
	case "-", "*", "%", "/":
		return t.arithmetic(e.Op, a, b)
	}
	return cel{}, syntax.Cannot("the operator %s is not supported", e.Op)
}

// comparable returns a as an operand of a comparison with b.
func comparable(a, b cel) string {
	if a.shape == b.shape && a.shape != unknown {
		return a.in()
	}
	if a.shape != unknown {
		return a.in()
	}
	return a.loose()
}

// orEmpty returns a value as a text; null is empty.
func orEmpty(c cel) string {
	if c.shape == unknown {
		return "(" + c.loose() + " == null ? '' : " + asText(c) + ")"
	}
	return asText(c)
}

func (t *translator) arithmetic(op string, a, b cel) (cel, error) {
	for _, c := range []cel{a, b} {
		if c.shape == isList || c.shape == isMap || c.shape == isText {
			return cel{}, syntax.Cannot("%s of lists, objects or texts is not supported", op)
		}
	}
	switch op {
	case "-":
		return call(isNumber, "subtract(%s, %s)", a.src, b.src), nil
	case "*":
		return call(isNumber, "multiply(%s, %s)", a.src, b.src), nil
	case "%":
		return call(isNumber, "int(%s) %% int(%s)", a.src, b.src).grouped(), nil
	}
	return call(isNumber, "double(%s) / double(%s)", a.src, b.src).grouped(), nil
}

func (c cel) grouped() cel { return cel{src: "(" + c.src + ")", shape: c.shape, atom: true} }

// plus translates the sum of jq: of numbers, texts, lists and objects, of which null is the neutral one.
func (t *translator) plus(a, b cel) cel {
	known := a.shape
	if known == unknown || known == isNull {
		known = b.shape
	}
	zero := map[shape]string{isNumber: "0", isText: "''", isList: "[]", isMap: "{}"}[known]
	switch known {
	case isNull:
		return a
	case isNumber:
		return call(isNumber, "add(%s, %s)", t.or(a, zero), t.or(b, zero))
	case isText, isList:
		return cel{src: t.operandOr(a, zero) + " + " + t.operandOr(b, zero), shape: known}
	case isMap:
		return call(isMap, "%s.merge(%s)", t.operandOr(a, zero), t.or(b, zero))
	}
	x, y := t.variable(), t.variable()
	return call(unknown, "cel.bind(%[1]s, %[3]s, cel.bind(%[2]s, %[4]s, %[1]s == null ? %[2]s : %[2]s == null ? %[1]s : type(%[1]s) == map ? dyn(%[1]s.merge(%[2]s)) : "+
		"type(%[1]s) in [int, double] ? dyn(add(%[1]s, %[2]s)) : dyn(%[1]s + %[2]s)))", x, y, a.loose(), b.loose())
}

// or returns a value, or another one in place of null.
func (t *translator) or(c cel, zero string) string {
	if c.shape != unknown && c.shape != isNull {
		return c.src
	}
	if c.shape == isNull {
		return zero
	}
	if src, ok := strings.CutSuffix(c.src, ".orValue(null)"); ok && c.atom && !strings.Contains(src, "cel.bind") {
		return t.bound(c, func(c cel) string { return fmt.Sprintf("%s == null ? dyn(%s) : %s", c.src, zero, c.src) })
	}
	return t.bound(c, func(c cel) string { return fmt.Sprintf("%s == null ? dyn(%s) : %s", c.loose(), zero, c.loose()) })
}

func (t *translator) operandOr(c cel, zero string) string {
	if c.shape != unknown && c.shape != isNull {
		return c.in()
	}
	if c.shape == isNull {
		return zero
	}
	return "(" + t.or(c, zero) + ")"
}

func (t *translator) call(e *syntax.Expr) (cel, error) {
	table := jqFunctions
	if !t.g.JQ {
		table = jsonataFunctions
	}
	if t.g.JQ && (e.Name == "map" || e.Name == "select") {
		doc, err := t.root()
		if err != nil || e.Name == "select" || len(e.Args) != 1 {
			return cel{}, syntax.Cannot("jq's %s is only supported as map(f), and as map(select(f))", e.Name)
		}
		return t.mapped(doc, e.Args[0])
	}
	f, ok := table[e.Name]
	if !ok {
		return cel{}, syntax.Cannot("the function %s of %s is not supported", syntax.Short(e.Name), t.g.Name)
	}
	args := e.Args
	if t.g.JQ {
		args = append([]*syntax.Expr{{Op: "root"}}, args...)
	}
	if len(args) != f.args {
		return cel{}, syntax.Cannot("the function %s of %s is supported with %d arguments, not with %d", syntax.Short(e.Name), t.g.Name, f.args, len(args))
	}
	a, err := t.exprs(args)
	if err != nil {
		return cel{}, err
	}
	return f.make(a)
}

// jqFunctions are the functions of jq; the first argument is the document.
var jqFunctions = map[string]intrinsicFunc{
	"length":         simple(1, isNumber, func(a []cel) string { return "(" + a[0].loose() + " == null ? 0 : size(" + a[0].loose() + "))" }),
	"not":            {1, func(a []cel) (cel, error) { return cel{"!" + boolean(a[0]).in(), isBool, false}, nil }},
	"tostring":       {1, func(a []cel) (cel, error) { return cel{asText(a[0]), isText, true}, nil }},
	"tonumber":       simple(1, isNumber, func(a []cel) string { return "double(" + a[0].src + ")" }),
	"tojson":         simple(1, isText, func(a []cel) string { return "toJson(" + a[0].src + ")" }),
	"fromjson":       simple(1, unknown, func(a []cel) string { return "fromJson(" + a[0].src + ")" }),
	"ascii_downcase": simple(1, isText, func(a []cel) string { return a[0].in() + ".lowerAscii()" }),
	"ascii_upcase":   simple(1, isText, func(a []cel) string { return a[0].in() + ".upperAscii()" }),
	"startswith":     simple(2, isBool, func(a []cel) string { return a[0].in() + ".startsWith(" + a[1].src + ")" }),
	"endswith":       simple(2, isBool, func(a []cel) string { return a[0].in() + ".endsWith(" + a[1].src + ")" }),
	"test":           simple(2, isBool, func(a []cel) string { return a[0].in() + ".matches(" + a[1].src + ")" }),
	"split":          simple(2, isList, func(a []cel) string { return a[0].in() + ".split(" + a[1].src + ")" }),
	"join":           simple(2, isText, func(a []cel) string { return a[0].in() + ".join(" + a[1].src + ")" }),
	"has":            {2, func(a []cel) (cel, error) { return term(isBool, "%s in %s", a[1].in(), a[0].in()), nil }},
	"unique":         simple(1, isList, func(a []cel) string { return a[0].in() + ".distinct().sort()" }),
	"sort":           simple(1, isList, func(a []cel) string { return a[0].in() + ".sort()" }),
	"reverse":        simple(1, isList, func(a []cel) string { return a[0].in() + ".reverse()" }),
	"floor":          simple(1, isNumber, func(a []cel) string { return "int(math.floor(double(" + a[0].src + ")))" }),
	"ceil":           simple(1, isNumber, func(a []cel) string { return "int(math.ceil(double(" + a[0].src + ")))" }),
}
