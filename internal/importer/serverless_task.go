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

// A dslTask is one task of the Serverless Workflow DSL.
type dslTask struct {
	*serverless
	value
	w *writer
}

// see is what expressions of the task know besides the document.
func (t *dslTask) see(e env) env {
	if e.lost == "" {
		e = e.put("input", e.doc)
	}
	return e.put("task", mapOf([]field{{"name", text(t.key())}, {"reference", text(t.value.s.ptr[t.n])}}))
}

// leave forgets what only expressions of the task know.
func (t *dslTask) leave(e, before env) env {
	for _, name := range []string{"input", "task"} {
		if c, ok := before.vars[name]; ok {
			e = e.put(name, c)
		} else {
			e = e.put(name, cel{})
			delete(e.vars, name)
		}
	}
	return e
}

func (t *dslTask) ignored() {
	t.get("metadata").drop("steps have no metadata")
}

// input returns the env with the input of the task.
func (t *dslTask) input(e env) env {
	in := t.get("input")
	if !in.there() || !in.object("input") {
		return e
	}
	in.get("schema").drop("the schema of what a task gets: use contracts of the step")
	from := in.get("from")
	in.rest("input")
	if !from.there() {
		return e
	}
	if from.is(jsonx.String) {
		return e.with(t.expression(from, from.n.Text, t.see(e)))
	}
	return e.with(t.template(from, t.see(e)))
}

// run returns the steps of a task.
func (t *dslTask) run(before env) ([]*recipe.Step, env) {
	t.ignored()
	in := t.input(before)
	var steps []*recipe.Step
	if in.lost == "" && !isOutput(in.doc) {
		s := t.w.transform(t.key()+"-input", in.doc)
		steps, in = append(steps, s), in.with(output(s.ID))
	}
	kind, body, result, lost := t.body(t.see(in))
	steps = append(steps, body...)
	after := before
	if after = after.with(result); lost != "" {
		after.lost = lost
	}
	if out := t.get("output"); out.there() && out.object("output") {
		out.get("schema").drop("the schema of what a task yields: use contracts of the step")
		if as := out.get("as"); as.there() {
			see := t.see(in)
			see.doc, see.lost = after.doc, after.lost
			if as.is(jsonx.String) {
				after = after.with(t.expression(as, as.n.Text, see))
			} else {
				after = after.with(t.template(as, see))
			}
		}
		out.rest("output")
	}
	if after.lost == "" && !isOutput(after.doc) {
		s := t.w.transform(t.key()+"-result", after.doc)
		steps, after = append(steps, s), after.with(output(s.ID))
	}
	if ex := t.get("export"); ex.there() && ex.object("export") {
		ex.get("schema").drop("the schema of what a task exports")
		if as := ex.get("as"); as.there() {
			see := t.see(in).put("output", after.doc)
			see.doc, see.lost = after.doc, after.lost
			c := t.template(as, see)
			if as.is(jsonx.String) && plain(as.n) {
				c = t.expression(as, as.n.Text, see)
			}
			s := t.w.transform(t.key()+"-context", c)
			steps, after = append(steps, s), after.put("context", output(s.ID))
		}
		ex.rest("export")
	}
	t.rest("a " + kind + " task")
	return steps, t.leave(after, before)
}

// refusals say why tasks of a kind become no step.
var refusals = map[string]string{
	"emit":   "emit is not supported: Roux has no events of workflows; call an action that sends one",
	"listen": "listen is not supported: use a step that waits for a signal, and send it with `roux runs signal`",
}

// body returns the steps that do the work of a task, and what it yields.
func (t *dslTask) body(e env) (kind string, steps []*recipe.Step, result cel, lost string) {
	for name, why := range refusals {
		t.get(name).refuse("%s", why)
	}
	result, lost = e.doc, e.lost
	switch {
	case t.has("for"):
		kind = "for"
		steps, result, lost = t.forEach(e)
	case t.has("set"):
		kind, lost = "set", ""
		s := t.w.transform(t.key(), t.template(t.get("set"), e))
		steps, result = []*recipe.Step{s}, output(s.ID)
		t.get("timeout").drop("a transform takes no time")
		t.mapped("set %q: step %s", syntax.Short(t.key()), s.ID)
	case t.has("try"):
		kind = "try"
		steps, result, lost = t.try(e)
	case t.has("do"):
		kind = "do"
		s, out := t.block(t.key(), t.get("do"), e)
		t.limit(s)
		steps, result, lost = []*recipe.Step{s}, out.doc, out.lost
		t.mapped("do %q: step %s", syntax.Short(t.key()), s.ID)
	case t.has("fork"):
		kind, lost = "fork", ""
		steps, result = t.fork(e)
	case t.has("raise"):
		kind, steps = "raise", t.raise(e)
	case t.has("wait"):
		kind = "wait"
		s := &recipe.Step{ID: t.w.id(t.key()), Wait: &recipe.Wait{Duration: t.duration(t.get("wait"))}}
		t.get("timeout").drop("a wait of a fixed time")
		steps = []*recipe.Step{s}
		t.mapped("wait %q: step %s", syntax.Short(t.key()), s.ID)
	case t.has("call"):
		kind, lost = "call", ""
		steps, result = t.callTask(e)
	case t.has("run"):
		kind, lost = "run", ""
		steps, result = t.runTask(e)
	case t.has("emit") || t.has("listen"):
	default:
		t.refuse("%q is no task that is known: want do, set, switch, for, fork, try, raise, wait, call or run", syntax.Short(t.key()))
	}
	return kind, steps, result, lost
}

