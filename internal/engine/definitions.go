// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
)

// A step whose recipe is by an expression asks for a child run twice: the recipe is found outside of the
// loop, pinned in the journal of the root run, and then the step asks again (X251, R28). Before the pin is
// durable nothing is lost: the step still asks after a restart.

// CmdFind has a recipe found that an expression has named. It is no command of a run.
const CmdFind = cmdFree + 1

// askForRecipe has a recipe found, once what asks for it is durable.
func (c *core) askForRecipe(l *loadedRun, ref journal.Ref, d *machine.Definition) {
	cmd := machine.Command{Kind: CmdFind, Ref: ref, Fence: journal.Fence{Gen: l.run.Generation()}}
	b := c.pipeline.building
	b.commands, b.urgent = append(b.commands, pendingCommand{l, cmd, d}), true
}

// findRecipe carries out CmdFind. Steps that ask for the same at the same time share one search.
func (e *Engine) findRecipe(ef *effect) {
	account := ef.id.Key.Account
	v, _, _ := e.finding.Do(account+"\x00"+ef.named.Ref, func() (v any, _ error) {
		e.withSlot(e.readSlots, func() {
			f := &program.Found{Named: ef.named}
			f.Fail(e.contain(ef.id.Key.Run, "finding a recipe", func() error {
				return f.Find(e.ctx, e.core.programs, e.cfg.Definitions, account, e.cfg.Actions, e.cfg.Moderators)
			}))
			v = *f
		})
		return v, nil
	})
	if found, ok := v.(program.Found); ok && e.ctx.Err() == nil { // otherwise the step asks again after the next start
		_ = e.post(&input{kind: inLook, key: ef.id.Key, look: func(c *core) { c.recipeFound(&ef.id, &found) }})
	}
}

// recipeFound pins a recipe that a step has asked for, and lets the step ask again.
func (c *core) recipeFound(id *taskID, f *program.Found) {
	l, err := c.residency.get(id.Key)
	if err != nil || l.run.Generation() != id.Fence.Gen || !l.run.Asks(id.Ref) || l.run.Paused() || c.pausedAbove(l) {
		return // it asks again when it can be read or is not paused any more, for something else, or no longer
	}
	w, root := waiter{l, id.Ref}, c.rootOf(l)
	f.FitInto(root.run.Start().Tree)
	switch {
	case f.Later:
		c.tree.askLater(w, c.now)
		return
	case f.Failure != nil:
		c.pipeline.building.urgent = true
		// It can only panic, which quarantines the run and is logged.
		_ = c.inject(l, machine.Input{Kind: machine.InGranted, Ref: id.Ref, Child: &machine.ChildGrant{Failure: f.Failure}})
		return
	case root.place != nil:
		return // the root cannot be loaded; askAgain is called when it is
	}
	last := root.run.Last()
	err = c.inject(root, machine.Input{Kind: machine.InPinned, Text: f.Named.Ref, Tree: f.Tree})
	if err != nil || root.dropped {
		return
	}
	if root.run.Last() > last {
		root.plans = append(root.plans, f.Plans...)
		root.found = root.found.With(f.Programs)
	}
	c.tree.asked = append(c.tree.asked, w)
}
