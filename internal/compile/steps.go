// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/sanitize"
)

// compileSteps compiles what each step does, apart from names and order.
func (c *compiler) compileSteps() {
	for i := range c.nodes {
		c.compileStep(int32(i))
	}
}

func (c *compiler) compileStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	c.afterRetries(i)
	if n.invalid {
		return
	}
	c.retry(i)
	c.timeouts(i)
	n.bind, n.bindPtr = n.src.OutputBinding, n.ptr+"/outputBinding"
	switch st.Kind {
	case plan.Action:
		if c.isApproval(i) {
			c.approvalStep(i)
		} else {
			c.actionStep(i)
		}
	case plan.Recipe:
		c.recipeStep(i)
	case plan.Parallel:
		c.parallelStep(i)
	case plan.Loop:
		c.loopStep(i)
	case plan.Wait:
		if c.isWaitAction(i) {
			c.waitActionStep(i)
		} else {
			c.waitStep(i)
		}
	case plan.Transform:
		if to := n.src.Transform.OutputBinding; to != "" {
			if n.bind != "" && n.bind != to {
				c.fail(fault.RecipeInvalid, "two-bindings", c.valueAt(n.bindPtr),
					fmt.Sprintf("the step binds its result as %q here and as %q in its transform", n.bind, to), "keep one of them",
					c.place(c.valueAt(n.ptr+"/transform/outputBinding"), "the other one"))
			}
			n.bind, n.bindPtr = to, n.ptr+"/transform/outputBinding"
		}
	case plan.Fail:
		st.Code = n.src.Fail.Code
		if st.Code == "" {
			st.Code = string(fault.StepFailed)
		}
		if n.bind != "" {
			c.fail(fault.RecipeInvalid, "not-for-kind", c.keyAt(n.bindPtr), "a fail step has no output to bind", "")
			n.bind = ""
		}
	}
	if !c.calls(i) && !c.isWaitAction(i) && len(n.src.InputBindings) > 0 {
		c.fail(fault.RecipeInvalid, "not-for-kind", c.keyAt(n.ptr+"/inputBindings"),
			c.kindName(i)+" cannot have inputBindings; only action and recipe steps can", "its expressions can name any value directly")
	}
	c.contracts(i)
	c.lensContracts(i)
	c.gate(i)
	c.cache(i)
}

func (c *compiler) parallelStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	par, at := n.src.Parallel, n.ptr+"/parallel"
	if len(par.Branches) == 0 {
		c.fail(fault.RecipeInvalid, "no-branches", c.valueAt(at), "the parallel step has no branches", `give "branches" at least one list of steps`)
	}
	switch par.WaitFor {
	case "", "all":
		st.WaitFor = plan.WaitAll
	case "any":
		st.WaitFor = plan.WaitAny
	case "first_success":
		st.WaitFor = plan.WaitFirstSuccess
	default:
		c.enum("waitFor", par.WaitFor, at, "all", "any", "first_success")
	}
	st.Strategy = c.strategy(par.FailureStrategy, at)
}

func (c *compiler) strategy(s, at string) plan.Strategy {
	switch s {
	case "", "fail_fast":
	case "continue":
		return plan.Continue
	case "ignore":
		return plan.Ignore
	default:
		c.enum("failureStrategy", s, at, "fail_fast", "continue", "ignore")
	}
	return plan.FailFast
}

func (c *compiler) waitStep(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	w, at := n.src.Wait, n.ptr+"/wait"
	var given []string
	for _, f := range []struct{ name, value string }{
		{"duration", string(w.Duration)}, {"until", w.Until}, {"signal", w.Signal},
	} {
		if f.value != "" {
			given = append(given, f.name)
		}
	}
	if w.Approval != nil {
		given = append(given, "approval")
	}
	if w.Default != nil && w.Approval == nil {
		c.fail(fault.RecipeInvalid, "bad-wait", c.keyAt(at+"/default"), "only a wait for an approval has a default", "")
	}
	if len(given) != 1 {
		found := "none of them"
		if len(given) > 1 {
			found = list(given)
		}
		c.fail(fault.RecipeInvalid, "bad-wait", c.valueAt(at), "a wait needs exactly one of duration, until, signal or approval; found "+found, "")
	}
	st.DurationMS = c.duration(w.Duration, c.valueAt(at+"/duration"))
	if st.DurationMS > c.p.TTLMS {
		c.fail(fault.RecipeInvalid, "wait-too-long", c.valueAt(at+"/duration"),
			fmt.Sprintf("the wait of %s is longer than the ttl of the run, %s", plan.FormatMS(st.DurationMS), plan.FormatMS(c.p.TTLMS)),
			"shorten it, or raise the recipe's ttl", c.place(c.valueAt(c.base+"/ttl"), "the ttl"))
	}
	st.Signal = w.Signal
	if w.Timeout != "" {
		if w.Signal == "" {
			c.fail(fault.RecipeInvalid, "bad-wait", c.keyAt(at+"/timeout"), "only a wait for a signal or an approval has a timeout", "")
		}
		st.SignalMS = c.duration(w.Timeout, c.valueAt(at+"/timeout"))
		if st.SignalMS > c.p.TTLMS {
			c.warn("timeout-longer", c.valueAt(at+"/timeout"),
				fmt.Sprintf("the wait's timeout of %s is longer than the ttl of the run, %s", plan.FormatMS(st.SignalMS), plan.FormatMS(c.p.TTLMS)), "")
		}
	}
}

