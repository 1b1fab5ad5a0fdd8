// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// CommandKind is a kind of action that the caller must carry out.
type CommandKind uint8

// The commands. All are idempotent, because recovery repeats those that are owed.
const (
	// CmdAcquire requests a slot for an attempt; the answer is InGranted or InHeld.
	CmdAcquire CommandKind = iota + 1
	// CmdDispatch hands the attempt Fence to a worker; see Run.Task.
	CmdDispatch
	// CmdCancelTask asks the worker of the attempt Fence to stop.
	CmdCancelTask
	// CmdNeedItems requests at most N items, from index From on, of the file File; the
	// answer is InItems.
	CmdNeedItems
	// CmdCollect requests the outputs of the N iterations of a finished loop as one
	// list in a file, because together they exceed the inline limit. The answer is
	// InResult with the reference to the file (jsonx.Large) as Output.
	CmdCollect
	// CmdContinue requests InContinue, because the last Decide stopped at its limit.
	CmdContinue
	// CmdChild asks for the end of the child run Child, which was started with the event
	// that caused the command. The answer is InChildEnded.
	CmdChild
	// CmdCancelChild cancels the child run Child. The answer is InChildEnded, too.
	CmdCancelChild
	// CmdAdmit requests InAdmit once the account may have another live run.
	CmdAdmit
)

// A Command is one action that the caller must carry out after the commit.
type Command struct {
	Kind  CommandKind
	Ref   journal.Ref
	Fence journal.Fence
	From  int64
	N     int64
	File  string
	Child string
}

// commandsOf appends the commands that one event causes; s is its scope, nil for an
// event of the run. Owed derives the same commands from state alone, except those for
// steps that are about to be cancelled. A property test asserts that Owed derives no
// command that no event has caused.
func (r *Run) commandsOf(ev *journal.Event, s *scope) {
	switch ev.Kind {
	case journal.EvRunStatus:
		switch ev.Status() {
		case journal.RunQueued:
			r.command(Command{Kind: CmdAdmit, Ref: journal.Ref{Step: -1}})
		case journal.RunDispatching:
			r.issueAllOwed()
		}
	case journal.EvRunUnpaused:
		r.acquireAll()
	case journal.EvNodeQueued, journal.EvNodeLost:
		if r.paused {
			break
		}
		r.command(Command{Kind: CmdAcquire, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen}})
	case journal.EvNodeStarted:
		r.command(Command{Kind: CmdDispatch, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen, Attempt: ev.Attempt}})
	case journal.EvChildStarted:
		r.command(s.comps[ev.Step-s.g.First].childCommand(r.gen))
	case journal.EvNodeCancelled:
		if ev.Attempt > 0 && r.plan.Steps[ev.Step].Kind != plan.Recipe {
			r.command(Command{Kind: CmdCancelTask, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen, Attempt: ev.Attempt}})
		}
	case journal.EvNodeRetried, journal.EvNodeFailed, journal.EvNodeFallback, journal.EvNodeSkipped:
		// The machine ended the attempt by its own clock, so the worker does not know.
		if ev.Attempt > 0 && fault.CauseOf(ev.Code) == fault.CauseTimeout && r.plan.Steps[ev.Step].Kind != plan.Recipe {
			r.command(Command{Kind: CmdCancelTask, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen, Attempt: ev.Attempt}})
		}
	}
	r.issueOwed(ev, s)
}

// issueOwed issues the commands that loops owe since the event: first the event's own
// step, then the owners of the scopes around it, from the inside out.
func (r *Run) issueOwed(ev *journal.Event, own *scope) {
	for s := own; s != nil; s = s.parent {
		if ev.Kind >= journal.EvNodeOpened && s == own {
			r.issueOwedCommand(s.comps[ev.Step-s.g.First])
		}
		if s.parent == nil {
			return
		}
		if s.live > 0 && s == own && ev.Kind != journal.EvNodeItems {
			// Nothing further out can have changed while this scope is open.
			return
		}
		r.issueOwedCommand(s.parent.comps[s.owner-s.parent.g.First])
	}
}

func (r *Run) issueOwedCommand(c *composite) {
	if c == nil || c.issued || !c.owes() || r.queued() {
		return
	}
	c.issued = true
	r.command(c.owedCommand(r.gen))
}

