// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/plan"
)

// lint warns of what is allowed but probably a mistake.
func (c *compiler) lint() {
	if c.r.Status == "deprecated" {
		c.warn("deprecated", c.valueAt(c.base+"/status"), "the recipe is deprecated", "use its replacement")
	}
	for i := range c.nodes {
		if c.nodes[i].invalid {
			continue
		}
		c.lintUnused(int32(i))
		c.lintUnreachable(int32(i))
		c.lintTimeouts(int32(i))
		c.lintFileTypes(int32(i))
		c.lintAccumulator(int32(i))
	}
}

// lintUnused warns of a binding that neither an expression nor the result reads.
func (c *compiler) lintUnused(i int32) {
	st, n := &c.p.Steps[i], &c.nodes[i]
	if st.Slot == plan.None {
		return
	}
	f := c.frameOf(st.Graph)
	at := graphSlot{f, st.Slot}
	if c.slotRead[at] || f == 0 && c.resultHasBindings() {
		return
	}
	c.warn("unused-binding", c.valueAt(n.bindPtr), fmt.Sprintf("nothing reads %q", st.Bind), "use it, or remove the outputBinding")
}

// lintUnreachable warns of a side of a condition that is never taken, and of steps
// below a fail step.
func (c *compiler) lintUnreachable(i int32) {
	st, n := &c.p.Steps[i], &c.nodes[i]
	if v, ok := c.constant(st.When).(bool); ok {
		verdict := "always true, so it can be removed"
		if !v {
			verdict = "always false, so the step never runs"
		}
		c.warn("constant-condition", c.valueAt(n.ptr+"/when"), "this is "+verdict, "")
	}
	if st.Kind == plan.Condition {
		if v, ok := c.constant(st.Expr).(bool); ok {
			verdict := "always true, so the else side never runs"
			switch {
			case !v:
				verdict = "always false, so the then side never runs"
			case st.Else == plan.None:
				verdict = "always true, so the condition can be removed"
			}
			c.warn("constant-condition", c.valueAt(n.ptr+"/condition/expression"), "this is "+verdict, "")
		}
	}
	gr := &c.p.Graphs[st.Graph]
	if st.Kind == plan.Fail && st.When == nil && !st.ContinueOnError && i+1 < gr.First+gr.N && c.follows(i+1, i) {
		c.warn("unreachable", c.valueAt(c.nodes[i+1].ptr), fmt.Sprintf("this never runs: %q above always fails", st.ID), "add a when to the fail step, or move it into a condition")
	}
}

// constant returns the value of an expression without names; nil = it has none.
func (c *compiler) constant(e *plan.Expr) any {
	if e == nil || e.Template {
		return nil
	}
	return c.programs.Program(e.Src, false).Constant
}

// lintTimeouts warns of a timeout that cannot be reached, because a shorter one ends
// the step, an enclosing step or the run before.
func (c *compiler) lintTimeouts(i int32) {
	st, n := &c.p.Steps[i], &c.nodes[i]
	for _, t := range []struct {
		ms    int64
		field string
	}{{st.TimeoutMS, "timeout"}, {st.TotalTimeoutMS, "total_timeout"}} {
		if t.field == "timeout" && (n.src.Timeout == "" || c.isApproval(i)) || t.field == "total_timeout" && n.src.TotalTimeout == "" {
			continue
		}
		at := c.valueAt(n.ptr + "/" + t.field)
		if t.field == "timeout" && st.TotalTimeoutMS > 0 && t.ms > st.TotalTimeoutMS {
			c.warn("timeout-longer", at, fmt.Sprintf("timeout %s is longer than the step's total_timeout, %s", plan.FormatMS(t.ms), plan.FormatMS(st.TotalTimeoutMS)), "")
			continue
		}
		if t.ms > c.p.TTLMS {
			c.warn("timeout-longer", at, fmt.Sprintf("%s %s is longer than the ttl of the run, %s", t.field, plan.FormatMS(t.ms), plan.FormatMS(c.p.TTLMS)), "raise the recipe's ttl")
			continue
		}
		for owner := c.p.Graphs[st.Graph].Owner; owner != plan.None; owner = c.p.Graphs[c.p.Steps[owner].Graph].Owner {
			if around := c.p.Steps[owner].TotalTimeoutMS; around > 0 && t.ms > around {
				c.warn("timeout-longer", at, fmt.Sprintf("%s %s is longer than the total_timeout of %q around it, %s", t.field, plan.FormatMS(t.ms), c.p.Steps[owner].ID, plan.FormatMS(around)), "")
				break
			}
		}
	}
}

// fileOf matches an expression that only selects the file of a binding or a step:
// page.file, steps.resize.output.file, resize.result.file.
var fileOf = regexp.MustCompile(`^[A-Za-z_]\w*(\.\w+|\['[\w-]+'\])*\.file$`)

// lintFileTypes warns when a file is passed to an action that does not accept its type
// (X11). It compares only what both actions declare: the output types of the one and the
// input types of the other.
func (c *compiler) lintFileTypes(i int32) {
	st, n := &c.p.Steps[i], &c.nodes[i]
	if st.Kind != plan.Action || n.decl == nil {
		return
	}
	takes := catalogue.MimeTypes(n.decl.Metadata.InputTypes)
	for k := range st.Bindings {
		b := &st.Bindings[k]
		if !slices.Contains(n.decl.files, b.Name) || len(b.Expr.Vars) != 1 || !fileOf.MatchString(b.Expr.Src) {
			continue
		}
		from := c.producer(&b.Expr.Vars[0])
		if from == nil || !slices.Contains(jsonschema.FileFields(from.Output), "file") {
			continue
		}
		// JSON is the type of the value that contains the file, not of the file.
		gives := slices.DeleteFunc(catalogue.MimeTypes(from.Metadata.OutputTypes), func(t string) bool { return t == "application/json" })
		if len(gives) == 0 || len(takes) == 0 || catalogue.MimesOverlap(gives, takes) {
			continue
		}
		c.warn("file-type", c.valueAt(n.ptr+"/inputBindings/"+b.Name),
			fmt.Sprintf("%s gives %s, and %s takes %s", from.Name, list(gives), n.decl.Name, list(takes)),
			"put an action between them that converts one into the other")
	}
}

// producer returns the action whose output a variable is, or nil.
func (c *compiler) producer(v *plan.Var) *action.Action {
	step := plan.None
	switch v.Kind {
	case plan.VarStep:
		step = v.Index
	case plan.VarBinding:
		if steps := c.binders[graphSlot{v.Graph, v.Index}]; len(steps) == 1 && c.p.Steps[steps[0]].Slot == v.Index {
			step = steps[0]
		}
	}
	if step == plan.None || c.p.Steps[step].Kind != plan.Action || c.nodes[step].decl == nil {
		return nil
	}
	return c.nodes[step].decl.Action
}
