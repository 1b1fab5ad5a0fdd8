// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
)

// An env is what expressions see at a place of a flow: the document that goes from state to state, and
// variables. A document that cannot be had has a reason instead.
type env struct {
	doc  cel
	lost string // why there is no document; "" = there is one
	vars map[string]cel
}

// with returns the env with another document.
func (e env) with(doc cel) env {
	e.doc, e.lost = doc, ""
	return e
}

// put returns the env with a variable.
func (e env) put(name string, c cel) env {
	e.vars = maps.Clone(e.vars)
	if e.vars == nil {
		e.vars = map[string]cel{}
	}
	e.vars[name] = c
	return e
}

// caught and raw are the variables with the id of the step whose failure may be caught, and its result.
const (
	caught = "states.step"
	raw    = "states.output"
)

// restore forgets the step whose failure may be caught.
func restore(e env) env {
	e.vars = maps.Clone(e.vars)
	maps.DeleteFunc(e.vars, func(name string, _ cel) bool { return name == caught || name == raw })
	return e
}

func (e env) same(f env) bool {
	return e.doc.src == f.doc.src && e.lost == f.lost && maps.EqualFunc(e.vars, f.vars, func(a, b cel) bool { return a.src == b.src })
}

// A vertex is a state or task of a flow.
type vertex struct {
	name string
	at   value
	// run returns the steps that do its work.
	run func(e env) ([]*recipe.Step, env)
	// exits are where it may lead, in the order in which they are tried; none = it fails.
	exits []exit
}

// An exit leads from a vertex to another one, or to the end of the flow.
type exit struct {
	to   string // "" = the end
	at   value
	when func(e env) string                      // CEL; nil = otherwise
	run  func(e env) ([]*recipe.Step, env, bool) // what happens on the way; false = it fails. nil = nothing
}

// A flow is a graph of states, which becomes steps within steps: where a vertex has several exits, they are the
// sides of a condition up to the place where their ways join. A vertex that several ways lead to
// that do not join is written once for each.
type flow struct {
	w      *writer
	first  string
	list   []string
	byName map[string]*vertex
	join   map[string]string
	state  map[string]int // of the search for circles
	ranks  map[string]int
}

// end is the place behind a flow.
const end = ""

func newFlow(w *writer, first string) *flow {
	return &flow{w: w, first: first, byName: map[string]*vertex{}, join: map[string]string{}, state: map[string]int{}, ranks: map[string]int{}}
}

func (f *flow) add(v *vertex) {
	f.byName[v.name] = v
	f.list = append(f.list, v.name)
}

// steps returns the steps of the flow, and what is known at its end. ok is false when no way
// leads to the end, and when the flow cannot be written.
func (f *flow) steps(e env) (list []*recipe.Step, out env, ok bool) {
	if !f.walk(f.first) {
		return nil, e, false
	}
	f.joins()
	return f.emit(f.first, end, e)
}

// walk visits what the vertex leads to, and ranks it behind all of that. It refuses a circle.
func (f *flow) walk(name string) bool {
	v := f.byName[name]
	if name == end || v == nil {
		return true
	}
	f.state[name] = 1
	for _, x := range v.exits {
		switch f.state[x.to] {
		case 1:
			x.at.refuse("a way back to %q, which was before: steps have no circles; use a loop over a list, or have a recipe run itself (roux help children)", syntax.Short(x.to))
			return false
		case 0:
			if !f.walk(x.to) {
				return false
			}
		}
	}
	f.state[name] = 2
	f.ranks[name] = len(f.ranks) + 1
	return true
}

// joins finds for each vertex where all its ways that do not fail come together next.
func (f *flow) joins() {
	order := slices.SortedFunc(maps.Keys(f.ranks), func(a, b string) int { return f.ranks[a] - f.ranks[b] })
	for _, name := range order { // what a vertex leads to comes before it
		joined, any := end, false
		for _, x := range f.byName[name].exits {
			if f.fails(x.to) {
				continue
			}
			if !any {
				joined, any = x.to, true
				continue
			}
			joined = f.meet(joined, x.to)
		}
		if !any {
			f.ranks[name] = -1 // all its ways fail
		}
		f.join[name] = joined
	}
}

// fails reports whether all ways from a vertex fail.
func (f *flow) fails(name string) bool { return name != end && f.ranks[name] < 0 }

