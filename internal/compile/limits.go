// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/plan"
)

const (
	minuteMS = 60_000
	hourMS   = 60 * minuteMS
	mebibyte = 1 << 20
)

// Limits are a server's defaults and maxima. A zero field has the value of
// [DefaultLimits].
type Limits struct {
	Default, Max plan.Limits
	// TimeoutMS is the timeout of a step without one; MaxTimeoutMS is the
	// operator's hard limit (X238).
	TimeoutMS, MaxTimeoutMS int64
	// TTLMS is the ttl of a run without one; MaxTTLMS bounds it, 0 = no bound.
	TTLMS, MaxTTLMS int64
}

// DefaultLimits returns the documented defaults. The expression cost and the depth of
// child runs are 0 here, which means the defaults of packages expr and plan.
func DefaultLimits() Limits {
	return Limits{
		Default:   plan.Limits{TotalSteps: 100_000, LoopItems: 100_000, ScopeDepth: 32, MemoryBytes: 256 * mebibyte},
		Max:       plan.Limits{TotalSteps: 1_000_000, LoopItems: 1_000_000, ScopeDepth: 64, MemoryBytes: 4096 * mebibyte, ExpressionCost: expr.MaxCost, ChildDepth: 32},
		TimeoutMS: 10 * minuteMS, MaxTimeoutMS: 24 * hourMS,
		TTLMS: 48 * hourMS,
	}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ got, def *int64 }{
		{&l.Default.TotalSteps, &d.Default.TotalSteps}, {&l.Max.TotalSteps, &d.Max.TotalSteps},
		{&l.Default.LoopItems, &d.Default.LoopItems}, {&l.Max.LoopItems, &d.Max.LoopItems},
		{&l.Default.ScopeDepth, &d.Default.ScopeDepth}, {&l.Max.ScopeDepth, &d.Max.ScopeDepth},
		{&l.Default.MemoryBytes, &d.Default.MemoryBytes}, {&l.Max.MemoryBytes, &d.Max.MemoryBytes},
		{&l.Max.ExpressionCost, &d.Max.ExpressionCost}, {&l.Max.ChildDepth, &d.Max.ChildDepth},
		{&l.TimeoutMS, &d.TimeoutMS}, {&l.MaxTimeoutMS, &d.MaxTimeoutMS}, {&l.TTLMS, &d.TTLMS},
	} {
		if *f.got == 0 {
			*f.got = *f.def
		}
	}
	l.Max.ExpressionCost = min(l.Max.ExpressionCost, expr.MaxCost)
	return l
}

// expressionCost returns what an expression of the recipe may cost. If the recipe's
// limit is out of range, effectiveLimits reports it.
func (c *compiler) expressionCost() int64 {
	most := c.limits.Max.ExpressionCost
	if c.r.Limits == nil || c.r.Limits.MaxExpressionCost <= 0 {
		return min(cmp.Or(c.limits.Default.ExpressionCost, expr.CostLimit), most)
	}
	return min(c.r.Limits.MaxExpressionCost, most)
}

