// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/sanitize"
)

// handleRetry opens a new generation of a run that has ended (R5, X119). It resets the
// steps that failed, were cancelled or never ran. With a step to start from, it resets
// that step and its dependents; with edited input, the steps that read it. All other
// steps keep their results.
func (r *Run) handleRetry(in *Input) {
	if c := r.start.Child; c != nil {
		r.turn.Err = fault.New(fault.Conflict, "run %s is a child run of %s; retry run %s, which starts it again", r.start.Run, c.Parent, c.Root)
		return
	}
	if !r.status.Terminal() && !mutation.Terminal {
		r.turn.Err = fault.New(fault.Conflict, "run %s is %s; only a run that has ended can be retried", r.start.Run, r.statusText())
		return
	}
	g := &resetSet{run: r, index: make(map[stepInstance]int)}
	var named reset // the step to start from
	ev := journal.Event{Kind: journal.EvRunRetried, N: int64(r.gen) + 1, Text: in.Name}
	if in.Name != "" {
		ref, err := journal.ParseRef(r.plan, in.Name)
		if err != nil {
			r.turn.Err = err
			return
		}
		if r.turn.Err = g.addFrom(ref); r.turn.Err != nil {
			return
		}
		named.scope, named.step = r.at(ref)
	}
	if len(in.Data) > 0 {
		fields, err := editedFields(in.Data)
		if err != nil {
			r.turn.Err = err
			return
		}
		if r.turn.Err = r.checkEdit(fields); r.turn.Err != nil {
			return
		}
		ev.Data = in.Data
		g.addReaders(fields)
	}
	if in.Kind == InEdit && len(in.Data) == 0 {
		r.turn.Err = fault.New(fault.Usage, "an edit needs the input fields to replace")
		return
	}
	var wanted plan.Limits
	if in.Limits != nil {
		wanted = *in.Limits
	}
	limits, err := r.raisedLimits(wanted)
	if err != nil {
		r.turn.Err = err
		return
	}
	g.addFailed(r.root)
	g.addRebound()
	if len(g.resets) == 0 && r.status == journal.RunCompleted && in.Kind == InRetry {
		r.turn.Err = fault.New(fault.Conflict, "run %s has completed; name the step to run again from", r.start.Run)
		return
	}
	resets := g.ordered()
	reserved, expected := r.nextReservation(resets)
	if reserved > in.Available {
		r.turn.Err = in.bound().Refuse(reserved, in.Available)
		return
	}
	r.emitRun(ev)
	if limits != r.limits {
		r.emitRun(journal.Event{Kind: journal.EvRunLimits, Data: journal.EncodeLimits(limits)})
	}
	if reserved > 0 {
		r.emitRun(journal.Event{Kind: journal.EvCreditsReserved, N: reserved, M: expected})
	}
	r.enqueue(in)
	r.emitResets(g, resets, named)
}

// emitResets resets steps. The child run of the one that is named does not go on.
func (r *Run) emitResets(g *resetSet, resets []reset, named reset) {
	for _, x := range resets {
		flag := uint8(x.scope.steps[x.step].status)
		n := int64(0)
		switch {
		case x.reopen:
			n = 1
		case x.scope == named.scope && x.step == named.step && x.scope.lastRuns[x.step] != "":
			n = 2
		}
		r.emitStep(x.scope, x.step, journal.Event{Kind: journal.EvNodeInvalidated, Flag: flag, N: n, M: g.boundBefore(x)})
	}
}

// raisedLimits returns the run's limits with those that a retry asks for. They can
// only grow, because what a run has already used cannot be taken back.
func (r *Run) raisedLimits(wanted plan.Limits) (plan.Limits, error) {
	limits, cost := r.limits, journal.ExpressionCost(r.limits)
	for _, f := range []struct {
		name string
		want int64
		have *int64
	}{
		{"limits.max_total_steps", wanted.TotalSteps, &limits.TotalSteps},
		{"limits.max_loop_items", wanted.LoopItems, &limits.LoopItems},
		{"limits.memory_limit_mb", wanted.MemoryBytes, &limits.MemoryBytes},
		{"limits.max_expression_cost", wanted.ExpressionCost, &cost},
	} {
		switch {
		case f.want == 0:
		case f.want < *f.have:
			return limits, fault.New(fault.InputInvalid, "%s cannot be lowered by a retry: the run has it higher already", f.name)
		default:
			*f.have = f.want
		}
	}
	if cost != journal.ExpressionCost(limits) {
		limits.ExpressionCost = cost
	}
	return limits, nil
}

