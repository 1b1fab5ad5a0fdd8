// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/wire"
)

// Restore reads a snapshot that Snapshot wrote. The values are absent until Supply has
// received every event that Missing lists; only then may Decide be called.
func Restore(g *Program, state []byte) (*Run, error) {
	r := &Run{prog: g, plan: g.plan, limits: g.plan.Limits, missing: make(map[uint64][]*value), funds: funds{uncounted: true}}
	rd := reader{Reader: wire.Reader{Buf: state}, run: r}
	rd.header()
	if rd.Err == nil && rd.Off != len(state) {
		rd.Err = errors.New("bytes left over")
	}
	r.structMem = r.recountStructs()
	if rd.Err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, rd.Err, "snapshot damaged at byte %d: %v", rd.Off, rd.Err)
	}
	return r, nil
}

type reader struct {
	wire.Reader
	run    *Run
	values map[uint64]*value // by event, so that references to one value share it
}

func (d *reader) bool() bool  { return d.Byte() != 0 }
func (d *reader) str() string { return string(d.Bytes()) }

// count reads a length and rejects one that exceeds the bytes left.
func (d *reader) count() int {
	n := d.Uvarint()
	if n > uint64(len(d.Buf)-d.Off) {
		if d.Err == nil {
			d.Err = fmt.Errorf("impossible count %d", n)
		}
		return 0
	}
	return int(n)
}

func (d *reader) value() *value {
	n := d.Uvarint()
	switch n {
	case 0:
		return nil
	case 1:
		v := newValue(0, slices.Clone(d.Bytes()))
		v.refs = 1
		return v
	}
	seq, index, size := n-1, d.Varint(), d.Varint()
	whole := d.values[seq]
	if whole == nil {
		whole = &value{seq: seq, index: -1, n: size}
		if d.values == nil {
			d.values = make(map[uint64]*value)
		}
		d.values[seq] = whole
	}
	whole.refs++
	v := whole
	if index >= 0 {
		v = &value{seq: seq, index: index, list: whole}
	}
	d.run.markMissing(v)
	return v
}

func (d *reader) stepError() stepError {
	return stepError{fault.Code(d.str()), d.str()}
}

func (d *reader) header() {
	r := d.run
	r.last = d.Uvarint()
	r.now = d.Varint()
	if r.status = journal.RunStatus(d.Byte()); !r.status.Known() {
		d.Err = errors.New("an unknown run status")
	}
	r.gen = uint32(d.Uvarint())
	r.phase = phase(d.Byte())
	r.verdict = journal.RunStatus(d.Byte())
	r.code, r.message = fault.Code(d.str()), d.str()
	r.failedStep = int32(d.Varint())
	r.failures = d.bool()
	r.used = ledger.Amount(d.Varint())
	r.started, r.ttlDue, r.valueMem = d.Varint(), d.Varint(), d.Varint()
	r.compensating = d.bool()
	for range d.count() {
		r.edits = append(r.edits, d.Uvarint())
	}
	for range d.count() {
		r.signals = append(r.signals, signal{d.str(), d.value()})
	}
	for range d.count() {
		r.compensations = append(r.compensations, journal.Ref{Path: journal.Path(d.str()), Step: int32(d.Uvarint())})
	}
	var scopes []*scope
	for n := d.count(); n > 0 && d.Err == nil; n-- {
		if s := d.scope(scopes); d.Err == nil {
			scopes = append(scopes, s)
		}
	}
	if d.Err == nil {
		d.connect(scopes)
		d.checkRounds(scopes)
	}
	for n := d.count(); n > 0 && d.Err == nil; n-- {
		d.entry(scopes)
	}
	if d.Off < len(d.Buf) { // a run that costs nothing and is not paused has none
		r.funds.held, r.funds.settled, r.paused = d.Varint(), d.Varint(), d.bool()
	}
	if d.Off < len(d.Buf) { // a run of a tree
		r.belowSteps, r.share.Steps, r.share.Memory = d.Varint(), d.Varint(), d.Varint()
	}
	if rest := d.Off; rest < len(d.Buf) { // one that was estimated again, or waits for jobs
		if r.funds.estimated = d.Varint(); r.funds.estimated == 0 && d.Off == len(d.Buf) {
			d.Off = rest
		}
	}
	if d.Off < len(d.Buf) {
		if n := d.jobs(scopes); n == 0 && d.Off == len(d.Buf) && d.Err == nil {
			d.Err = errors.New("a list of no jobs")
		}
	}
	if d.Off < len(d.Buf) {
		d.resumes(scopes)
	}
}

