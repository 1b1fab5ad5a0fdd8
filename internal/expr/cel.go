// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"github.com/roux-engine/roux/fault"
)

// errMissing marks errors that the default filter handles: an undefined name, or a key
// or an index that does not exist.
var errMissing = errors.New("missing")

// A celExpr is one compiled CEL expression: a whole source or a part of a template.
type celExpr struct {
	prog cel.Program
	refs []Ref
	// selects is set when the result is an existing value, not a computed one, so that
	// the limit of inputs applies to it and not the limit of results.
	selects bool
	// path, when set, is the whole expression: the name of a variable and the members to select from it.
	path []string
	cost uint64 // the cost limit of one evaluation
}

// compileAST compiles src, which begins at rune offset of the text that positions refer
// to. change, if not nil, changes the tree before it is checked.
func compileAST(src string, offset int, most uint64, change func(*cel.Ast)) (*celExpr, problems) {
	env := base()
	parsed, iss := env.Parse(src)
	if ps := issues(src, offset, iss); ps != nil {
		return nil, ps
	}
	w := walkAST(env, parsed, offset)
	if change != nil {
		change(parsed)
	}
	if ps := w.wrong(src); ps != nil {
		return nil, ps
	}
	checker, err := withNames(w.names)
	if err != nil {
		return nil, problems{{Offset: offset, Len: runes(src), Msg: err.Error(), Rule: RuleType}}
	}
	selects, path := isSelection(parsed.NativeRep().Expr()), constantPath(parsed.NativeRep().Expr())
	selectSizes(parsed.NativeRep().Expr())
	checked, iss := checker.Check(parsed)
	if ps := issues(src, offset, iss); ps != nil {
		return nil, ps
	}
	prog, err := env.Program(checked,
		cel.CostTracking(callCosts{}),
		cel.CostLimit(most),
		cel.CustomDecoratorV2(decorateWith(w.mapComprehensions, w.comprehensionRanges)),
	)
	if err != nil {
		return nil, problems{{Offset: offset, Len: runes(src), Msg: err.Error(), Rule: RuleType}}
	}
	return &celExpr{prog: prog, refs: w.refs, selects: selects, path: path, cost: most}, nil
}

// eval evaluates the expression and returns a JSON value within the limits.
func (e *celExpr) eval(vars Vars, b *budget) (any, error) {
	names := activation{vars: vars}
	v, err := e.run(&names, b)
	if err != nil && names.contentErr != nil {
		// The contentError takes precedence over err. || and && may have ignored it, and with the content of the
		// large value the result might have been another one.
		return nil, names.contentErr
	}
	return v, err
}

func (e *celExpr) run(names *activation, b *budget) (any, error) {
	out, det, err := e.prog.Eval(names)
	if det != nil {
		if c := det.ActualCost(); c != nil {
			if spent := b.spend(*c); spent != nil && err == nil {
				return nil, spent
			}
		}
	}
	if err != nil {
		var stop interpreter.EvalCancelledError
		if errors.As(err, &stop) {
			return nil, costExceeded(e.cost)
		}
		return nil, evalError(err)
	}
	limit := MaxResult
	if e.selects {
		limit = MaxInput
	}
	return toJSON(out, limit)
}

// An activation provides variables to the interpreter. An absent variable has a value of
// its own type, because has(name.field) must be false and any other use an error.
type activation struct {
	vars       Vars
	contentErr *contentError // the first access to the content of a large value
}

// contentErrVar is the variable by which nodes find activation.contentErr. No source can
// contain its name, because of the "@".
const contentErrVar = "@inside"

func (a *activation) ResolveName(name string) (any, bool) {
	if name == contentErrVar {
		return &a.contentErr, true
	}
	v, ok := a.vars.Lookup(name)
	if !ok {
		return absent(name), true
	}
	return v, true
}

func (a *activation) Parent() interpreter.Activation { return nil }

// A memo looks up every name in the caller's Vars only once per evaluation. A lookup may
// be expensive, and the value that was measured must be the one that is used.
type memo struct {
	vars Vars
	few  []memoEntry // the first names; most sources have no more
	buf  [4]memoEntry
	many map[string]memoEntry // the others
}

type memoEntry struct {
	name  string
	value any
	ok    bool
}

// memos are reused, because every evaluation needs one.
var memos = sync.Pool{New: func() any { return new(memo) }}

func newMemo(vars Vars) *memo {
	m, _ := memos.Get().(*memo)
	m.vars, m.few = vars, m.buf[:0]
	return m
}

// free ends the use of a memo, and of all that it has looked up.
func (m *memo) free() {
	*m = memo{}
	memos.Put(m)
}

// Lookup implements Vars.
func (m *memo) Lookup(name string) (any, bool) {
	for i := range m.few {
		if k := &m.few[i]; k.name == name {
			return k.value, k.ok
		}
	}
	if k, ok := m.many[name]; ok {
		return k.value, k.ok
	}
	v, ok := m.vars.Lookup(name)
	if len(m.few) < cap(m.few) {
		m.few = append(m.few, memoEntry{name, v, ok})
		return v, ok
	}
	if m.many == nil {
		m.many = map[string]memoEntry{}
	}
	m.many[name] = memoEntry{name, v, ok}
	return v, ok
}

// costExceeded returns the error of an evaluation that exceeded its cost limit.
func costExceeded(most uint64) error {
	return fault.New(fault.ExpressionLimit, "the evaluation costs more than the limit of %d; %s", most, costHint(most))
}

// costHint returns what to do about an expression that costs more than most.
func costHint(most uint64) string {
	remedy := "do a part of it in a step or loop of its own"
	if most < MaxCost {
		remedy = fmt.Sprintf("raise limits.max_expression_cost (at most %d), or %s", MaxCost, remedy)
	}
	return remedy
}

// evalError converts an error of the CEL library into one with our code and message.
func evalError(err error) error {
	if inside, ok := errors.AsType[*contentError](err); ok {
		return inside
	}
	msg := err.Error()
	var cause error
	if e, ok := errors.AsType[*types.Err](err); ok {
		msg = e.String()
	}
	if strings.HasSuffix(msg, "expr.absent") {
		// An index is resolved inside a CEL node, where decorate cannot replace it.
		msg = "undefined: the name inside [ ]"
	}
	begins := func(prefix string) bool { return strings.HasPrefix(msg, prefix) }
	if slices.ContainsFunc([]string{"undefined: ", "no such key", "index out of bounds", "no such attribute"}, begins) {
		cause = errMissing
	}
	if strings.HasSuffix(msg, "hash of unhashable type types.Bytes") { // a panic that the library has recovered
		msg = bytesKey
	}
	if most := 300; len(msg) > most { // the missing key may be very long
		msg = strings.ToValidUTF8(msg[:most], "") + "…"
	}
	if begins(tooLarge) {
		return fault.New(fault.ValueTooLarge, "%s", msg)
	}
	if begins("no such overload") {
		msg += " for values of these types"
	}
	return &fault.Error{Code: fault.TemplateError, Msg: msg, Err: cause}
}

// A budget is the remaining cost of one evaluation, shared by all expressions of a template or a tree.
type budget struct {
	cost uint64
	most uint64 // in the beginning
}

func newBudget(most uint64) *budget { return &budget{cost: most, most: most} }

func (b *budget) spend(n uint64) error {
	if n > b.cost {
		b.cost = 0
		return costExceeded(b.most)
	}
	b.cost -= n
	return nil
}
