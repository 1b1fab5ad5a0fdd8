// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
)

// A step whose recipe is by an expression asks for a child run twice: the recipe is resolved outside of the
// loop, pinned in the journal of the root run, and then the step asks again (X251, R28). Before the pin is
// durable nothing is lost: the step still asks after a restart.

// CmdResolve resolves what an expression has named. No run gives this command: the core adds it.
const CmdResolve = cmdFree + 1

// requestRecipe has a recipe resolved, once what asks for it is durable.
func (c *core) requestRecipe(l *loadedRun, ref journal.Ref, d *machine.Definition) {
	cmd := machine.Command{Kind: CmdResolve, Ref: ref, Fence: journal.Fence{Gen: l.run.Generation()}}
	b := c.pipeline.building
	b.commands, b.urgent = append(b.commands, pendingCommand{l, cmd, d}), true
}

// resolve carries out CmdResolve.
func (e *Engine) resolve(ef *effect) {
	r := e.resolver.Of(e.ctx, ef.id.Key.Account, ef.definition, func(fn func() error) (err error) {
		e.withSlot(e.readSlots, func() { err = e.contain(ef.id.Key.Run, "resolving a recipe", fn) })
		return err
	})
	if e.ctx.Err() == nil { // otherwise, and if the engine has ended, the step asks again after the next start
		_ = e.post(&input{kind: inLook, key: ef.id.Key, look: func(c *core) { c.recipeResolved(&ef.id, r) }})
	}
}

// recipeResolved pins a recipe that a step has asked for, and lets the step ask again.
func (c *core) recipeResolved(id *taskID, r *program.Resolution) {
	l, err := c.residency.get(id.Key)
	if err != nil || l.run.Generation() != id.Fence.Gen || !l.run.Asks(id.Ref) {
		return // it asks again when it can be read, for something else, or no longer
	}
	w, root := waiter{l, id.Ref}, c.rootOf(l)
	if r.Later() {
		c.tree.askLater(w, c.now)
		return
	}
	if root.place != nil {
		return // the root cannot be loaded; askAgain is called when it is
	}
	if fail := r.Failure(root.run.Start().Tree); fail != nil {
		c.pipeline.building.urgent = true
		// It can only panic, which quarantines the run and is logged.
		_ = c.inject(l, machine.Input{Kind: machine.InGranted, Ref: id.Ref, Child: &machine.ChildGrant{Failure: fail}})
		return
	}
	last := root.run.Last()
	err = c.inject(root, machine.Input{Kind: machine.InPinned, Text: r.Definition.Ref, Tree: r.Tree})
	if err != nil || root.dropped {
		return
	}
	if root.run.Last() > last {
		root.plans = append(root.plans, r.Plans...)
		root.resolved = root.resolved.With(r.Programs)
	}
	c.tree.asked = append(c.tree.asked, w)
}
