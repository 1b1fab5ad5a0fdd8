// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/spell"
)

// resolveNames resolves the names of an expression at its site, and adds the edges to the
// steps that its step must therefore wait for.
func (c *compiler) resolveNames(at site, refs []expr.Ref) []plan.Var {
	var vars []plan.Var
	for _, r := range refs {
		where := at.at
		where.ptr += r.Pointer
		v, ok := c.resolveName(at, r, where.in(r.Offset+at.leading, r.Len))
		if ok && !slices.ContainsFunc(vars, func(o plan.Var) bool { return o.Name == v.Name && o.Member == v.Member }) {
			vars = append(vars, v)
		}
	}
	heap.Sort(vars, func(a, b plan.Var) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Member, b.Member))
	})
	return vars
}

// resolveName resolves one name: first reserved names, then bindings and loop variables
// from the innermost scope outward, then steps by their bare id. So a binding takes
// precedence over a step of the same name.
func (c *compiler) resolveName(at site, r expr.Ref, where location) (plan.Var, bool) {
	switch {
	case r.Name == "steps":
		return c.resolveMember(at, r, where)
	case slices.Contains(reservedNames, r.Name):
		ok := true
		switch r.Name {
		case "input", "inputs", "parameters":
			c.inputField(r, where)
		case "workflow":
			ok = c.workflowField(at, r, where, false)
		}
		return plan.Var{Name: r.Name, Kind: plan.VarInput}, ok
	case r.Name == expr.NowVar || r.Name == expr.SeedVar:
		return c.stepVariable(at, r, where)
	}
	var missed *unbound
	for g := at.graph; g != plan.None; g = c.outer(g) {
		if c.p.Graphs[g].Frame != g {
			continue
		}
		if slot, ok := c.frames[g].slots[r.Name]; ok && (!at.ahead || g != at.graph) {
			m := c.findBinder(at, g, slot, r.Name, where)
			if m == nil {
				c.slotRead[graphSlot{g, slot}] = true
				return plan.Var{Name: r.Name, Kind: plan.VarBinding, Graph: g, Index: slot}, true
			}
			if missed == nil {
				missed = m
			}
		}
		if owner := c.p.Graphs[g].Owner; owner != plan.None {
			if v, ok := c.loopName(at, owner, g, r.Name, where); ok {
				return v, v.Name != ""
			}
		}
	}
	if missed != nil {
		c.fail(fault.RecipeInvalid, missed.rule, where, missed.msg, missed.hint, missed.related...)
		return plan.Var{}, false
	}
	if i, ok := c.byID[r.Name]; ok {
		return c.stepReference(at, i, r.Name, "", r.Path, where)
	}
	if r.Name == budgetName { // not reserved: recipes that bind the name mean what they meant
		return plan.Var{Name: r.Name, Kind: plan.VarBudget}, true
	}
	if c.hidden(r.Name) == plan.None {
		if k, ok := c.inherited(plan.OfNames, r.Name, where, c.handlesAbsence(at, r.Name)); ok {
			return plan.Var{Name: r.Name, Kind: plan.VarInherited, Index: k}, true
		}
	}
	c.undefined(at, r.Name, where)
	return plan.Var{}, false
}

// loopName resolves a variable of a loop; the zero Var is one that was reported.
func (c *compiler) loopName(at site, loop, body int32, name string, where location) (plan.Var, bool) {
	st := &c.p.Steps[loop]
	switch {
	case name == st.As:
		return plan.Var{Name: name, Kind: plan.VarItem, Graph: body}, true
	case name == st.Index:
		return plan.Var{Name: name, Kind: plan.VarIndex, Graph: body}, true
	case !st.Rounds.Accumulates() || name != st.Rounds.As:
		return plan.Var{}, false
	case at.compensation:
		c.fail(fault.RecipeInvalid, "undefined-name", where, fmt.Sprintf("%q is what the loop %q accumulates, and a compensation runs after it has ended", name, st.ID),
			"bind what it needs in a step of the iteration")
		return plan.Var{}, true
	}
	return plan.Var{Name: name, Kind: plan.VarAccumulated, Graph: body}, true
}

