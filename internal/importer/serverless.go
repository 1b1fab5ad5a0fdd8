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

// A serverless imports a definition of the Serverless Workflow DSL.
type serverless struct {
	*importing
	use value
}

var semver = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func (im *importing) serverless(top value) *recipe.Recipe {
	d := &serverless{importing: im, use: top.get("use")}
	r := &recipe.Recipe{}
	doc := top.get("document")
	if !doc.object("document") {
		return nil
	}
	if v := doc.get("dsl"); !strings.HasPrefix(v.str(), "1.") {
		v.refuse("this is version %q of the DSL: want 1.x", syntax.Short(v.str()))
	}
	r.Name = doc.get("name").str()
	if r.Name == "" {
		r.Name = im.name
	}
	r.Description = doc.get("summary").str()
	if t := doc.get("title").str(); r.Description == "" {
		r.Description = t
	}
	if v := doc.get("version"); semver.MatchString(v.str()) {
		r.Version = v.str()
	} else {
		v.drop("%q is no semantic version", syntax.Short(v.str()))
	}
	doc.get("namespace").drop("recipes have no namespaces")
	doc.get("tags").drop("recipes have no tags; runs have labels")
	doc.get("metadata").drop("recipes have no metadata")
	doc.rest("document")
	top.get("schedule").drop("a recipe has no schedule: `roux schedules` makes one")
	if t := top.get("timeout"); t.there() {
		r.TTL = d.timeout(t)
	}
	e := env{doc: atom("parameters", isMap), vars: map[string]cel{"workflow.input": atom("parameters", isMap), "context": atom("null", isNull)}}
	var steps []*recipe.Step
	in := top.get("input")
	if s := in.get("schema"); s.there() {
		r.InputSchema = d.schema(s)
	}
	if from := in.get("from"); from.there() {
		t := im.w.transform("input", d.template(from, e))
		steps, e = append(steps, t), e.with(output(t.ID))
	}
	in.rest("input")
	body, out, alive := d.tasks(im.w, top.get("do"), e, true)
	r.Steps = append(steps, body...)
	o := top.get("output")
	if as := o.get("as"); as.there() {
		out = out.with(d.template(as, out))
	}
	o.get("schema").drop("the document is the field output of the result")
	o.rest("output")
	for _, name := range []string{"authentications", "errors", "extensions", "functions", "catalogs", "secrets"} {
		d.use.get(name).drop("use.%s is not read: a task that names one of it says so", name)
	}
	d.use.rest("use")
	top.rest("a workflow")
	if alive {
		if out.lost != "" {
			top.get("do").refuse("%s", out.lost)
		}
		r.Outputs = map[string]string{"output": out.doc.src}
	}
	return r
}

// schema returns a JSON Schema that is in the definition.
func (d *serverless) schema(s value) []byte {
	if f := s.get("format"); f.there() && !strings.HasPrefix(f.str(), "json") {
		f.refuse("schemas are JSON Schemas")
	}
	s.get("resource").refuse("a schema elsewhere is not supported: put it into the definition")
	doc := s.get("document")
	s.rest("a schema")
	if !doc.there() || !doc.object("a schema") {
		return nil
	}
	raw, err := jsonx.Marshal(doc.literal())
	if err != nil {
		return nil // values of a tree can be marshalled
	}
	return raw
}

func (d *serverless) translator(e env) *translator {
	t := &translator{g: syntax.JQ}
	t.root = func() (cel, error) {
		if e.lost != "" {
			return cel{}, syntax.Cannot("%s", e.lost)
		}
		return e.doc, nil
	}
	t.lookup = func(name string) (cel, error) {
		if c, ok := e.vars[name]; ok {
			return c, nil
		}
		switch name {
		case "workflow":
			return mapOf([]field{{"id", atom("_context.runId", isText)}, {"input", e.vars["workflow.input"]},
				{"definition", mapOf([]field{{"document", mapOf([]field{{"name", atom("workflow.name", isText)}, {"version", atom("workflow.version", isText)}})}})}}), nil
		case "secrets":
			return cel{}, syntax.Cannot("expressions cannot read secrets: write {{ secret('name') }} into the parameters of the action")
		}
		return cel{}, syntax.Cannot("$%s has no value here", syntax.Short(name))
	}
	return t
}

