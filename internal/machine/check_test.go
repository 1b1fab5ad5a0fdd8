// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// A ledger watches one run from outside: it keeps its journal, and after every
// turn asserts what must always hold (reliability.md, I1–I9 as far as one run
// can show them).
type ledger struct {
	run     *Run
	frames  []byte
	count   uint64
	at      int64           // time of the last event
	owed    map[string]bool // issued commands
	settled map[string]int  // terminal results by instance and generation (I3)
	begun   map[string]int  // attempts by instance (fences never repeat)
	base    int64           // bytes of the run's input and its edits
	live    map[Ref]Fence   // the attempt handed out last
	effects map[Ref]*effect // what is known of the last attempt's effect (I4)
	keys    map[string]bool // effect keys handed out
	life    lifecycle
	ended   map[Path]bool // scopes in which nothing may begin any more (X95)
}

func newLedger(r *Run) *ledger {
	return &ledger{run: r, owed: map[string]bool{}, settled: map[string]int{}, begun: map[string]int{}, live: map[Ref]Fence{},
		effects: map[Ref]*effect{}, keys: map[string]bool{}, ended: map[Path]bool{}}
}

func commandKey(c Command) string {
	if c.Kind == CmdContinue {
		return "continue"
	}
	return fmt.Sprintf("%d %x %d %d.%d %d", c.Kind, c.Ref.Path, c.Ref.Step, c.Fence.Gen, c.Fence.Attempt, c.From)
}

// turn takes in what a Decide yielded and checks everything.
func (l *ledger) turn(t *Turn) error {
	r := l.run
	gen := r.gen
	for i := range t.Events {
		ev := &t.Events[i]
		if ev.Seq != l.count+1 {
			return fmt.Errorf("I14: event %d follows %d", ev.Seq, l.count)
		}
		l.count = ev.Seq
		if ev.At < l.at {
			return fmt.Errorf("I10: event %d is older than the one before", ev.Seq)
		}
		l.at = ev.At
		key := fmt.Sprintf("%x/%d/%d", ev.Path, ev.Step, gen)
		switch ev.Kind {
		case EvNodeCompleted, EvNodeFailed, EvNodeSkipped, EvNodeCancelled:
			if l.settled[key]++; l.settled[key] > 1 && !notTaken(ev) {
				return fmt.Errorf("I3: %s settled twice in generation %d", StepPath(r.plan, ev.Ref()), gen)
			}
		case EvNodeStarted:
			l.live[ev.Ref()] = Fence{Gen: gen, Attempt: ev.Attempt}
			fence := fmt.Sprintf("%s/%d", key, ev.Attempt)
			if l.begun[fence]++; l.begun[fence] > 1 {
				return fmt.Errorf("I3: %s was handed out twice as attempt %d", StepPath(r.plan, ev.Ref()), ev.Attempt)
			}
		case EvRunStarted:
			l.base += int64(len(ev.Data))
		case EvRunRetried:
			l.base += int64(len(ev.Data))
			clear(l.settled)
			clear(l.ended)
		case EvRunEnding:
			l.ended[""] = true
		}
		if err := l.begins(ev); err != nil {
			return err
		}
		if err := l.life.event(ev, r); err != nil {
			return err
		}
	}
	for i := range t.Events {
		if err := l.effect(&t.Events[i], gen); err != nil {
			return err
		}
	}
	l.frames = AppendFrame(l.frames, t.Events)
	for _, c := range t.Commands {
		l.owed[commandKey(c)] = true
	}
	return l.check()
}

// begins asserts that after a failure that ends a scope, or a cancel, nothing
// in it begins (X95, X96, I8). Compensations come after, in scopes of their own.
func (l *ledger) begins(ev *Event) error {
	switch ev.Kind {
	case EvNodeFailed:
		if ev.Flag&1 == 0 && !l.run.plan.Drain {
			l.ended[ev.Path] = true
		}
	case EvNodeQueued, EvNodeStarted, EvNodeOpened, EvNodeWaiting, EvNodeReady, EvNodeIteration:
		if l.ended[ev.Path] {
			return fmt.Errorf("X95: %s of %s in a scope that has ended", ev.Name(), StepPath(l.run.plan, ev.Ref()))
		}
	}
	return nil
}

// An effect is what an observer knows of an instance's last attempt.
type effect struct {
	key     string
	gen     uint32
	open    bool // it has not ended
	unknown bool // it ended, and its effect may have happened or not
}