// checkEdit refuses an edit with what the input policy of the recipe refuses or removes: a retry removes nothing, because
// what it replaces is what was asked for (R26).
func (r *Run) checkEdit(fields map[string]any) error {
	if r.plan.InputPolicy == "" {
		return nil
	}
	_, err := sanitize.Reject.Apply(fields)
	return err
}

func editedFields(data []byte) (map[string]any, error) {
	v, err := jsonx.Decode(data, journal.InlineLimits)
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "the edited input is not JSON: %v", err)
	}
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return nil, fault.New(fault.InputInvalid, "the edited input is %s, want an object of fields to replace", typeName(v))
	}
	if canonical, err := jsonx.Canonical(v); err == nil && jsonx.Reserved(canonical) {
		return nil, journal.ErrReserved("the edited input")
	}
	return m, nil
}

// A resetSet collects the step instances that a retry resets.
type resetSet struct {
	run    *Run
	resets []reset
	index  map[stepInstance]int // into resets
}

type stepInstance struct {
	scope *scope
	step  int32
}

type reset struct {
	scope  *scope
	step   int32
	reopen bool // the composite keeps its scopes, and in them only the reset steps run again
}

func (g *resetSet) find(s *scope, i int32) int {
	if k, ok := g.index[stepInstance{s, i}]; ok {
		return k
	}
	return -1
}

// add resets a step instance and reopens the steps that own it.
func (g *resetSet) add(s *scope, i int32, reopen bool) {
	if k := g.find(s, i); k >= 0 {
		g.resets[k].reopen = g.resets[k].reopen && reopen
		return
	}
	g.index[stepInstance{s, i}] = len(g.resets)
	g.resets = append(g.resets, reset{s, i, reopen})
	if s.parent != nil {
		own := s.owner - s.parent.g.First
		c := s.parent.comps[own]
		g.add(s.parent, own, c == nil || !c.lookedAt(s))
		if !mutation.Dependents {
			g.addDependents(s.parent, own)
		}
	}
}

// addDependents resets every step of the scope that depends on a reset step.
func (g *resetSet) addDependents(s *scope, i int32) {
	for _, succ := range s.step(g.run.plan, i).Succs {
		k := succ - s.g.First
		if g.find(s, k) < 0 {
			g.add(s, k, false)
			g.addDependents(s, k)
		}
	}
}

// addFailed resets the steps that did not complete, and those that were compensated.
func (g *resetSet) addFailed(s *scope) {
	for k := range s.steps {
		i, st := int32(k), &s.steps[k]
		switch {
		case st.flags&flagCompensated != 0:
			g.add(s, i, false)
			g.addDependents(s, i)
			continue
		case st.status == journal.Cancelled, st.status == journal.StepFailed && st.flags&flagHandled == 0,
			st.status == journal.Skipped && (st.reason == journal.ParentFailure || st.reason == journal.RunEnded || st.reason == journal.BranchLost):
		default:
			continue
		}
		c := s.comps[i]
		reopen := c != nil && c.reopenable(st.status)
		g.add(s, i, reopen)
		// Dependents that ran with '' in place of this step's output are reset too.
		g.addDependents(s, i)
		if !reopen {
			continue
		}
		for _, child := range c.sortedChildren() {
			g.addFailed(child)
		}
	}
}

// reopenable reports whether the scopes of a composite are still in memory, so that
// only the failed steps inside need to run again. A loop always keeps its position. A
// fallback is reopened if its step was cancelled; if the step failed, the step starts
// over.
func (c *composite) reopenable(status journal.Status) bool {
	switch c.kind {
	case loopComposite:
		return true
	case fallbackComposite:
		return status == journal.Cancelled && len(c.children) > 0
	case compensationComposite:
		return false
	}
	return len(c.children) > 0
}

// addFrom resets a step and all its dependents.
func (g *resetSet) addFrom(ref journal.Ref) error {
	s, i := g.run.at(ref)
	if s == nil || !s.reachable() {
		return fault.New(fault.StepNotFound, "step %q is not in memory any more: what surrounds it has completed; name the step that owns it",
			journal.StepPath(g.run.plan, ref))
	}
	if !s.steps[i].status.Settled() {
		return fault.New(fault.Conflict, "step %q has not run", journal.StepPath(g.run.plan, ref))
	}
	g.add(s, i, false)
	g.addDependents(s, i)
	return nil
}