// expression translates the text of an expression, with or without the marks ${ }.
func (d *serverless) expression(v value, src string, e env) cel {
	if inner, is := runtimeText(src); is {
		src = inner
	}
	c, err := d.translator(e).translate(src)
	if err != nil {
		v.refuse("%v", err)
	}
	return c
}

// runtimeText returns the expression in a text that is one: ${ … }.
func runtimeText(s string) (src string, is bool) {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "${") || !strings.HasSuffix(s, "}") {
		return "", false
	}
	return strings.TrimSpace(s[2 : len(s)-1]), true
}

// condition translates an expression that must be true or false.
func (d *serverless) condition(v value, e env) string {
	src, ok := v.text()
	if !ok {
		return "true"
	}
	return truth(d.expression(v, src, e))
}

// plain reports whether a value holds no expression.
func plain(n *jsonx.Node) bool {
	if n.Kind == jsonx.String {
		return !strings.Contains(n.Text, "${")
	}
	for _, c := range n.Children {
		if !plain(c) {
			return false
		}
	}
	return true
}

// template returns a value in which texts may be expressions.
func (d *serverless) template(v value, e env) cel {
	switch {
	case !v.there():
		return atom("null", isNull)
	case plain(v.n):
		return literal(v.literal())
	case v.is(jsonx.Object):
		var fields []field
		for _, f := range v.items() {
			fields = append(fields, field{f.key(), d.template(f, e)})
		}
		return mapOf(fields)
	case v.is(jsonx.Array):
		var parts []cel
		for _, c := range v.items() {
			parts = append(parts, d.template(c, e))
		}
		return listOf(parts)
	}
	src, is := runtimeText(v.n.Text)
	if !is {
		v.refuse("an expression within a text is not supported: write ${ \"text \\(.field)\" }")
		return atom("null", isNull)
	}
	return d.expression(v, src, e)
}

// duration reads a duration, which may be an object or ISO 8601.
func (d *serverless) duration(v value) recipe.Duration {
	if v.is(jsonx.String) {
		if !strings.HasPrefix(v.n.Text, "P") {
			v.refuse("%q is no duration of ISO 8601", syntax.Short(v.n.Text))
		}
		return recipe.Duration(v.n.Text)
	}
	if !v.object("a duration") {
		return ""
	}
	total := int64(0)
	for _, u := range []struct {
		name string
		ms   int64
	}{{"days", 86_400_000}, {"hours", 3_600_000}, {"minutes", 60_000}, {"seconds", 1000}, {"milliseconds", 1}} {
		n, _ := v.get(u.name).whole()
		total += min(n, 1_000_000_000) * u.ms
	}
	v.rest("a duration")
	const most = 365 * 86_400_000
	return recipe.Duration(fmt.Sprintf("%dms", min(total, most)))
}

// timeout reads a timeout, which may be the name of one in use.timeouts.
func (d *serverless) timeout(v value) recipe.Duration {
	if v.is(jsonx.String) {
		name := v.n.Text
		if v = d.use.get("timeouts").get(name); !v.there() {
			d.use.refuse("no timeout has the name %q", syntax.Short(name))
			return ""
		}
	}
	if !v.object("a timeout") {
		return ""
	}
	defer v.rest("a timeout")
	return d.duration(v.get("after"))
}