// stepVariable resolves the variables behind now() and uuid(), which belong to a step.
func (c *compiler) stepVariable(at site, r expr.Ref, where location) (plan.Var, bool) {
	if at.step == plan.None {
		c.fail(fault.RecipeInvalid, "undefined-name", where, expr.NameFor(r.Name)+" needs a step, and this expression is not in one",
			"call it in a step, for example a transform, and name its output here")
		return plan.Var{}, false
	}
	kind := plan.VarNow
	if r.Name == expr.SeedVar {
		kind = plan.VarSeed
	}
	return plan.Var{Name: r.Name, Kind: kind}, true
}

// resolveMember resolves steps.<id> and steps['<id>'].
func (c *compiler) resolveMember(at site, r expr.Ref, where location) (plan.Var, bool) {
	if len(r.Path) == 0 {
		msg, hint := "steps alone is not a value", "name a step: steps.<id>.output"
		if r.Dynamic {
			msg, hint = "the step that this names is known only at run time", "write the id of the step: steps['<id>'].output"
		}
		c.fail(fault.RecipeInvalid, "dynamic-step", where, msg, hint)
		return plan.Var{}, false
	}
	id := r.Path[0]
	i, ok := c.byID[id]
	if !ok {
		if k, ok := c.inherited(plan.OfSteps, id, where, c.handlesAbsence(at, "steps."+id)); ok {
			return plan.Var{Name: "steps", Member: id, Kind: plan.VarInherited, Index: k}, true
		}
		if c.full(fault.SeverityError) {
			return plan.Var{}, false
		}
		ids := c.visibleSteps(at)
		hint := didYouMean(id, ids)
		if hint == "" {
			hint = available(ids)
		}
		if k := slices.IndexFunc(ids, func(other string) bool { return strings.HasPrefix(other, id+"-") }); k >= 0 {
			hint = fmt.Sprintf("an id with a dash is written steps['%s']", ids[k])
		}
		c.fail(fault.RecipeInvalid, "unknown-step", where, fmt.Sprintf("no step has the id %q", id), hint)
		return plan.Var{}, false
	}
	return c.stepReference(at, i, "steps", id, r.Path[1:], where)
}

// stepReference resolves a name to a step, if that is visible and will have settled.
func (c *compiler) stepReference(at site, i int32, name, member string, path []string, where location) (plan.Var, bool) {
	id, g := c.p.Steps[i].ID, c.p.Steps[i].Graph
	if !c.visible(at, g) {
		hint := "bind its output with outputBinding and name that"
		if c.p.Graphs[c.frameOf(g)].Role == plan.Body && !c.visible(at, c.frameOf(g)) {
			loop := c.p.Graphs[c.frameOf(g)].Owner
			hint = fmt.Sprintf("the outputs of all iterations are %s", stepSource(c.p.Steps[loop].ID)+".output")
		}
		c.fail(fault.RecipeInvalid, "invisible-step", where,
			fmt.Sprintf("the step %q is in %s and not visible outside it", id, c.scopeName(g)), hint,
			c.place(c.valueAt(c.nodes[i].ptr), "the step"))
		return plan.Var{}, false
	}
	if at.ahead && g == at.graph {
		c.fail(fault.RecipeInvalid, "used-before-bound", where, fmt.Sprintf("the step %q has not run when %q is checked, before each iteration", id, c.word(at.at.ptr)),
			`check it after the iteration with "until", or carry its output on with "accumulate"`, c.place(c.valueAt(c.nodes[i].ptr), "the step"))
		return plan.Var{}, false
	}
	reader := c.ancestorIn(at.step, g)
	if reader == i {
		role := c.roleWithin(at, i)
		if role != plan.Fallback && role != plan.Compensation {
			msg := fmt.Sprintf("the step %q cannot read its own result", id)
			if at.step != i {
				msg = fmt.Sprintf("the step %q is still running here, so it has no result", id)
			}
			c.fail(fault.RecipeInvalid, "self-reference", where, msg, "")
			return plan.Var{}, false
		}
	} else if reader != plan.None && !at.compensation {
		c.waitFor(i, reader, where)
	}
	if len(path) > 0 && !slices.Contains(stepFields, path[0]) {
		hint := didYouMean(path[0], stepFields)
		if hint == "" {
			hint = "its fields are " + strings.Join(stepFields, ", ")
		}
		c.fail(fault.RecipeInvalid, "undefined-field", where, fmt.Sprintf("the step %q has no %q", id, path[0]), hint)
		return plan.Var{}, false
	}
	if len(path) == 0 || path[0] != "status" && path[0] != "error" {
		c.outputRead[i] = true
	}
	return plan.Var{Name: name, Member: member, Kind: plan.VarStep, Graph: g, Index: i}, true
}