// resumes reads which child runs may go on, and what this one has used before it did.
func (d *reader) resumes(scopes []*scope) {
	d.run.funds.before = ledger.Amount(d.Varint())
	for n := d.count(); n > 0 && d.Err == nil; n-- {
		k, step, run := d.Uvarint(), d.Uvarint(), d.str()
		if d.Err != nil {
			return
		}
		if k >= uint64(len(scopes)) || step >= uint64(scopes[k].g.N) || scopes[k].step(d.run.plan, int32(step)).Kind != plan.Recipe {
			d.Err = errors.New("a child run of no recipe")
			return
		}
		scopes[k].keepLastRun(int32(step), run)
	}
}

// jobs reads the external jobs that steps wait for.
func (d *reader) jobs(scopes []*scope) (n int) {
	n = d.count()
	for range n {
		if d.Err != nil {
			return n
		}
		k, step := d.Uvarint(), d.Uvarint()
		j := jobName{d.str(), d.str()}
		if d.Err != nil {
			return n
		}
		if k >= uint64(len(scopes)) || step < uint64(scopes[k].g.First) || step >= uint64(scopes[k].g.First+scopes[k].g.N) ||
			scopes[k].step(d.run.plan, int32(step)-scopes[k].g.First).Kind != plan.Action {
			d.Err = errors.New("a job of no action")
			return n
		}
		d.run.keepJob(scopes[k], int32(step)-scopes[k].g.First, j)
	}
	return n
}

func (d *reader) scope(before []*scope) *scope {
	r := d.run
	parent, graph := d.Uvarint(), d.Uvarint()
	if d.Err == nil && !d.fitsPlan(before, parent, graph) {
		d.Err = errors.New("a scope that does not fit the plan")
	}
	if d.Err != nil {
		return nil
	}
	g := &r.plan.Graphs[graph]
	s := &scope{graph: int32(graph), g: g, owner: g.Owner, ordinal: d.Varint()}
	s.orphan = !d.bool()
	s.held = d.bool()
	s.frame = s
	if parent > 0 {
		s.parent = before[parent-1]
		s.path = s.parent.path.Child(s.graph, s.ordinal)
		if g.Frame != s.graph {
			s.frame = s.parent.frame
		}
	}
	s.state, s.reason = scopeState(d.Byte()), journal.Reason(d.Byte())
	s.failed, s.wave, s.inWave = int32(d.Varint()), int32(d.Varint()), int32(d.Varint())
	s.out, s.item = d.value(), d.value()
	s.steps = make([]stepState, g.N)
	for i := range s.steps {
		d.step(&s.steps[i])
		if !s.steps[i].status.Settled() {
			s.live++
		}
	}
	for range d.count() {
		s.slots = append(s.slots, d.value())
	}
	s.outs = readMap(d, d.value)
	s.errs = readMap(d, d.stepError)
	s.deltas = readMap(d, d.Varint)
	s.comps = readMap(d, d.composite)
	if d.Err == nil {
		d.Err = s.check(r.plan)
	}
	for i, c := range s.comps {
		c.scope, c.step = s, i
		if d.Err == nil && c.loop != nil {
			step := s.step(r.plan, i)
			c.loop.rounds, c.loop.bounded = step.Rounds, step.Conditional()
		}
	}
	return s
}

// fitsPlan reports whether the scope's graph belongs to a step of its parent's graph,
// and the bytes left can hold its steps (at least two bytes each).
func (d *reader) fitsPlan(before []*scope, parent, graph uint64) bool {
	p := d.run.plan
	if parent > uint64(len(before)) || graph >= uint64(len(p.Graphs)) || (parent == 0) != (len(before) == 0) {
		return false
	}
	g := &p.Graphs[graph]
	if 3*int(g.N) > len(d.Buf)-d.Off {
		return false
	}
	if parent == 0 {
		return graph == 0
	}
	of := before[parent-1].g
	return g.Owner >= of.First && g.Owner < of.First+of.N
}

// check reports whether the decoded scope is a possible state of its graph, so that
// later code never indexes out of range.
func (s *scope) check(p *plan.Plan) error {
	for i, c := range s.comps {
		if i < 0 || i >= s.g.N {
			return errors.New("a composite of a step that does not exist")
		}
		if step := s.step(p, i); !c.matches(step) {
			return fmt.Errorf("a composite that step %q cannot have", step.ID)
		}
	}
	switch {
	case s.failed != -1 && (s.failed < s.g.First || s.failed >= s.g.First+s.g.N):
		return errors.New("a failed step of another scope")
	case len(s.slots) != 0 && len(s.slots) != int(s.g.Slots):
		return errors.New("a wrong number of bindings")
	case p.Waves && s.g.N > 0 && (s.wave < 0 || s.wave >= s.g.Waves):
		return errors.New("a wave that does not exist")
	}
	return nil
}