// owedCommand is the command whose answer the loop waits for.
func (c *composite) owedCommand(gen uint32) Command {
	cmd := Command{Kind: CmdCollect, Ref: c.scope.ref(c.step), Fence: journal.Fence{Gen: gen}, N: c.loop.next}
	if c.needsItems() {
		cmd.Kind, cmd.From, cmd.N, cmd.File = CmdNeedItems, c.loop.have, itemBatch, c.loop.file
	}
	return cmd
}

func (r *Run) command(c Command) { r.turn.Commands = append(r.turn.Commands, c) }

// Owed appends the commands that are still wanted and whose closing event is absent,
// in the order of scopes and steps. Recovery carries them out.
func (r *Run) Owed(buf []Command) []Command {
	if r.queued() {
		return append(buf, Command{Kind: CmdAdmit, Ref: journal.Ref{Step: -1}})
	}
	for _, s := range r.sortedScopes() {
		for _, c := range s.sortedComps() {
			if c.child != nil && c.open > 0 {
				buf = append(buf, c.childCommand(r.gen))
			}
		}
		if s.state == scopeSweep {
			continue // its open steps are about to be cancelled
		}
		for k := range s.steps {
			st, i := &s.steps[k], int32(k)
			fence := journal.Fence{Gen: r.gen, Attempt: st.attempt}
			switch st.status {
			case journal.Queued, journal.Blocked:
				if r.paused {
					break
				}
				buf = append(buf, Command{Kind: CmdAcquire, Ref: s.ref(i), Fence: journal.Fence{Gen: r.gen}})
			case journal.Running:
				if c := s.comps[i]; c != nil {
					if c.owes() {
						buf = append(buf, c.owedCommand(r.gen))
					}
				} else if s.step(r.plan, i).Kind == plan.Action {
					buf = append(buf, Command{Kind: CmdDispatch, Ref: s.ref(i), Fence: fence})
				}
			}
		}
	}
	if r.worklist.len() > 0 {
		buf = append(buf, Command{Kind: CmdContinue, Ref: journal.Ref{Step: -1}})
	}
	return buf
}

// acquireAll requests a slot for every step that waits for an attempt: while the run was
// paused they had none.
func (r *Run) acquireAll() {
	for _, s := range r.sortedScopes() {
		for k := range s.steps {
			if st := s.steps[k].status; s.state != scopeSweep && (st == journal.Queued || st == journal.Blocked) {
				r.command(Command{Kind: CmdAcquire, Ref: s.ref(int32(k)), Fence: journal.Fence{Gen: r.gen}})
			}
		}
	}
}

// Open counts the attempts that the run holds or waits for. A restart recounts slots
// from it.
func (r *Run) Open() (queued, running int) {
	r.eachScope(func(s *scope) {
		for i := range s.steps {
			switch s.steps[i].status {
			case journal.Queued, journal.Blocked:
				queued++
			case journal.Running:
				if s.comps[int32(i)] == nil {
					running++
				}
			}
		}
	})
	return queued, running
}

// EachRunning visits the attempts that were dispatched and have not ended, in order.
func (r *Run) EachRunning(fn func(journal.Ref, journal.Fence)) {
	for _, s := range r.sortedScopes() {
		for i := range s.steps {
			if st := &s.steps[i]; st.status == journal.Running && s.comps[int32(i)] == nil {
				fn(s.ref(int32(i)), journal.Fence{Gen: r.gen, Attempt: st.attempt})
			}
		}
	}
}

// Ending reports whether a step is in a scope that has ended, so that it is cancelled once
// the scopes and child runs beside it have ended. Its attempt is not dispatched again.
func (r *Run) Ending(ref journal.Ref) bool {
	s, _ := r.at(ref)
	return s != nil && s.state == scopeSweep
}

// sortedScopes returns the scopes in memory in path order, the root first.
func (r *Run) sortedScopes() []*scope {
	if r.root == nil {
		return nil
	}
	all := make([]*scope, 0, len(r.scopes)+1)
	all = append(all, r.root)
	for _, s := range r.scopes {
		all = append(all, s)
	}
	slices.SortFunc(all, byPath)
	return all
}

func byPath(a, b *scope) int { return strings.Compare(string(a.path), string(b.path)) }