// limit gives a step the timeout of the task.
func (t *dslTask) limit(s *recipe.Step) {
	if v := t.get("timeout"); v.there() {
		if s.Action != nil || s.Recipe != nil {
			s.Timeout = t.timeout(v)
		} else {
			s.TotalTimeout = t.timeout(v)
		}
	}
}

// block returns a list of tasks as one step.
func (t *dslTask) block(name string, list value, e env) (*recipe.Step, env) {
	id := t.w.id(name)
	body, out, alive := t.tasks(t.w, list, e, false)
	s := &recipe.Step{ID: id, Condition: &recipe.Condition{Expression: "true", Then: body}}
	if !alive || out.lost != "" {
		return s, out
	}
	s.Condition.Then = t.w.yield(name, body, out.doc)
	return s, out.with(output(id))
}

func (t *dslTask) fork(e env) ([]*recipe.Step, cel) {
	f := t.get("fork")
	p := &recipe.Parallel{}
	s := &recipe.Step{ID: t.w.id(t.key()), Parallel: p}
	compete := f.get("compete").is(jsonx.Bool) && f.peek("compete").n.Bool
	if compete {
		p.WaitFor = "any"
	}
	branches := f.get("branches")
	if branches.list("branches") {
		for _, b := range branches.items() {
			one := value{&jsonx.Node{Kind: jsonx.Array, Pos: b.n.Pos, Children: []*jsonx.Node{b.n}}, b.s}
			body, out, alive := t.tasks(t.w, one, e, false)
			if alive {
				body = t.w.yield(t.key()+"-branch", body, out.doc)
			}
			p.Branches = append(p.Branches, body)
		}
	}
	if len(p.Branches) == 0 {
		f.refuse("the fork %q needs branches", syntax.Short(t.key()))
	}
	f.rest("fork")
	t.limit(s)
	t.mapped("fork %q: step %s", syntax.Short(t.key()), s.ID)
	out := output(s.ID)
	if compete {
		return []*recipe.Step{s}, atom(out.src+".branches["+out.src+".winner].output", unknown)
	}
	return []*recipe.Step{s}, call(isList, "%s.branches.map(b, b.output)", out.src)
}

// pure reports whether all tasks of a list only set values.
func pure(list value) bool {
	if !list.is(jsonx.Array) || len(list.n.Children) == 0 {
		return false
	}
	for _, item := range list.n.Children {
		if item.Kind != jsonx.Object || len(item.Children) != 1 || item.Children[0].Kind != jsonx.Object {
			return false
		}
		for _, f := range item.Children[0].Children {
			if f.Key != "set" && f.Key != "metadata" {
				return false
			}
		}
	}
	return true
}

// noRound says why the body of a loop does not see its document.
const noRound = "what a round of a for yields is the input of the next one, which the steps of a loop cannot see: " +
	"only a for whose tasks all are set can use it; use the item, or $workflow.input"