func stepSource(id string) string {
	if expressions.IsName(id) {
		return "steps." + id
	}
	return "steps['" + id + "']"
}

// visible reports whether the steps of g are visible from a site.
func (c *compiler) visible(at site, g int32) bool {
	for at := at.graph; at != plan.None; at = c.outer(at) {
		if at == g {
			return true
		}
	}
	return false
}

func (c *compiler) frameOf(g int32) int32 { return c.p.Graphs[g].Frame }

// roleWithin returns the role of the graph of step i that contains the site, or Root
// when the site is at the step itself.
func (c *compiler) roleWithin(at site, i int32) plan.Role {
	for g := at.graph; g != plan.None; g = c.outer(g) {
		if c.p.Graphs[g].Owner == i {
			return c.p.Graphs[g].Role
		}
	}
	return plan.Root
}

// undefined reports an undefined name, with the names that are defined.
func (c *compiler) undefined(at site, name string, where location) {
	if c.full(fault.SeverityError) {
		return
	}
	bound := c.visibleBindings(at)
	steps := c.visibleSteps(at)
	everything := slices.Concat(bound, reservedNames, []string{"steps", budgetName}, steps)
	best := spell.Closest(name, everything)
	hint := ""
	if i := c.hidden(name); i != plan.None {
		g := c.p.Steps[i].Graph
		c.fail(fault.RecipeInvalid, "undefined-name", where,
			fmt.Sprintf("%q is bound in %s and not visible outside it", name, c.scopeName(c.frameOf(g))),
			fmt.Sprintf("the outputs of all iterations are %s.output", stepSource(c.p.Steps[c.p.Graphs[c.frameOf(g)].Owner].ID)),
			c.place(c.valueAt(c.nodes[i].bindPtr), "bound here"))
		return
	}
	if best != "" {
		hint = fmt.Sprintf("did you mean %q?", best)
		if by := c.boundBy(at, best); by != "" {
			hint = fmt.Sprintf("did you mean %q (%s)?", best, by)
		}
		hint += " "
	}
	c.fail(fault.RecipeInvalid, "undefined-name", where, fmt.Sprintf("%q is not a binding here", name),
		hint+available(slices.Concat(bound, []string{"input", "parameters", "fileHashes", "files", "steps", "workflow", "_context", budgetName})))
}

// hidden returns a step that binds name in a scope where it is not visible, or None.
func (c *compiler) hidden(name string) int32 {
	for g := range c.p.Graphs {
		if f, ok := c.frames[int32(g)]; ok && g > 0 {
			if slot, ok := f.slots[name]; ok {
				return f.by[slot][0]
			}
		}
	}
	return plan.None
}

func available(names []string) string {
	const most = 16
	if len(names) == 0 {
		return "nothing is available here"
	}
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "…")
	}
	return "available: " + strings.Join(names, ", ")
}

// visibleBindings returns the bindings and loop variables of the enclosing scopes.
func (c *compiler) visibleBindings(at site) []string {
	var names []string
	for g := at.graph; g != plan.None; g = c.outer(g) {
		if c.frameOf(g) != g {
			continue
		}
		names = append(names, c.frames[g].names...)
		if owner := c.p.Graphs[g].Owner; owner != plan.None {
			names = append(names, c.p.Steps[owner].LoopNames()...)
		}
	}
	return names
}

func (c *compiler) boundBy(at site, name string) string {
	for g := at.graph; g != plan.None; g = c.outer(g) {
		if f, ok := c.frames[g]; ok {
			if slot, ok := f.slots[name]; ok {
				return c.p.Steps[f.by[slot][0]].ID
			}
		}
	}
	return ""
}

func (c *compiler) visibleSteps(at site) []string {
	var ids []string
	for g := at.graph; g != plan.None; g = c.outer(g) {
		gr := &c.p.Graphs[g]
		for i := gr.First; i < gr.First+gr.N; i++ {
			if i != at.step {
				ids = append(ids, c.p.Steps[i].ID)
			}
		}
	}
	return ids
}

// An unbound explains why a binding of the right name cannot be used here.
type unbound struct {
	rule, msg, hint string
	related         []fault.Place
}

