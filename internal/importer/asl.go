// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// An asl imports a definition of the Amazon States Language.
type asl struct {
	*importing
	context  aslContext
	language string // JSONPath or JSONata
}

// An aslContext is what the context object ($$, $states.context) has at a place.
type aslContext struct {
	state       string
	item, index string // of the nearest map; "" = in none
	inner       bool   // in a recipe of its own, where the input of the run is another one
}

func (im *importing) asl(top value) *recipe.Recipe {
	a := &asl{importing: im, language: "JSONPath"}
	r := &recipe.Recipe{}
	r.Name, r.Description = im.name, top.get("Comment").str()
	top.get("Version").drop("the version of the language")
	a.language = a.queryLanguage(top)
	if n, ok := top.get("TimeoutSeconds").whole(); ok && n > 0 {
		r.TTL = recipe.Duration(fmt.Sprintf("%ds", n))
	}
	steps, out, ok := a.machine(im.w, top, env{doc: atom("parameters", isMap)})
	top.rest("a state machine")
	r.Steps = steps
	if ok {
		r.Outputs = map[string]string{"output": out.doc.src}
	}
	return r
}

func (a *asl) queryLanguage(v value) string {
	switch q := v.get("QueryLanguage"); q.str() {
	case "":
		return a.language
	case "JSONPath", "JSONata":
		return q.str()
	default:
		q.refuse("the query language %q is not known", syntax.Short(q.str()))
		return a.language
	}
}

// machine returns the steps of the states of a machine, a branch or an item processor.
func (a *asl) machine(w *writer, m value, e env) ([]*recipe.Step, env, bool) {
	states, start := m.get("States"), m.get("StartAt")
	first, ok := start.text()
	if !ok || !states.object("States") {
		m.refuse("a state machine needs StartAt, a text, and States, an object")
		return nil, e, false
	}
	names := map[string]bool{}
	for _, s := range states.items() {
		names[s.key()] = s.object("a state")
	}
	if !names[first] {
		start.refuse("no state has the name %q", syntax.Short(first))
		return nil, e, false
	}
	f := newFlow(w, first)
	for _, s := range states.items() {
		if names[s.key()] {
			f.add(a.vertex(w, s, names))
		}
	}
	for _, v := range f.list {
		for _, x := range f.byName[v].exits {
			if x.to != end && !names[x.to] {
				x.at.refuse("no state has the name %q", syntax.Short(x.to))
				return nil, e, false
			}
		}
	}
	steps, out, alive := f.steps(e)
	for _, name := range f.list {
		if f.state[name] == 0 {
			f.byName[name].at.drop("no state leads to the state %q", syntax.Short(name))
		}
	}
	return steps, out, alive
}

// A state is one state of a machine.
type state struct {
	*asl
	value
	w       *writer
	jsonata bool
}

// vertex reads where a state leads to. What it does is read when its steps are written.
func (a *asl) vertex(w *writer, v value, names map[string]bool) *vertex {
	vx := &vertex{name: v.key(), at: v}
	s := &state{asl: a, value: v, w: w}
	kind := v.get("Type")
	typ := kind.str()
	s.jsonata = a.queryLanguage(v) == "JSONata"
	vx.run = func(e env) ([]*recipe.Step, env) {
		was := a.context.state
		a.context.state = v.key()
		defer func() { a.context.state = was }()
		v.get("Comment").drop("a comment")
		steps, out := s.run(typ, e)
		if !v.has("Catch") {
			v.rest("a state") // what others catch is read to its end on the way on which it has completed
		}
		return steps, out
	}
	switch typ {
	case "Fail":
	case "Succeed":
		vx.exits = []exit{{to: end, at: v}}
	case "Choice":
		vx.exits = s.choices()
	case "Pass", "Task", "Wait", "Parallel", "Map":
		vx.exits = s.exits()
	default:
		if typ != "" {
			kind.refuse("the state type %q is not known", syntax.Short(typ))
		} else {
			v.refuse("the state %q has no Type", syntax.Short(v.key()))
		}
		vx.run = func(e env) ([]*recipe.Step, env) { return nil, e }
	}
	return vx
}

