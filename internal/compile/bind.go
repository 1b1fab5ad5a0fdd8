// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/plan"
)

// reservedNames cannot be bound (R12); the start of the run provides their values.
// `steps` and `item` are reserved too but do not have such values.
var reservedNames = []string{"_context", "fileHashes", "files", "input", "inputs", "parameters", "workflow"}

func isReserved(name string) bool {
	return name == "steps" || name == "item" || slices.Contains(reservedNames, name)
}

// bind assigns every outputBinding its slot: one slot per name and frame. Then it
// determines, for every scope, which of its steps bind a slot.
func (c *compiler) bind() {
	for g := range c.p.Graphs {
		if c.p.Graphs[g].Frame == int32(g) {
			c.frames[int32(g)] = &frame{slots: map[string]int32{}}
		}
	}
	for i := range c.nodes {
		c.bindStep(int32(i))
	}
	for g, f := range c.frames {
		c.p.Graphs[g].Slots = int32(len(f.names))
	}
	for at, steps := range c.binders {
		slices.Sort(steps)
		c.binders[at] = slices.Compact(steps)
	}
	c.checkBranches()
	for at, steps := range c.binders {
		if k := slices.IndexFunc(steps, func(i int32) bool { return c.definitelyBinds(i, at.slot) }); k >= 0 {
			c.firstDefinite[at] = k
		}
	}
}

func (c *compiler) bindStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if n.invalid || n.bind == "" {
		return
	}
	at := c.valueAt(n.bindPtr)
	switch {
	case !expressions.IsName(n.bind):
		c.fail(fault.RecipeInvalid, "bad-name", at, fmt.Sprintf("%q cannot be used as a name in expressions", n.bind),
			"want letters, digits and underscores, not starting with a digit, and no keyword or type of CEL")
		return
	case isReserved(n.bind):
		c.fail(fault.RecipeInvalid, "reserved-name", at, fmt.Sprintf("%q is a reserved name and cannot be bound", n.bind), "choose another name")
		return
	}
	if loop := c.loopVariable(i, n.bind); loop != plan.None {
		c.fail(fault.RecipeInvalid, "reserved-name", at,
			fmt.Sprintf("%q is a variable of the loop %q and cannot be bound inside it", n.bind, c.p.Steps[loop].ID), "choose another name",
			c.place(c.valueAt(c.nodes[loop].ptr+"/loop"), "the loop"))
		return
	}
	frameAt := c.p.Graphs[st.Graph].Frame
	f := c.frames[frameAt]
	slot, ok := f.slots[n.bind]
	if !ok {
		slot = int32(len(f.names))
		f.slots[n.bind] = slot
		f.names = append(f.names, n.bind)
		f.by = append(f.by, nil)
	}
	f.by[slot] = append(f.by[slot], i)
	st.Bind, st.Slot = n.bind, slot
	for at, g := i, st.Graph; ; g = c.outer(g) {
		key := graphSlot{g, slot}
		c.binders[key] = append(c.binders[key], at)
		if g == frameAt {
			return
		}
		at = c.p.Graphs[g].Owner
	}
}

// loopVariable returns the innermost loop around step i if name is one of its
// variables, else None.
func (c *compiler) loopVariable(i int32, name string) int32 {
	f := c.p.Graphs[c.p.Steps[i].Graph].Frame
	owner := c.p.Graphs[f].Owner
	if owner == plan.None {
		return plan.None
	}
	if st := &c.p.Steps[owner]; st.As == name || st.Index == name || st.Rounds.Accumulates() && st.Rounds.As == name {
		return owner
	}
	return plan.None
}

// checkBranches refuses a name that is bound in two concurrent branches, and records
// in which branch of a parallel step each name is bound.
func (c *compiler) checkBranches() {
	for i := range c.p.Steps {
		st := &c.p.Steps[i]
		if st.Kind != plan.Parallel {
			continue
		}
		for _, branch := range st.Branches {
			c.checkBranch(int32(i), branch)
		}
	}
}