// findBinder finds the step that sets a slot for a reader, and makes the reader wait
// for it. In each scope, from the reader outward, that is the nearest step above the
// reader; if there is none, in a scope without order, it is the nearest step below. If
// that step may leave the slot unset, the search continues outward for one that
// definitely sets it. findBinder returns nil when it found one.
func (c *compiler) findBinder(at site, frame, slot int32, name string, where location) *unbound {
	maybe := plan.None // the binder, or its owner, in the innermost scope that has one; it may not have run
	found := false
	var before []graphSlot // scopes in which steps bind the slot only after the reader
	defer func() {
		if found {
			for _, key := range before {
				c.readers[key] = append(c.readers[key], slotReader{c.ancestorIn(at.step, key.graph), plan.None, where})
			}
		}
	}()
	for g := c.inFrame(at.graph, frame); ; g = c.outer(g) {
		key := graphSlot{g, slot}
		steps := c.binders[key]
		reader := c.ancestorIn(at.step, g)
		k, member := len(steps), false
		if reader != plan.None {
			k, member = slices.BinarySearch(steps, reader)
		}
		if at.compensation && member && c.roleWithin(at, reader) == plan.Compensation {
			k++ // the step that this compensates has completed, so its bindings are set
		}
		if member && !at.compensation && c.crossesBranch(at, reader, slot, name, where) {
			return nil
		}
		if k > 0 {
			by := steps[k-1]
			if reader != plan.None && !at.compensation && by != reader {
				c.waitFor(by, reader, where)
				c.readers[key] = append(c.readers[key], slotReader{reader, by, where})
			}
			found = true
			if firm, ok := c.firstDefinite[key]; ok && firm < k {
				return nil
			}
			if maybe == plan.None {
				maybe = by
			}
		} else if !at.compensation && len(steps) > 0 && !member {
			before = append(before, key)
		} else if at.compensation && len(steps) > 0 {
			found = true // a compensation runs after a failure; steps below may have set the slot before that
			if maybe == plan.None {
				maybe = steps[0]
			}
		}
		if g == frame {
			break
		}
	}
	if !found {
		return c.findBinderBelow(at, frame, slot, name, where)
	}
	c.maybeUnbound(at, maybe, frame, slot, where)
	return nil
}

// inFrame returns the innermost graph, from g outward, whose bindings are in frame.
func (c *compiler) inFrame(g, frame int32) int32 {
	for c.frameOf(g) != frame {
		g = c.outer(g)
	}
	return g
}

// findBinderBelow finds a binder below its reader.
func (c *compiler) findBinderBelow(at site, frame, slot int32, name string, where location) *unbound {
	late := plan.None
	for g := c.inFrame(at.graph, frame); ; g = c.outer(g) {
		key := graphSlot{g, slot}
		steps := c.binders[key]
		reader := c.ancestorIn(at.step, g)
		k, member := slices.BinarySearch(steps, reader)
		if member {
			k++
		}
		if k < len(steps) {
			by := steps[k]
			if !c.follows(by, reader) {
				c.waitFor(by, reader, where)
				c.readers[key] = append(c.readers[key], slotReader{reader, by, where})
				if !c.definitelyBinds(by, slot) {
					c.maybeUnbound(at, by, frame, slot, where)
				}
				return nil
			}
			if late == plan.None {
				late = by
			}
		}
		if g == frame {
			break
		}
	}
	if c.full(fault.SeverityError) {
		return &unbound{}
	}
	if late != plan.None {
		by := c.binderWithin(late, frame, slot)
		return &unbound{
			rule: "used-before-bound", msg: fmt.Sprintf("%q has no value yet: %q binds it later", name, c.p.Steps[by].ID),
			hint: "move the step that binds it up", related: []fault.Place{c.place(c.valueAt(c.nodes[by].bindPtr), "bound here")},
		}
	}
	by := c.frames[frame].by[slot][0]
	reader := c.ancestorIn(at.step, c.p.Steps[by].Graph)
	why := "only here, after the expression"
	if reader == plan.None {
		why = "in " + c.scopeName(c.p.Steps[by].Graph) + ", which is never before this step"
	}
	return &unbound{
		rule: "used-before-bound", msg: fmt.Sprintf("%q has no value here: %q binds it %s", name, c.p.Steps[by].ID, why),
		hint: "", related: []fault.Place{c.place(c.valueAt(c.nodes[by].bindPtr), "bound here")},
	}
}