// calls reports whether a step calls something with an input of its own, which may take several
// attempts: an action or another recipe. A wait for an approval does not, for its author.
func (c *compiler) calls(i int32) bool {
	kind := c.p.Steps[i].Kind
	return kind == plan.Action && !c.isApproval(i) || kind == plan.Recipe
}

// timeouts compiles both timeouts of a step (R20). A step that calls nothing has only one
// attempt, so its `timeout` and `total_timeout` are the same. A child run has a ttl of its
// own, so there is no default timeout for one.
func (c *compiler) timeouts(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	each := c.timeout(n.src.Timeout, c.valueAt(n.ptr+"/timeout"))
	st.TotalTimeoutMS = c.duration(n.src.TotalTimeout, c.valueAt(n.ptr+"/total_timeout"))
	if !c.calls(i) {
		if each > 0 && (st.TotalTimeoutMS == 0 || each < st.TotalTimeoutMS) {
			st.TotalTimeoutMS = each
		}
		if c.isApproval(i) { // of the asking, which does not wait
			st.TimeoutMS = min(c.limits.TimeoutMS, c.limits.MaxTimeoutMS)
		}
		return
	}
	if each == 0 && st.Kind == plan.Action {
		each = min(c.limits.TimeoutMS, c.limits.MaxTimeoutMS)
	}
	st.TimeoutMS = each
}

func (c *compiler) contracts(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	k, at := n.src.Contracts, n.ptr+"/contracts"
	if k == nil {
		return
	}
	if !c.calls(i) {
		c.fail(fault.RecipeInvalid, "not-for-kind", c.keyAt(at),
			c.kindName(i)+" cannot have contracts; only action and recipe steps can", "")
		return
	}
	st.InputC = c.schema(k.Input, at+"/input")
	st.OutputC = c.schema(k.Output, at+"/output")
}

// defaultReviewMS is how long people have to decide on what was flagged.
const defaultReviewMS = 24 * 3_600_000

// gate compiles what moderators look at (X168).
func (c *compiler) gate(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	m, at := n.src.Moderation, n.ptr+"/moderation"
	if m == nil || m.Phase == "none" {
		return
	}
	if st.Kind != plan.Action || c.isApproval(i) {
		c.fail(fault.RecipeInvalid, "not-for-kind", c.keyAt(at), c.kindName(i)+" cannot have a moderation; only action steps can", "")
		return
	}
	g := &plan.Gate{Input: m.Phase != "output", Output: m.Phase != "input", Hold: m.Stream == "hold"}
	g.By = slices.Compact(slices.Sorted(slices.Values(m.By)))
	if len(g.By) == 0 {
		g.By = nil
	}
	if r := m.Review; r != nil {
		g.Review = &plan.Review{By: r.By, TimeoutMS: cmp.Or(c.duration(r.Timeout, c.valueAt(at+"/review/timeout")), defaultReviewMS), RemindMS: c.duration(r.Remind, c.valueAt(at+"/review/remind"))}
	}
	if m.Stream != "" && !g.Output {
		c.warn("no-effect", c.keyAt(at+"/stream"), "the output is not moderated, so streamed text does not wait for a verdict", "")
	}
	if st.Fallback != plan.None && g.Output {
		c.ungated(i, st.Fallback)
	}
	st.Gate = g
}

// ungated warns of a fallback whose output becomes that of a step with a gate, and has none.
func (c *compiler) ungated(i, fallback int32) {
	out := c.p.Graphs[fallback].Out
	if out == plan.None || c.p.Steps[out].Kind != plan.Action {
		return
	}
	if m := c.nodes[out].src.Moderation; m == nil || m.Phase == "input" || m.Phase == "none" {
		c.warn("fallback-not-moderated", c.keyAt(c.nodes[i].ptr+"/moderation"),
			"the output of the fallback is not moderated, although it becomes that of this step", "add moderation to the fallback step", c.place(c.keyAt(c.nodes[out].ptr), "the fallback"))
	}
}