func (c *compiler) checkBranch(par, branch int32) {
	// A branch and everything below it are contiguous in Steps, because flatten
	// works depth first; so this is linear in the size of the branch.
	end := c.endOfGraph(branch)
	f := c.p.Graphs[branch].Frame
	for i := c.p.Graphs[branch].First; i < end; i++ {
		st := &c.p.Steps[i]
		if st.Slot == plan.None || c.p.Graphs[st.Graph].Frame != f {
			continue
		}
		key := graphSlot{par, st.Slot}
		other, ok := c.branchOf[key]
		switch {
		case !ok:
			c.branchOf[key] = branch
		case other != branch:
			first := c.firstBinder(other, st.Slot)
			c.fail(fault.RecipeInvalid, "binding-twice", c.valueAt(c.nodes[i].bindPtr),
				fmt.Sprintf("%q is bound in two branches of %q that run at the same time", st.Bind, c.p.Steps[par].ID),
				"give each branch a name of its own",
				c.place(c.valueAt(c.nodes[first].bindPtr), "bound here too"))
		}
	}
}

// firstBinder returns the first step, in g or below it, that itself binds the slot.
func (c *compiler) firstBinder(g, slot int32) int32 {
	f := c.p.Graphs[g].Frame
	for i := c.p.Graphs[g].First; i < c.endOfGraph(g); i++ {
		if st := &c.p.Steps[i]; st.Slot == slot && c.p.Graphs[st.Graph].Frame == f {
			return i
		}
	}
	return plan.None
}

// endOfGraph returns the index after the last step of g and everything below it.
func (c *compiler) endOfGraph(g int32) int32 {
	for {
		gr := &c.p.Graphs[g]
		end := gr.First + gr.N
		last := plan.None
		for i := end - 1; i >= gr.First && last == plan.None; i-- {
			last = c.lastGraph(i)
		}
		if last == plan.None {
			return end
		}
		g = last
	}
}

// lastGraph returns the last graph that a step owns, or None.
func (c *compiler) lastGraph(i int32) int32 {
	st := &c.p.Steps[i]
	last := max(st.Then, st.Else, st.Body, st.Fallback, st.Compensate)
	for _, b := range st.Branches {
		last = max(last, b)
	}
	return last
}

// definitelyBinds reports whether the slot is set whenever step i has completed:
// definite assignment.
func (c *compiler) definitelyBinds(i, slot int32) bool {
	st, n := &c.p.Steps[i], &c.nodes[i]
	if n.src.When != "" || st.ContinueOnError || st.OnError == plan.OnErrorSkip {
		return false // later steps run even when it was skipped or failed
	}
	if st.Slot == slot {
		return true
	}
	if st.OnError == plan.OnErrorFallback && !c.scopeDefinitelyBinds(st.Fallback, slot) {
		return false
	}
	switch st.Kind {
	case plan.Condition:
		return c.scopeDefinitelyBinds(st.Then, slot) && c.scopeDefinitelyBinds(st.Else, slot)
	case plan.Parallel:
		if st.Strategy == plan.Ignore {
			return false
		}
		binds := func(b int32) bool { return c.scopeDefinitelyBinds(b, slot) }
		if st.WaitFor == plan.WaitAll {
			return slices.ContainsFunc(st.Branches, binds)
		}
		// Only one branch is certain to complete, and it may be any of them.
		return len(st.Branches) > 0 && !slices.ContainsFunc(st.Branches, func(b int32) bool { return !binds(b) })
	}
	return false
}

func (c *compiler) scopeDefinitelyBinds(g, slot int32) bool {
	if g == plan.None {
		return false
	}
	if c.neverCompletes(g) {
		return true // no step after it runs, so none lacks the value
	}
	return slices.ContainsFunc(c.binders[graphSlot{g, slot}], func(i int32) bool { return c.definitelyBinds(i, slot) })
}

// neverCompletes reports whether a scope always ends in a fail step (R40).
func (c *compiler) neverCompletes(g int32) bool {
	if dead, ok := c.neverEnds[g]; ok {
		return dead
	}
	gr, dead := &c.p.Graphs[g], false
	for i := gr.First; i < gr.First+gr.N && !dead; i++ {
		st := &c.p.Steps[i]
		if c.nodes[i].src.When != "" || st.ContinueOnError || st.OnError != plan.OnErrorFail {
			continue
		}
		switch st.Kind {
		case plan.Fail:
			dead = true
		case plan.Condition:
			dead = st.Else != plan.None && st.Then != plan.None && c.neverCompletes(st.Then) && c.neverCompletes(st.Else)
		case plan.Parallel:
			dead = st.WaitFor == plan.WaitAll && st.Strategy != plan.Ignore && slices.ContainsFunc(st.Branches, c.neverCompletes)
		}
	}
	c.neverEnds[g] = dead
	return dead
}
