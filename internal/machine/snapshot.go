// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
)

// SnapshotFormat is the format number of Snapshot; a state of another format
// is not restored but folded again from its events.
const SnapshotFormat = 1

// Snapshot appends the run's state. Values are references to the events that
// carry them, so a snapshot is small whatever the run has produced. Equal runs
// give equal bytes: that is how replay is verified (I2).
func (r *Run) Snapshot(buf []byte) []byte {
	w := writer{buf}
	w.uint(r.last)
	w.int(r.now)
	w.byte(byte(r.status))
	w.uint(uint64(r.gen))
	w.byte(byte(r.phase))
	w.byte(byte(r.verdict))
	w.str(string(r.code))
	w.str(r.message)
	w.int(int64(r.culprit))
	w.bool(r.failures)
	w.int(r.used)
	w.int(r.started)
	w.int(r.ttlDue)
	w.int(r.mem)
	w.bool(r.undoing)
	w.uint(uint64(len(r.edits)))
	for _, seq := range r.edits {
		w.uint(seq)
	}
	w.uint(uint64(len(r.signals)))
	for _, sig := range r.signals {
		w.str(sig.name)
		w.value(sig.val)
	}
	w.uint(uint64(len(r.undo)))
	for _, u := range r.undo {
		w.str(string(u.Path))
		w.uint(uint64(u.Step))
	}
	scopes := r.sortedScopes()
	index := make(map[*scope]int, len(scopes))
	w.uint(uint64(len(scopes)))
	for k, s := range scopes {
		index[s] = k
		w.scope(s, index)
	}
	w.uint(uint64(r.agenda.len()))
	r.agenda.each(func(e entry) {
		w.byte(byte(e.kind))
		if e.kind == runEntry {
			return
		}
		w.uint(uint64(index[e.scope]))
		w.int(int64(e.step))
	})
	return w.buf
}

type writer struct{ buf []byte }

func (w *writer) byte(b byte)   { w.buf = append(w.buf, b) }
func (w *writer) uint(v uint64) { w.buf = binary.AppendUvarint(w.buf, v) }
func (w *writer) int(v int64)   { w.buf = binary.AppendVarint(w.buf, v) }
func (w *writer) str(s string)  { w.buf = appendString(w.buf, s) }