// reachable reports whether the owners of the scope and of all scopes around it are
// still in memory. A scope that is kept only for compensation cannot continue, because
// the composite that would receive its outcome is gone.
func (s *scope) reachable() bool {
	for ; s.parent != nil; s = s.parent {
		if !s.owned() {
			return false
		}
	}
	return true
}

// addReaders resets every root step that reads one of the changed fields, itself or in
// a scope it owns.
func (g *resetSet) addReaders(fields map[string]any) {
	root := g.run.root
	for k := range root.steps {
		if root.steps[k].status.Settled() && g.run.prog.readsFields(root.g.First+int32(k), fields) {
			g.add(root, int32(k), false)
			g.addDependents(root, int32(k))
		}
	}
}

// ordered sorts the resets: outer scopes before inner ones, and a step before its
// successors, so that counters never fall below zero. Earlier waves come before later
// ones, because each reset looks for the first wave among those before it. It leaves
// out steps whose owner is reset as a whole.
func (g *resetSet) ordered() []reset {
	slices.SortStableFunc(g.resets, func(a, b reset) int {
		if d := len(a.scope.path) - len(b.scope.path); d != 0 {
			return d
		}
		if a.scope != b.scope {
			if a.scope.path < b.scope.path {
				return -1
			}
			return 1
		}
		if p := g.run.plan; p.Waves {
			if d := a.scope.step(p, a.step).Wave - b.scope.step(p, b.step).Wave; d != 0 {
				return int(d)
			}
		}
		return int(a.step - b.step)
	})
	for k := range g.resets {
		g.index[stepInstance{g.resets[k].scope, g.resets[k].step}] = k
	}
	// A step that must wait again, for a reset predecessor or for its wave, starts over
	// instead of being reopened. The resets of a scope are sorted by wave, so the first
	// one belongs to the first wave that opens again.
	first := 0
	for k := range g.resets {
		x := &g.resets[k]
		if x.scope != g.resets[first].scope {
			first = k
		}
		step := x.scope.step(g.run.plan, x.step)
		for _, p := range step.Preds {
			x.reopen = x.reopen && (g.find(x.scope, p-x.scope.g.First) < 0 || mutation.Reopen)
		}
		if g.run.plan.Waves && step.Wave > x.scope.step(g.run.plan, g.resets[first].step).Wave {
			x.reopen = false
		}
	}
	// The scopes of a step that starts over are dropped with it.
	var kept []reset
	for _, x := range g.resets {
		if !g.ownerReset(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// ownerReset reports whether a step that owns the step instance starts over.
func (g *resetSet) ownerReset(x reset) bool {
	for s := x.scope; s.parent != nil; s = s.parent {
		if k := g.find(s.parent, s.owner-s.parent.g.First); k >= 0 && !g.resets[k].reopen {
			return true
		}
	}
	return false
}

// readsFields reports whether a step, or a step in a scope it owns, reads one of the
// fields.
func (g *Program) readsFields(step int32, fields map[string]any) bool {
	st, code := &g.plan.Steps[step], g.code(step)
	reads := func(refs []expr.Ref) bool {
		for _, ref := range refs {
			switch ref.Name {
			case "input", "inputs", "parameters":
				if len(ref.Path) == 0 {
					return true
				}
				if _, changed := fields[ref.Path[0]]; changed {
					return true
				}
			}
		}
		return false
	}
	for _, p := range code.programs() {
		if p != nil && reads(p.Refs()) {
			return true
		}
	}
	for _, t := range []*expr.Tree{code.params, code.rounds.initial} {
		if t != nil && reads(t.Refs()) {
			return true
		}
	}
	for _, graph := range st.Graphs() {
		gr := &g.plan.Graphs[graph]
		for k := range gr.N {
			if g.readsFields(gr.First+k, fields) {
				return true
			}
		}
	}
	return false
}

func (r *Run) applyRetried(ev *journal.Event) error {
	r.gen = uint32(ev.Generation())
	r.status, r.phase, r.verdict = journal.RunDispatching, phaseOpen, 0
	r.code, r.message, r.failedStep, r.failures = "", "", -1, false
	r.ttlDue = ev.At + r.plan.TTLMS*1000
	r.started, r.belowSteps = 0, 0
	if len(ev.Data) == 0 {
		return nil
	}
	r.valueMem += int64(len(ev.Data))
	fields, err := editedFields(ev.Data)
	if err != nil {
		return errImpossible(ev, err.Error())
	}
	r.edits = append(r.edits, ev.Seq)
	if r.start != nil { // otherwise Supply does it
		r.patch(fields)
	}
	return nil
}

// patch replaces fields of the run's parameters.
func (r *Run) patch(fields map[string]any) {
	st := *r.start
	st.Parameters = make(map[string]any, len(fields))
	for k, v := range r.start.Parameters {
		st.Parameters[k] = v
	}
	for k, v := range fields {
		st.Parameters[k] = v
	}
	r.start, r.input = &st, newInputs(&st, r.plan)
}

// applyInvalidated resets a settled step instance.
func (r *Run) applyInvalidated(s *scope, i int32, ev *journal.Event) error {
	st, step := &s.steps[i], s.step(r.plan, i)
	before, err := r.boundAgain(s, i, ev)
	if err != nil {
		return err
	}
	reopen := ev.Reopened()
	if s.live == 0 {
		r.reopenScope(s)
	}
	s.live++
	s.state, s.reason, s.cursor, s.downstream = scopeOpen, 0, 0, nil
	if s.failed == s.g.First+i || s.failed >= 0 && s.steps[s.failed-s.g.First].status != journal.StepFailed {
		s.failed = -1
	}
	for _, succ := range step.Succs {
		k := succ - s.g.First
		s.steps[k].waiting++
		r.refreshStep(s, k)
	}
	if r.plan.Waves {
		r.recountWave(s) // this step is not counted yet: see resetSet.ordered
	}
	status := journal.Pending
	if st.status == journal.Completed {
		status = journal.Invalidated
		r.compensations = slices.DeleteFunc(r.compensations, func(u journal.Ref) bool { return u == s.ref(i) })
	}
	if out := s.outs[i]; out != nil {
		r.release(out)
		delete(s.outs, i)
		if f := s.frame; step.Slot >= 0 && int(step.Slot) < len(f.slots) {
			r.replace(&f.slots[step.Slot], before)
		}
	}
	if ev.Anew() {
		delete(s.lastRuns, i)
	}
	r.dropErr(s, i)
	if st.flags&flagCompensated != 0 {
		st.flags &^= flagUnknown // its compensation has undone whatever happened
	}
	if st.flags&flagUnknown == 0 {
		st.keyGen, st.keyTry = uint16(r.gen), 0
	}
	flags := st.flags & flagUnknown
	if reopen {
		flags |= st.flags & flagFallback
	}
	attempt, keyGen, keyTry, waiting, pos := st.attempt, st.keyGen, st.keyTry, st.waiting, st.pos
	*st = stepState{status: status, flags: flags, attempt: attempt, keyGen: keyGen, keyTry: keyTry, waiting: waiting, pos: pos}
	if c := s.comps[i]; reopen && c != nil {
		r.begin(s, i, journal.Running)
		c.ended, c.err, c.issued, c.inner = false, nil, false, childOpen
		r.refreshComposite(c)
	} else {
		r.dropComposite(s, i)
	}
	r.refreshStep(s, i)
	return nil
}

// reopenScope counts a settled scope as open again, for itself and its owner.
func (r *Run) reopenScope(s *scope) {
	r.alive++
	r.refreshRun()
	if s.parent == nil {
		return
	}
	c := s.parent.comps[s.owner-s.parent.g.First]
	c.open++
	s.parent.openChildren++
	switch c.kind {
	case parallelComposite:
		b := &c.branches[s.g.Ordinal]
		switch b.status {
		case childOK:
			c.nOK--
		case childFailed:
			c.nFailed--
		}
		if c.winner == s.g.Ordinal {
			c.winner = -1
		}
		r.release(b.out)
		*b = branch{}
	case loopComposite:
		if s.outcome() == childFailed {
			c.loop.nFailed--
		}
		c.loop.completed = slices.DeleteFunc(c.loop.completed, func(n int64) bool { return n == s.ordinal })
		s.held = c.open > s.parent.step(r.plan, c.step).Concurrency || len(c.loop.completed) > 0
	}
	r.replace(&s.out, nil)
	r.refreshComposite(c)
}

// recountWave finds the first wave of a scope that has not settled.
func (r *Run) recountWave(s *scope) {
	waves := r.prog.waves[s.graph]
	for w := range waves {
		s.wave, s.inWave = int32(w), 0
		for _, k := range waves[w] {
			if !s.steps[k].status.Settled() {
				s.inWave++
			}
		}
		if s.inWave > 0 {
			break
		}
	}
	for k := range s.steps {
		s.steps[k].flags &^= flagReady
		r.refreshStep(s, int32(k))
	}
}

// properties lists the top-level properties of a JSON Schema, sorted.
func properties(schema []byte) []string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
