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

// addExtra takes up the extra transitions from number n on.
func (b *batch) addExtra(n int) {
	for _, t := range b.extra[n:] {
		b.trans, b.runs, b.compacted = append(b.trans, t), append(b.runs, nil), append(b.compacted, -1)
	}
}
