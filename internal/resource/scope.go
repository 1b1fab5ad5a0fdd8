// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// A scope is one running instance of a graph, or the side of a condition that was not
// taken.
type scope struct {
	path   journal.Path
	graph  int32
	g      *plan.Graph
	parent *scope // nil for the root
	owner  int32  // local index in parent
	inside map[*scope]struct{}
	steps  []step
	open   int  // steps that have not settled, as far as they are known
	deep   int  // of those, and of those in the scopes inside
	keep   bool // it stays when all its steps have settled
	undo   bool // it is part of a compensation, which counts for nothing
	// partial is set for an iteration that was not kept and is open again. Of its steps only
	// those are known that have had an event since.
	partial bool
	skipped bool // the side that was not taken
}

// A step is one step instance. Times are UTC µs, 0 = none.
type step struct {
	status   journal.Status
	reason   journal.Reason
	seen     bool // it is known: false only in a partial scope
	handled  bool // its failure ends nothing else
	owns     bool // it is open only for what is inside it
	unfunded bool
	cached   bool // its output is that of an earlier attempt
	attempt  uint32
	retries  int64 // tries after the first
	began    int64
	ended    int64
	micros   int64 // how long it took
	due      int64 // when it wakes up or is tried again
	settled  uint64
	note     string // the signal or the provider that it waits for, or why it is blocked
	run      string // its child run, or the external job that it waits for
	cost     ledger.Amount
	charged  ledger.Amount // to be counted when it completes
	err      *Error
	output   []byte

	weight int64 // steps it stands for
	done   int64 // of those: settled
	forced int64 // of those: counted because it settled itself
	gone   tally // settled steps inside it that are not kept
}

// A tally counts settled steps.
type tally struct{ all, completed int64 }

func (t *tally) add(other tally, sign int64) {
	t.all += sign * other.all
	t.completed += sign * other.completed
}

// at returns the scope that an event is about. A scope that nothing has opened is an
// iteration that was not kept, or the side of a condition that was not taken.
func (r *Run) at(ev *journal.Event) (*scope, error) {
	if s := r.scopes[ev.Path]; s != nil {
		if ev.Step < s.g.First || ev.Step >= s.g.First+s.g.N {
			return nil, r.noScope(ev)
		}
		return s, nil
	}
	if len(r.scopes) == 0 {
		return nil, fault.New(fault.StoreCorrupt, "run %s: event %d comes before run.started", r.id, ev.Seq)
	}
	return r.again(ev, ev.Path, r.plan.Steps[ev.Step].Graph)
}

// again returns the scope of a path that is not kept, and opens those around it.
func (r *Run) again(ev *journal.Event, path journal.Path, graph int32) (*scope, error) {
	var buf [8]journal.Level
	levels, ok := path.Levels(r.plan, buf[:0])
	if !ok || len(levels) == 0 || levels[len(levels)-1].Graph != graph {
		return nil, r.noScope(ev)
	}
	owner, ok := journal.Owner(r.plan, path)
	if !ok {
		return nil, r.noScope(ev)
	}
	if r.scopes[owner.Path] == nil {
		if _, err := r.again(ev, owner.Path, r.plan.Steps[owner.Step].Graph); err != nil {
			return nil, err
		}
	}
	s := r.open(path, graph)
	s.opens(-s.open)
	if s.skipped = ev.NotTaken(); s.skipped {
		return s, nil
	}
	s.partial = true
	for i := range s.steps {
		s.steps[i].seen = false
	}
	return s, nil
}

func (r *Run) noScope(ev *journal.Event) error {
	return fault.New(fault.StoreCorrupt, "run %s: event %d (%s) names a step that the plan does not have there", r.id, ev.Seq, ev.Name())
}

