// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A batch is what shares one commit: the changes of many runs, and everything that must
// wait until they are durable.
type batch struct {
	dirty []*loadedRun // runs with new events, in the order they were touched
	bytes int          // of new events
	// urgent is true when something waits for this batch. Nothing waits for progress
	// alone: it is committed with the next urgent change or when it is due.
	urgent bool
	due    int64

	inputs   []*input         // to be answered, or handled again if the batch is lost
	commands []pendingCommand // the commands of its events
	extra    []store.Transition

	// Filled by encodeBatch, in parallel.
	transitions []store.Transition
	runs        []*loadedRun // nil for extra transitions
	compacted   []int        // bytes of the run's tail that its compaction covers; -1 = none
}

type pendingCommand struct {
	l          *loadedRun
	cmd        machine.Command
	definition *machine.Definition // CmdResolve
}

// cmdFree frees the slots of an external job that has ended.
const cmdFree = machine.CmdAdmit + 1

func (b *batch) empty() bool {
	return len(b.dirty) == 0 && len(b.inputs) == 0 && len(b.commands) == 0 && len(b.extra) == 0
}

// reset empties the batch for reuse. What it pointed to belongs to others.
func (b *batch) reset() {
	clear(b.dirty)
	clear(b.inputs)
	clear(b.commands)
	clear(b.extra)
	clear(b.transitions)
	clear(b.runs)
	*b = batch{
		dirty: b.dirty[:0], inputs: b.inputs[:0], commands: b.commands[:0], extra: b.extra[:0],
		transitions: b.transitions[:0], runs: b.runs[:0], compacted: b.compacted[:0],
	}
}

// keptCapacity is for how many runs an idle batch keeps capacity.
const keptCapacity = 2048

// shrink frees the memory of a large batch.
func (b *batch) shrink() {
	if max(cap(b.dirty), cap(b.inputs), cap(b.commands), cap(b.transitions)) > keptCapacity {
		*b = batch{}
	}
}

// oneTree reports whether the batch has transitions of one run only, or of runs of one tree.
func (b *batch) oneTree() bool {
	if len(b.transitions) == 1 {
		return true
	}
	for i := range b.transitions {
		if t := &b.transitions[i]; t.Group == "" || t.Group != b.transitions[0].Group {
			return false
		}
	}
	return len(b.transitions) <= maxInlineTree
}

// maxInlineTree bounds the runs of a tree whose batch the loop commits itself.
const maxInlineTree = 8

// leaveOutDropped removes the transitions of runs that have left memory since they were
// added: the snapshot of another run of their tree panicked.
func (b *batch) leaveOutDropped() {
	n := 0
	for i, l := range b.runs {
		if l != nil && l.dropped {
			continue
		}
		b.transitions[n], b.runs[n], b.compacted[n] = b.transitions[i], l, b.compacted[i]
		n++
	}
	clear(b.transitions[n:])
	clear(b.runs[n:])
	b.transitions, b.runs, b.compacted = b.transitions[:n], b.runs[:n], b.compacted[:n]
}

// addExtra adds the extra transitions from number n on.
func (b *batch) addExtra(n int) {
	for _, t := range b.extra[n:] {
		b.transitions, b.runs, b.compacted = append(b.transitions, t), append(b.runs, nil), append(b.compacted, -1)
	}
}