// tasks returns the steps of a list of tasks.
func (d *serverless) tasks(w *writer, list value, e env, top bool) ([]*recipe.Step, env, bool) {
	if !list.list("a list of tasks") || len(list.n.Children) == 0 {
		list.refuse("a list of tasks needs a task")
		return nil, e, false
	}
	var named []value
	names := map[string]bool{}
	for _, item := range list.items() {
		if !item.object("a task") || len(item.n.Children) != 1 {
			item.refuse("a task is an object with one name, that of the task")
			return nil, e, false
		}
		t := item.items()[0]
		if names[t.key()] || t.key() == "" {
			t.refuse("the name %q is there twice in one list", syntax.Short(t.key()))
			return nil, e, false
		}
		names[t.key()] = true
		named = append(named, t)
	}
	f := newFlow(w, named[0].key())
	for i, t := range named {
		next := end
		if i+1 < len(named) {
			next = named[i+1].key()
		}
		if t.object("a task") {
			f.add(d.vertex(w, t, next, names, top))
		}
	}
	steps, out, alive := f.steps(e)
	for _, name := range f.list {
		if f.state[name] == 0 {
			f.byName[name].at.drop("nothing leads to the task %q", syntax.Short(name))
		}
	}
	return steps, out, alive
}

// directive returns where a task leads to.
func (d *serverless) directive(then value, next string, names map[string]bool, top bool) exit {
	x := exit{to: next, at: then}
	switch t := then.str(); {
	case t == "" || t == "continue":
	case t == "exit" || t == "end" && top:
		x.to = end
	case t == "end":
		then.refuse("the end of the workflow within a list within it is not supported: use exit, or fail with raise")
	case names[t]:
		x.to = t
	default:
		then.refuse("no task of this list has the name %q", syntax.Short(t))
		x.to = end
	}
	return x
}

// vertex reads where a task leads to.
func (d *serverless) vertex(w *writer, t value, next string, names map[string]bool, top bool) *vertex {
	v := &vertex{name: t.key(), at: t}
	task := &dslTask{serverless: d, value: t, w: w}
	if t.has("switch") {
		v.exits = task.cases(next, names, top)
		v.run = func(e env) ([]*recipe.Step, env) {
			task.ignored()
			task.get("if").refuse("if of a switch is not supported: put it into the cases")
			in := e.with(task.input(e).doc)
			t.rest("a switch task")
			return nil, in
		}
		return v
	}
	x := d.directive(t.get("then"), next, names, top)
	if x.at.n == nil {
		x.at = t
	}
	cond := t.get("if")
	if !cond.there() {
		v.run = task.run
		if !t.has("raise") {
			v.exits = []exit{x}
		}
		return v
	}
	v.run = func(e env) ([]*recipe.Step, env) { return nil, e }
	x.when = func(e env) string { return d.condition(cond, task.see(e)) }
	x.run = func(e env) ([]*recipe.Step, env, bool) {
		steps, e := task.run(e)
		return steps, e, !t.has("raise")
	}
	v.exits = []exit{x, {to: next, at: t}}
	return v
}

// cases returns where a switch leads to.
func (t *dslTask) cases(next string, names map[string]bool, top bool) (exits []exit) {
	list := t.get("switch")
	if !list.list("switch") {
		return nil
	}
	other := t.directive(t.get("then"), next, names, top)
	for _, item := range list.items() {
		if !item.object("a case") || len(item.n.Children) != 1 {
			item.refuse("a case is an object with one name, that of the case")
			continue
		}
		c := item.items()[0]
		if !c.object("a case") {
			continue
		}
		x := t.directive(c.get("then"), next, names, top)
		if x.at.n == nil {
			x.at = c
		}
		when := c.get("when")
		c.rest("a case")
		if !when.there() {
			other = x
			continue
		}
		x.when = func(e env) string { return t.condition(when, t.see(e)) }
		exits = append(exits, x)
	}
	if other.at.n == nil {
		other.at = t.value
	}
	t.mapped("switch %q: a condition", syntax.Short(t.key()))
	return append(exits, other)
}
