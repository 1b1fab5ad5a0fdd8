// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// argoText returns a value as the text that stands for it in a placeholder.
func argoText(c cel) cel {
	switch c.shape {
	case isText:
		return c
	case isList, isMap:
		return call(isText, "toJson(%s)", c.src)
	}
	return call(isText, "string(%s)", c.src)
}

// text returns a text with placeholders. fixed is the text if there are none.
func (a *argo) text(v value, src string, s *argoScope) argument {
	var parts []string
	constant := true
	rest := src
	for {
		before, after, found := strings.Cut(rest, "{{")
		if before != "" {
			parts = append(parts, quote(before))
		}
		if !found {
			break
		}
		ref, after, found := strings.Cut(after, "}}")
		if !found {
			v.refuse("a placeholder has no end")
			break
		}
		constant = false
		parts = append(parts, argoText(a.reference(v, strings.TrimSpace(ref), s)).in())
		rest = after
	}
	if constant {
		return argument{cel: literal(src), fixed: &src}
	}
	return argument{cel: cel{src: strings.Join(parts, " + "), shape: isText, atom: len(parts) == 1}}
}

// reference returns what a placeholder names.
func (a *argo) reference(v value, ref string, s *argoScope) cel {
	null := atom("''", isText)
	if strings.HasPrefix(ref, "=") {
		v.refuse("an expression in a placeholder ({{=…}}) is not supported")
		return null
	}
	if len(ref) > syntax.MaxExpression {
		v.refuse("a placeholder has more than %d characters", syntax.MaxExpression)
		return null
	}
	head, tail, _ := strings.Cut(ref, ".")
	switch head {
	case "inputs":
		if p, ok := s.params[strings.TrimPrefix(tail, "parameters.")]; ok && strings.HasPrefix(tail, "parameters.") {
			return p.cel
		}
	case "workflow":
		if c, ok := s.globals[tail]; ok {
			return c
		}
	case "item":
		if s.item.src != "" && tail == "" {
			return s.item
		}
		if s.item.src != "" {
			return s.item.strict(tail)
		}
	case "steps", "tasks":
		if c, ok := s.result(tail); ok {
			return c
		}
	case "pod", "retries", "node", "lastRetry", "cronworkflow":
	}
	v.refuse("{{%s}} has no value here", syntax.Short(ref))
	return null
}

// result returns an output of another step: NAME.outputs.result, NAME.outputs.parameters.X, NAME.status.
func (s *argoScope) result(ref string) (cel, bool) {
	name, field, ok := strings.Cut(ref, ".outputs.")
	if !ok {
		if n, is := strings.CutSuffix(ref, ".status"); is && s.steps[n] != "" {
			st := stepOf(s.steps[n]) + ".status"
			return atom("("+st+" == 'completed' ? 'Succeeded' : "+st+" == 'skipped' ? 'Skipped' : 'Failed')", isText), true
		}
		return cel{}, false
	}
	id := s.steps[name]
	if id == "" {
		return cel{}, false
	}
	out := output(id)
	param, isParam := strings.CutPrefix(field, "parameters.")
	switch {
	case s.loops[name] && field == "result":
		return call(isText, "toJson(%s.map(o, o.result))", out.src), true
	case s.loops[name] && isParam:
		return call(isText, "toJson(%s.map(o, %s))", out.src, atom("o.parameters", isMap).strict(param).src), true
	case field == "result":
		return out.strict("result"), true
	case isParam:
		return out.strict("parameters").strict(param), true
	}
	return cel{}, false
}

// template returns a value in which texts may have placeholders.
func (a *argo) value(v value, s *argoScope) cel {
	switch {
	case !v.there():
		return atom("null", isNull)
	case !mentions(v.n, "{{"):
		return literal(v.literal())
	case v.is(jsonx.Object):
		var fields []field
		for _, f := range v.items() {
			fields = append(fields, field{f.key(), a.value(f, s)})
		}
		return mapOf(fields)
	case v.is(jsonx.Array):
		var parts []cel
		for _, c := range v.items() {
			parts = append(parts, a.value(c, s))
		}
		return listOf(parts)
	}
	return a.text(v, v.n.Text, s).cel
}

// give gives an action an input.
func (a *argo) give(step *recipe.Step, name string, v value, s *argoScope) {
	if !v.there() {
		return
	}
	if !mentions(v.n, "{{") {
		fixed(step, name, v.literal())
		return
	}
	bind(step, name, a.value(v, s))
}

