// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strconv"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/approvals"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// waitAction returns the declaration of an action that is a durable wait
// (action.Action.Waits), or nil. A step that calls it becomes a wait step of the plan:
// no worker executes it, and it survives restarts.
func (c *compiler) waitAction(ref *recipe.Action) *action.Action {
	if ref == nil || c.opt.Actions == nil {
		return nil
	}
	if a := c.opt.Actions.Find(ref.Name, ref.Version); a != nil && a.Waits != "" {
		return a
	}
	return nil
}

// isWaitAction reports whether a wait step is written as a call of an action.
func (c *compiler) isWaitAction(i int32) bool {
	return c.p.Steps[i].Kind == plan.Wait && c.nodes[i].src.Action != nil
}

// kindName returns the kind of a step for messages.
func (c *compiler) kindName(i int32) string {
	if c.isWaitAction(i) {
		return fmt.Sprintf("a step that waits (the action %q)", c.nodes[i].src.Action.Name)
	}
	if c.isApproval(i) {
		return "a wait step"
	}
	return "a " + c.p.Steps[i].Kind.String() + " step"
}

// waitActionStep compiles the call of an action that waits. Its inputs are checked like
// those of any action, but only the one with the duration has a meaning at run time.
func (c *compiler) waitActionStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	c.findAction(i)
	c.parameters(i)
	c.checkParameters(i)
	c.fileInput(i)
	c.parallelizable(i)
	st.Params, st.Bindings, st.FileInput, st.Required = nil, nil, "", nil
	name := n.decl.Waits
	raw, ok := n.src.Action.Parameters[name]
	if !ok {
		return // bound, or reported as missing
	}
	at := n.ptr + "/action/parameters/" + jsonx.EscapeToken(name)
	v, _ := jsonx.Decode(raw, jsonx.Limits{})
	if expr.HasTemplate(v) {
		return // see resolveWaitAction
	}
	written, isText := v.(string)
	if !isText {
		if celType(n.decl.props[name]) == "string" {
			return // the check against its schema has reported it
		}
		c.fail(fault.RecipeInvalid, "bad-wait", c.valueAt(at), fmt.Sprintf("%q, which says how long to wait, must be text", name), wantWait)
		return
	}
	ms, until, ok := c.parseWait(written, c.valueAt(at))
	switch {
	case !ok:
	case until:
		st.Expr = &plan.Expr{Src: strconv.Quote(written)}
	default:
		st.DurationMS = ms
	}
}

const wantWait = `want a duration such as "90s" or "PT90S", or a time such as "2027-01-31T18:00:00Z"`

// parseWait parses a constant duration or point in time.
func (c *compiler) parseWait(written string, at location) (ms int64, until, ok bool) {
	ms, err := recipe.ParseDuration(written)
	if err != nil {
		if _, err := time.Parse(time.RFC3339, written); err == nil {
			return 0, true, true
		}
		c.fail(fault.RecipeInvalid, "bad-wait", at, fmt.Sprintf("%q is neither a duration nor a point in time", written), wantWait)
		return 0, false, false
	}
	switch {
	case ms == 0:
		c.fail(fault.RecipeInvalid, "bad-wait", at, "a wait must be longer than zero", wantWait)
		return 0, false, false
	case ms > c.p.TTLMS:
		c.fail(fault.RecipeInvalid, "wait-too-long", at,
			fmt.Sprintf("the wait of %s is longer than the ttl of the run, %s", plan.FormatMS(ms), plan.FormatMS(c.p.TTLMS)),
			"shorten it, or raise the recipe's ttl", c.place(c.valueAt(c.base+"/ttl"), "the ttl"))
	}
	return ms, false, true
}

// resolveWaitAction compiles the duration of a wait that is known only at run time.
func (c *compiler) resolveWaitAction(i int32, here func(ptr, want string) site) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if n.decl == nil {
		return
	}
	name, want := n.decl.Waits, "timestamp|duration|string"
	if b, bound := n.src.InputBindings[name]; bound {
		value := c.binding(here, name, b, want)
		at := here("/inputBindings/"+jsonx.EscapeToken(name), want)
		if value.Merge != 0 {
			c.fail(fault.RecipeInvalid, "bad-wait", at.at, "a wait takes one expression, and merges no values", wantWait)
			return
		}
		if value.Expr.Src == "" {
			return
		}
		st.Expr = &value.Expr
		if written, ok := c.constant(st.Expr).(string); ok {
			c.parseWait(written, at.at)
		}
		return
	}
	v, _ := jsonx.Decode(n.src.Action.Parameters[name], jsonx.Limits{})
	if written, ok := v.(string); ok && expr.IsTemplate(written) {
		st.Expr = c.template(here("/action/parameters/"+jsonx.EscapeToken(name), want), written)
	}
}

// approvalAction is the action that a wait for an approval calls. Its name is none that a recipe can
// write.
const approvalAction = "@approval"

// isApproval reports whether a step waits for an approval: it is a step of the kind action, because
// it has attempts and an output, and is a wait for its author.
func (c *compiler) isApproval(i int32) bool {
	w := c.nodes[i].src.Wait
	return w != nil && w.Approval != nil && c.p.Steps[i].Kind == plan.Action
}

// callApproval makes a wait for an approval a call of its action, if it is nothing else besides.
func (c *compiler) callApproval(i int32) bool {
	n := &c.nodes[i]
	w := n.src.Wait
	if w.Approval == nil || w.Duration != "" || w.Until != "" || w.Signal != "" {
		return false // waitStep reports it
	}
	call := *n.src
	call.Action = &recipe.Action{Name: approvalAction}
	n.src = &call
	return true
}

// approvalStep compiles a wait for an approval.
func (c *compiler) approvalStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	if c.opt.Actions == nil || c.opt.Actions.Find(approvalAction, "") == nil {
		c.fail(fault.ActionNotFound, "no-approvals", c.keyAt(n.ptr+"/wait/approval"), "nobody can be asked here", "")
		return
	}
	n.decl = c.declare(c.opt.Actions.Find(approvalAction, ""))
	key := plan.ActionRef{Name: approvalAction}
	idx, ok := c.actions[key]
	if !ok {
		idx = int32(len(c.p.Actions))
		c.p.Actions = append(c.p.Actions, key)
		c.actions[key] = idx
	}
	st.Action = idx
	text := approvals.Compiler{
		Fail: func(rule, ptr, msg, hint string) { c.fail(fault.RecipeInvalid, rule, c.valueAt(ptr), msg, hint) },
		Warn: func(rule, ptr, msg, hint string) { c.warn(rule, c.valueAt(ptr), msg, hint) }, Enum: c.enum,
		Schema: c.schema, Canonical: c.canonical, TTLMS: c.p.TTLMS,
		Duration: func(d recipe.Duration, ptr string) int64 { return c.duration(d, c.valueAt(ptr)) },
	}
	out, err := jsonx.Canonical(text.Parameters(n.src.Wait, n.ptr+"/wait"))
	if err != nil {
		c.fail(fault.RecipeInvalid, "bad-json", c.valueAt(n.ptr+"/wait/approval"), err.Error(), "")
		return
	}
	st.Params = out
}