func (t *dslTask) forEach(e env) ([]*recipe.Step, cel, string) {
	f, list := t.get("for"), t.get("do")
	over := atom("[]", isList)
	if in := f.get("in"); in.there() {
		over = t.expression(in, in.str(), e)
	} else {
		f.refuse("a for needs in")
	}
	if !list.there() {
		t.refuse("the for %q needs do", syntax.Short(t.key()))
	}
	item, index := "item", "index"
	if v := f.get("each").str(); v != "" {
		item = v
	}
	if v := f.get("at").str(); v != "" {
		index = v
	}
	f.rest("for")
	t.get("while").refuse("while is not supported: a loop runs for each item")
	if pure(list) {
		t.get("timeout").drop("a transform takes no time")
		s, ok := t.fold(list, over, item, index, e)
		if !ok {
			return nil, e.doc, e.lost
		}
		t.mapped("for %q: step %s computes it", syntax.Short(t.key()), s.ID)
		return []*recipe.Step{s}, output(s.ID), ""
	}
	l := &recipe.Loop{Over: over.src}
	l.As, l.Index = t.w.item()
	defer func() { t.w.loops-- }()
	s := &recipe.Step{ID: t.w.id(t.key()), Loop: l}
	in := e.put(item, atom(l.As, unknown)).put(index, atom(l.Index, isNumber))
	in.lost = noRound
	body, out, alive := t.tasks(t.w, list, in, false)
	if alive && out.lost == "" {
		body = t.w.yield(t.key()+"-round", body, out.doc)
	}
	l.Steps = body
	t.limit(s)
	t.mapped("for %q: step %s", syntax.Short(t.key()), s.ID)
	switch all := output(s.ID); {
	case out.lost != "":
		return []*recipe.Step{s}, e.doc, e.lost // no round has changed the document
	case e.lost != "":
		return []*recipe.Step{s}, e.doc, e.lost
	default:
		return []*recipe.Step{s}, term(unknown, "size(%[1]s) == 0 ? %[2]s : dyn(%[1]s[size(%[1]s) - 1])", all.src, e.doc.loose()), ""
	}
}

// fold returns a step that computes what a for of set tasks yields: each round gets what the one before has yielded.
func (t *dslTask) fold(list value, over cel, item, index string, e env) (*recipe.Step, bool) {
	if e.lost != "" {
		t.refuse("%s", e.lost)
		return nil, false
	}
	const items, doc, at = "items", "round", "position"
	in := e.with(atom("dyn("+doc+")", unknown)).put(item, atom(items+"["+at+"]", unknown)).put(index, atom(at, isNumber))
	for _, entry := range list.items() {
		one := entry.items()[0]
		one.get("metadata").drop("steps have no metadata")
		task := &dslTask{serverless: t.serverless, value: one, w: t.w}
		in = in.with(t.template(one.get("set"), task.see(in)))
	}
	expr := fmt.Sprintf("cel.bind(%s, %s, lists.range(size(%s)).reduce(%s, %s, dyn(%s), dyn(%s)))", items, over.src, items, doc, at, e.doc.src, in.doc.src)
	if len(expr) > syntax.MaxExpression {
		list.refuse("the for would be an expression of more than %d characters", syntax.MaxExpression)
		return nil, false
	}
	return t.w.transform(t.key(), cel{src: expr}), true
}

func (t *dslTask) runTask(e env) ([]*recipe.Step, cel) {
	r := t.get("run")
	s := &recipe.Step{ID: t.w.id(t.key())}
	if a := r.get("await"); a.is(jsonx.Bool) && !a.n.Bool {
		a.refuse("a process that nobody waits for is not supported")
	}
	r.get("return").drop("the action says what it returns")
	for _, kind := range []string{"container", "script", "shell"} {
		p := r.get(kind)
		if !p.there() || !p.object(kind) {
			continue
		}
		source := p.peek("image").strOr(kind)
		s.Action = t.action(p, source, kind)
		for _, f := range p.items() {
			t.give(s, f.key(), f, e)
		}
		t.mapped("run %q: step %s calls the action %s", syntax.Short(t.key()), s.ID, s.Action.Name)
	}
	if wf := r.get("workflow"); wf.there() && wf.object("workflow") {
		ref := wf.get("name").str()
		if v := wf.get("version").str(); v != "" && v != "latest" {
			ref += "@" + v
		}
		wf.get("namespace").drop("recipes have no namespaces")
		s.Recipe = &recipe.Child{Ref: ref}
		if in := wf.get("input"); in.is(jsonx.Object) {
			for _, f := range in.items() {
				t.give(s, f.key(), f, e)
			}
		} else {
			in.refuse("the input of a workflow must be an object, whose fields become the input of the recipe")
		}
		wf.rest("workflow")
		t.mapped("run %q: step %s runs the recipe %s", syntax.Short(t.key()), s.ID, syntax.Short(ref))
		t.limit(s)
		r.rest("run")
		return []*recipe.Step{s}, output(s.ID).strict("output")
	}
	if s.Action == nil {
		r.refuse("run needs container, script, shell or workflow")
	}
	t.limit(s)
	r.rest("run")
	return []*recipe.Step{s}, output(s.ID)
}

// strOr returns a text, or another one if there is none.
func (v value) strOr(other string) string {
	if v.is(jsonx.String) {
		return v.n.Text
	}
	return other
}