// crossesBranch refuses to read in one branch what a concurrent branch sets.
func (c *compiler) crossesBranch(at site, owner, slot int32, name string, where location) bool {
	if at.step == owner || c.p.Steps[owner].Kind != plan.Parallel {
		return false
	}
	branch, ok := c.branchOf[graphSlot{owner, slot}]
	if !ok || c.visible(at, branch) || c.roleWithin(at, owner) != plan.Branch {
		return false
	}
	by := c.firstBinder(branch, slot)
	c.fail(fault.RecipeInvalid, "binding-race", where,
		fmt.Sprintf("%q is bound by %q in %s, which runs at the same time", name, c.p.Steps[by].ID, c.scopeName(branch)),
		"read it after the parallel step", c.place(c.valueAt(c.nodes[by].bindPtr), "bound here"))
	return true
}

// binderWithin returns the first step, i or inside it, that itself binds the slot.
func (c *compiler) binderWithin(i, frame, slot int32) int32 {
	for _, b := range c.frames[frame].by[slot] {
		if c.ancestorIn(b, c.p.Steps[i].Graph) == i {
			return b
		}
	}
	return i
}

// maybeUnbound warns of a binding that some paths do not set (R40).
func (c *compiler) maybeUnbound(at site, within, frame, slot int32, where location) {
	name := c.frames[frame].names[slot]
	if c.full(fault.SeverityWarning) || c.handlesAbsence(at, name) {
		return
	}
	by := c.binderWithin(within, frame, slot)
	why, stop := c.whyUnbound(at, by, slot)
	c.warn("maybe-unbound", where, fmt.Sprintf("%q is %s", name, why), stop,
		c.place(c.valueAt(c.nodes[by].bindPtr), "bound here"))
}

// whyUnbound explains on which path a binding stays unset.
func (c *compiler) whyUnbound(at site, by, slot int32) (why, hint string) {
	hint = "test it before you use it, for example in a condition, or bind it on every path"
	if at.compensation {
		return fmt.Sprintf("not bound when the run ends before %q has completed", c.p.Steps[by].ID), hint
	}
	for i := by; i != plan.None; {
		st, n := &c.p.Steps[i], &c.nodes[i]
		id := strconv.Quote(st.ID)
		switch {
		case n.src.When != "":
			return "not bound when " + id + " is skipped by its when", hint
		case st.ContinueOnError || st.OnError == plan.OnErrorSkip:
			return "not bound when " + id + " fails and the run continues", hint
		}
		if i != by && st.OnError == plan.OnErrorFallback {
			return "not bound when " + id + " fails and its fallback takes over", hint
		}
		g := st.Graph
		gr := &c.p.Graphs[g]
		if gr.Owner == plan.None || c.visible(at, g) {
			break
		}
		owner := &c.p.Steps[gr.Owner]
		switch gr.Role {
		case plan.Then, plan.Else:
			if c.scopeDefinitelyBinds(owner.Then, slot) && c.scopeDefinitelyBinds(owner.Else, slot) {
				break // both sides bind it: the reason is further out
			}
			return "bound on one branch only: " + c.scopeName(g), "bind it on the other branch too, or end that with a fail step"
		case plan.Fallback:
			return "bound only by " + c.scopeName(g), hint
		case plan.Branch:
			if owner.Strategy == plan.Ignore {
				return fmt.Sprintf("not bound when %s fails, which the parallel step ignores", c.scopeName(g)), hint
			}
			if owner.WaitFor != plan.WaitAll {
				return fmt.Sprintf("bound on one branch only: %s, which may be cut off", c.scopeName(g)), hint
			}
		}
		i = gr.Owner
	}
	return "not bound on every path that leads here", hint
}

// handlesAbsence reports whether the use of a name is protected by has(), by an
// optional selection or by the default filter, here or in an enclosing condition.
func (c *compiler) handlesAbsence(at site, name string) bool {
	if at.step != plan.None && c.p.Steps[at.step].ParentFailure == plan.SubstituteDefault {
		return true // a missing value becomes empty text (R13)
	}
	if at.src != "" && expressions.TestsPresence(at.src, name) {
		return true
	}
	if at.src == "" && expressions.TestsPresence(string(c.p.Steps[at.step].Params), name) {
		return true
	}
	for i := at.step; i != plan.None; {
		if expressions.TestsPresence(c.nodes[i].src.When, name) {
			return true
		}
		g := &c.p.Graphs[c.p.Steps[i].Graph]
		if g.Owner != plan.None && (g.Role == plan.Then || g.Role == plan.Else) && expressions.TestsPresence(c.nodes[g.Owner].src.Condition.Expression, name) {
			return true
		}
		i = g.Owner
	}
	return false
}