// meet returns the first vertex that is on all ways from a and from b.
func (f *flow) meet(a, b string) string {
	for a != b {
		if a == end || b != end && f.ranks[b] > f.ranks[a] {
			a, b = b, a
		}
		a = f.join[a]
	}
	return a
}

// emit writes the steps from one place of the flow to another.
func (f *flow) emit(from, until string, e env) (list []*recipe.Step, out env, ok bool) {
	for from != until && from != end {
		v := f.byName[from]
		if v == nil { // it was refused
			return list, e, false
		}
		steps, after := v.run(e)
		list, e = append(list, steps...), after
		if !f.w.fits(v.at, len(steps)) || len(v.exits) == 0 {
			return list, e, false
		}
		if len(v.exits) == 1 && v.exits[0].when == nil {
			x := v.exits[0]
			if x.run != nil {
				var on bool
				steps, e, on = x.run(e)
				if list = append(list, steps...); !on {
					return list, e, false
				}
			}
			from = x.to
			continue
		}
		id := v.name
		if len(steps) > 0 {
			id += "-next"
		}
		join := f.join[from]
		c, after, on := f.branch(id, v.exits, join, e)
		if c != nil {
			list = append(list, c)
		}
		if !on {
			return list, after, false
		}
		from, e = join, after
	}
	return list, e, true
}

// A side is one way of a condition.
type side struct {
	when  string
	steps []*recipe.Step
	env   env
	alive bool
}

// branch writes the exits of a vertex as a condition.
func (f *flow) branch(name string, exits []exit, join string, e env) (*recipe.Step, env, bool) {
	sides := make([]side, 0, len(exits))
	for _, x := range exits {
		s := side{env: e, alive: true}
		if x.when != nil {
			s.when = x.when(e)
		}
		if x.run != nil {
			s.steps, s.env, s.alive = x.run(e)
		}
		if s.alive {
			var steps []*recipe.Step
			steps, s.env, s.alive = f.emit(x.to, join, s.env)
			s.steps = append(s.steps, steps...)
		}
		if !f.w.fits(x.at, 1) {
			return nil, e, false
		}
		sides = append(sides, s)
	}
	return f.w.condition(name, sides, restore(e))
}

// condition writes sides, of which the first one whose condition holds is taken, as one step, and returns what is known after it.
func (w *writer) condition(name string, sides []side, before env) (*recipe.Step, env, bool) {
	after, known, alive := before, false, false
	pack := false
	for _, s := range sides {
		if !s.alive {
			continue
		}
		if known && !s.env.same(after) {
			pack = true
		}
		after, known, alive = s.env, true, true
	}
	id := w.id(name)
	changes := alive && (pack || !after.same(before))
	result, names := before, moved(sides, before)
	if changes {
		result = w.merge(id, sides, before)
	}
	top := &recipe.Step{ID: id, Condition: &recipe.Condition{}}
	at := top
	for i, s := range sides {
		if changes && s.alive {
			s.steps = w.closing(id, s, names)
		}
		switch {
		case s.when == "" && i > 0:
			at.Condition.Else = s.steps
		case s.when == "":
			at.Condition.Expression, at.Condition.Then = "true", s.steps
		default:
			if i > 0 {
				next := &recipe.Step{ID: w.id(name), Condition: &recipe.Condition{}}
				at.Condition.Else, at = []*recipe.Step{next}, next
			}
			at.Condition.Expression, at.Condition.Then = s.when, s.steps
		}
		if at.Condition.Then == nil {
			at.Condition.Then = []*recipe.Step{}
		}
	}
	return top, result, alive
}

