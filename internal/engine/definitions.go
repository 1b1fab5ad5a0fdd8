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

// CmdFind has a recipe found that an expression has named. It is no command of a run; the answer is inFound.
const CmdFind = cmdFree + 1

// askForRecipe has a recipe found, once what asks for it is durable.
func (c *core) askForRecipe(l *loadedRun, ref journal.Ref, d *machine.Definition) {
	b := c.pipeline.building
	b.commands, b.urgent = append(b.commands, pendingCommand{l, machine.Command{Kind: CmdFind, Ref: ref}, d}), true
}

// findRecipe carries out CmdFind.
func (e *Engine) findRecipe(ef *effect) {
	in := &input{kind: inFound, key: ef.id.Key, found: &program.Found{Named: ef.named}}
	in.m.Ref = ef.id.Ref
	in.found.Fail(e.contain(ef.id.Key.Run, "finding a recipe", func() error {
		return in.found.Find(e.ctx, e.core.programs, e.cfg.Definitions, in.key.Account, e.cfg.Actions, e.cfg.Moderators)
	}))
	if e.ctx.Err() == nil { // otherwise the step asks again after the next start
		_ = e.post(in)
	}
}

// recipeFound pins a recipe that a step has asked for, and lets the step ask again.
func (c *core) recipeFound(in *input) {
	l, err := c.residency.get(in.key)
	if err != nil || !l.run.Asks(in.m.Ref) {
		return // it asks again when it can be read, or no longer
	}
	w, root := waiter{l, in.m.Ref}, c.rootOf(l)
	in.found.FitInto(root.run.Start().Tree)
	switch f := in.found; {
	case f.Later:
		c.tree.askLater(w, c.now)
		return
	case f.Failure != nil:
		_ = c.inject(l, machine.Input{Kind: machine.InGranted, Ref: in.m.Ref, Child: &machine.ChildGrant{Failure: f.Failure}})
		c.pipeline.building.urgent = true
		return
	case root.place != nil:
		return // the root cannot be loaded; askAgain is called when it is
	}
	last := root.run.Last()
	err = c.inject(root, machine.Input{Kind: machine.InPinned, Text: in.found.Named.Ref, Tree: in.found.Tree})
	if err != nil || root.dropped {
		return
	}
	if root.run.Last() > last {
		root.plans = append(root.plans, in.found.Plans...)
		root.found = root.found.With(in.found.Programs)
	}
	c.tree.asked = append(c.tree.asked, w)
}