// open opens a scope; one that was open at the path is forgotten.
func (r *Run) open(path journal.Path, graph int32) *scope {
	path = journal.Path(strings.Clone(string(path)))
	if old := r.scopes[path]; old != nil {
		r.drop(old)
	}
	g := &r.plan.Graphs[graph]
	s := &scope{path: path, graph: graph, g: g, steps: make([]step, g.N), keep: !r.many[graph]}
	for i := range s.steps {
		s.steps[i] = step{seen: true, weight: r.own[g.First+int32(i)]}
	}
	if owner, ok := journal.Owner(r.plan, path); ok {
		s.parent = r.scopes[owner.Path]
		s.owner = owner.Step - s.parent.g.First
		s.undo = s.parent.undo || g.Role == plan.Compensation
		if s.parent.inside == nil {
			s.parent.inside = map[*scope]struct{}{}
		}
		s.parent.inside[s] = struct{}{}
	}
	if r.many[graph] && s.parent.keep && r.kept+int64(g.N) <= MaxSteps {
		s.keep = true
		r.kept += int64(g.N)
	}
	r.scopes[path] = s
	s.opens(int(g.N))
	return s
}

// enter opens the scope of a graph that a step owns. An imported journal may contradict its
// plan, which then has no such graph.
func (r *Run) enter(path journal.Path, graph int32) {
	if graph != plan.None {
		r.open(path, graph)
	}
}

// opens adds to the steps that have not settled.
func (s *scope) opens(n int) {
	for s.open += n; s != nil; s = s.parent {
		s.deep += n
	}
}

// drop forgets a scope and those inside it.
func (r *Run) drop(s *scope) {
	for in := range s.inside {
		r.drop(in)
	}
	for i := range s.steps {
		x := &s.steps[i]
		r.count(x, -1)
		r.bytes -= int64(len(x.output))
	}
	if s.keep && r.many[s.graph] {
		r.kept -= int64(s.g.N)
	}
	s.opens(-s.open)
	if s.parent != nil {
		delete(s.parent.inside, s)
	}
	delete(r.scopes, s.path)
}

// empty forgets the scopes that a step owns.
func (r *Run) empty(s *scope, i int32) {
	for in := range s.inside {
		if in.owner == i {
			r.drop(in)
		}
	}
}

// count counts a step, or with -1 takes it out, where its status counts.
func (r *Run) count(x *step, n int) {
	if !x.status.Begun() {
		return
	}
	r.busy += n
	switch {
	case x.status == journal.Waiting:
		r.waiting += n
	case !x.owns:
		r.working += n
	}
}

// add adds to the steps that a step, those around it and the run stand for, and to how many
// of them have settled.
func (r *Run) add(s *scope, i int32, weight, done int64) {
	if s.undo {
		return
	}
	for ; s != nil; s, i = s.parent, s.owner {
		s.steps[i].weight += weight
		s.steps[i].done += done
	}
	r.weight += weight
	r.done += done
}

// applyStep applies an event of a step.
func (r *Run) applyStep(s *scope, i int32, ev *journal.Event) {
	x := &s.steps[i]
	if s.skipped { // it has no scope in the run
		x.status, x.reason, x.settled = journal.Skipped, ev.Reason(), ev.Seq
		return
	}
	if !x.seen && !r.recall(s, x, ev) {
		r.tidy(s)
		return
	}
	if spent := ev.Spent(r.plan); spent != 0 {
		r.used = r.used.Plus(spent)
	}
	r.count(x, -1)
	if ev.Kind == journal.EvNodeInvalidated {
		r.reset(s, i, ev)
	} else {
		r.change(s, i, ev)
	}
	r.count(x, 1)
	if ev.Kind != journal.EvNodeInvalidated && !swept(ev) && r.weight > 0 {
		r.peak = max(r.peak, min(99, 100*max(r.done, 0)/r.weight))
	}
	r.tidy(s)
}

// tidy forgets the outermost iteration around a scope in which nothing is open, unless it is
// kept.
func (r *Run) tidy(s *scope) {
	var over *scope
	for at := s; at != nil; at = at.parent {
		if at.g.Role == plan.Body && !at.keep && at.deep == 0 {
			over = at
		}
	}
	if over != nil {
		r.forgotten(over, over.tally(), 1)
		r.drop(over)
	}
}

// swept reports whether a step settles only because the run ends, which is no progress.
func swept(ev *journal.Event) bool {
	switch ev.Kind {
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		return ev.Reason() == journal.RunEnded || ev.Reason() == journal.ByCancel
	}
	return false
}

