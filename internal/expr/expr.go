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
// It never reads a clock, a file, the environment or a random number, starts no
// goroutine, and renders no value a second time: the same source and the same
// variables give the same result on every machine. Evaluation is bounded by cost
// and size only, never by a deadline, so that a replay takes the same path.
package expr

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// The limits. All but the cost are constants and not settings: a plan that renders
// on one machine renders on all of them.
const (
	// CostLimit bounds one evaluation where the recipe sets no other cost, in units
	// of about one CEL operation, 64 bytes read or 16 bytes written.
	CostLimit = 100_000
	// MaxCost is the highest cost that anybody may allow: expressions of transforms
	// and conditions are evaluated in the engine's loop, and all runs wait for them.
	MaxCost = 1_000_000
	// MaxInput bounds every value an expression refers to, in bytes of JSON.
	MaxInput = 1 << 20
	// MaxResult bounds a computed result; selecting an existing value may give
	// up to MaxInput.
	MaxResult = 256 << 10
	// MaxSource bounds the source of one expression, in runes.
	MaxSource = 16 << 10
	// MaxTemplate bounds the source of one template, in bytes.
	MaxTemplate = 1 << 20

	maxNodes = 10_000
	// maxDepth bounds how deeply a source nests, where each operator of a chain such
	// as a + b + c is a level; maxNest the lists, maps and
	// macros in it, whose types the checker compares again and again.
	maxDepth = 1000
	maxNest  = 40
)

// Vars supplies variables at evaluation. ok=false means absent: using the name
// is an error, has(name.field) is false, and the default filter softens it.
// Values are nil, bool, int64, float64, string, []any and map[string]any, a
// jsonx.Large for a text or list that lies in a file, or a Blank, and are never
// modified.
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
	cost   uint64    // what one evaluation may cost
	expr   *celExpr  // of Compile
	single *pipeline // of a template that is exactly one placeholder
	nodes  []node    // of any other template
	refs   []Ref
	// inputs are refs without repetition: what is measured before evaluation.
	inputs []Ref
}

// Compile compiles one CEL expression. Every free identifier is a variable of
// any type.
func Compile(src string) (*Program, error) { return CompileWithin(src, CostLimit) }

// CompileWithin is Compile with another limit of cost, up to MaxCost.
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

// Selection is the variable and the path of members that the program picks, when
// it does nothing else: steps.a.output.n is steps and [a output n]. Who holds
// the variable as text may pick by himself what is there; what is not there is
// for Eval to explain. The caller must not modify path.
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
	if err := checkInputs(p.inputs, m); err != nil {
		return nil, p.explain(err)
	}
	return p.eval(m, newBudget(p.cost))
}

// eval evaluates the program with variables that have been measured.
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

// explain names the source in the message: a recipe holds many expressions.
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
