// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// errorTypes is where the types of errors of the DSL are defined.
const errorTypes = "https://serverlessworkflow.io/dsl/errors/types/"

// codesOf are the codes of Roux that are errors of a type of the DSL.
var codesOf = map[string][]string{
	"communication": {"HTTP_STATUS", "PROVIDER_ERROR", "SERVICE_UNAVAILABLE", "RATE_LIMITED", "EGRESS_REFUSED"},
	"timeout":       {"STEP_TIMEOUT"},
	"expression":    {"TEMPLATE_ERROR", "EXPRESSION_LIMIT"},
	"validation":    {"INPUT_INVALID", "INPUT_CONTRACT_VIOLATION", "OUTPUT_CONTRACT_VIOLATION"},
}

// typeName returns the word that stands for a type of errors in a code.
func typeName(typ string) string {
	typ = strings.TrimRight(typ, "/")
	name := strings.Trim(noID.ReplaceAllString(typ[strings.LastIndexByte(typ, '/')+1:], "_"), "_-")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "error_" + name
	}
	return name[:min(len(name), 50)]
}

// raise returns a step that fails with an error of the DSL: its code is the name of the type and the status.
func (t *dslTask) raise(e env) []*recipe.Step {
	r := t.get("raise")
	err := r.get("error")
	if err.is(jsonx.String) {
		name := err.n.Text
		if err = t.use.get("errors").get(name); !err.there() {
			r.refuse("no error has the name %q", syntax.Short(name))
			return nil
		}
	}
	r.rest("raise")
	if !err.object("error") {
		r.refuse("raise needs an error")
		return nil
	}
	f := &recipe.Fail{Code: typeName(err.get("type").str())}
	if status, ok := err.get("status").scalar(); ok {
		f.Code += "." + strings.Trim(noID.ReplaceAllString(status, "_"), "_-")
	}
	var parts []string
	for _, name := range []string{"title", "detail"} {
		v := err.get(name)
		if !v.there() {
			continue
		}
		if src, is := runtimeText(v.str()); is {
			parts = append(parts, "{{ "+t.expression(v, src, e).src+" }}")
		} else {
			parts = append(parts, message(v.str()))
		}
	}
	err.get("instance").drop("the step says where")
	err.rest("error")
	f.Message = strings.Join(parts, ": ")
	s := &recipe.Step{ID: t.w.id(t.key()), Fail: f}
	t.mapped("raise %q: step %s fails with the code %s", syntax.Short(t.key()), s.ID, f.Code)
	t.get("timeout").drop("a step that fails takes no time")
	return []*recipe.Step{s}
}

// A filter is the errors that a catch is about.
type filter struct{ typ, status value }

// condition returns when an error with the code and the message of a step is one of them.
func (f filter) condition(step string) string {
	code, msg := step+".error.code", step+".error.message"
	status, hasStatus := f.status.scalar()
	if f.typ.there() {
		name := typeName(f.typ.str())
		own := fmt.Sprintf("%s.startsWith(%s)", code, quote(name+"."))
		if hasStatus {
			own = fmt.Sprintf("%s == %s", code, quote(name+"."+status))
		}
		var list []string
		for _, c := range codesOf[name] {
			list = append(list, quote(c))
		}
		if len(list) == 0 || !strings.HasPrefix(f.typ.str(), errorTypes) {
			return own + fmt.Sprintf(" || %s == %s", code, quote(name))
		}
		theirs := fmt.Sprintf("%s in [%s]", code, strings.Join(list, ", "))
		if hasStatus && name == "communication" {
			theirs += fmt.Sprintf(" && %s.contains(%s)", msg, quote(" answered "+status+" "))
		}
		return own + " || " + theirs
	}
	if hasStatus {
		return fmt.Sprintf("%s.endsWith(%s) || %s.contains(%s)", code, quote("."+status), msg, quote(" answered "+status+" "))
	}
	return "true"
}

// value returns the error of a step as an error of the DSL.
func (f filter) value(step, instance string) cel {
	code, msg := step+".error.code", step+".error.message"
	typ := fmt.Sprintf("%s in ['%s'] ? %s : %s == 'STEP_TIMEOUT' ? %s : %s + %s.split('.')[0]", code, strings.Join(codesOf["communication"], "', '"),
		quote(errorTypes+"communication"), code, quote(errorTypes+"timeout"), quote(errorTypes), code)
	if f.typ.there() {
		typ = quote(f.typ.str())
	}
	number := fmt.Sprintf("%[2]s.contains(' answered ') ? int(%[2]s.split(' answered ')[1].split(' ')[0]) : %[1]s.matches('[.][0-9]+$') ? int(%[1]s.split('.')[1]) : 500", code, msg)
	if s, ok := f.status.scalar(); ok {
		if n, err := strconv.Atoi(s); err == nil {
			number = strconv.Itoa(n)
		}
	}
	return mapOf([]field{
		{"type", cel{src: typ}}, {"status", cel{src: number}}, {"title", cel{src: code}}, {"detail", cel{src: msg}}, {"instance", text(instance)},
	})
}

