// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A pipeline makes what runs do durable: one batch is being built while another one is
// being committed, and what waited for a batch is released after its commit.
//
//	touch             a run has something to commit
//	encodeBatch       the batch under construction becomes transitions
//	committed         the store has answered
//	releaseCommitted  what waited for the batch is released
type pipeline struct {
	c                           *core
	building, committing, spare *batch
	committedBatch              *batch // committed; what waited for it has not been released
	number                      uint64 // of the batch under construction
	doubts                      bool   // inputs of the next batch to be committed are marked (decideAgain)
}

func (p *pipeline) init(c *core) {
	*p = pipeline{c: c, building: new(batch), spare: new(batch), number: 1}
}

// touch adds a run to the batch under construction. first is its next event.
func (p *pipeline) touch(l *loadedRun, first uint64) {
	if !l.dirty {
		l.dirty = true
		l.from = len(l.tail)
		l.first = first
		p.building.dirty = append(p.building.dirty, l)
	}
	if p.building.due == 0 {
		p.building.due = p.c.now + lazyTick
	}
	l.version++
	if l.touched != p.c.now { // with many turns at a time, it is there already
		l.touched = p.c.now
		p.c.residency.recent.ToBack(&l.age)
	}
}

// encodeBatch turns the batch under construction into transitions and starts the next
// one. It returns nil while a commit is running or while nothing needs to be committed
// yet. A batch without transitions needs no commit, only a call of committed.
func (p *pipeline) encodeBatch() *batch {
	if p.committing != nil || p.c.recovery.stalled != nil || p.c.recovery.dead != nil {
		return nil
	}
	p.c.residency.tidy()
	if p.spare == nil {
		p.spare = new(batch) // the other two are in use
	}
	b := p.building
	if b.empty() {
		b.urgent, b.due = false, 0
		b.shrink()
		p.spare.shrink()
		return nil
	}
	if !b.urgent && !p.full() && p.c.now < b.due {
		return nil
	}
	b.transitions = slices.Grow(b.transitions, len(b.extra)+len(b.dirty))
	b.addExtra(0)
	before := len(b.extra)
	// Starts with a key come last: the store may refuse them, and then entries of the
	// account that were made after theirs would have left lots to them in vain.
	for _, keyed := range [...]bool{false, true} {
		for _, l := range b.dirty {
			if !l.dropped && keyed == (l.start != nil && l.start.idem != nil) {
				p.transition(b, l)
			}
		}
	}
	b.leaveOutDropped()
	b.commands = slices.DeleteFunc(b.commands, func(o pendingCommand) bool {
		return o.cmd.Kind == cmdFree && o.l.dropped && o.l.dirty // its job's end is not written
	})
	b.addExtra(before) // marks of runs whose snapshot panicked
	p.building, p.spare, p.committing = p.spare, nil, b
	p.number++
	return b
}

// transition adds what the run did since the last batch.
func (p *pipeline) transition(b *batch, l *loadedRun) {
	t := store.Transition{Key: l.key, Epoch: p.c.epoch, Group: l.root}
	if len(l.tail) > l.from {
		t.First, t.Last = l.first, l.run.Last()
		t.Frames = l.tail[l.from:len(l.tail):len(l.tail)]
		l.suspended = false
	}
	if l.start != nil {
		t.Plans = l.start.prog.Stored()
		t.Idempotency = l.start.idem
	}
	if len(l.plans) > 0 {
		t.Plans, l.plans = slices.Concat(t.Plans, l.plans), nil
	}
	compacted := -1
	if f := p.compaction(l); f != nil {
		t.Compaction, compacted = f, len(l.tail)
	}
	if l.dropped { // its snapshot panicked: only its mark is written, with the previous head
		return
	}
	if !l.claim.Empty() {
		t.Entries = p.c.purses.Entries(l.key.Account, l.key.Run, &l.claim, l.run.Plan().TTLMS*1000)
		t.Watch = p.c.purses.Watch(l.key.Account)
	}
	if l.newHead(p.c.now) {
		head := l.head
		t.Head = &head
	}
	if len(l.jobs) > 0 || l.suspending {
		l.told, t.Records = l.tasks.Take(l.jobs, l.suspending)
		t.RecordsAt, l.jobs = p.c.now, nil
	}
	if l.suspending {
		t.Suspension = &store.Suspension{WakeAt: l.run.NextDue()}
		l.wakeAt, l.suspended = t.Suspension.WakeAt, true
	}
	l.dirty, l.committing, l.encoded = false, true, l.version
	l.suspending, l.compact, l.forceHead = false, false, false
	b.transitions = append(b.transitions, t)
	b.runs = append(b.runs, l)
	b.compacted = append(b.compacted, compacted)
}

// compaction returns a compaction that covers the run's tail, or nil. A run is
// compacted when its tail is large enough (storage.md: the geometric rule keeps the
// cost of a transition independent of the length of history), at its end, when it is
// suspended, and when compactOldest or compactAll ask for it.
func (p *pipeline) compaction(l *loadedRun) *store.Compaction {
	settled := l.settled()
	if len(l.tail) == 0 || !settled && !l.compact && !l.suspending && len(l.tail) <= max(minCompaction, 2*l.snapshotSize) {
		return nil
	}
	f := &store.Compaction{First: l.chunked + 1, Last: l.run.Last(), Chunk: l.tail[:len(l.tail):len(l.tail)]}
	if settled {
		return f
	}
	if err := p.c.protect(l, func() { f.Format, f.State = machine.SnapshotFormat, l.run.Snapshot(nil) }); err != nil {
		return nil
	}
	return f
}

// full reports whether the batch under construction should be committed before more is
// added.
func (p *pipeline) full() bool {
	return p.building.bytes >= p.c.cfg.MaxBatchBytes || len(p.building.dirty) >= maxRuns
}
