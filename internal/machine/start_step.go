// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// startStep begins a step whose predecessors have all settled. It applies the policy
// for failed parents, then `when`, then what the kind of step requires.
func (r *Run) startStep(s *scope, i int32) {
	step := s.step(r.plan, i)
	if r.plan.Waves && step.Wave > s.wave {
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeReady})
		return
	}
	if r.parentsFailed(s, step) {
		switch step.ParentFailure {
		case plan.SkipOnParent:
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeSkipped, Flag: uint8(journal.ParentFailure)})
			return
		case plan.Propagate:
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeFailed, Code: fault.UpstreamFailure,
				Text: "not run: " + r.failedParents(s, step) + " did not complete"})
			return
		}
	}
	if !r.within(journal.StepsShare, r.steps()+1, r.limits.TotalSteps) {
		r.finalFailure(s, i, &Failure{Code: fault.StepLimit, Msg: fmt.Sprintf(
			"Maximum total steps (%d) exceeded: the run has begun %s; raise limits.max_total_steps%s", r.limits.TotalSteps, plural(r.steps(), "step"), r.treeText())}, nil)
		return
	}
	code := r.prog.code(s.g.First + i)
	if code.err != nil {
		r.finalFailure(s, i, failureOf(code.err, fault.TemplateError), nil)
		return
	}
	if code.when != nil {
		ok, f := r.evalBool(s, i, step.When, code.when.Eval)
		if f != nil {
			r.finalFailure(s, i, f, nil)
			return
		}
		if !ok {
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeSkipped, Flag: uint8(journal.ByCondition)})
			return
		}
	}
	if step.Kind != plan.Action && step.Kind != plan.Recipe {
		r.emitRunning()
	}
	switch step.Kind {
	case plan.Action:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeQueued})
	case plan.Condition:
		r.startCondition(s, i, step, code)
	case plan.Parallel:
		r.startParallel(s, i, step)
	case plan.Loop:
		r.startLoop(s, i, step, code)
	case plan.Transform:
		r.startTransform(s, i, step, code)
	case plan.Wait:
		r.startWait(s, i, step, code)
	case plan.Fail:
		r.startFail(s, i, step, code)
	case plan.Recipe:
		r.startRecipe(s, i, step)
	}
}

// parentsFailed reports whether the combined status of the predecessors is a failure
// (X121).
func (r *Run) parentsFailed(s *scope, step *plan.Step) bool {
	if s.failed < 0 && !r.plan.Drain {
		return false // fail_fast sweeps the scope instead
	}
	for _, p := range step.Preds {
		if s.steps[p-s.g.First].unsatisfied() {
			return true
		}
	}
	return false
}

// unsatisfied reports whether the step left its dependents without a result (R8).
func (st *stepState) unsatisfied() bool {
	switch st.status {
	case journal.StepFailed:
		return st.flags&flagHandled == 0
	case journal.Cancelled:
		return true
	case journal.Skipped:
		return st.reason == journal.ParentFailure
	}
	return false
}

