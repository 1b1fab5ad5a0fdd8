// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"math"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// The defaults of the retry record (R18).
const (
	defaultInitialMS  = 500
	defaultMaxMS      = 8000
	defaultMultiplier = 2
	defaultJitter     = 0.5
	// retryAttempts is what `onError: retry` means without maxRetries.
	retryAttempts = 3
)

// retry compiles all spellings into the one record. retryPolicy takes precedence over
// onError, because it is more specific.
func (c *compiler) retry(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	pol, oe := n.src.RetryPolicy, n.src.OnError
	rec := plan.Retry{
		Attempts: 1, InitialMS: defaultInitialMS, MaxMS: defaultMaxMS,
		Multiplier: defaultMultiplier, Jitter: defaultJitter,
	}
	retries := oe.Retries()
	if !c.calls(i) && (pol != nil || retries) {
		at := n.ptr + "/retryPolicy"
		if pol == nil {
			at = n.ptr + "/onError"
		}
		c.fail(fault.RecipeInvalid, "not-for-kind", c.keyAt(at),
			c.kindName(i)+" is never retried; only action and recipe steps are", "put the retry on the steps inside it")
		pol, retries = nil, false
	}
	switch {
	case pol != nil:
		c.retryPolicy(&rec, pol, n.ptr+"/retryPolicy")
	case retries:
		rec.Attempts = retryAttempts
		if oe.MaxRetries > 0 {
			rec.Attempts = oe.MaxRetries + 1
		}
		if oe.MaxRetries < 0 || oe.MaxRetries == math.MaxInt64 {
			c.fail(fault.RecipeInvalid, "bad-retry", c.valueAt(n.ptr+"/onError/maxRetries"),
				fmt.Sprintf("maxRetries is %d; want at least 1", oe.MaxRetries), "")
			rec.Attempts = 1
		}
		if ms, ok := c.delay(oe.RetryDelay, c.valueAt(n.ptr+"/onError/retryDelay")); ok {
			rec.InitialMS, rec.MaxMS = ms, max(rec.MaxMS, ms)
		}
	}
	st.Retry = rec
}

// serviceRetry applies the recipe's policy to a step that has none and whose action calls a service
// over the network.
func (c *compiler) serviceRetry(i int32) {
	n := &c.nodes[i]
	calls := n.decl.Provider != "" || slices.Contains(n.decl.Faults, fault.ServiceUnavailable)
	if pol := c.r.ServiceRetry; pol != nil && calls && n.src.RetryPolicy == nil && !n.src.OnError.Retries() {
		c.retryPolicy(&c.p.Steps[i].Retry, pol, c.base+"/service_retry")
	}
}

func (c *compiler) retryPolicy(rec *plan.Retry, pol *recipe.RetryPolicy, ptr string) {
	switch {
	case pol.MaxAttempts < 0:
		c.fail(fault.RecipeInvalid, "bad-retry", c.valueAt(ptr+"/maxAttempts"),
			fmt.Sprintf("maxAttempts is %d; it counts the first try, so want at least 1", pol.MaxAttempts), "")
	case pol.MaxAttempts > 0:
		rec.Attempts = pol.MaxAttempts
	default:
		c.warn("retry-never", c.keyAt(ptr), "the "+c.word(ptr)+" has no maxAttempts, so nothing is retried", "add maxAttempts: 3")
	}
	initial, hasInitial := c.delay(pol.InitialDelay, c.valueAt(ptr+"/initialDelay"))
	most, hasMost := c.delay(pol.MaxDelay, c.valueAt(ptr+"/maxDelay"))
	switch {
	case hasInitial && hasMost && initial > most:
		c.fail(fault.RecipeInvalid, "bad-retry", c.valueAt(ptr+"/initialDelay"),
			fmt.Sprintf("initialDelay %s is longer than maxDelay %s", plan.FormatMS(initial), plan.FormatMS(most)), "",
			c.place(c.valueAt(ptr+"/maxDelay"), "maxDelay"))
	case hasMost:
		rec.MaxMS, rec.InitialMS = most, min(rec.InitialMS, most)
	}
	if hasInitial {
		rec.InitialMS, rec.MaxMS = initial, max(rec.MaxMS, initial)
	}
	if m := pol.BackoffMultiplier; m != 0 {
		if !(m >= 1 && m <= 100) {
			c.fail(fault.RecipeInvalid, "bad-retry", c.valueAt(ptr+"/backoffMultiplier"),
				fmt.Sprintf("backoffMultiplier is %v; want 1 to 100", m), "")
		} else {
			rec.Multiplier = m
		}
	}
	if pol.Jitter != nil {
		if j := *pol.Jitter; !(j >= 0 && j <= 1) {
			c.fail(fault.RecipeInvalid, "bad-retry", c.valueAt(ptr+"/jitter"), fmt.Sprintf("jitter is %v; want 0 to 1", j), "")
		} else {
			rec.Jitter = j
		}
	}
	for k, name := range pol.RetryableErrors {
		rec.On = append(rec.On, c.retryable(name, c.valueAt(fmt.Sprintf("%s/retryableErrors/%d", ptr, k))))
	}
	slices.Sort(rec.On)
	rec.On = slices.Compact(rec.On)
}