// moved lists the variables that change on a side; what a condition yields has them beside the document.
func moved(sides []side, before env) (names []string) {
	for _, s := range sides {
		if !s.alive {
			continue
		}
		for name, c := range s.env.vars {
			if before.vars[name].src != c.src && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// merge returns what is known after a condition whose sides differ.
func (w *writer) merge(id string, sides []side, before env) env {
	out := output(id)
	result := env{doc: out, vars: before.vars}
	for _, s := range sides {
		if s.alive && s.env.lost != "" {
			result.lost = s.env.lost
		}
	}
	names := moved(sides, before)
	if len(names) == 0 {
		return result
	}
	result.doc = out.strict("document")
	for _, name := range names {
		result = result.put(name, out.strict("variables").orNull([]syntax.Hop{{Name: name}}))
	}
	return result
}

// closing returns the steps of a side with one at the end that yields what is known then.
func (w *writer) closing(id string, s side, names []string) []*recipe.Step {
	doc := s.env.doc
	if s.env.lost != "" {
		doc = atom("null", isNull)
	}
	if len(names) == 0 {
		return w.yield(id, s.steps, doc)
	}
	var vars []field
	for _, name := range names {
		if c, ok := s.env.vars[name]; ok {
			vars = append(vars, field{name, c})
		}
	}
	return w.yield(id, s.steps, mapOf([]field{{"document", doc}, {"variables", mapOf(vars)}}))
}

// yield returns steps of which the last one yields a value.
func (w *writer) yield(name string, steps []*recipe.Step, doc cel) []*recipe.Step {
	if n := len(steps); n > 0 && output(steps[n-1].ID).src == doc.src {
		return steps
	}
	return append(steps, w.transform(name+"-output", doc))
}

// A writer makes the steps of one recipe.
type writer struct {
	taken map[string]bool
	count *int // steps of the whole definition
	loops int  // how deep in loops
}

// maxSteps bounds what a definition may become. Ways that do not join are written several times.
const maxSteps = 5000

func newWriter() *writer { return &writer{taken: map[string]bool{}, count: new(int)} }

// inner returns the writer of a recipe within this one, which has ids of its own.
func (w *writer) inner() *writer { return &writer{taken: map[string]bool{}, count: w.count} }

// fits counts steps, and refuses a definition that becomes too many.
func (w *writer) fits(at value, steps int) bool {
	if *w.count > maxSteps {
		return false
	}
	if *w.count += steps; *w.count > maxSteps {
		at.refuse("the recipe would have more than %d steps, because states that several ways lead to are written once for each: let the ways join", maxSteps)
		return false
	}
	return true
}

var noID = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// id returns an id for a step that has a name in the definition.
func (w *writer) id(name string) string {
	base := strings.Trim(noID.ReplaceAllString(name, "-"), "-")
	if base == "" {
		base = "step"
	}
	const most = 56 // leaves room for a number
	if len(base) > most {
		base = base[:most]
	}
	id := base
	for k := 2; w.taken[id]; k++ {
		id = fmt.Sprintf("%s-%d", base, k)
	}
	w.taken[id] = true
	return id
}

func (w *writer) transform(name string, c cel) *recipe.Step {
	return &recipe.Step{ID: w.id(name), Transform: &recipe.Transform{Expression: c.src}}
}

// item returns names for the item of a loop and its position, which hide no other ones.
func (w *writer) item() (as, index string) {
	w.loops++
	if w.loops == 1 {
		return "item", "index"
	}
	return fmt.Sprintf("item_%d", w.loops), fmt.Sprintf("index_%d", w.loops)
}

// nested returns a step that runs what make makes in a recipe of its own, which is retried: only actions and recipes
// can be. The document and the variables are its input.
func (w *writer) nested(name string, pol *recipe.RetryPolicy, in env, make func(w *writer, in env) ([]*recipe.Step, cel, bool)) (*recipe.Step, cel) {
	below := env{doc: atom("parameters.document", unknown), lost: in.lost}
	bindings := map[string]recipe.Binding{}
	if in.lost == "" {
		bindings["document"] = recipe.Binding{Expression: in.doc.src}
	}
	var vars []field
	for _, name := range slices.Sorted(maps.Keys(in.vars)) {
		vars = append(vars, field{name, in.vars[name]})
		below = below.put(name, atom("parameters.variables", unknown).strict(name))
	}
	if len(vars) > 0 {
		bindings["variables"] = recipe.Binding{Expression: mapOf(vars).src}
	}
	id := w.id(name)
	body, result, alive := make(w.inner(), below)
	r := &recipe.Recipe{Head: recipe.Head{Name: id}, Steps: body}
	if alive {
		r.Outputs = map[string]string{"output": result.src}
	}
	step := &recipe.Step{ID: id, RetryPolicy: pol, Common: recipe.Common{InputBindings: bindings}, Recipe: &recipe.Child{Inline: r}}
	return step, output(id).strict("output")
}