func (r *Run) failedParents(s *scope, step *plan.Step) string {
	text, n := "", 0
	for _, p := range step.Preds {
		if !s.steps[p-s.g.First].unsatisfied() {
			continue
		}
		if n++; n > 3 {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += strconv.Quote(r.plan.Steps[p].ID)
	}
	if n > 3 {
		text += fmt.Sprintf(" and %d more", n-3)
	}
	return text
}

// env is the environment of the step's expressions.
func (r *Run) env(s *scope, i int32, step *plan.Step, vars []plan.Var) *env {
	return &env{run: r, scope: s, step: i, vars: vars,
		substitute: step.ParentFailure == plan.SubstituteDefault && r.parentsFailed(s, step)}
}

func (r *Run) evalBool(s *scope, i int32, e *plan.Expr, eval evaluator) (bool, *Failure) {
	v, err := eval(r.env(s, i, s.step(r.plan, i), e.Vars))
	if err != nil {
		return false, failureOf(err, fault.ConditionError)
	}
	b, ok := v.(bool)
	if !ok {
		return false, &Failure{Code: fault.ConditionError, Msg: fmt.Sprintf("%q gives %s, want true or false", e.Src, typeName(v))}
	}
	return b, nil
}

func (r *Run) startCondition(s *scope, i int32, step *plan.Step, code *stepCode) {
	yes, f := r.evalBool(s, i, step.Expr, code.expr.Eval)
	if f != nil {
		r.finalFailure(s, i, f, nil)
		return
	}
	taken, other := journal.ThenSide, step.Else
	if !yes {
		taken, other = journal.ElseSide, step.Then
		if step.Else == plan.None {
			taken = journal.NoSide
		}
	}
	open := step.Then
	if taken != journal.ThenSide {
		open = step.Else
	}
	if f := r.checkOpen(open); f != nil {
		r.finalFailure(s, i, f, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeOpened, Flag: uint8(taken)})
	if other != plan.None {
		// The steps of the other side are skipped (X44). That side has no scope; the
		// events are for readers.
		g, path := &r.plan.Graphs[other], s.path.Child(other, 0)
		for k := range g.N {
			ev := journal.Event{Kind: journal.EvNodeSkipped, Flag: uint8(journal.BranchNotTaken), Step: g.First + k, Path: path}
			r.emit(nil, ev)
		}
	}
}

func (r *Run) startParallel(s *scope, i int32, step *plan.Step) {
	if f := r.checkOpen(step.Branches...); f != nil {
		r.finalFailure(s, i, f, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeOpened, N: int64(len(step.Branches))})
}

func (r *Run) startTransform(s *scope, i int32, step *plan.Step, code *stepCode) {
	var v any
	var err error
	if code.expr != nil {
		v, err = code.expr.Eval(r.env(s, i, step, step.Expr.Vars))
	} else {
		v, err = code.params.Eval(r.env(s, i, step, step.ParamRef))
	}
	if err != nil {
		r.finalFailure(s, i, failureOf(err, fault.TemplateError), nil)
		return
	}
	raw, f := r.encode(v)
	if f != nil {
		r.finalFailure(s, i, f, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Data: raw})
}

// encode encodes the result of an expression as an output.
func (r *Run) encode(v any) ([]byte, *Failure) {
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return nil, failureOf(err, fault.TemplateError)
	}
	if f := r.checkOutput(raw); f != nil {
		return nil, f
	}
	return raw, nil
}

func (r *Run) startLoop(s *scope, i int32, step *plan.Step, code *stepCode) {
	if step.Conditional() { // whether there is an iteration is decided as between two
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeOpened, N: -1})
		return
	}
	v, err := code.expr.Eval(r.env(s, i, step, step.Expr.Vars))
	if err != nil {
		r.finalFailure(s, i, failureOf(err, fault.TemplateError), nil)
		return
	}
	if list, ok := v.([]any); ok {
		raw, f := r.encode(v)
		if f == nil {
			f = r.checkLoop(s, i, int64(len(list)), int64(len(list)))
		}
		if f == nil {
			f = r.checkMemory(len(raw) + itemBytes*len(list))
		}
		if f != nil {
			r.finalFailure(s, i, f, nil)
			return
		}
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeOpened, N: int64(len(list)), Data: raw})
		return
	}
	hash := fileHash(v)
	if l, ok := v.(jsonx.Large); ok && l.List {
		hash = l.Hash
		if f := r.checkLoop(s, i, l.Size, l.Size); f != nil {
			r.finalFailure(s, i, f, nil)
			return
		}
	}
	if hash == "" {
		r.finalFailure(s, i, &Failure{Code: fault.TemplateError, Msg: fmt.Sprintf(
			"%q gives %s, want a list or a file", step.Expr.Src, typeName(v))}, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeOpened, N: -1, Text: hash})
}

// checkLoop checks the number of items of a loop, and whether the steps of the added
// items fit in the steps that are left. It is called when the loop opens and when it
// reads more items.
func (r *Run) checkLoop(s *scope, i int32, items, added int64) *Failure {
	lim, each := r.limits, r.prog.code(s.g.First+i).stepsPerItem
	if items > lim.LoopItems {
		return &Failure{Code: fault.ItemLimit, Msg: fmt.Sprintf(
			"the loop has %d items, the limit is %d; raise limits.max_loop_items", items, lim.LoopItems)}
	}
	total := r.steps() + added*each
	if s.steps[i].at == 0 {
		total++ // the loop itself
	}
	if !r.within(journal.StepsShare, total, lim.TotalSteps) {
		return &Failure{Code: fault.StepLimit, Msg: fmt.Sprintf(
			"Maximum total steps (%d) exceeded: %s of %s would make %s; raise limits.max_total_steps%s",
			lim.TotalSteps, plural(added, "item"), plural(each, "step"), plural(total, "step"), r.treeText())}
	}
	return nil
}

