// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// The worklist lists what the run can decide without another input: steps that may
// start, composites that can be joined or opened further, scopes to sweep, and the end
// of the run. It is part of the state: applying an event adds an entry as soon as its
// condition becomes true and removes it as soon as it becomes false. So a replayed run
// has the same entries in the same order, and a Decide that stopped at its limit can
// continue where it was (CmdContinue).
type worklist struct {
	entries []entry
	base    uint64 // entries dropped at the front so far
	n       int    // entries not removed
}

// An entry is one thing to decide. A zero entry has been removed.
type entry struct {
	scope *scope
	step  int32 // local index; -1 = the scope itself
	kind  entryKind
}

type entryKind uint8

const (
	noEntry entryKind = iota
	stepEntry
	compositeEntry
	scopeEntry
	runEntry
)

func (w *worklist) len() int { return w.n }

// push appends an entry and returns its position, never 0.
func (w *worklist) push(e entry) uint64 {
	w.entries = append(w.entries, e)
	w.n++
	return w.base + uint64(len(w.entries))
}

func (w *worklist) remove(pos uint64) {
	i := pos - 1 - w.base // wraps around for positions already trimmed
	if i >= uint64(len(w.entries)) || w.entries[i].kind == noEntry {
		return
	}
	w.entries[i] = entry{}
	w.n--
	w.trim()
}

// front returns the oldest entry; ok is false when there is none.
func (w *worklist) front() (e entry, ok bool) {
	w.trim()
	if w.n == 0 {
		return entry{}, false
	}
	return w.entries[0], true
}

// trim drops removed entries at the front. Positions are never reused.
func (w *worklist) trim() {
	i := 0
	for i < len(w.entries) && w.entries[i].kind == noEntry {
		i++
	}
	w.base += uint64(i)
	if i*2 >= len(w.entries) { // move only when half is dead: amortised constant
		w.entries = w.entries[:copy(w.entries, w.entries[i:])]
	} else {
		w.entries = w.entries[i:]
	}
}

// each visits the entries in order.
func (w *worklist) each(fn func(entry)) {
	for _, e := range w.entries {
		if e.kind != noEntry {
			fn(e)
		}
	}
}

// track adds or removes a worklist entry so that it is present exactly while due is
// true.
func (r *Run) track(pos *uint64, due bool, e entry) {
	switch {
	case due && *pos == 0:
		*pos = r.worklist.push(e)
	case !due && *pos != 0:
		r.worklist.remove(*pos)
		*pos = 0
	}
}

// refreshStep updates the worklist entry of a step. An entry means that the step
// may start or, if its wave has not begun, that node.ready must be emitted.
func (r *Run) refreshStep(s *scope, i int32) {
	st := &s.steps[i]
	settled := st.waiting == 0 || mutation.FanIn && int(st.waiting) < len(s.step(r.plan, i).Preds)
	due := (st.status == journal.Pending || st.status == journal.Invalidated) && settled &&
		s.state == scopeOpen && !s.heldBack()
	if due && r.plan.Waves && s.step(r.plan, i).Wave > s.wave {
		due = st.flags&flagReady == 0 // only node.ready is due
	}
	r.track(&st.pos, due, entry{scope: s, step: i, kind: stepEntry})
}

// heldBack reports whether a retry reopened the iteration that contains s while the
// window of its loop has no room for it.
func (s *scope) heldBack() bool {
	for ; s != nil; s = s.parent {
		if s.held {
			return true
		}
	}
	return false
}

// inCompensation reports whether s is a compensation scope or inside one.
func (s *scope) inCompensation() bool {
	for ; s != nil; s = s.parent {
		if s.g.Role == plan.Compensation {
			return true
		}
	}
	return false
}

func (r *Run) refreshScope(s *scope) {
	r.track(&s.pos, s.state == scopeSweep && s.live > 0 && s.openChildren == 0, entry{scope: s, step: -1, kind: scopeEntry})
}

func (r *Run) refreshComposite(c *composite) {
	r.track(&c.pos, r.compositeDue(c), entry{scope: c.scope, step: c.step, kind: compositeEntry})
}

func (r *Run) refreshRun() {
	r.track(&r.runPos, r.runDue(), entry{step: -1, kind: runEntry})
}