// try returns the steps of tasks whose failure is caught.
func (t *dslTask) try(e env) ([]*recipe.Step, cel, string) {
	list, c := t.get("try"), t.get("catch")
	if !c.object("catch") {
		t.refuse("try needs catch")
		return nil, e.doc, e.lost
	}
	pol := t.retry(c.get("retry"))
	var s *recipe.Step
	var done env
	if pol != nil {
		var result cel
		s, result = t.w.nested(t.key(), pol, e, func(w *writer, in env) ([]*recipe.Step, cel, bool) {
			inner := *t
			inner.w = w
			block, out := inner.block(t.key(), list, in)
			return []*recipe.Step{block}, out.doc, out.lost == ""
		})
		done = e.with(result)
	} else {
		s, done = t.block(t.key(), list, e)
	}
	done.vars = e.vars
	t.limit(s)
	s.OnError = &recipe.OnError{Strategy: "skip"}
	step := stepOf(s.ID)
	t.mapped("try %q: step %s", syntax.Short(t.key()), s.ID)
	errs := c.get("errors")
	with := errs.get("with")
	f := filter{with.get("type"), with.get("status")}
	for _, name := range []string{"instance", "title", "detail", "details"} {
		with.get(name).refuse("errors cannot be told by their %s: use type and status", name)
	}
	with.rest("with")
	errs.rest("errors")
	as := "error"
	if v := c.get("as").str(); v != "" {
		as = v
	}
	failure := f.value(step, t.instance(list))
	see := e.put(as, failure)
	cond := []string{f.condition(step)}
	if v := c.get("when"); v.there() {
		cond = append(cond, t.condition(v, see))
	}
	if v := c.get("exceptWhen"); v.there() {
		cond = append(cond, "!("+t.condition(v, see)+")")
	}
	sides := []side{{when: step + ".status == 'completed'", env: done, alive: true}}
	handler := side{env: e, alive: true, when: "(" + strings.Join(cond, ") && (") + ")"}
	if do := c.get("do"); do.there() {
		handler.steps, handler.env, handler.alive = t.tasks(t.w, do, see, false)
		handler.env.vars = e.vars
	}
	c.rest("catch")
	all := handler.when == "(true)"
	if all {
		handler.when = ""
	}
	if sides = append(sides, handler); !all {
		c.changed("an error that is not caught fails with the code STEP_FAILED, and has its own code in the message")
		sides = append(sides, side{steps: []*recipe.Step{{ID: t.w.id(t.key() + "-uncaught"), Fail: &recipe.Fail{
			Message: fmt.Sprintf("{{ %[1]s.error.code }}: {{ %[1]s.error.message }}", step),
		}}}})
	}
	next, after, _ := t.w.condition(t.key()+"-catch", sides, e)
	return []*recipe.Step{s, next}, after.doc, after.lost
}

// instance returns the pointer of the task that fails, if only one can.
func (t *dslTask) instance(list value) string {
	at := t.value.s.ptr[t.n]
	failing := ""
	for i, item := range list.n.Children {
		if len(item.Children) != 1 || item.Children[0].Child("set") != nil {
			continue
		}
		if failing != "" {
			return at + "/try"
		}
		failing = fmt.Sprintf("%s/try/%d/%s", at, i, jsonx.EscapeToken(item.Children[0].Key))
	}
	return failing
}

// retry reads a retry policy, which may be the name of one in use.retries.
func (t *dslTask) retry(v value) *recipe.RetryPolicy {
	if v.is(jsonx.String) {
		name := v.n.Text
		from := v
		if v = t.use.get("retries").get(name); !v.there() {
			from.refuse("no retry policy has the name %q", syntax.Short(name))
			return nil
		}
	}
	if !v.there() || !v.object("retry") {
		return nil
	}
	none := 0.0
	pol := &recipe.RetryPolicy{MaxAttempts: 1000, InitialDelay: "0ms", MaxDelay: "24h", BackoffMultiplier: 1, Jitter: &none}
	for _, name := range []string{"when", "exceptWhen"} {
		v.get(name).refuse("a condition of a retry is not supported: what is retried is decided by the codes of the errors")
	}
	if d := v.get("delay"); d.there() {
		pol.InitialDelay = t.duration(d)
	}
	b := v.get("backoff")
	for _, kind := range []string{"constant", "exponential", "linear"} {
		if k := b.get(kind); k.there() {
			k.literal()
			switch kind {
			case "exponential":
				pol.BackoffMultiplier = 2
			case "linear":
				k.refuse("a linear backoff is not supported: use constant or exponential")
			}
		}
	}
	b.rest("backoff")
	if j := v.get("jitter"); j.there() {
		half := 0.5
		pol.Jitter = &half
		j.changed("half of each pause is random")
		j.literal()
	}
	limit := v.get("limit")
	if n, ok := limit.get("attempt").get("count").whole(); ok {
		pol.MaxAttempts = min(n+1, 1000)
	} else {
		v.changed("at most 1000 attempts")
	}
	limit.get("attempt").get("duration").drop("the timeout of the task bounds an attempt")
	limit.get("attempt").rest("attempt")
	limit.get("duration").drop("the timeout of the workflow bounds all attempts")
	limit.rest("limit")
	v.rest("retry")
	return pol
}
