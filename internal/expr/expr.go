// SPDX-License-Identifier: Apache-2.0

// Package expr evaluates expressions and templates.
//
// It decides what an expression means: CEL with a closed set of variables and
// functions ([Compile]), text with {{ CEL | filter }} and the blocks if, for and
// set ([CompileTemplate]), and JSON whose strings are such texts ([CompileTree]). It
// also decides what an expression may cost, and which names it refers to.
//
//	source -> Compile -> Program -> Eval(vars) -> JSON value
//
// It never reads a clock, a file, the environment or a random number, starts no goroutine,
// and never renders a value as a template: the same source and the same variables give the
// same result on every machine. Evaluation is bounded only by cost and size, never by a
// deadline, so that a replay has the same results.
package expr

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// The limits. All but the cost are constants and not settings, so that a plan that can be
// evaluated on one machine can be evaluated on all.
const (
	// CostLimit bounds one evaluation when the recipe sets no other limit, in units of
	// about one CEL operation, 64 bytes read or 16 bytes written.
	CostLimit = 100_000
	// MaxCost is the highest limit that a recipe may set. Expressions of transforms and
	// conditions are evaluated in the engine's loop, so all runs wait for them.
	MaxCost = 1_000_000
	// MaxInput bounds every value that an expression refers to, in bytes of JSON.
	MaxInput = 1 << 20
	// MaxResult bounds a computed result. The result of selecting an existing value may
	// have up to MaxInput.
	MaxResult = 256 << 10
	// MaxSource bounds the source of one expression, in runes.
	MaxSource = 16 << 10
	// MaxTemplate bounds the source of one template, in bytes.
	MaxTemplate = 1 << 20

	maxNodes = 10_000
	// maxDepth bounds how deeply a source nests; each operator of a chain such as
	// a + b + c is a level. maxNest bounds how deeply lists, maps and macros nest in
	// it, because the checker compares their types again and again.
	maxDepth = 1000
	maxNest  = 40
)

// Vars provides variables during evaluation. ok is false when the variable is absent: its
// use is an error, has(name.field) is false, and the default filter replaces it. Values
// are nil, bool, int64, float64, string, []any and map[string]any, a jsonx.Large for a
// text or list in a file, or a Blank. They are never modified.
type Vars interface {
	Lookup(name string) (value any, ok bool)
}

// MapVars is a Vars made of a map.
type MapVars map[string]any

// Lookup implements Vars.
func (m MapVars) Lookup(name string) (any, bool) {
	v, ok := m[name]
	return v, ok
}

// A Program is a compiled expression or template. It is immutable and safe for
// concurrent use.
type Program struct {
	src    string
	cost   uint64    // the cost limit of one evaluation
	expr   *celExpr  // of Compile
	single *pipeline // of a template that is exactly one placeholder
	nodes  []node    // of any other template
	refs   []Ref
	// inputs are the distinct refs, whose values are measured before evaluation.
	inputs []Ref
}

// Compile compiles a CEL expression. Every free identifier is a variable of any type.
func Compile(src string) (*Program, error) { return CompileWithin(src, CostLimit) }

// CompileWithin is Compile with another cost limit, up to MaxCost.
func CompileWithin(src string, cost int64) (*Program, error) {
	most := within(cost)
	e, err := compileAST(src, 0, most, nil)
	if err != nil {
		return nil, err.fault("expression", src)
	}
	return &Program{src: src, cost: most, expr: e, refs: e.refs, inputs: distinctRefs(e.refs)}, nil
}

func within(cost int64) uint64 { return uint64(min(max(cost, 0), MaxCost)) }

// Source returns the text the program was compiled from.
func (p *Program) Source() string { return p.src }

// Refs returns the variables that the program may read. The caller must not
// modify them.
func (p *Program) Refs() []Ref { return p.refs }

// Selection returns the variable and the path of members that the program selects; ok is
// false when it does anything else. steps.a.output.n is steps and [a output n]. A caller
// that has the variable as JSON text can select the member itself and call Eval only for
// the error when it does not exist. The caller must not modify path.
func (p *Program) Selection() (name string, path []string, ok bool) {
	e := p.expr
	if p.single != nil && len(p.single.filters) == 0 {
		e = p.single.base
	}
	if e == nil || e.path == nil {
		return "", nil, false
	}
	return e.path[0], e.path[1:], true
}

// Eval evaluates the program. The result is a JSON value; it may share memory
// with the variables. Errors are of type *fault.Error with the code
// TEMPLATE_ERROR, VALUE_TOO_LARGE or EXPRESSION_LIMIT.
func (p *Program) Eval(vars Vars) (any, error) {
	m := newMemo(vars)
	defer m.free()
	if err := checkInputs(p.inputs, m); err != nil {
		return nil, p.explain(err)
	}
	return p.eval(m, newBudget(p.cost))
}

// eval evaluates the program with variables whose size has been checked.
func (p *Program) eval(vars Vars, b *budget) (any, error) {
	var v any
	var err error
	switch {
	case p.expr != nil:
		v, err = p.expr.eval(vars, b)
	case p.single != nil:
		v, err = p.single.eval(vars, b)
	default:
		v, err = render(p.nodes, vars, b)
	}
	if err != nil {
		return nil, p.explain(nameContentError(err, p.inputs, vars))
	}
	return v, nil
}

// explain adds the source to the message, because a recipe has many expressions.
func (p *Program) explain(err error) error {
	var f *fault.Error
	ok := errors.As(err, &f)
	if !ok {
		return fault.Wrap(fault.TemplateError, err, "%s: %v", quoteSource(p.src), err)
	}
	return &fault.Error{Code: f.Code, Msg: quoteSource(p.src) + ": " + f.Msg, Err: f.Err}
}

// quoteSource shortens a source for a message.
func quoteSource(src string) string {
	const most = 80
	if utf8.RuneCountInString(src) > most {
		src = string([]rune(src)[:most]) + "…"
	}
	return fmt.Sprintf("%q", src)
}