// effectiveLimits computes the limits of a run from the recipe's limits and the server's
// maxima, and checks what can be checked before anything runs.
func (c *compiler) effectiveLimits() {
	lim := c.limits.Default
	wish := c.r.Limits
	if wish == nil {
		wish = &recipe.Limits{}
	}
	for _, f := range []struct {
		name     string
		want     int64
		to       *int64
		most     int64
		unit     int64
		unitName string
	}{
		{"max_total_steps", wish.MaxTotalSteps, &lim.TotalSteps, c.limits.Max.TotalSteps, 1, ""},
		{"max_loop_items", wish.MaxLoopItems, &lim.LoopItems, c.limits.Max.LoopItems, 1, ""},
		{"max_scope_depth", wish.MaxScopeDepth, &lim.ScopeDepth, c.limits.Max.ScopeDepth, 1, ""},
		{"max_depth", wish.MaxDepth, &lim.ChildDepth, c.limits.Max.ChildDepth, 1, ""},
		{"memory_limit_mb", wish.MemoryLimitMB, &lim.MemoryBytes, c.limits.Max.MemoryBytes, mebibyte, " MiB"},
		{"max_expression_cost", wish.MaxExpressionCost, &lim.ExpressionCost, c.limits.Max.ExpressionCost, 1, ""},
	} {
		at := c.valueAt(c.base + "/limits/" + f.name)
		switch {
		case f.want == 0:
			*f.to = min(*f.to, f.most)
		case f.want < 0:
			c.fail(fault.RecipeInvalid, "bad-limit", at, fmt.Sprintf("%s is %d; want at least 1", f.name, f.want), "")
		case f.want > f.most/f.unit:
			c.fail(fault.RecipeInvalid, "limit-too-high", at,
				fmt.Sprintf("%s is %d%s; this server allows at most %d", f.name, f.want, f.unitName, f.most/f.unit), "")
		default:
			*f.to = f.want * f.unit
		}
	}
	if lim.ExpressionCost = c.expressionCost(); lim.ExpressionCost == expr.CostLimit {
		lim.ExpressionCost = 0 // omitted, as in plans compiled before this limit existed, so that their hash stays the same
	}
	c.childDepth(&lim)
	c.p.Limits = lim
	if n := int64(len(c.p.Steps)); n > lim.TotalSteps {
		c.fail(fault.StepLimit, "too-many-steps", c.keyAt(c.base+"/steps"),
			fmt.Sprintf("Maximum total steps (%d) exceeded: the recipe has %d steps", lim.TotalSteps, n),
			fmt.Sprintf(`set "limits: {max_total_steps: %d}" (at most %d)`, n, c.limits.Max.TotalSteps))
	}
	for g := range c.p.Graphs {
		gr := &c.p.Graphs[g]
		// Reported where the limit is exceeded, not at every scope below.
		if int64(gr.Depth) == lim.ScopeDepth+1 && gr.Role != plan.Compensation {
			c.fail(fault.DepthExceeded, "too-deep", c.valueAt(c.nodes[gr.Owner].ptr),
				fmt.Sprintf("%s is %d levels deep; the limit is %d", c.scopeName(int32(g)), gr.Depth, lim.ScopeDepth),
				fmt.Sprintf(`flatten the recipe, or set "limits: {max_scope_depth: …}" (at most %d)`, c.limits.Max.ScopeDepth))
		}
	}
}

// childDepth determines how deep child runs may nest. A recipe's own limit counts from
// its run, so it means the same wherever the recipe is run. The plan has only a limit that
// the recipe or the operator sets: the default is that of a root run.
func (c *compiler) childDepth(lim *plan.Limits) {
	c.unit.depth = min(cmp.Or(lim.ChildDepth, plan.DefaultChildDepth), c.limits.Max.ChildDepth)
	if c.r.Limits == nil || c.r.Limits.MaxDepth <= 0 {
		lim.ChildDepth = c.limits.Default.ChildDepth
	}
}

// duration parses a duration that must be longer than zero. It returns 0 when the
// duration is not given or not valid; the latter is reported.
func (c *compiler) duration(d recipe.Duration, at location) int64 {
	if d == "" {
		return 0
	}
	ms, err := recipe.ParseDuration(string(d))
	if err != nil {
		c.fail(fault.RecipeInvalid, "bad-duration", at, fault.Message(err), "")
		return 0
	}
	if ms <= 0 {
		c.fail(fault.RecipeInvalid, "bad-duration", at, fmt.Sprintf("%q is zero; want a duration such as \"30s\"", string(d)), "")
		return 0
	}
	return ms
}

// delay parses a duration that may be zero; ok is false when it is not given.
func (c *compiler) delay(d recipe.Duration, at location) (ms int64, ok bool) {
	if d == "" {
		return 0, false
	}
	ms, err := recipe.ParseDuration(string(d))
	if err != nil {
		c.fail(fault.RecipeInvalid, "bad-duration", at, fault.Message(err), "")
		return 0, false
	}
	return ms, true
}

// timeout parses a duration and caps it at the operator's hard limit.
func (c *compiler) timeout(d recipe.Duration, at location) int64 {
	ms := c.duration(d, at)
	if ms > c.limits.MaxTimeoutMS {
		c.warn("timeout-capped", at, fmt.Sprintf("%q is longer than this server allows; %s is used", string(d), plan.FormatMS(c.limits.MaxTimeoutMS)), "")
		return c.limits.MaxTimeoutMS
	}
	return ms
}
