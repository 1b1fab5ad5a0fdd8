// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A loop with rounds decides something between its iterations: what they have accumulated,
// and whether another one runs. An iteration that has completed stays in memory until its
// expressions have been evaluated. What they gave is the event EvNodeRound, so that a
// replay evaluates nothing; applying it drops the iteration.

// maxAccumulated is the size of the largest value that a loop accumulates. It is what
// expressions can compute.
const maxAccumulated = expr.MaxResult

// accumulatedLimits bound what a loop accumulates. Each iteration may nest it one level deeper,
// and it must be readable in the output of the loop, and of loops around that.
var accumulatedLimits = jsonx.Limits{Bytes: maxAccumulated, Depth: journal.InlineLimits.Depth - 32}

// roundsCode is the compiled code of a loop's rounds; a program is nil if there is none.
type roundsCode struct {
	while, until, next *expr.Program
	initial            *expr.Tree
}

func (g *Program) compileRounds(rounds *plan.Rounds) (c roundsCode, err error) {
	if rounds == nil {
		return c, nil
	}
	if c.while, err = g.compile(rounds.While); err != nil {
		return c, err
	}
	if c.until, err = g.compile(rounds.Until); err != nil {
		return c, err
	}
	if c.next, err = g.compile(rounds.Next); err != nil || c.next == nil {
		return c, err
	}
	c.initial, err = expr.CompileTreeWithin(rounds.Initial, g.cost)
	return c, err
}

// undecided reports whether a loop must evaluate something before it can go on or end: the
// initial value, or the expressions of an iteration that has completed.
func (l *loopState) undecided() bool {
	return len(l.completed) > 0 || l.acc == nil && l.rounds.Accumulates()
}

// advanceRounds makes the next decision of a loop with rounds; ok is false if there is
// none, because an iteration can open or the loop can be joined.
func (r *Run) advanceRounds(s *scope, i int32, step *plan.Step, c *composite) (ok bool) {
	l, code := c.loop, &r.prog.code(s.g.First+i).rounds
	switch {
	case l.done && len(l.completed) == 0:
		return false
	case l.acc == nil && l.rounds.Accumulates():
		r.emitInitial(s, i, c, code)
		return true
	case len(l.completed) > 0:
		r.emitRound(s, i, c, code)
		return true
	case step.Expr != nil:
		return false
	}
	if code.while != nil {
		before := &env{run: r, scope: r.nextIteration(c), step: i, vars: l.rounds.While.Vars, round: true}
		goesOn, f := evalCondition("while", code.while, before)
		if f != nil {
			r.abortStep(s, i, f)
			return true
		}
		if !goesOn {
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeRound, N: -1, Flag: 1})
			return true
		}
	}
	if l.next >= l.have {
		r.abortStep(s, i, l.unmet())
		return true
	}
	return false
}

// unmet is the failure of a loop that has run as many iterations as it may.
func (l *loopState) unmet() *Failure {
	what := "its while is still true"
	if l.rounds.Until != nil {
		what = "its until is still false"
	}
	msg := fmt.Sprintf("the loop has run %s, as many as maxIterations permits, and %s", plural(l.next, "iteration"), what)
	if l.nFailed > 0 {
		msg += fmt.Sprintf("; %d of them failed, the first: %s: %s", l.nFailed, l.firstErr.code, cutText(l.firstErr.msg))
	}
	return &Failure{Code: fault.IterationLimit, Msg: msg}
}

// nextIteration is a scope in which the expression `while` finds the variables of the
// iteration that would be next. It is not part of the state.
func (r *Run) nextIteration(c *composite) *scope {
	body := c.scope.step(r.plan, c.step).Body
	s := &scope{path: c.scope.path.Child(body, c.loop.next), graph: body, g: &r.plan.Graphs[body], parent: c.scope,
		owner: c.scope.g.First + c.step, ordinal: c.loop.next}
	s.frame = s
	return s
}

// emitInitial emits the value that a loop accumulates, before the first iteration.
func (r *Run) emitInitial(s *scope, i int32, c *composite, code *roundsCode) {
	v, err := code.initial.Eval(r.env(s, i, s.step(r.plan, i), c.loop.rounds.InitialRef))
	raw, f := r.encodeAccumulated("initial", c.loop, v, err)
	if f != nil {
		r.abortStep(s, i, f)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeRound, N: -1, Data: raw})
}

// emitRound evaluates the expressions of the iteration that completed first of those that
// wait for it.
func (r *Run) emitRound(s *scope, i int32, c *composite, code *roundsCode) {
	l := c.loop
	ordinal := l.completed[0]
	ev := journal.Event{Kind: journal.EvNodeRound, N: ordinal}
	e := &env{run: r, scope: c.children[ordinal], step: i, round: true}
	if code.next != nil {
		e.vars = l.rounds.Next.Vars
		v, err := code.next.Eval(e)
		raw, f := r.encodeAccumulated(fmt.Sprintf("after iteration %d: accumulate", ordinal), l, v, err)
		if f != nil {
			r.abortStep(s, i, f)
			return
		}
		ev.Data, e.acc = raw, newValue(0, raw)
	}
	if code.until != nil {
		e.vars = l.rounds.Until.Vars
		met, f := evalCondition(fmt.Sprintf("after iteration %d: until", ordinal), code.until, e)
		if f != nil {
			r.abortStep(s, i, f)
			return
		}
		if met {
			ev.Flag = 1
		}
	}
	r.emitStep(s, i, ev)
}

