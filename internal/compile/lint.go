// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

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