// recall makes a step known that was not kept. A step that a retry resets, or that is
// compensated, had settled and was counted. Nothing is remembered for a late result, for
// which recall reports false.
func (r *Run) recall(s *scope, x *step, ev *journal.Event) bool {
	switch ev.Kind {
	case journal.EvNodeIgnored:
		return false
	case journal.EvNodeInvalidated:
		x.status = ev.Before()
	case journal.EvNodeCompensating, journal.EvNodeCompensated:
		x.status = journal.Completed
	default:
		x.seen = true
		s.opens(1)
		return true
	}
	x.seen, x.done, x.settled = true, x.weight, ev.Seq
	r.forgotten(s, one(x), -1)
	return true
}

// one counts a settled step.
func one(x *step) tally {
	t := tally{all: 1}
	if x.status == journal.Completed {
		t.completed = 1
	}
	return t
}

// forgotten adds to the steps in a scope that are not kept, or takes some out.
func (r *Run) forgotten(s *scope, t tally, sign int64) {
	r.gone.add(t, sign)
	for at, i := s.parent, s.owner; at != nil; at, i = at.parent, at.owner {
		at.steps[i].gone.add(t, sign)
	}
}

// reset applies a retry to a step that had settled.
func (r *Run) reset(s *scope, i int32, ev *journal.Event) {
	x := &s.steps[i]
	if x.status.Settled() {
		s.opens(1)
	}
	r.bytes -= int64(len(x.output))
	if ev.Reopened() {
		r.add(s, i, 0, -min(x.done, 1+x.forced))
		*x = step{status: journal.Running, seen: true, owns: true, attempt: x.attempt, began: ev.At, weight: x.weight, done: x.done, gone: x.gone, run: x.run}
		return
	}
	own := r.own[s.g.First+i]
	r.empty(s, i)
	r.forgotten(s, x.gone, -1)
	r.add(s, i, own-x.weight, -x.done)
	status, _ := ev.StepStatus()
	*x = step{status: status, seen: true, attempt: x.attempt, weight: own}
}

// change applies an event of a step that no retry resets.
func (r *Run) change(s *scope, i int32, ev *journal.Event) {
	x := &s.steps[i]
	if status, ok := ev.StepStatus(); ok {
		if status.Settled() && x.status.Settled() {
			return // an imported journal may contradict itself
		}
		x.status = status
	}
	switch ev.Kind {
	case journal.EvNodeBlocked:
		x.note, x.unfunded = cut(ev.Text), ev.LacksCredits()
	case journal.EvNodeStarted, journal.EvChildStarted:
		x.begin(ev)
		if x.attempt = ev.Attempt; ev.Kind == journal.EvChildStarted {
			x.run = strings.Clone(ev.Text)
		}
		r.begin(ev.At)
	case journal.EvChildEnded:
		x.cost = x.cost.Plus(ev.ChildUsed())
		r.store(x, ev.Data)
	case journal.EvNodeOpened:
		x.begin(ev)
		r.begin(ev.At)
		r.opened(s, i, ev)
	case journal.EvNodeItems:
		r.add(s, i, ev.Count()*r.of(r.plan.Steps[ev.Step].Body), 0)
	case journal.EvNodeIteration:
		body := r.plan.Steps[ev.Step].Body
		if r.plan.Steps[ev.Step].Conditional() { // nobody knew that there would be another one
			r.add(s, i, r.of(body), 0)
		}
		r.enter(ev.Path.Child(body, ev.Item()), body)
	case journal.EvNodeWaiting:
		x.begin(ev)
		x.due, x.note = ev.Due(), cut(ev.Text)
		r.begin(ev.At)
	case journal.EvNodeSubmitted:
		x.due, x.run = ev.Due(), cut(ev.Text)
		if job, err := ev.Job(); err == nil {
			x.note = cut(job.Provider)
		}
	case journal.EvNodeRetried:
		x.err, x.due = newError(ev), ev.Due()
		x.retries++
	case journal.EvNodeLost:
		if !ev.HandedBack() {
			x.retries++
		}
	case journal.EvNodeFallback:
		x.err, x.owns = newError(ev), true
		fallback := r.plan.Steps[ev.Step].Fallback
		r.add(s, i, r.of(fallback), 0)
		r.enter(ev.Path.Child(fallback, 0), fallback)
	case journal.EvNodeCompensating:
		undo := r.plan.Steps[ev.Step].Compensate
		r.enter(ev.Path.Child(undo, 0), undo)
	case journal.EvNodeCharged:
		if ev.Charged() {
			x.charged = ev.Amount()
		}
	case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled:
		r.settle(s, i, ev)
	}
}

