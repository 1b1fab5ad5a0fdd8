// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/wire"
)

// SnapshotFormat is the format number of Snapshot. A snapshot in another format is not
// restored; the run is replayed from its events instead.
const SnapshotFormat = 2

// Snapshot appends the run's state. Values are written as references to the events
// that carry them, so a snapshot stays small however large the outputs are. Equal runs
// give equal bytes, which is how replay is verified (I2).
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
	w.int(int64(r.failedStep))
	w.bool(r.failures)
	w.int(int64(r.used))
	w.int(r.started)
	w.int(r.ttlDue)
	w.int(r.valueMem)
	w.bool(r.compensating)
	w.uint(uint64(len(r.edits)))
	for _, seq := range r.edits {
		w.uint(seq)
	}
	w.uint(uint64(len(r.signals)))
	for _, sig := range r.signals {
		w.str(sig.name)
		w.value(sig.val)
	}
	w.uint(uint64(len(r.compensations)))
	for _, u := range r.compensations {
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
	w.uint(uint64(r.worklist.len()))
	r.worklist.each(func(e entry) {
		w.byte(byte(e.kind))
		if e.kind == runEntry {
			return
		}
		w.uint(uint64(index[e.scope]))
		w.int(int64(e.step))
	})
	tree := r.belowSteps != 0 || r.share != (journal.Share{}) || r.funds.estimated != 0
	jobs := 0
	for _, s := range scopes {
		jobs += len(s.jobs)
	}
	resumes := r.resumes(scopes)
	tree = tree || jobs > 0 || resumes
	if r.funds.held != 0 || r.funds.settled != 0 || r.paused || tree {
		w.int(r.funds.held)
		w.int(r.funds.settled)
		w.bool(r.paused)
	}
	if tree {
		w.int(r.belowSteps)
		w.int(r.share.Steps)
		w.int(r.share.Memory)
	}
	if r.funds.estimated != 0 || jobs > 0 || resumes {
		w.int(r.funds.estimated)
	}
	if jobs > 0 || resumes {
		w.uint(uint64(jobs))
		r.EachJob(func(j *OpenJob) {
			w.uint(uint64(index[r.scope(j.Ref.Path)]))
			w.uint(uint64(j.Ref.Step))
			w.str(j.Provider)
			w.str(j.ID)
		})
	}
	if resumes {
		w.lastRuns(r.funds.before, scopes)
	}
	return w.buf
}

// resumes reports whether the run has child runs that may go on, or is one that has.
func (r *Run) resumes(scopes []*scope) bool {
	return r.funds.before != 0 || slices.ContainsFunc(scopes, func(s *scope) bool { return len(s.lastRuns) > 0 })
}

// lastRuns writes which child runs may go on, and what this one has used before it did.
func (w *writer) lastRuns(before ledger.Amount, scopes []*scope) {
	n := 0
	for _, s := range scopes {
		n += len(s.lastRuns)
	}
	w.int(int64(before))
	w.uint(uint64(n))
	for k, s := range scopes {
		for _, i := range slices.Sorted(maps.Keys(s.lastRuns)) {
			w.uint(uint64(k))
			w.uint(uint64(i))
			w.str(s.lastRuns[i])
		}
	}
}

type writer struct{ buf []byte }

func (w *writer) byte(b byte)   { w.buf = append(w.buf, b) }
func (w *writer) uint(v uint64) { w.buf = binary.AppendUvarint(w.buf, v) }
func (w *writer) int(v int64)   { w.buf = binary.AppendVarint(w.buf, v) }
func (w *writer) str(s string)  { w.buf = wire.AppendString(w.buf, s) }

func (w *writer) bool(b bool) {
	if b {
		w.byte(1)
	} else {
		w.byte(0)
	}
}

// value writes a reference: 0 for none; 1 and the bytes when no event carries the
// value; otherwise the event's number + 1 and the element.
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
	w.bool(s.held)
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

// step writes a step's state; a step that has not changed takes two bytes.
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
	if c.child != nil {
		w.str(c.child.run)
		w.bool(c.child.retry)
		w.bool(c.open > 0)
		w.int(c.child.share.Credits)
		w.int(c.child.share.Steps)
		w.int(c.child.share.Memory)
	}
	l := c.loop
	switch {
	case l == nil:
		w.byte(0)
		return
	case l.rounds == nil:
		w.byte(1)
	default:
		w.byte(loopWithRounds)
	}
	w.str(l.file)
	w.value(l.list)
	w.int(l.from)
	w.int(l.have)
	w.bool(l.more)
	w.int(l.next)
	w.int(l.nFailed)
	w.stepError(l.firstErr)
	w.bool(l.spilled)
	w.int(l.outBytes)
	w.uint(uint64(len(l.outs)))
	for _, v := range l.outs {
		w.value(v)
	}
	if l.rounds == nil {
		return
	}
	w.value(l.acc)
	w.bool(l.done)
	w.uint(uint64(len(l.completed)))
	for _, n := range l.completed {
		w.int(n)
	}
}

// loopWithRounds marks a loop whose state of rounds follows. 1 marks one without.
const loopWithRounds = 2