// evalCondition evaluates a condition of a loop.
func evalCondition(name string, p *expr.Program, e *env) (bool, *Failure) {
	v, err := p.Eval(e)
	if err != nil {
		f := failureOf(err, fault.ConditionError)
		f.Msg = name + ": " + f.Msg
		return false, f
	}
	b, ok := v.(bool)
	if !ok {
		return false, &Failure{Code: fault.ConditionError, Msg: fmt.Sprintf("%s: it gives %s, want true or false", name, typeName(v))}
	}
	return b, nil
}

// encodeAccumulated encodes the next value that a loop accumulates.
func (r *Run) encodeAccumulated(name string, l *loopState, v any, err error) ([]byte, *Failure) {
	var raw []byte
	if err == nil {
		raw, err = jsonx.Canonical(v)
	}
	if err != nil {
		f := failureOf(err, fault.TemplateError)
		f.Msg = name + ": " + strings.TrimPrefix(f.Msg, ": ")
		return nil, f
	}
	if len(raw) > maxAccumulated {
		return nil, &Failure{Code: fault.ValueTooLarge, Msg: fmt.Sprintf("%s: the value has %d bytes, and a loop accumulates at most %d; the outputs of all iterations are in its output",
			name, len(raw), maxAccumulated)}
	}
	if jsonx.Valid(raw, accumulatedLimits) != nil { // only that can be wrong with canonical JSON of this size
		return nil, &Failure{Code: fault.ValueTooLarge, Msg: fmt.Sprintf("%s: the value is nested more than %d deep", name, accumulatedLimits.Depth)}
	}
	return raw, r.checkMemory(len(raw) - int(l.acc.size()))
}

// applyRound stores what the loop has accumulated, and drops the iteration that was looked
// at.
func (r *Run) applyRound(s *scope, i int32, ev *journal.Event) error {
	c := s.comps[i]
	if c == nil || c.loop == nil || c.loop.rounds == nil {
		return errImpossible(ev, "no loop decides between its iterations")
	}
	l, ordinal := c.loop, ev.Item()
	if ordinal >= 0 && (len(l.completed) == 0 || l.completed[0] != ordinal) {
		return errImpossible(ev, "the loop is at another iteration")
	}
	if len(ev.Data) > 0 {
		r.replace(&l.acc, newValue(ev.Seq, ev.Data))
		r.spill(l)
	}
	l.done = l.done || ev.Last()
	if ordinal >= 0 {
		l.completed = l.completed[1:]
		if ended := c.children[ordinal]; ended != nil {
			if !ended.g.Compensates {
				r.dropScope(ended)
			}
			r.openNext(c)
		}
	}
	r.refreshComposite(c)
	return nil
}

// openNext lets the next held iteration continue, if no other one is running.
func (r *Run) openNext(c *composite) {
	if c.ended || c.open == 0 {
		return
	}
	var next *scope
	for _, child := range c.sortedChildren() {
		switch {
		case child.live == 0 || child.state != scopeOpen:
		case !child.held:
			return
		case next == nil:
			next = child
		}
	}
	if next != nil {
		next.held = false
		r.refreshTree(next)
	}
}

// spill releases the outputs of the iterations if they, with what the loop has
// accumulated, do not fit in an event. Each output adds a comma; a missing one is written
// as null.
func (r *Run) spill(l *loopState) {
	if !l.spilled && l.outBytes+5*int64(len(l.outs))+l.acc.size() > maxInline {
		r.releaseOuts(l)
		l.spilled = true
	}
}

// looksAt reports whether the loop must look at an iteration that has settled before it
// goes on.
func (c *composite) looksAt(status childStatus) bool {
	return c.loop != nil && c.loop.rounds != nil && status == childOK
}

// lookedAt reports whether a loop has decided something after the iteration, which then
// cannot run again by itself.
func (c *composite) lookedAt(s *scope) bool {
	return c.loop != nil && c.loop.rounds != nil && s.live == 0 && s.outcome() == childOK && !slices.Contains(c.loop.completed, s.ordinal)
}

// withAccumulated is the output of the loop, given the list of the outputs of its
// iterations.
func (l *loopState) withAccumulated(list []byte) []byte {
	if !l.rounds.Accumulates() {
		return list
	}
	out := append([]byte(`{"outputs":`), list...)
	out = append(append(out, `,"value":`...), l.acc.raw...)
	return append(out, '}')
}

// accumulated is what the loop around an expression has accumulated.
func (e *env) accumulated(v *plan.Var) *value {
	if e.acc != nil {
		return e.acc
	}
	for s := e.scope; s != nil; s = s.parent {
		if s.graph != v.Graph || s.parent == nil {
			continue
		}
		if c := s.parent.comps[s.owner-s.parent.g.First]; c != nil && c.loop != nil {
			return c.loop.acc
		}
		return nil
	}
	return nil
}