func (c *composite) matches(step *plan.Step) bool {
	if (c.kind == loopComposite) != (c.loop != nil) || (c.kind != parallelComposite) != (len(c.branches) == 0) {
		return false
	}
	switch c.kind {
	case conditionComposite:
		return step.Kind == plan.Condition
	case parallelComposite:
		return step.Kind == plan.Parallel && len(c.branches) == len(step.Branches)
	case loopComposite:
		return step.Kind == plan.Loop && int64(len(c.loop.outs)) <= c.loop.next && (c.loop.list != nil || c.loop.have == 0 || step.Conditional()) &&
			(c.loop.rounds != nil) == (step.Rounds != nil) && (c.loop.acc == nil || step.Rounds.Accumulates())
	case fallbackComposite:
		return step.Fallback != plan.None
	case childRunComposite:
		return step.Kind == plan.Recipe
	}
	return c.kind == compensationComposite && step.Compensate != plan.None
}

func readMap[V any](d *reader, get func() V) map[int32]V {
	n := d.count()
	if n == 0 {
		return nil
	}
	m := make(map[int32]V, n)
	for range n {
		k := int32(d.Varint())
		m[k] = get()
	}
	return m
}

func (d *reader) step(st *stepState) {
	st.status = journal.Status(d.Byte())
	if !st.status.Known() && d.Err == nil {
		d.Err = errors.New("an unknown status")
		st.status = 0
	}
	st.waiting = int32(d.Varint())
	st.keyGen = 1
	if !d.bool() {
		return
	}
	st.flags, st.reason, st.lost = stepFlags(d.Uvarint()), journal.Reason(d.Byte()), d.Byte()
	st.attempt, st.fails = uint32(d.Uvarint()), uint32(d.Uvarint())
	st.keyGen, st.keyTry = uint16(d.Uvarint()), uint32(d.Uvarint())
	st.at, st.due = d.Varint(), d.Varint()
}

func (d *reader) composite() *composite {
	c := &composite{kind: compositeKind(d.Byte()), ended: d.bool()}
	if d.bool() {
		e := d.stepError()
		c.err = &e
	}
	c.inner = childStatus(d.Byte())
	c.out = d.value()
	c.cause = d.stepError()
	for range d.count() {
		b := branch{status: childStatus(d.Byte()), out: d.value(), err: d.stepError()}
		switch b.status {
		case childOK:
			c.nOK++
		case childFailed:
			c.nFailed++
		}
		c.branches = append(c.branches, b)
	}
	c.winner = int32(d.Varint())
	if c.kind == childRunComposite {
		c.child = &childRun{run: d.str(), retry: d.bool()}
		if d.bool() {
			c.open = 1
		}
		c.child.share = journal.Share{Credits: d.Varint(), Steps: d.Varint(), Memory: d.Varint()}
	}
	form := d.Byte()
	if form == 0 {
		return c
	}
	l := &loopState{file: d.str(), list: d.value(), from: d.Varint(), have: d.Varint(), more: d.bool(),
		next: d.Varint(), nFailed: d.Varint(), firstErr: d.stepError(), spilled: d.bool(), outBytes: d.Varint()}
	for range d.count() {
		l.outs = append(l.outs, d.value())
	}
	if c.loop = l; form == loopWithRounds {
		l.rounds, l.acc, l.done = new(plan.Rounds), d.value(), d.bool() // its rounds are set once its step is known
		for range d.count() {
			l.completed = append(l.completed, d.Varint())
		}
	}
	return c
}

// connect derives what the snapshot leaves out: owners, counts and timers.
func (d *reader) connect(scopes []*scope) {
	r := d.run
	for k, s := range scopes {
		if k == 0 {
			r.root = s
		} else {
			if r.scopes == nil {
				r.scopes = make(map[journal.Path]*scope, len(scopes))
			}
			r.scopes[s.path] = s
			if c := s.parent.comps[s.owner-s.parent.g.First]; c != nil && !s.orphan {
				if c.children == nil {
					c.children = make(map[int64]*scope, 2)
				}
				c.children[childKey(s)] = s
				if s.live > 0 {
					c.open++
					s.parent.openChildren++
				}
			}
		}
		if s.live > 0 {
			r.alive++
		}
		for _, c := range s.comps {
			if c.child != nil && c.open > 0 {
				s.openChildren++
				r.give(c.child.share, 1)
			}
		}
		for i := range s.steps {
			st := &s.steps[i]
			if !st.status.Begun() {
				continue
			}
			r.busy++
			if st.due > 0 {
				r.pushTimer(timer{due: st.due, scope: s, step: int32(i)})
			}
			if ms := s.step(r.plan, int32(i)).TotalTimeoutMS; ms > 0 && st.flags&flagFallback == 0 {
				r.pushTimer(timer{due: st.at + ms*1000, scope: s, step: int32(i), total: true})
			}
		}
	}
}

