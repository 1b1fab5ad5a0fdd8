// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A batch is what shares one commit: the changes of many runs, and everything
// that must wait until they are durable.
type batch struct {
	dirty []*loadedRun // runs with new events, in the order they were touched
	bytes int          // of new events
	// urgent says that something waits for this batch. Progress alone waits for
	// nobody; it rides along or goes at the next tick.
	urgent bool
	since  int64 // when the first change came

	ins   []*input // to be answered, or handled again when the batch is lost
	owed  []owed   // commands of its events
	extra []store.Transition

	// Filled by encodeBatch, in parallel.
	trans     []store.Transition
	runs      []*loadedRun // nil for extra transitions
	compacted []int        // bytes of the run's tail its compaction covers; -1 = none
}

type owed struct {
	l   *loadedRun
	cmd machine.Command
}

func (b *batch) empty() bool {
	return len(b.dirty) == 0 && len(b.ins) == 0 && len(b.owed) == 0 && len(b.extra) == 0
}

// reset makes the batch ready for reuse. What it pointed to belongs to others.
func (b *batch) reset() {
	clear(b.dirty)
	clear(b.ins)
	clear(b.owed)
	clear(b.extra)
	clear(b.trans)
	clear(b.runs)
	*b = batch{
		dirty: b.dirty[:0], ins: b.ins[:0], owed: b.owed[:0], extra: b.extra[:0],
		trans: b.trans[:0], runs: b.runs[:0], compacted: b.compacted[:0],
	}
}

// keptRuns is for how many runs a batch keeps room while nothing is to be done.
const keptRuns = 128

// slim gives room back that a large batch has taken.
func (b *batch) slim() {
	if max(cap(b.dirty), cap(b.ins), cap(b.owed), cap(b.trans)) > keptRuns {
		*b = batch{}
	}
}

// touch enters a run in the batch under construction. first is its next event.
func (c *core) touch(l *loadedRun, first uint64) {
	if !l.dirty {
		l.dirty = true
		l.from = len(l.tail)
		l.first = first
		c.building.dirty = append(c.building.dirty, l)
	}
	if c.building.since == 0 {
		c.building.since = c.now
	}
	l.version++
	l.touched = c.now
	c.recent.toBack(&l.age)
}

// encodeBatch turns the batch under construction into transitions and starts the next
// one. It returns nil while a commit is under way or nothing needs to go yet. A
// batch without transitions needs no commit, only committed.
func (c *core) encodeBatch() *batch {
	if c.flying != nil || c.stalled != nil || c.dead != nil {
		return nil
	}
	c.tidy()
	if c.spare == nil {
		c.spare = new(batch) // the others are being filled and carried out
	}
	b := c.building
	if b.empty() {
		b.urgent, b.since = false, 0
		b.slim()
		c.spare.slim()
		return nil
	}
	if !b.urgent && !c.full() && c.now < b.since+lazyTick {
		return nil
	}
	b.addExtra(0)
	before := len(b.extra)
	for _, l := range b.dirty {
		if !l.gone {
			c.transition(b, l)
		}
	}
	b.addExtra(before) // marks of runs of which no snapshot could be made
	c.building, c.spare, c.flying = c.spare, nil, b
	return b
}

// addExtra takes up the extra transitions from number n on.
func (b *batch) addExtra(n int) {
	for _, t := range b.extra[n:] {
		b.trans, b.runs, b.compacted = append(b.trans, t), append(b.runs, nil), append(b.compacted, -1)
	}
}

// transition adds what the run did since the last batch.
func (c *core) transition(b *batch, l *loadedRun) {
	t := store.Transition{Key: l.key, Epoch: c.epoch}
	if len(l.tail) > l.from {
		t.First, t.Last = l.first, l.run.Last()
		t.Frames = l.tail[l.from:len(l.tail):len(l.tail)]
		l.suspended = false
	}
	if l.begin != nil {
		t.Plans = l.begin.prog.stored
		t.Idempotency = l.begin.idem
	}
	compacted := -1
	if f := c.compaction(l); f != nil {
		t.Compaction, compacted = f, len(l.tail)
	}
	if l.gone { // its snapshot panicked: nothing of this is written but its mark, with the head as it was
		return
	}
	if l.newHead(c.now) {
		head := l.head
		t.Head = &head
	}
	if l.leaving {
		t.Suspension = &store.Suspension{WakeAt: l.run.NextDue()}
		l.wake, l.suspended = t.Suspension.WakeAt, true
	}
	l.dirty, l.flying, l.encoded = false, true, l.version
	l.leaving, l.compact, l.forceHead = false, false, false
	b.trans = append(b.trans, t)
	b.runs = append(b.runs, l)
	b.compacted = append(b.compacted, compacted)
}

// compaction covers the run's tail by a chunk when its size says so (storage.md: the
// geometric rule keeps the cost of a transition independent of the length of
// history), at the end of a run, and where suspending or the pack rule asks.
func (c *core) compaction(l *loadedRun) *store.Compaction {
	settled := l.settled()
	if len(l.tail) == 0 || !settled && !l.compact && !l.leaving && len(l.tail) <= max(minCompaction, 2*l.snap) {
		return nil
	}
	f := &store.Compaction{First: l.chunked + 1, Last: l.run.Last(), Chunk: l.tail[:len(l.tail):len(l.tail)]}
	if settled {
		return f
	}
	if err := c.protect(l, func() { f.Format, f.State = machine.SnapshotFormat, l.run.Snapshot(nil) }); err != nil {
		return nil
	}
	return f
}