// give gives an action or a recipe an input.
func (d *serverless) give(s *recipe.Step, name string, v value, e env) {
	if plain(v.n) {
		fixed(s, name, v.literal())
		return
	}
	bind(s, name, d.template(v, e))
}

func (t *dslTask) callTask(e env) ([]*recipe.Step, cel) {
	c, with := t.get("call"), t.get("with")
	name := c.str()
	s := &recipe.Step{ID: t.w.id(t.key())}
	switch name {
	case "http":
		return t.callHTTP(s, c, with, e)
	case "grpc", "openapi", "asyncapi", "a2a", "mcp":
		c.refuse("call: %s is not supported: use call: http, or an action of your own", name)
		return nil, e.doc
	}
	s.Action = t.action(c, name, name)
	for _, f := range with.items() {
		t.give(s, f.key(), f, e)
	}
	t.limit(s)
	t.mapped("call %q: step %s calls the action %s", syntax.Short(t.key()), s.ID, s.Action.Name)
	return []*recipe.Step{s}, output(s.ID)
}

func (t *dslTask) callHTTP(s *recipe.Step, c, with value, e env) ([]*recipe.Step, cel) {
	s.Action = t.action(c, "http", "http")
	if !with.object("with") {
		t.refuse("call: http needs with")
		return nil, e.doc
	}
	if m := with.get("method"); m.there() {
		fixed(s, "method", strings.ToUpper(m.str()))
	}
	endpoint := with.get("endpoint")
	if endpoint.is(jsonx.Object) {
		endpoint.get("authentication").refuse("authentication is not supported: put the credential into headers with {{ secret('name') }}, in the recipe")
		uri := endpoint.get("uri")
		endpoint.rest("endpoint")
		endpoint = uri
	}
	t.url(s, endpoint, e)
	for from, to := range map[string]string{"headers": "headers", "body": "body", "query": "query"} {
		if v := with.get(from); v.there() {
			t.give(s, to, v, e)
		}
	}
	if v := with.get("redirect"); v.is(jsonx.Bool) {
		if !v.n.Bool {
			fixed(s, "followRedirects", false)
			fixed(s, "expectStatus", []any{"2xx", "3xx"})
		}
	}
	out := output(s.ID)
	result := out.strict("body")
	switch o := with.get("output"); o.str() {
	case "", "content":
	case "response":
		result = mapOf([]field{{"statusCode", out.strict("status")}, {"headers", out.strict("headers")}, {"content", out.strict("body")}})
	default:
		o.refuse("output: %s is not supported: want content or response", syntax.Short(o.str()))
	}
	with.rest("with of call: http")
	t.limit(s)
	t.mapped("call %q: step %s calls the action %s", syntax.Short(t.key()), s.ID, s.Action.Name)
	return []*recipe.Step{s}, result
}

var uriVariable = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_.]*)\}`)

// url gives an action its address, in which {name} stands for a field of the document.
func (t *dslTask) url(s *recipe.Step, v value, e env) {
	src, ok := v.text()
	if !ok {
		t.refuse("call: http needs an endpoint")
		return
	}
	if _, is := runtimeText(src); is {
		bind(s, "url", t.expression(v, src, e))
		return
	}
	at := uriVariable.FindAllStringSubmatchIndex(src, -1)
	if len(at) == 0 && !strings.ContainsAny(src, "{}") {
		fixed(s, "url", src)
		return
	}
	if e.lost != "" {
		v.refuse("%s", e.lost)
		return
	}
	var parts []string
	from := 0
	for _, m := range at {
		if m[0] > from {
			parts = append(parts, quote(src[from:m[0]]))
		}
		name := src[m[2]:m[3]]
		c := e.doc
		if known, ok := e.vars[strings.SplitN(name, ".", 2)[0]]; ok {
			c, name = known, strings.TrimPrefix(strings.TrimPrefix(name, strings.SplitN(name, ".", 2)[0]), ".")
		}
		for part := range strings.SplitSeq(name, ".") {
			if part != "" {
				c = c.strict(part)
			}
		}
		parts = append(parts, "string("+c.src+")")
		from = m[1]
	}
	if from < len(src) {
		parts = append(parts, quote(src[from:]))
	}
	if rest := uriVariable.ReplaceAllString(src, ""); strings.ContainsAny(rest, "{}") {
		v.refuse("this template of a URI is not supported: want {name}")
	}
	v.changed("what stands for {name} in the URI is not encoded")
	bind(s, "url", cel{src: strings.Join(parts, " + "), shape: isText})
}
