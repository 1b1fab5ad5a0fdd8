// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// CommandKind is what must be done in the world.
type CommandKind uint8

// The commands. All are idempotent: recovery carries out again what is owed.
const (
	// CmdAcquire asks the arbiter for an attempt: answer InGranted or InHeld.
	CmdAcquire CommandKind = iota + 1
	// CmdDispatch hands the attempt Fence to a worker; see Run.Task.
	CmdDispatch
	// CmdCancelTask tells whoever carries out the attempt Fence to stop.
	CmdCancelTask
	// CmdNeedItems asks for items From.. (at most N) of the file File: answer InItems.
	CmdNeedItems
	// CmdCollect asks for the outputs of the N iterations of a finished loop as one
	// list in a file, because together they exceed the inline limit: answer InResult
	// with the reference to it (jsonx.Large) as Output.
	CmdCollect
	// CmdContinue asks for InContinue: the last Decide stopped at its limit.
	CmdContinue
)

// A Command is one of them.
type Command struct {
	Kind  CommandKind
	Ref   journal.Ref
	Fence journal.Fence
	From  int64
	N     int64
	File  string
}

// commandsOf appends the commands that one event causes; s is its scope, nil for
// an event of the run. Owed gives them from state alone, but for those of what is
// about to be cancelled; a property test holds that it gives no others.
func (r *Run) commandsOf(ev *journal.Event, s *scope) {
	switch ev.Kind {
	case journal.EvNodeQueued, journal.EvNodeLost:
		r.command(Command{Kind: CmdAcquire, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen}})
	case journal.EvNodeStarted:
		r.command(Command{Kind: CmdDispatch, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen, Attempt: ev.Attempt}})
	case journal.EvNodeCancelled:
		if ev.Attempt > 0 {
			r.command(Command{Kind: CmdCancelTask, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen, Attempt: ev.Attempt}})
		}
	case journal.EvNodeRetried, journal.EvNodeFailed, journal.EvNodeFallback, journal.EvNodeSkipped:
		// The machine's own clock ended the attempt: its worker does not know.
		if ev.Attempt > 0 && fault.CauseOf(ev.Code) == fault.CauseTimeout {
			r.command(Command{Kind: CmdCancelTask, Ref: ev.Ref(), Fence: journal.Fence{Gen: r.gen, Attempt: ev.Attempt}})
		}
	}
	r.issueOwed(ev, s)
}

// askComposites issues the command of a loop that came to need an answer, from the
// scope of the event outward.
func (r *Run) issueOwed(ev *journal.Event, own *scope) {
	for s := own; s != nil; s = s.parent {
		if ev.Kind >= journal.EvNodeOpened && s == own {
			r.issueOwedCommand(s.comps[ev.Step-s.g.First])
		}
		if s.parent == nil {
			return
		}
		if s.live > 0 && s == own && ev.Kind != journal.EvNodeItems {
			// Nothing above can have changed while this scope is open.
			return
		}
		r.issueOwedCommand(s.parent.comps[s.owner-s.parent.g.First])
	}
}

func (r *Run) issueOwedCommand(c *composite) {
	if c == nil || c.issued || !c.owes() {
		return
	}
	c.issued = true
	r.command(c.owedCommand(r.gen))
}

// question is the command whose answer the loop waits for.
func (c *composite) owedCommand(gen uint32) Command {
	cmd := Command{Kind: CmdCollect, Ref: c.scope.ref(c.step), Fence: journal.Fence{Gen: gen}, N: c.loop.next}
	if c.needsItems() {
		cmd.Kind, cmd.From, cmd.N, cmd.File = CmdNeedItems, c.loop.have, itemBatch, c.loop.file
	}
	return cmd
}

func (r *Run) command(c Command) { r.turn.Commands = append(r.turn.Commands, c) }

// Owed appends the commands whose closing event is absent and still wanted, in
// the order of scopes and steps. Recovery is carrying them out.
func (r *Run) Owed(buf []Command) []Command {
	for _, s := range r.sortedScopes() {
		if s.state == scopeSweep {
			continue // what is open in it is about to be cancelled
		}
		for k := range s.steps {
			st, i := &s.steps[k], int32(k)
			fence := journal.Fence{Gen: r.gen, Attempt: st.attempt}
			switch st.status {
			case journal.Queued, journal.Blocked:
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

// Open is how many attempts the run holds or waits for: the fold from which a
// restart recounts slots.
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

// EachRunning visits the attempts that were handed out, in order.
func (r *Run) EachRunning(fn func(journal.Ref, journal.Fence)) {
	for _, s := range r.sortedScopes() {
		for i := range s.steps {
			if st := &s.steps[i]; st.status == journal.Running && s.comps[int32(i)] == nil {
				fn(s.ref(int32(i)), journal.Fence{Gen: r.gen, Attempt: st.attempt})
			}
		}
	}
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
	slices.SortFunc(all, func(a, b *scope) int { return strings.Compare(string(a.path), string(b.path)) })
	return all
}