func cut(text string) string { return view.Cut(strings.Clone(text), maxText) }

// begin records when the step began, for the first of its attempts.
func (x *step) begin(ev *journal.Event) {
	if x.began == 0 {
		x.began = ev.At
	}
	x.due, x.note, x.unfunded = 0, "", false
}

// opened opens the scopes of a condition or parallel step, and counts the items of a loop.
func (r *Run) opened(s *scope, i int32, ev *journal.Event) {
	s.steps[i].owns = true
	r.empty(s, i)
	p := &r.plan.Steps[ev.Step]
	switch p.Kind {
	case plan.Condition:
		taken, other := p.Then, p.Else
		switch ev.Side() {
		case journal.ElseSide:
			taken, other = p.Else, p.Then
		case journal.NoSide:
			taken = plan.None
			other = p.Then
		}
		r.add(s, i, 0, r.of(other))
		r.enter(s.path.Child(taken, 0), taken)
	case plan.Parallel:
		for _, b := range p.Branches {
			r.enter(s.path.Child(b, 0), b)
		}
	case plan.Loop:
		r.add(s, i, max(ev.Items(), 0)*r.of(p.Body), 0)
	}
}

// settle records how a step ended.
func (r *Run) settle(s *scope, i int32, ev *journal.Event) {
	x := &s.steps[i]
	s.opens(-1)
	x.settled, x.ended, x.due, x.note, x.owns = ev.Seq, ev.At, 0, "", false
	switch ev.Kind {
	case journal.EvNodeCompleted:
		x.micros, x.err, x.cached = ev.Micros(), nil, ev.Cached()
		x.cost = x.cost.Plus(x.charged).Plus(ledger.Whole(ev.Cost()))
		switch {
		case !ev.FromInner():
			r.store(x, ev.Data)
		case x.run == "":
			r.store(x, r.inner(s, i))
		}
	case journal.EvNodeFailed:
		x.micros, x.err, x.handled = ev.Micros(), newError(ev), ev.Handled()
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		x.reason = ev.Reason()
		if ev.Kind == journal.EvNodeCancelled {
			x.micros = ev.Micros()
		}
		if ev.Code != "" {
			x.err = newError(ev)
		}
	}
	if x.status != journal.Completed {
		r.store(x, nil) // that of a child run which ended too late for its step
	}
	x.charged = 0
	rest := x.weight - x.done
	x.forced = rest - 1
	r.add(s, i, 0, rest)
}

// inner is the output of the last step of the scope that a step has opened.
func (r *Run) inner(s *scope, i int32) []byte {
	p := &r.plan.Steps[s.g.First+i]
	for _, g := range [...]int32{p.Fallback, p.Then, p.Else} {
		if g == plan.None || r.plan.Graphs[g].Out == plan.None {
			continue
		}
		if in := r.scopes[s.path.Child(g, 0)]; in != nil {
			if out := &in.steps[r.plan.Graphs[g].Out-in.g.First]; out.status == journal.Completed {
				return out.output
			}
		}
	}
	return nil
}

// store keeps an output in place of the one before.
func (r *Run) store(x *step, output []byte) {
	if r.bytes -= int64(len(x.output)); !r.outputs {
		return
	}
	x.output = nil
	if r.bytes+int64(len(output)) > MaxOutputs {
		r.unlisted++
		return
	}
	x.output = bytes.Clone(output)
	r.bytes += int64(len(output))
}

// tally counts the steps of a scope and of those inside it.
func (s *scope) tally() (t tally) {
	if s.skipped || s.undo {
		return t
	}
	for i := range s.steps {
		if x := &s.steps[i]; x.status.Settled() {
			t.add(one(x), 1)
		}
	}
	for in := range s.inside {
		t.add(in.tally(), 1)
	}
	return t
}
