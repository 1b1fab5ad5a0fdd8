// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

var noCode = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// catches returns the exits of a state whose failure others catch. The step goes on when it fails, and a
// condition behind it looks at what became of it.
func (s *state) catches(list value, next exit) []exit {
	if !list.list("Catch") {
		return []exit{next}
	}
	next.when = func(e env) string { return stepOf(e.vars[caught].src) + ".status == 'completed'" }
	next.run = func(e env) ([]*recipe.Step, env, bool) {
		steps, e := s.after(e)
		s.rest("a state")
		return steps, e, true
	}
	exits, all := []exit{next}, false
	for _, c := range list.items() {
		if !c.object("a catcher") || all {
			c.drop("a catcher before it catches everything")
			continue
		}
		to := c.get("Next")
		x := exit{to: to.str(), at: to}
		if x.to == end {
			c.refuse("a catcher needs Next, the name of a state")
		}
		var cond string
		cond, all = s.errors(c.get("ErrorEquals"))
		if !all {
			x.when = func(e env) string { return strings.ReplaceAll(cond, "ERROR", stepOf(e.vars[caught].src)+".error.code") }
		}
		x.run = func(e env) ([]*recipe.Step, env, bool) {
			e = s.errorOutput(c, e)
			c.get("Comment").drop("a comment")
			c.rest("a catcher")
			return nil, e, true
		}
		exits = append(exits, x)
	}
	if !all {
		list.changed("an error that no catcher names fails with the code STEP_FAILED, and has its own code in the message")
		exits = append(exits, exit{to: end, at: list, run: func(e env) ([]*recipe.Step, env, bool) {
			id := e.vars[caught].src
			return []*recipe.Step{{ID: s.w.id(s.key() + "-uncaught"), Fail: &recipe.Fail{
				Message: fmt.Sprintf("{{ %[1]s.error.code }}: {{ %[1]s.error.message }}", stepOf(id)),
			}}}, e, false
		}})
	}
	return exits
}

// errorOutput returns what the state that a catcher leads to gets.
func (s *state) errorOutput(c value, e env) env {
	step := stepOf(e.vars[caught].src)
	failure := atom(fmt.Sprintf("{'Error': %[1]s.error.code, 'Cause': %[1]s.error.message}", step), isMap)
	e = restore(e)
	if s.jsonata {
		see := e.put("states.errorOutput", failure)
		out := e.with(failure)
		if o := c.get("Output"); o.there() {
			out = e.with(s.payload(o, see))
		}
		return assigned(s, c, out, see)
	}
	out := s.placed(e, c.get("ResultPath"), failure)
	return assigned(s, c, out, e.with(failure))
}

func assigned(s *state, c value, after, see env) env {
	a := c.get("Assign")
	if !a.there() || !a.object("Assign") {
		return after
	}
	for _, v := range a.items() {
		after = after.put("$"+strings.TrimSuffix(v.key(), ".$"), s.field(v, see))
	}
	return after
}

// errors returns the condition that the code ERROR is one of those of ErrorEquals; all is true for every code.
func (s *state) errors(list value) (cond string, all bool) {
	if !list.list("ErrorEquals") {
		return "true", true
	}
	var codes []string
	var parts []string
	for _, v := range list.items() {
		switch name := v.str(); name {
		case "States.ALL":
			all = true
		case "States.TaskFailed":
			parts = append(parts, "ERROR != 'STEP_TIMEOUT'")
		case "States.Timeout":
			codes = append(codes, "'STEP_TIMEOUT'")
		default:
			codes = append(codes, quote(code(v)))
		}
	}
	if len(codes) == 1 {
		parts = append(parts, "ERROR == "+codes[0])
	} else if len(codes) > 1 {
		parts = append(parts, "ERROR in ["+strings.Join(codes, ", ")+"]")
	}
	return strings.Join(parts, " || "), all || len(parts) == 0
}

// retry returns the policy of a state that is retried.
func (s *state) retry() *recipe.RetryPolicy {
	list := s.get("Retry")
	if !list.there() || !list.list("Retry") {
		return nil
	}
	var pol *recipe.RetryPolicy
	for _, r := range list.items() {
		switch {
		case !r.object("a retrier"):
		case pol != nil:
			r.drop("a step has one retry policy: only the first retrier applies")
		default:
			pol = s.retrier(r)
		}
	}
	if pol == nil || pol.MaxAttempts <= 1 {
		return nil
	}
	return pol
}

func (s *state) retrier(r value) *recipe.RetryPolicy {
	pol := &recipe.RetryPolicy{MaxAttempts: 4, InitialDelay: "1s", BackoffMultiplier: 2, MaxDelay: "24h"}
	none := 0.0
	pol.Jitter = &none
	r.get("Comment").drop("a comment")
	pol.RetryableErrors = s.retryable(r.get("ErrorEquals"))
	if n, ok := r.get("MaxAttempts").whole(); ok {
		if pol.MaxAttempts = n + 1; n > 999 {
			pol.MaxAttempts = 1000
			r.get("MaxAttempts").changed("at most 1000 attempts")
		}
	}
	if n, ok := r.get("IntervalSeconds").whole(); ok {
		pol.InitialDelay = seconds(n)
	}
	if n, ok := r.get("MaxDelaySeconds").whole(); ok {
		pol.MaxDelay = seconds(n)
	}
	if f, ok := r.get("BackoffRate").number(); ok {
		if pol.BackoffMultiplier = f; f < 1 || f > 100 {
			r.get("BackoffRate").refuse("BackoffRate must be from 1 to 100")
			pol.BackoffMultiplier = 2
		}
	}
	switch j := r.get("JitterStrategy"); j.str() {
	case "", "NONE":
	case "FULL":
		one := 1.0
		pol.Jitter = &one
	default:
		j.refuse("the jitter strategy %q is not known", syntax.Short(j.str()))
	}
	r.rest("a retrier")
	return pol
}

// retryable returns the codes of ErrorEquals. None stands for all that another attempt may mend.
func (s *state) retryable(list value) (codes []string) {
	if !list.list("ErrorEquals") {
		return nil
	}
	all := false
	for _, v := range list.items() {
		switch name := v.str(); name {
		case "States.ALL":
			all = true
		case "States.TaskFailed":
			codes = append(codes, "provider_error", "rate_limit")
		case "States.Timeout":
			codes = append(codes, "timeout")
		default:
			codes = append(codes, code(v))
		}
	}
	if all {
		return nil
	}
	return codes
}

func seconds(n int64) recipe.Duration {
	const most = 30 * 24 * 3600
	return recipe.Duration(fmt.Sprintf("%ds", min(n, most)))
}

// handled lets a step go on that others catch, and remembers it for them.
func (s *state) handled(step *recipe.Step, e env) env {
	catch := s.peek("Catch")
	if !catch.is(jsonx.Array) {
		return e
	}
	step.OnError = &recipe.OnError{Strategy: "skip"}
	return e.put(caught, cel{src: step.ID})
}