// effect asserts I4: a new attempt carries the key of the one before it while
// that one's outcome is unknown, else a key that nobody had before. Inside
// scopes a retry may begin anew, with new keys.
func (l *ledger) effect(ev *Event, gen uint32) error {
	e := l.effects[ev.Ref()]
	switch ev.Kind {
	case EvNodeStarted:
		s, i := l.run.at(ev.Ref())
		if s == nil || s.steps[i].attempt != ev.Attempt {
			return nil // it was swept in the same turn
		}
		key := l.run.effectKey(s, i)
		anew := e == nil || e.gen != gen && ev.Path != ""
		switch {
		case e != nil && e.unknown && key != e.key && !anew:
			return fmt.Errorf("I4: %s: the outcome of the last attempt is unknown and its key has changed", StepPath(l.run.plan, ev.Ref()))
		case (e == nil || !e.unknown) && l.keys[key]:
			return fmt.Errorf("I4: %s: a new effect has the key of an old one", StepPath(l.run.plan, ev.Ref()))
		}
		l.keys[key] = true
		l.effects[ev.Ref()] = &effect{key: key, gen: gen, open: true}
	case EvNodeLost, EvNodeCancelled:
		if e != nil && e.open {
			e.open, e.unknown = false, true
		}
	case EvNodeCompensated:
		if e != nil {
			e.unknown = false // whatever it was, it was undone
		}
	case EvNodeRetried, EvNodeFailed, EvNodeFallback, EvNodeSkipped, EvNodeCompleted:
		if e != nil && e.open {
			cause := fault.CauseOf(ev.Code)
			e.open, e.unknown = false, ev.Code != "" && (cause == fault.CauseTimeout || cause == fault.CauseLost)
		}
	}
	return nil
}

// check asserts the invariants of the state as it stands.
func (l *ledger) check() error {
	r := l.run
	if r.last == 0 {
		return nil
	}
	if err := l.replays(); err != nil {
		return err
	}
	if err := l.owes(); err != nil {
		return err
	}
	if want := l.base + recount(r); r.mem != want {
		return fmt.Errorf("R38: the run counts %d bytes of values and holds %d", r.mem, want)
	}
	for _, s := range r.sortedScopes() {
		if err := checkScope(r, s); err != nil {
			return fmt.Errorf("scope %q: %w", ScopePath(r.plan, s.path), err)
		}
	}
	if r.status.Terminal() {
		if r.busy != 0 || r.alive != 0 {
			return fmt.Errorf("R10: the run has ended with %d steps begun and %d scopes open", r.busy, r.alive)
		}
		return nil
	}
	if r.NextDue() == 0 && len(r.Owed(nil)) == 0 && !r.waitsForSignal() {
		return fmt.Errorf("I6: the run is %s and waits for nothing", r.status)
	}
	return nil
}

func (r *Run) waitsForSignal() bool {
	found := false
	r.eachScope(func(s *scope) {
		for i := range s.steps {
			found = found || s.steps[i].status == Waiting && s.step(r.plan, int32(i)).Signal != ""
		}
	})
	return found
}

// replays: folding the journal, and restoring a snapshot, give the same bytes (I2).
func (l *ledger) replays() error {
	want := l.run.Snapshot(nil)
	again := NewRun(l.run.prog)
	if err := EachEvent(l.frames, again.Apply); err != nil {
		return fmt.Errorf("I2: replay: %w", err)
	}
	if got := again.Snapshot(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("I2: replay of %d events gives another state: %s", l.count, differ(again, l.run))
	}
	back, err := Restore(l.run.prog, want)
	if err != nil {
		return fmt.Errorf("I2: restore: %w", err)
	}
	if err := supplyAll(back, l.frames); err != nil {
		return err
	}
	if got := back.Snapshot(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("I2: snapshot → restore → snapshot differs: %s", differ(back, l.run))
	}
	if a, b := back.NextDue(), l.run.NextDue(); a != b {
		return fmt.Errorf("I9: restored timers say %d, live ones %d", a, b)
	}
	if a, b := timers(back), timers(l.run); !slices.Equal(a, b) {
		return fmt.Errorf("I9: restored timers fire as %v, live ones as %v", a, b)
	}
	if a, b := fmt.Sprint(back.Owed(nil)), fmt.Sprint(l.run.Owed(nil)); a != b {
		return fmt.Errorf("I2: restored run owes %s, live one %s", a, b)
	}
	return nil
}

// timers lists what will fire, in order.
func timers(r *Run) (order []string) {
	heap := Run{due: slices.Clone(r.due)}
	for len(heap.due) > 0 {
		t := heap.due[0]
		heap.popTimer()
		if what := fmt.Sprintf("%d %x %d %v", t.due, t.scope.path, t.step, t.total); r.timerLive(t) && !slices.Contains(order, what) {
			order = append(order, what)
		}
	}
	return order
}

func supplyAll(r *Run, frames []byte) error {
	need := r.Missing()
	if err := EachEvent(frames, func(ev *Event) error {
		if slices.Contains(need, ev.Seq) {
			return r.Supply(ev)
		}
		return nil
	}); err != nil {
		return err
	}
	if left := r.Missing(); len(left) > 0 {
		return fmt.Errorf("values of events %v were not supplied", left)
	}
	return nil
}