func (w *writer) bool(b bool) {
	if b {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

// value writes a reference: 0 for none, else event+2 and element, or 1 and the
// bytes when no event carries it.
func (w *writer) value(v *value) {
	switch {
	case v == nil:
		w.uint(0)
	case v.seq == 0:
		w.uint(1)
		w.uint(uint64(len(v.raw)))
		w.buf = append(w.buf, v.raw...)
	default:
		w.uint(v.seq + 1)
		w.int(v.index)
		if v.list != nil {
			w.int(v.list.n)
		} else {
			w.int(v.n)
		}
	}
}

func (w *writer) stepError(e stepError) {
	w.str(string(e.code))
	w.str(e.msg)
}

func (w *writer) scope(s *scope, index map[*scope]int) {
	if s.parent == nil {
		w.uint(0)
	} else {
		w.uint(uint64(index[s.parent]) + 1)
	}
	w.uint(uint64(s.graph))
	w.int(s.ordinal)
	w.bool(s.owned())
	w.byte(byte(s.state))
	w.byte(byte(s.reason))
	w.int(int64(s.failed))
	w.int(int64(s.wave))
	w.int(int64(s.inWave))
	w.value(s.out)
	w.value(s.item)
	for i := range s.steps {
		w.step(&s.steps[i])
	}
	w.uint(uint64(len(s.slots)))
	for _, v := range s.slots {
		w.value(v)
	}
	sorted(s.outs, func(i int32, v *value) { w.int(int64(i)); w.value(v) }, w)
	sorted(s.errs, func(i int32, e stepError) { w.int(int64(i)); w.stepError(e) }, w)
	sorted(s.deltas, func(i int32, n int64) { w.int(int64(i)); w.int(n) }, w)
	sorted(s.comps, func(i int32, c *composite) { w.int(int64(i)); w.composite(c) }, w)
}

// sorted writes a map's size and its entries in key order.
func sorted[V any](m map[int32]V, put func(int32, V), w *writer) {
	keys := make([]int32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	w.uint(uint64(len(keys)))
	for _, k := range keys {
		put(k, m[k])
	}
}

// step writes a step's state; an untouched one takes two bytes.
func (w *writer) step(st *stepState) {
	w.byte(byte(st.status))
	w.int(int64(st.waiting))
	touched := st.flags != 0 || st.attempt != 0 || st.at != 0 || st.reason != 0 || st.fails != 0 ||
		st.lost != 0 || st.keyGen != 1 || st.keyTry != 0
	w.bool(touched)
	if !touched {
		return
	}
	w.uint(uint64(st.flags))
	w.byte(byte(st.reason))
	w.byte(st.lost)
	w.uint(uint64(st.attempt))
	w.uint(uint64(st.fails))
	w.uint(uint64(st.keyGen))
	w.uint(uint64(st.keyTry))
	w.int(st.at)
	w.int(st.due)
}

func (w *writer) composite(c *composite) {
	w.byte(byte(c.kind))
	w.bool(c.ended)
	w.bool(c.err != nil)
	if c.err != nil {
		w.stepError(*c.err)
	}
	w.byte(byte(c.inner))
	w.value(c.out)
	w.stepError(c.cause)
	w.uint(uint64(len(c.branches)))
	for k := range c.branches {
		w.byte(byte(c.branches[k].status))
		w.value(c.branches[k].out)
		w.stepError(c.branches[k].err)
	}
	w.int(int64(c.winner))
	l := c.loop
	w.bool(l != nil)
	if l == nil {
		return
	}
	w.str(l.file)
	w.value(l.list)
	w.int(l.from)
	w.int(l.have)
	w.bool(l.more)
	w.int(l.next)
	w.int(l.bad)
	w.stepError(l.first)
	w.bool(l.spilled)
	w.int(l.outBytes)
	w.uint(uint64(len(l.outs)))
	for _, v := range l.outs {
		w.value(v)
	}
}

// Restore reads what Snapshot wrote. Values are absent until Supply has seen
// every event that Missing names; only then may Decide be called.
func Restore(g *Program, state []byte) (*Run, error) {
	r := &Run{prog: g, plan: g.plan, missing: make(map[uint64][]*value)}
	rd := reader{decoder: decoder{buf: state}, run: r}
	rd.run0()
	if rd.err == nil && rd.off != len(state) {
		rd.err = errors.New("bytes left over")
	}
	if rd.err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, rd.err, "snapshot damaged at byte %d: %v", rd.off, rd.err)
	}
	return r, nil
}

type reader struct {
	decoder
	run    *Run
	values map[uint64]*value // by event: what was one value stays one
}

func (d *reader) bool() bool  { return d.byte() != 0 }
func (d *reader) str() string { return string(d.bytes()) }

// count reads a length and refuses one that the bytes left cannot hold.
func (d *reader) count() int {
	n := d.uvarint()
	if n > uint64(len(d.buf)-d.off) {
		if d.err == nil {
			d.err = fmt.Errorf("impossible count %d", n)
		}
		return 0
	}
	return int(n)
}

func (d *reader) value() *value {
	n := d.uvarint()
	switch n {
	case 0:
		return nil
	case 1:
		v := newValue(0, slices.Clone(d.bytes()))
		v.refs = 1
		return v
	}
	seq, index, size := n-1, d.varint(), d.varint()
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
	d.run.miss(v)
	return v
}

func (d *reader) stepError() stepError {
	return stepError{fault.Code(d.str()), d.str()}
}

func (d *reader) run0() {
	r := d.run
	r.last = d.uvarint()
	r.now = d.varint()
	r.status = RunStatus(d.byte())
	r.gen = uint32(d.uvarint())
	r.phase = phase(d.byte())
	r.verdict = RunStatus(d.byte())
	r.code, r.message = fault.Code(d.str()), d.str()
	r.culprit = int32(d.varint())
	r.failures = d.bool()
	r.used, r.started, r.ttlDue, r.mem = d.varint(), d.varint(), d.varint(), d.varint()
	r.undoing = d.bool()
	for range d.count() {
		r.edits = append(r.edits, d.uvarint())
	}
	for range d.count() {
		r.signals = append(r.signals, signal{d.str(), d.value()})
	}
	for range d.count() {
		r.undo = append(r.undo, Ref{Path: Path(d.str()), Step: int32(d.uvarint())})
	}
	var scopes []*scope
	for n := d.count(); n > 0 && d.err == nil; n-- {
		if s := d.scope(scopes); d.err == nil {
			scopes = append(scopes, s)
		}
	}
	if d.err == nil {
		d.connect(scopes)
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		d.entry(scopes)
	}
}

func (d *reader) scope(before []*scope) *scope {
	r := d.run
	parent := d.count()
	graph := d.uvarint()
	if d.err == nil && (parent > len(before) || graph >= uint64(len(r.plan.Graphs)) || (parent == 0) != (len(before) == 0)) {
		d.err = errors.New("a scope that fits no plan")
	}
	if d.err != nil {
		return nil
	}
	g := &r.plan.Graphs[graph]
	s := &scope{graph: int32(graph), g: g, owner: g.Owner, ordinal: d.varint()}
	s.orphan = !d.bool()
	s.frame = s
	if parent > 0 {
		s.parent = before[parent-1]
		s.path = s.parent.path.child(s.graph, s.ordinal)
		if g.Frame != s.graph {
			s.frame = s.parent.frame
		}
	}
	s.state, s.reason = scopeState(d.byte()), Reason(d.byte())
	s.failed, s.wave, s.inWave = int32(d.varint()), int32(d.varint()), int32(d.varint())
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
	s.deltas = readMap(d, d.varint)
	s.comps = readMap(d, d.composite)
	for i, c := range s.comps {
		if i < 0 || i >= g.N {
			d.err = errors.New("a composite of no step")
			return s
		}
		c.scope, c.step = s, i
	}
	return s
}

func readMap[V any](d *reader, get func() V) map[int32]V {
	n := d.count()
	if n == 0 {
		return nil
	}
	m := make(map[int32]V, n)
	for range n {
		k := int32(d.varint())
		m[k] = get()
	}
	return m
}

func (d *reader) step(st *stepState) {
	st.status = Status(d.byte())
	if int(st.status) >= len(statusNames) && d.err == nil {
		d.err = errors.New("an unknown status")
		st.status = 0
	}
	st.waiting = int32(d.varint())
	st.keyGen = 1
	if !d.bool() {
		return
	}
	st.flags, st.reason, st.lost = stepFlags(d.uvarint()), Reason(d.byte()), d.byte()
	st.attempt, st.fails = uint32(d.uvarint()), uint32(d.uvarint())
	st.keyGen, st.keyTry = uint16(d.uvarint()), uint32(d.uvarint())
	st.at, st.due = d.varint(), d.varint()
}

func (d *reader) composite() *composite {
	c := &composite{kind: compositeKind(d.byte()), ended: d.bool()}
	if d.bool() {
		e := d.stepError()
		c.err = &e
	}
	c.inner = kidStatus(d.byte())
	c.out = d.value()
	c.cause = d.stepError()
	for range d.count() {
		b := branch{status: kidStatus(d.byte()), out: d.value(), err: d.stepError()}
		switch b.status {
		case kidOK:
			c.ok++
		case kidFailed:
			c.bad++
		}
		c.branches = append(c.branches, b)
	}
	c.winner = int32(d.varint())
	if !d.bool() {
		return c
	}
	l := &loopState{file: d.str(), list: d.value(), from: d.varint(), have: d.varint(), more: d.bool(),
		next: d.varint(), bad: d.varint(), first: d.stepError(), spilled: d.bool(), outBytes: d.varint()}
	for range d.count() {
		l.outs = append(l.outs, d.value())
	}
	c.loop = l
	return c
}

// connect derives what the snapshot leaves out: owners, counts, timers.
func (d *reader) connect(scopes []*scope) {
	r := d.run
	for k, s := range scopes {
		if k == 0 {
			r.root = s
		} else {
			if r.scopes == nil {
				r.scopes = make(map[Path]*scope, len(scopes))
			}
			r.scopes[s.path] = s
			if c := s.parent.comps[s.owner-s.parent.g.First]; c != nil && !s.orphan {
				if c.kids == nil {
					c.kids = make(map[int64]*scope, 2)
				}
				c.kids[kidKey(s)] = s
				if s.live > 0 {
					c.open++
					s.parent.openKids++
				}
			}
		}
		if s.live > 0 {
			r.alive++
		}
		for i := range s.steps {
			st := &s.steps[i]
			if !st.status.begun() {
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

func (d *reader) entry(scopes []*scope) {
	r := d.run
	e := entry{kind: entryKind(d.byte()), step: -1}
	if e.kind == runEntry {
		r.runPos = r.agenda.push(e)
		return
	}
	k := d.uvarint()
	e.step = int32(d.varint())
	if d.err == nil && (k >= uint64(len(scopes)) || e.step >= scopes[k].g.N) {
		d.err = errors.New("an agenda entry of no scope")
	}
	if d.err != nil {
		return
	}
	s := scopes[k]
	e.scope = s
	pos := r.agenda.push(e)
	switch {
	case e.kind == stepEntry && e.step >= 0:
		s.steps[e.step].pos = pos
	case e.kind == compositeEntry && s.comps[e.step] != nil:
		s.comps[e.step].pos = pos
	case e.kind == scopeEntry:
		s.pos = pos
	default:
		d.err = errors.New("an agenda entry of an unknown kind")
	}
}

// miss notes a value whose bytes must be supplied.
func (r *Run) miss(v *value) {
	if r.missing == nil {
		r.missing = make(map[uint64][]*value)
	}
	if !v.lacks {
		v.lacks = true
		r.missing[v.seq] = append(r.missing[v.seq], v)
	}
}

// Missing lists, ascending, the events whose values must be supplied before
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

// Supply gives back the values an event carries. Events arrive in ascending
// order; those not missing are passed over.
func (r *Run) Supply(ev *Event) error {
	switch {
	case ev.Seq == 1 && r.start == nil:
		st, err := decodeStart(ev.Data)
		if err != nil {
			return err
		}
		r.start, r.input = st, newInputs(st)
	case ev.Kind == EvRunRetried && len(ev.Data) > 0 && r.start != nil && slices.Contains(r.edits, ev.Seq):
		fields, err := editedFields(ev.Data)
		if err != nil {
			return err
		}
		r.patch(fields)
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