// common reads what templates of all kinds may have.
func (a *argo) common(t value) {
	t.get("failFast").drop("what happens to other steps when one fails is failure_policy of the recipe")
	t.get("parallelism").drop("how many attempts run at once is a setting of Roux, or maxConcurrency of a loop")
	t.dropEach(pods)
	t.rest("a template")
}

// leaf returns the step of a template that does something itself.
func (a *argo) leaf(t value, name string, s *argoScope) *recipe.Step {
	step := &recipe.Step{ID: s.w.id(name)}
	if len(a.calls) == 0 { // the entry point, whose parameters are those of the workflow
		args := s.params
		inner := *s
		inner.params = a.inputs(t, args)
		s = &inner
	}
	switch {
	case t.has("container"):
		a.pod(step, t, t.get("container"), "container", s)
	case t.has("script"):
		a.pod(step, t, t.get("script"), "script", s)
	case t.has("http"):
		a.http(step, t.get("http"), s)
	case t.has("suspend"):
		sp := t.get("suspend")
		step.Wait = &recipe.Wait{Signal: step.ID}
		if d := sp.get("duration"); d.there() {
			step.Wait = &recipe.Wait{Duration: a.duration(d, s)}
		} else {
			sp.mapped("suspend: step %s waits for the signal %s", step.ID, step.Wait.Signal)
		}
		sp.rest("suspend")
	default:
		for _, kind := range []string{"resource", "data", "plugin", "containerSet"} {
			t.get(kind).refuse("a template of the kind %s is not supported", kind)
		}
		t.refuse("the template %q does nothing that is known: want container, script, http, suspend, steps or dag", syntax.Short(name))
	}
	out := t.get("outputs")
	out.get("artifacts").refuse("artifacts are not supported: an action returns files by their hashes")
	if params := out.get("parameters"); params.there() && step.Action != nil {
		fixed(step, "outputs", params.literal())
	}
	out.rest("outputs")
	step.RetryPolicy, step.TotalTimeout = a.retry(t.get("retryStrategy"))
	if d := t.get("timeout"); d.there() {
		step.Timeout = a.duration(d, s)
	}
	if d := t.get("activeDeadlineSeconds"); d.there() {
		step.Timeout = a.duration(d, s)
	}
	a.common(t)
	if step.Action != nil {
		t.mapped("template %q: calls the action %s", syntax.Short(name), step.Action.Name)
	}
	return step
}

// pod gives an action what a container needs.
func (a *argo) pod(step *recipe.Step, t, c value, kind string, s *argoScope) {
	if !c.object(kind) {
		return
	}
	source := c.peek("image").strOr(kind)
	step.Action = a.action(c, source, kind)
	c.get("name").drop("the name of a container")
	for _, f := range []string{"image", "command", "args", "source", "workingDir"} {
		a.give(step, f, c.get(f), s)
	}
	if env := c.get("env"); env.list("env") {
		var fields []field
		for _, e := range env.items() {
			e.get("valueFrom").refuse("a variable from a secret or a config map is not supported: write {{ secret('name') }} into the recipe")
			fields = append(fields, field{e.get("name").str(), a.value(e.get("value"), s)})
			e.rest("env")
		}
		bind(step, "env", mapOf(fields))
	}
	c.get("envFrom").refuse("variables from a secret or a config map are not supported")
	c.dropEach(pods)
	c.rest(kind)
}

func (a *argo) http(step *recipe.Step, h value, s *argoScope) {
	step.Action = a.action(h, "http", "http")
	for _, f := range []string{"url", "method", "body"} {
		a.give(step, f, h.get(f), s)
	}
	if hs := h.get("headers"); hs.list("headers") {
		var fields []field
		for _, e := range hs.items() {
			e.get("valueFrom").refuse("a header from a secret is not supported: write {{ secret('name') }} into the recipe")
			fields = append(fields, field{e.get("name").str(), a.value(e.get("value"), s)})
			e.rest("a header")
		}
		bind(step, "headers", mapOf(fields))
	}
	if n, ok := h.get("timeoutSeconds").whole(); ok && n > 0 {
		step.Timeout = seconds(n)
	}
	h.get("successCondition").refuse("successCondition is not supported: use expectStatus of the action http")
	h.get("insecureSkipVerify").drop("certificates are always checked")
	h.rest("http")
}
