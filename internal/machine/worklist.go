// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// The worklist lists what the run can decide by itself: steps that may start,
// composites that can be joined or opened further, scopes to sweep, the run's
// own end. It is part of the fold: Apply adds an entry the moment its predicate
// becomes true and removes it the moment it becomes false, so that a refolded
// run holds the same entries in the same order, and a Decide that stopped at
// its limit goes on where it was (CmdContinue).
type worklist struct {
	entries []entry
	base    uint64 // entries dropped at the front so far
	n       int    // entries not removed
}

// An entry is one thing to decide. The zero entry was removed.
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

func (a *worklist) len() int { return a.n }

// push appends an entry and returns its position, never 0.
func (a *worklist) push(e entry) uint64 {
	a.entries = append(a.entries, e)
	a.n++
	return a.base + uint64(len(a.entries))
}

func (a *worklist) remove(pos uint64) {
	i := pos - 1 - a.base // wraps for positions already trimmed
	if i >= uint64(len(a.entries)) || a.entries[i].kind == noEntry {
		return
	}
	a.entries[i] = entry{}
	a.n--
	a.trim()
}

// front returns the oldest entry; ok is false when there is none.
func (a *worklist) front() (e entry, ok bool) {
	a.trim()
	if a.n == 0 {
		return entry{}, false
	}
	return a.entries[0], true
}

// trim drops removed entries at the front. Positions are never reused.
func (a *worklist) trim() {
	i := 0
	for i < len(a.entries) && a.entries[i].kind == noEntry {
		i++
	}
	a.base += uint64(i)
	if i*2 >= len(a.entries) { // move only when half is dead: amortised constant
		a.entries = a.entries[:copy(a.entries, a.entries[i:])]
	} else {
		a.entries = a.entries[i:]
	}
}

// each visits the entries in order.
func (a *worklist) each(fn func(entry)) {
	for _, e := range a.entries {
		if e.kind != noEntry {
			fn(e)
		}
	}
}

// track keeps a worklist position in step with its predicate.
func (r *Run) track(pos *uint64, due bool, e entry) {
	switch {
	case due && *pos == 0:
		*pos = r.worklist.push(e)
	case !due && *pos != 0:
		r.worklist.remove(*pos)
		*pos = 0
	}
}

// touchStep re-evaluates whether a step may be started or announced.
func (r *Run) refreshStep(s *scope, i int32) {
	st := &s.steps[i]
	settled := st.waiting == 0 || mutation.FanIn && int(st.waiting) < len(s.step(r.plan, i).Preds)
	due := (st.status == journal.Pending || st.status == journal.Invalidated) && settled &&
		s.state == scopeOpen && !s.heldBack()
	if due && r.plan.Waves && s.step(r.plan, i).Wave > s.wave {
		due = st.flags&flagReady == 0 // only to be announced
	}
	r.track(&st.pos, due, entry{scope: s, step: i, kind: stepEntry})
}

// heldBack: a retry reopened the iteration that s belongs to, and the window of
// its loop has no room for it yet.
func (s *scope) heldBack() bool {
	for ; s != nil; s = s.parent {
		if s.held {
			return true
		}
	}
	return false
}

// compensates says whether s is a compensation scope or inside one.
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
