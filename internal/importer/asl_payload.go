// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"

	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// jsonataText returns the expression in a text of JSONata.
func jsonataText(s string) (src string, is bool) {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "{%") || !strings.HasSuffix(s, "%}") || len(s) < 4 {
		return "", false
	}
	return strings.TrimSpace(s[2 : len(s)-2]), true
}

// constant reports whether a value holds no expression.
func (s *state) constant(v value) bool {
	if v.n == nil {
		return true
	}
	return s.constantNode(v.n)
}

func (s *state) constantNode(n *jsonx.Node) bool {
	if s.jsonata && n.Kind == jsonx.String {
		if _, is := jsonataText(n.Text); is {
			return false
		}
	}
	if !s.jsonata && strings.HasSuffix(n.Key, ".$") {
		return false
	}
	for _, c := range n.Children {
		if !s.constantNode(c) {
			return false
		}
	}
	return true
}

func (s *state) fieldName(v value) string {
	if s.jsonata {
		return v.key()
	}
	return strings.TrimSuffix(v.key(), ".$")
}

// payload returns the value of a template.
func (s *state) payload(v value, e env) cel {
	if s.constant(v) {
		return literal(v.literal())
	}
	switch v.n.Kind {
	case jsonx.Object:
		var fields []field
		seen := map[string]bool{}
		for _, f := range v.items() {
			name := s.fieldName(f)
			if seen[name] {
				f.refuse("the field %q is there twice, with .$ and without", syntax.Short(name))
			}
			seen[name] = true
			fields = append(fields, field{name, s.field(f, e)})
		}
		return mapOf(fields)
	case jsonx.Array:
		var parts []cel
		for _, c := range v.items() {
			parts = append(parts, s.payload(c, e))
		}
		return listOf(parts)
	}
	return s.dynamic(v, e)
}