// schema checks that raw is a JSON Schema and returns its canonical form.
func (c *compiler) schema(raw []byte, ptr string) []byte {
	out := c.canonical(raw, ptr)
	if out == nil {
		return nil
	}
	if _, err := c.programs.Schema(out); err != nil {
		c.fail(fault.RecipeInvalid, "bad-schema", c.valueAt(ptr), "this is not a JSON Schema: "+fault.Message(err), "")
		return nil
	}
	return out
}

// settings compiles the fields of the recipe other than its steps.
func (c *compiler) settings() {
	r, at := c.r, c.base
	c.p.TTLMS = c.duration(r.TTL, c.valueAt(at+"/ttl"))
	if c.p.TTLMS == 0 {
		c.p.TTLMS = c.limits.TTLMS
	}
	if most := c.limits.MaxTTLMS; most > 0 && c.p.TTLMS > most {
		if r.TTL != "" {
			c.warn("timeout-capped", c.valueAt(at+"/ttl"), fmt.Sprintf("%q is longer than this server allows; %s is used", string(r.TTL), plan.FormatMS(most)), "")
		}
		c.p.TTLMS = most
	}
	choose := func(field, got string, to *bool, words ...string) {
		switch got {
		case "", words[0]:
		case words[1]:
			*to = true
		default:
			c.enum(field, got, at, words...)
		}
	}
	var unordered bool // order reads it from the recipe again
	choose("order", r.Order, &unordered, "sequence", "none")
	choose("scheduling", r.Scheduling, &c.p.Waves, "eager", "waves")
	choose("failure_policy", r.FailurePolicy, &c.p.Drain, "fail_fast", "drain")
	choose("on_upstream_failure", r.OnUpstreamFailure, &c.p.UpstreamFail, "skip", "fail")
	choose("result_rule", r.ResultRule, &c.p.Leaves, "strict", "leaves")
	choose("result", r.Result, &c.p.OfSteps, "bindings", "steps")
	c.p.OfSteps = c.p.OfSteps && len(r.Outputs) == 0 && len(r.OutputSchema) == 0
	c.p.InputPolicy = c.inputPolicy(r.InputPolicy, at)
	c.p.InputSchema = c.schema(r.InputSchema, at+"/inputSchema")
	for _, v := range jsonschema.CheckDefaults(c.p.InputSchema) {
		c.fail(fault.RecipeInvalid, "bad-default", c.valueAt(at+"/inputSchema"+v.Pointer), "this default does not fit its own schema: "+v.Msg, "")
	}
	c.p.OutputSchema = c.schema(r.OutputSchema, at+"/outputSchema")
	c.values()
	c.effectiveLimits()
	c.creditEstimation()
}

// inputPolicy returns the policy that a recipe or a step has, as plans have it.
func (c *compiler) inputPolicy(policy, at string) string {
	switch sanitize.Policy(policy) {
	case "", sanitize.Keep:
		return ""
	case sanitize.Reject, sanitize.Strip:
	default:
		c.enum("inputPolicy", policy, at, string(sanitize.Keep), string(sanitize.Reject), string(sanitize.Strip))
	}
	return policy
}

// creditEstimation checks the credit estimation (X147). If its formula names something
// that is not known when the run starts, the maximum is reserved (R15).
func (c *compiler) creditEstimation() {
	policy := c.r.CreditPolicy
	switch policy {
	case "":
		policy = "refund_unused"
	case "refund_unused", "refund_all", "no_refund":
	default:
		c.enum("credit_policy", policy, c.base, "refund_unused", "refund_all", "no_refund")
	}
	e, at := c.r.CreditEstimation, c.base+"/creditEstimation"
	if e == nil {
		if c.r.CreditPolicy != "" && policy != "refund_unused" {
			c.p.Estimate = &plan.Estimate{Policy: policy}
		}
		return
	}
	for _, f := range []struct {
		name string
		n    int64
	}{{"fixedCredits", e.FixedCredits}, {"perFileCredits", e.PerFileCredits}, {"maxCredits", e.MaxCredits}} {
		if f.n < 0 {
			c.fail(fault.RecipeInvalid, "bad-credits", c.valueAt(at+"/"+f.name), fmt.Sprintf("%s is %d; credits are never negative", f.name, f.n), "")
		}
	}
	switch e.Strategy {
	case "fixed", "per_file":
	case "calculated":
		if e.Formula == "" {
			c.fail(fault.RecipeInvalid, "missing-field", c.valueAt(at), `strategy "calculated" needs the field "formula"`, "")
		}
	default:
		c.enum("strategy", e.Strategy, at, "fixed", "per_file", "calculated")
	}
	c.p.Estimate = &plan.Estimate{
		Strategy: e.Strategy, Fixed: e.FixedCredits, PerFile: e.PerFileCredits,
		Formula: trimmed(e.Formula), Max: e.MaxCredits, Policy: policy,
	}
}