// checkRounds reports an iteration that a loop must look at and that is not there.
func (d *reader) checkRounds(scopes []*scope) {
	for _, s := range scopes {
		for _, c := range s.comps {
			for n := 0; c.loop != nil && n < len(c.loop.completed); n++ {
				if child := c.children[c.loop.completed[n]]; child == nil || child.live > 0 {
					d.Err = errors.New("an iteration that has completed and is not there")
				}
			}
		}
	}
}

func (d *reader) entry(scopes []*scope) {
	r := d.run
	e := entry{kind: entryKind(d.Byte()), step: -1}
	if e.kind == runEntry {
		r.runPos = r.worklist.push(e)
		return
	}
	k := d.Uvarint()
	e.step = int32(d.Varint())
	if d.Err == nil && (k >= uint64(len(scopes)) || e.step >= scopes[k].g.N) {
		d.Err = errors.New("a worklist entry without a scope")
	}
	if d.Err != nil {
		return
	}
	s := scopes[k]
	e.scope = s
	pos := r.worklist.push(e)
	switch {
	case e.kind == stepEntry && e.step >= 0:
		s.steps[e.step].pos = pos
	case e.kind == compositeEntry && s.comps[e.step] != nil:
		s.comps[e.step].pos = pos
	case e.kind == scopeEntry:
		s.pos = pos
	default:
		d.Err = errors.New("a worklist entry of an unknown kind")
	}
}

// markMissing records a value whose bytes must be supplied.
func (r *Run) markMissing(v *value) {
	if r.missing == nil {
		r.missing = make(map[uint64][]*value)
	}
	if !v.missing {
		v.missing = true
		r.missing[v.seq] = append(r.missing[v.seq], v)
	}
}

// Missing lists, in ascending order, the events whose values must be supplied before
// Decide may be called.
func (r *Run) Missing() []uint64 {
	seqs := make([]uint64, 0, len(r.missing)+1)
	for seq := range r.missing {
		seqs = append(seqs, seq)
	}
	if r.start == nil && r.last > 0 {
		seqs = append(seqs, 1)
		seqs = append(seqs, r.edits...)
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// Supply restores the values that an event carries. Events arrive in ascending order;
// events that are not missing are ignored.
func (r *Run) Supply(ev *journal.Event) error {
	switch {
	case ev.Seq == 1 && r.start == nil:
		st, err := journal.DecodeStart(ev.Data)
		if err != nil {
			return err
		}
		r.setStart(st)
	case ev.Kind == journal.EvRunRetried && len(ev.Data) > 0 && r.start != nil && slices.Contains(r.edits, ev.Seq):
		fields, err := editedFields(ev.Data)
		if err != nil {
			return err
		}
		r.patch(fields)
	case ev.Kind == journal.EvRunPinned && r.start != nil && slices.Contains(r.edits, ev.Seq):
		if err := r.addPinned(ev); err != nil {
			return err
		}
	case ev.Kind == journal.EvRunResumed && r.start != nil && slices.Contains(r.edits, ev.Seq):
		if err := r.move(ev); err != nil {
			return err
		}
	case ev.Kind == journal.EvRunLimits && slices.Contains(r.edits, ev.Seq):
		limits, err := journal.DecodeLimits(ev.Data)
		if err != nil {
			return err
		}
		r.limits, r.prog = limits, r.prog.withLimits(limits)
	}
	waiting := r.missing[ev.Seq]
	if len(waiting) == 0 {
		return nil
	}
	delete(r.missing, ev.Seq)
	var list loopState
	raw := slices.Clone(ev.Data)
	for _, v := range waiting {
		if v.index < 0 {
			v.raw = raw
			continue
		}
		if list.list == nil {
			list.list = newValue(ev.Seq, raw)
		}
		item, err := r.loopItem(&list, v.index)
		if err != nil || item.raw == nil {
			return fault.New(fault.StoreCorrupt, "event %d holds no item %d", ev.Seq, v.index)
		}
		v.raw = item.raw
	}
	return nil
}