// run returns the steps of a state without what it chooses or catches.
func (s *state) run(typ string, e env) ([]*recipe.Step, env) {
	switch typ {
	case "Fail":
		return s.fail(e), e
	case "Choice":
		return nil, s.assign(s.output(e, s.input(e)), e, cel{})
	case "Succeed":
		e = s.output(e, s.input(e))
	case "Wait":
		return s.wait(e)
	case "Pass":
		e = s.pass(e)
	case "Task":
		return s.task(e)
	case "Parallel":
		return s.parallel(e)
	case "Map":
		return s.mapState(e)
	}
	t := s.w.transform(s.key(), e.doc)
	s.mapped("%s %q: step %s computes its output", typ, syntax.Short(s.key()), t.ID)
	return []*recipe.Step{t}, e.with(output(t.ID))
}

// input returns what the state works on.
func (s *state) input(e env) env {
	p := s.get("InputPath")
	if !p.there() {
		return e
	}
	if p.is(jsonx.Null) {
		return e.with(atom("{}", isMap))
	}
	return e.with(s.pathOf(p, e))
}

// template returns a payload template, such as Parameters, or what is there without it.
func (s *state) template(field string, e env) env {
	if p := s.get(field); p.there() {
		return e.with(s.payload(p, e))
	}
	return e
}

// output applies OutputPath, or Output of JSONata.
func (s *state) output(before, e env) env {
	if s.jsonata {
		return e
	}
	p := s.get("OutputPath")
	switch {
	case !p.there():
		return e
	case p.is(jsonx.Null):
		return e.with(atom("{}", isMap))
	}
	return e.with(s.pathOf(p, e))
}

// result puts the result of a state into what it works on.
func (s *state) result(before env, result cel) env {
	if s.jsonata {
		out := before.with(result)
		if o := s.get("Output"); o.there() {
			out = before.with(s.payload(o, s.during(before, result)))
		}
		return s.assign(out, before, result)
	}
	e := before.with(result)
	if sel := s.get("ResultSelector"); sel.there() {
		e = before.with(s.payload(sel, e))
	}
	raw := e.doc
	e = s.output(before, s.placed(before, s.get("ResultPath"), e.doc))
	return s.assign(e, before, raw)
}

// during returns the env of expressions that may name the result.
func (s *state) during(before env, result cel) env {
	if result.src != "" {
		before = before.put("states.result", result)
	}
	return before
}

// assign sets the variables of Assign.
func (s *state) assign(after, before env, result cel) env {
	a := s.get("Assign")
	if !a.there() || !a.object("Assign") {
		return after
	}
	see := s.during(before, result)
	if !s.jsonata && result.src != "" {
		see = see.with(result)
	}
	for _, v := range a.items() {
		name := v.key()
		if !s.jsonata {
			name = strings.TrimSuffix(name, ".$")
		}
		after = after.put("$"+name, s.field(v, see))
	}
	return after
}

// placed applies ResultPath.
func (s *state) placed(before env, at value, result cel) env {
	switch {
	case !at.there():
		return before.with(result)
	case at.is(jsonx.Null):
		return before
	}
	p, err := syntax.ParsePath(at.str())
	if err != nil || p.Root != "$" {
		at.refuse("this ResultPath cannot be translated: want a path such as $.result")
		return before
	}
	if len(p.Steps) == 0 {
		return before.with(result)
	}
	for _, h := range p.Steps {
		if h.List {
			at.refuse("a ResultPath into a list (%s) is not supported", syntax.Short(at.str()))
			return before
		}
	}
	return before.with(putAt(before.doc, p.Steps, result))
}

// putAt returns doc with another value at a path.
func putAt(doc cel, path []syntax.Hop, v cel) cel {
	if len(path) > 1 {
		v = putAt(atom(doc.optional(path[:1])+".orValue({})", isMap), path[1:], v)
	}
	return call(isMap, "%s.merge({%s: %s})", doc.loose(), quote(path[0].Name), v.src)
}

// pathOf returns the value that a path names.
func (s *state) pathOf(v value, e env) cel {
	src, ok := v.text()
	if !ok {
		return atom("null", isNull)
	}
	c, err := s.reference(src, e)
	if err != nil {
		v.refuse("%v", err)
		return atom("null", isNull)
	}
	return c
}