// causes are the names that retryableErrors accepts besides codes (X110, R19).
var causes = []string{
	string(fault.CauseTimeout), string(fault.CauseProvider), string(fault.CauseRateLimit), string(fault.CauseContract), string(fault.CauseLost),
}

// retryable returns the canonical name of an error: a cause, or the code behind an alias.
func (c *compiler) retryable(name string, at location) string {
	if slices.Contains(causes, name) {
		return name
	}
	row, ok := fault.Lookup(fault.Code(name))
	if !ok {
		c.warn("unknown-error", at, fmt.Sprintf("%q is not a code of Roux; it matches only if an action returns it", name), didYouMean(name, errorNames()))
		return name
	}
	switch row.Cause {
	case fault.CauseExpression, fault.CauseUpstream, fault.CauseCancelled, fault.CauseDefinition,
		fault.CauseInput, fault.CauseLimit, fault.CauseRequest:
		c.warn("never-retryable", at, fmt.Sprintf("%s is permanent: another attempt of the step fails the same way", row.Code), row.Remedy)
	default:
		if row.Code == fault.InputContractViolation || row.Code == fault.ExecutionExpired {
			c.warn("never-retryable", at, fmt.Sprintf("%s is never retried", row.Code), row.Remedy)
		}
	}
	return string(row.Code)
}

func errorNames() []string {
	names := slices.Clone(causes)
	for _, row := range fault.All() {
		names = append(names, string(row.Code))
		names = append(names, row.Aliases...)
	}
	return names
}

// afterRetries compiles what happens after the last retry has failed.
func (c *compiler) afterRetries(i int32) {
	n, st := &c.nodes[i], &c.p.Steps[i]
	st.ContinueOnError = n.src.ContinueOnError
	switch n.src.OnParentFailure {
	case "", "propagate":
		st.ParentFailure = plan.Propagate
	case "skip":
		st.ParentFailure = plan.SkipOnParent
	case "substitute_default":
		st.ParentFailure = plan.SubstituteDefault
		c.warn("substitute-default", c.valueAt(n.ptr+"/on_parent_failure"),
			"substitute_default runs the step with empty text in place of the outputs of failed steps", "prefer has() or the default filter")
	default:
		c.enum("on_parent_failure", n.src.OnParentFailure, n.ptr, "propagate", "skip", "substitute_default")
	}
	oe := n.src.OnError
	if oe == nil {
		return
	}
	at := n.ptr + "/onError"
	switch oe.Strategy {
	case "fail", "retry":
	case "skip":
		st.OnError = plan.OnErrorSkip
	case "fallback":
		st.OnError = plan.OnErrorFallback
		if oe.FallbackStep == nil {
			c.fail(fault.RecipeInvalid, "missing-field", c.valueAt(at), `onError of strategy "fallback" needs the field "fallbackStep"`, "")
		}
	default:
		c.enum("strategy", oe.Strategy, at, "fail", "skip", "fallback", "retry")
	}
	if oe.FallbackStep != nil && oe.Strategy != "fallback" {
		c.fail(fault.RecipeInvalid, "stray-fallback", c.keyAt(at+"/fallbackStep"),
			fmt.Sprintf("onError of strategy %q never runs a fallbackStep", oe.Strategy), `write strategy: fallback; maxRetries retries before it`)
	}
	if st.Kind == plan.Fail {
		c.fail(fault.RecipeInvalid, "not-for-kind", c.keyAt(at), "a fail step always fails; it cannot have onError", "")
	}
}

// enum reports a value that is not one of those a field accepts.
func (c *compiler) enum(field, got, ptr string, want ...string) {
	c.fail(fault.RecipeInvalid, "bad-value", c.valueAt(ptr+"/"+field),
		fmt.Sprintf("%q is not a valid %s; want %s", got, field, list(want)), didYouMean(got, want))
}