// plural returns "1 step" or "3 steps".
func plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + one + "s"
}

// scopeSteps is how many steps a scope of a graph begins when none fails. A condition
// counts its shorter side. A parallel step that does not wait for all branches counts
// the shortest. A step with `when` counts itself only.
func scopeSteps(p *plan.Plan, graph int32) (n int64) {
	if graph == plan.None {
		return 0
	}
	g := &p.Graphs[graph]
	for k := range g.N {
		n++
		switch st := &p.Steps[g.First+k]; {
		case st.When != nil:
		case st.Kind == plan.Condition:
			n += min(scopeSteps(p, st.Then), scopeSteps(p, st.Else))
		case st.Kind == plan.Parallel:
			n += branchSteps(p, st)
		}
	}
	return n
}

func branchSteps(p *plan.Plan, st *plan.Step) (n int64) {
	for k, branch := range st.Branches {
		b := scopeSteps(p, branch)
		if st.WaitFor == plan.WaitAll {
			n += b
		} else if k == 0 || b < n {
			n = b
		}
	}
	return n
}

// fileHash recognises the forms that a file has in values: its hash, or an object that
// contains one (an entry of files, the output of an action that makes a file).
func fileHash(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) == len("sha256_")+64 && v[:7] == "sha256_" {
			return v
		}
	case map[string]any:
		for _, key := range [...]string{"hash", "file"} {
			if h, ok := v[key].(string); ok {
				return fileHash(h)
			}
		}
	}
	return ""
}

func (r *Run) startWait(s *scope, i int32, step *plan.Step, code *stepCode) {
	due := int64(0)
	switch {
	case step.Signal != "":
		if step.SignalMS > 0 {
			due = r.clock + step.SignalMS*1000
		}
	case code.expr != nil:
		v, err := code.expr.Eval(r.env(s, i, step, step.Expr.Vars))
		if err != nil {
			r.finalFailure(s, i, failureOf(err, fault.TemplateError), nil)
			return
		}
		until, ok := r.parseWaitEnd(v)
		if !ok {
			r.finalFailure(s, i, &Failure{Code: fault.TemplateError, Msg: fmt.Sprintf(
				"%q gives %s, want a time such as 2026-01-31T09:00:00Z or a duration such as 90s", step.Expr.Src, typeName(v))}, nil)
			return
		}
		due = max(until, r.clock+1)
	default:
		due = max(r.clock+step.DurationMS*1000, r.clock+1)
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeWaiting, N: due, Text: step.Signal})
	if step.Signal != "" {
		for k := range r.signals {
			if r.signals[k].name == step.Signal {
				r.signalled(s, i, r.signals[k].val.raw)
				return
			}
		}
	}
}

// maxWaitMS is 278 years, longer than any ttl. Longer waits are cut to it, because UTC
// µs would overflow.
const maxWaitMS = 1 << 43

// parseWaitEnd returns when a wait ends: at a point in time, or after a duration from
// now.
func (r *Run) parseWaitEnd(v any) (us int64, ok bool) {
	text, _ := v.(string)
	if ms, err := plan.ParseDuration(text); err == nil {
		return r.clock + min(ms, maxWaitMS)*1000, true
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, false
	}
	return at.UnixMicro(), true
}

func (r *Run) startFail(s *scope, i int32, step *plan.Step, code *stepCode) {
	f := &Failure{Code: fault.Code(step.Code), Msg: "the recipe ends here"}
	if f.Code == "" {
		f.Code = fault.StepFailed
	}
	if code.expr != nil {
		v, err := code.expr.Eval(r.env(s, i, step, step.Expr.Vars))
		if err != nil {
			f = failureOf(err, fault.TemplateError)
		} else {
			f.Msg = messageText(v)
		}
	}
	r.finalFailure(s, i, f, nil)
}