// pass returns the output of a Pass state.
func (s *state) pass(e env) env {
	if s.jsonata {
		out := e
		if o := s.get("Output"); o.there() {
			out = e.with(s.payload(o, e))
		}
		return s.assign(out, e, cel{})
	}
	in := s.template("Parameters", s.input(e))
	if r := s.get("Result"); r.there() {
		in.doc = literal(r.literal())
	}
	out := s.output(e, s.placed(e, s.get("ResultPath"), in.doc))
	return s.assign(out, e, in.doc)
}

func (s *state) fail(e env) []*recipe.Step {
	f := &recipe.Fail{}
	if v := s.get("Error"); v.there() {
		f.Code = code(v)
	}
	if v := s.get("Cause"); v.there() {
		if src, is := jsonataText(v.str()); s.jsonata && is {
			c, err := s.jsonataExpr(src, e)
			if err != nil {
				v.refuse("%v", err)
			}
			f.Message = "{{ " + c.src + " }}"
		} else {
			f.Message = message(v.str())
		}
	}
	if v := s.get("CausePath"); v.there() {
		f.Message = "{{ " + s.pathOf(v, e).src + " }}"
	}
	s.get("ErrorPath").refuse("ErrorPath is not supported: the code of a fail step is fixed; use Error")
	step := &recipe.Step{ID: s.w.id(s.key()), Fail: f}
	s.mapped("Fail %q: step %s", syntax.Short(s.key()), step.ID)
	return []*recipe.Step{step}
}

// code returns the code of a failure. The name of an error that is no code becomes one.
func code(v value) string {
	name, ok := v.text()
	if !ok {
		return ""
	}
	c := noCode.ReplaceAllString(name, "_")
	if len(c) > 64 {
		c = c[:64]
	}
	if c == "" || c[0] < 'A' || c[0] > 'z' || c[0] > 'Z' && c[0] < 'a' {
		c = "E" + c[:min(len(c), 63)]
	}
	if c != name {
		v.changed("the error %q has the code %s", syntax.Short(name), c)
	}
	return c
}

func (s *state) wait(e env) ([]*recipe.Step, env) {
	in := s.input(e)
	w := &recipe.Wait{}
	switch seconds, until := s.get("Seconds"), s.get("Timestamp"); {
	case seconds.is(jsonx.Int):
		n, _ := seconds.whole()
		w.Duration = recipe.Duration(fmt.Sprintf("%ds", max(n, 0)))
	case seconds.there():
		w.Until = "now() + duration(string(" + s.dynamic(seconds, in).src + ") + 's')"
	case until.there():
		src := until.str()
		if _, is := jsonataText(src); s.jsonata && is {
			w.Until = s.dynamic(until, in).src
		} else {
			w.Until = "timestamp(" + quote(src) + ")"
		}
	case s.has("SecondsPath"):
		w.Until = "now() + duration(string(" + s.pathOf(s.get("SecondsPath"), in).src + ") + 's')"
	case s.has("TimestampPath"):
		w.Until = s.pathOf(s.get("TimestampPath"), in).src
	default:
		s.refuse("the Wait %q says neither Seconds nor Timestamp", syntax.Short(s.key()))
	}
	step := &recipe.Step{ID: s.w.id(s.key()), Wait: w}
	s.mapped("Wait %q: step %s", syntax.Short(s.key()), step.ID)
	if s.jsonata {
		return []*recipe.Step{step}, s.pass(e)
	}
	return []*recipe.Step{step}, s.assign(s.output(e, in), e, in.doc)
}

// dynamic returns a value that may be an expression.
func (s *state) dynamic(v value, e env) cel {
	if src, is := jsonataText(v.str()); s.jsonata && is {
		c, err := s.jsonataExpr(src, e)
		if err != nil {
			v.refuse("%v", err)
		}
		return c
	}
	v.refuse("this must be a number, or an expression of JSONata")
	return atom("0", isNumber)
}

// exits returns where a state leads to: behind it, and to those who catch its failure.
func (s *state) exits() []exit {
	next := exit{to: end, at: s.value}
	n, last := s.get("Next"), s.get("End")
	switch {
	case n.there():
		next.to, next.at = n.str(), n
		if next.to == end {
			n.refuse("Next must be the name of a state")
		}
	case last.is(jsonx.Bool) && last.n.Bool:
	default:
		s.refuse("the state %q needs Next or End: true", syntax.Short(s.key()))
	}
	catch := s.peek("Catch")
	if !catch.there() {
		return []exit{next}
	}
	return s.catches(s.get("Catch"), next)
}