// field returns the value of a field of a template, which is an expression if its name ends in .$.
func (s *state) field(v value, e env) cel {
	if s.jsonata || !strings.HasSuffix(v.key(), ".$") {
		return s.payload(v, e)
	}
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

// reference translates a path or an intrinsic function.
func (s *state) reference(src string, e env) (cel, error) {
	r := &syntax.Reader{Text: src}
	c, err := s.operand(r, e, 0)
	if err == nil {
		if r.Space(); !r.Done() {
			err = syntax.Cannot("%q in %q is not supported: a path may have names and positions only", r.Rest(), syntax.Short(src))
		}
	}
	return c, err
}

func (s *state) operand(r *syntax.Reader, e env, depth int) (cel, error) {
	if depth > syntax.MaxNesting {
		return cel{}, syntax.Cannot("functions nest more than %d deep", syntax.MaxNesting)
	}
	r.Space()
	if r.Done() {
		return cel{}, syntax.Cannot("an expression ends too early")
	}
	switch c := r.Text[r.At]; {
	case c == '$':
		p, err := r.Path()
		if err != nil {
			return cel{}, err
		}
		return s.resolve(p, e)
	case c == '\'':
		t, err := r.Quoted()
		return text(t), err
	case strings.HasPrefix(r.Text[r.At:], "States."):
		return s.intrinsic(r, e, depth)
	}
	from := r.At
	for r.At < len(r.Text) && strings.IndexByte(" ,)", r.Text[r.At]) < 0 {
		r.At++
	}
	word := r.Text[from:r.At]
	n, problems := jsonx.Parse([]byte(word), jsonx.Limits{})
	if len(problems) > 0 || n == nil || n.Kind == jsonx.Object || n.Kind == jsonx.Array {
		return cel{}, syntax.Cannot("%q is neither a path nor an intrinsic function", syntax.Short(word))
	}
	return literal(n.Value()), nil
}

// resolve returns the value that a path names.
func (s *state) resolve(p syntax.JSONPath, e env) (cel, error) {
	switch p.Root {
	case "$":
		if e.lost != "" {
			return cel{}, syntax.Cannot("%s", e.lost)
		}
		return e.doc.follow(p.Steps), nil
	case "$$":
		return s.contextValue(p.Steps)
	}
	v, ok := e.vars[p.Root]
	if !ok {
		return cel{}, syntax.Cannot("the variable %s is not assigned on every way here", p.Root)
	}
	return v.follow(p.Steps), nil
}

// contextValue returns a value of the context object.
func (s *state) contextValue(path []syntax.Hop) (cel, error) {
	var names []string
	for _, h := range path {
		if h.List {
			break
		}
		names = append(names, h.Name)
	}
	rest := func(n int, c cel) (cel, error) { return c.follow(path[n:]), nil }
	name := strings.Join(names, ".")
	switch {
	case strings.HasPrefix(name+".", "Execution.Input.") && !s.context.inner:
		return rest(2, atom("parameters", isMap))
	case name == "Execution.Id" || name == "Execution.Name":
		return atom("_context.runId", isText), nil
	case name == "StateMachine.Name" || name == "StateMachine.Id":
		return atom("workflow.name", isText), nil
	case name == "State.Name":
		return text(s.context.state), nil
	case name == "State.EnteredTime":
		return atom("string(now())", isText), nil
	case strings.HasPrefix(name+".", "Map.Item.Value.") && s.context.item != "":
		return rest(3, atom(s.context.item, unknown))
	case name == "Map.Item.Index" && s.context.item != "":
		return atom(s.context.index, isNumber), nil
	}
	return cel{}, syntax.Cannot("the field %q of the context object is not available to a step", syntax.Short(name))
}

// intrinsic translates a call of an intrinsic function.
func (s *state) intrinsic(r *syntax.Reader, e env, depth int) (cel, error) {
	r.Eat("States.")
	name := r.Name()
	r.Space()
	if !r.Eat("(") {
		return cel{}, syntax.Cannot("States.%s is called without arguments", syntax.Short(name))
	}
	var args []cel
	for {
		r.Space()
		if r.Eat(")") {
			break
		}
		if len(args) > 0 && !r.Eat(",") {
			return cel{}, syntax.Cannot("the arguments of States.%s have no comma between them", syntax.Short(name))
		}
		a, err := s.operand(r, e, depth+1)
		if err != nil {
			return cel{}, err
		}
		args = append(args, a)
	}
	in, ok := intrinsics[name]
	if !ok {
		return cel{}, syntax.Cannot("the intrinsic function States.%s has no equal in CEL", syntax.Short(name))
	}
	if in.args >= 0 && len(args) != in.args {
		return cel{}, syntax.Cannot("States.%s needs %d arguments and has %d", name, in.args, len(args))
	}
	return in.make(args)
}

// An intrinsic is how a function of the States Language is written in CEL. args is how many it has; -1 = any.
type intrinsicFunc struct {
	args int
	make func(a []cel) (cel, error)
}

func simple(args int, s shape, make func(a []cel) string) intrinsicFunc {
	return intrinsicFunc{args, func(a []cel) (cel, error) { return atom(make(a), s), nil }}
}

var intrinsics = map[string]intrinsicFunc{
	"StringToJson":  simple(1, unknown, func(a []cel) string { return "fromJson(" + a[0].src + ")" }),
	"JsonToString":  simple(1, isText, func(a []cel) string { return "toJson(" + a[0].src + ")" }),
	"Array":         {-1, func(a []cel) (cel, error) { return listOf(a), nil }},
	"ArrayContains": {2, func(a []cel) (cel, error) { return term(isBool, "%s in %s", a[1].in(), a[0].in()), nil }},
	"ArrayLength":   simple(1, isNumber, func(a []cel) string { return "size(" + a[0].src + ")" }),
	"ArrayGetItem":  simple(2, unknown, func(a []cel) string { return a[0].in() + "[" + a[1].src + "]" }),
	"ArrayUnique":   simple(1, isList, func(a []cel) string { return a[0].in() + ".distinct()" }),
	"ArrayRange": simple(3, isList, func(a []cel) string {
		return "range(" + a[0].src + ", " + a[1].in() + " + (" + a[2].in() + " > 0 ? 1 : -1), " + a[2].src + ")"
	}),
	"Base64Encode": simple(1, isText, func(a []cel) string { return "base64.encode(bytes(" + a[0].src + "))" }),
	"Base64Decode": simple(1, isText, func(a []cel) string { return "string(base64.decode(" + a[0].src + "))" }),
	"MathAdd":      simple(2, isNumber, func(a []cel) string { return "add(" + a[0].src + ", " + a[1].src + ")" }),
	"UUID":         simple(0, isText, func([]cel) string { return "uuid()" }),
	"StringSplit": {2, func(a []cel) (cel, error) {
		return atom(a[0].in()+".split("+a[1].src+")", isList), nil
	}},
	"JsonMerge": {3, func(a []cel) (cel, error) {
		if a[2].src != "false" {
			return cel{}, syntax.Cannot("States.JsonMerge merges at the top level only")
		}
		return atom(a[0].in()+".merge("+a[1].src+")", isMap), nil
	}},
	"Format": {-1, formatted},
}

// formatted joins the parts of a format and its values.
func formatted(a []cel) (cel, error) {
	if len(a) == 0 || a[0].shape != isText || !strings.HasPrefix(a[0].src, "'") {
		return cel{}, syntax.Cannot("States.Format needs a fixed text first")
	}
	// The text was read as a literal, and is one again.
	pieces := strings.Split(strings.TrimSuffix(strings.TrimPrefix(a[0].src, "'"), "'"), "{}")
	if len(pieces) != len(a) {
		return cel{}, syntax.Cannot("States.Format has %d places and %d values", len(pieces)-1, len(a)-1)
	}
	var parts []string
	for i, p := range pieces {
		if p != "" {
			parts = append(parts, "'"+p+"'")
		}
		if i < len(a)-1 {
			parts = append(parts, asText(a[i+1]))
		}
	}
	if len(parts) == 0 {
		return text(""), nil
	}
	return cel{src: strings.Join(parts, " + "), shape: isText, atom: len(parts) == 1}, nil
}

// asText returns the expression of a value as a text.
func asText(c cel) string {
	switch c.shape {
	case isText:
		return c.in()
	case isNumber, isBool:
		return "string(" + c.src + ")"
	case isList, isMap, isNull:
		return "toJson(" + c.src + ")"
	}
	return "(type(" + c.src + ") == string ? " + c.loose() + " : toJson(" + c.src + "))"
}