// owes: what is owed was issued as a command, by an event.
func (l *ledger) owes() error {
	for _, c := range l.run.Owed(nil) {
		if !l.owed[commandKey(c)] {
			return fmt.Errorf("Owed names a command that no event issued: %+v", c)
		}
	}
	return nil
}

func checkScope(r *Run, s *scope) error {
	live, kids := int32(0), int32(0)
	for k := range s.steps {
		i := int32(k)
		st, step := &s.steps[k], s.step(r.plan, i)
		if !st.status.Settled() {
			live++
		}
		waiting := int32(0)
		for _, p := range step.Preds {
			if !s.steps[p-s.g.First].status.Settled() {
				waiting++
			}
		}
		if waiting != st.waiting { // I5
			return fmt.Errorf("I5: %s counts %d open predecessors, there are %d", step.ID, st.waiting, waiting)
		}
		if st.status.begun() && waiting > 0 {
			return fmt.Errorf("I5: %s has begun with %d predecessors open", step.ID, waiting)
		}
		due := (st.status == Pending || st.status == Invalidated) && waiting == 0 && s.state == scopeOpen && !s.heldBack()
		if due && r.plan.Waves && step.Wave > s.wave {
			due = st.flags&flagReady == 0
		}
		if due != (st.pos != 0) {
			return fmt.Errorf("%s is due %v and on the agenda %v", step.ID, due, st.pos != 0)
		}
	}
	for _, c := range s.comps {
		open, running := int32(0), int32(0)
		for _, kid := range c.kids {
			if kid.live > 0 {
				open++
				if !kid.held {
					running++
				}
			}
		}
		if c.kind == looping && running > s.step(r.plan, c.step).Concurrency {
			return fmt.Errorf("X59: loop %s runs %d items at once", s.step(r.plan, c.step).ID, running)
		}
		if open != c.open {
			return fmt.Errorf("composite %s counts %d open scopes, there are %d", s.step(r.plan, c.step).ID, c.open, open)
		}
		kids += open
		if r.compositeDue(c) != (c.pos != 0) {
			return fmt.Errorf("composite %s is due %v and on the agenda %v", s.step(r.plan, c.step).ID, r.compositeDue(c), c.pos != 0)
		}
	}
	if live != s.live || kids != s.openKids {
		return fmt.Errorf("counts %d live and %d kids, there are %d and %d", s.live, s.openKids, live, kids)
	}
	if due := s.state == scopeSweep && s.live > 0 && s.openKids == 0; due != (s.pos != 0) {
		return fmt.Errorf("sweep is due %v and on the agenda %v", due, s.pos != 0)
	}
	return nil
}

// differ names the first place where two runs differ, for a failing test.
func differ(a, b *Run) string {
	if a.agenda.len() != b.agenda.len() {
		return fmt.Sprintf("agendas of %d and %d entries", a.agenda.len(), b.agenda.len())
	}
	as, bs := a.sortedScopes(), b.sortedScopes()
	if len(as) != len(bs) {
		return fmt.Sprintf("%d and %d scopes", len(as), len(bs))
	}
	for k := range as {
		for i := range as[k].steps {
			x, y := as[k].steps[i], bs[k].steps[i]
			x.pos, y.pos = 0, 0
			if x != y {
				return fmt.Sprintf("step %s: %+v and %+v", StepPath(a.plan, as[k].ref(int32(i))), x, y)
			}
		}
	}
	return fmt.Sprintf("%d/%d/%d/%v/%d/%d and %d/%d/%d/%v/%d/%d", a.last, a.status, a.mem, a.undo, len(a.signals), a.started,
		b.last, b.status, b.mem, b.undo, len(b.signals), b.started)
}

// recount adds up the values that anything in the run refers to, each once.
func recount(r *Run) int64 {
	seen := map[*value]bool{}
	total := int64(0)
	add := func(v *value) {
		if v != nil && v.list != nil {
			v = v.list
		}
		if v != nil && !seen[v] {
			seen[v] = true
			total += v.n
		}
	}
	for _, sig := range r.signals {
		add(sig.val)
	}
	for _, s := range r.sortedScopes() {
		for _, v := range s.outs {
			add(v)
		}
		for _, v := range s.slots {
			add(v)
		}
		add(s.out)
		add(s.item)
		for _, c := range s.comps {
			add(c.out)
			for k := range c.branches {
				add(c.branches[k].out)
			}
			if c.loop != nil {
				add(c.loop.list)
				for _, v := range c.loop.outs {
					add(v)
				}
			}
		}
	}
	return total
}

// stepNamed is the plan's step of an id.
func stepNamed(p *plan.Plan, id string) int32 {
	for i := range p.Steps {
		if p.Steps[i].ID == id {
			return int32(i)
		}
	}
	panic("no step " + id)
}
