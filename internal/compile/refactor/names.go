// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// names are what crosses the border of the steps that move.
type names struct {
	inputs  []crossing // what they read from outside
	outputs []crossing // what others read of them
	files   bool       // they read the files of the run

	frames   map[*recipe.Step]map[string]binders // by the loop whose body it is; nil = that of the recipe
	rewrites []rewrite
}

// A crossing is a value that is passed on.
type crossing struct {
	key    string // its name on the other side
	source string // the expression of it on this side
}

// binders are who binds a name in a frame.
type binders struct{ in, out bool }

// A rewrite is a name in an expression that becomes another one.
type rewrite struct {
	e      texts.Use
	at, n  int // runes of the source
	to     string
	inside bool
}

// resolve finds what crosses the border, and how it is written on the other side.
func (m *move) resolve() error {
	m.findBinders()
	m.bind = m.unique(identifier(m.Name))
	for _, e := range m.uses {
		if m.isCarried(e.Pointer) {
			continue
		}
		inside := e.Step != nil && m.inside[e.Step]
		for _, ref := range e.Refs {
			var err error
			if inside {
				err = m.read(e, ref)
			} else {
				err = m.readOutside(e, ref)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := m.checkHeirs(); err != nil {
		return err
	}
	if m.trailer {
		m.output("steps."+m.list.steps[m.last].ID+".output", m.list.steps[m.last].ID)
	}
	return m.captured()
}

// index notes what all extractions ask for.
func (t *Text) index() {
	t.uses, t.words = texts.Uses(t.recipe), map[string]bool{}
	for _, e := range t.uses {
		for _, w := range notWord.Split(e.Source, -1) {
			t.words[w] = true
		}
	}
	t.byID, t.loopsOf = map[string]*recipe.Step{}, map[*recipe.Step][]*recipe.Step{}
	var note func(steps []*recipe.Step, loops []*recipe.Step)
	note = func(steps []*recipe.Step, loops []*recipe.Step) {
		for _, s := range steps {
			if s == nil {
				continue
			}
			t.loopsOf[s], t.byID[s.ID] = loops, s
			for _, inner := range s.Scopes() {
				note(inner, loops)
			}
			if s.Loop != nil {
				note(s.Loop.Steps, append([]*recipe.Step{s}, loops...))
			}
		}
	}
	note(t.recipe.Steps, nil)
	delete(t.byID, "")
	t.planned = map[string]*plan.Step{}
	for i := range t.plan.Steps {
		t.planned[t.plan.Steps[i].ID] = &t.plan.Steps[i]
	}
	t.wanted = map[string]bool{}
	for _, name := range required(t.recipe.InputSchema) {
		t.wanted[name] = true
	}
}

// findBinders notes who binds what.
func (m *move) findBinders() {
	m.frames = map[*recipe.Step]map[string]binders{}
	for s, loops := range m.loopsOf {
		var frame *recipe.Step
		if len(loops) > 0 {
			frame = loops[0]
		}
		for _, name := range bindings(s) {
			if m.frames[frame] == nil {
				m.frames[frame] = map[string]binders{}
			}
			b := m.frames[frame][name]
			b.in, b.out = b.in || m.inside[s], b.out || !m.inside[s]
			m.frames[frame][name] = b
		}
	}
}

func bindings(s *recipe.Step) (names []string) {
	if s.OutputBinding != "" {
		names = append(names, s.OutputBinding)
	}
	if s.Transform != nil && s.Transform.OutputBinding != "" {
		names = append(names, s.Transform.OutputBinding)
	}
	return names
}

// What a name is.
type meaning uint8

const (
	isBinding meaning = iota
	isVariable
	isStep
	isUnknown
)

// meaningOf finds what a name means in an expression, as compile does: the innermost binding or variable of a loop, else the
// step of that id. frame is the loop whose body has it.
func (m *move) meaningOf(name string, e texts.Use) (what meaning, b binders, frame *recipe.Step) {
	var loops []*recipe.Step
	if e.Step != nil {
		loops = m.loopsOf[e.Step]
	}
	if e.Inside {
		loops = append([]*recipe.Step{e.Step}, loops...)
	}
	for i := 0; i <= len(loops); i++ {
		frame = nil
		if i < len(loops) {
			frame = loops[i]
		}
		if b, ok := m.frames[frame][name]; ok {
			return isBinding, b, frame
		}
		if frame == nil {
			continue
		}
		if slices.Contains(frame.Loop.Names(), name) {
			return isVariable, binders{in: m.inside[frame], out: !m.inside[frame]}, frame
		}
	}
	if m.byID[name] != nil {
		return isStep, binders{}, nil
	}
	return isUnknown, binders{}, nil
}

// read looks at a name that a step which moves reads.
func (m *move) read(e texts.Use, ref expr.Ref) error {
	switch ref.Name {
	case "input", "inputs", "parameters":
		return m.readInput(e, ref)
	case "fileHashes", "files":
		m.files = true
		return nil
	case "workflow":
		return m.readValue(e, ref)
	case "_context":
		return refuse("%s reads %s, which is another one in a run of its own", named(e.Step), ref.Name)
	case expr.NowVar, expr.SeedVar:
		return nil
	case "steps":
		if len(ref.Path) == 0 {
			return refuse("%s names a step that is known only when it runs", named(e.Step))
		}
		return m.readStep(e, ref, ref.Path[0], ref.Path[1:])
	}
	switch what, b, frame := m.meaningOf(ref.Name, e); {
	case what == isUnknown:
		return refuse("%s reads %s, which is that of its own run", named(e.Step), ref.Name)
	case what == isStep:
		return m.readStep(e, ref, ref.Name, ref.Path)
	case frame != nil && m.inside[frame]:
		return nil
	case b.in && b.out:
		return refuse("%s reads %q, which steps that move and steps that stay bind", named(e.Step), ref.Name)
	case b.in:
		return nil
	}
	m.replace(e, ref, len([]rune(ref.Name)), "input."+m.input(ref.Name, ref.Name), true)
	return nil
}

// readPrompts has the inputs passed on that prompts read because nothing is bound to their placeholders.
func (m *move) readPrompts() error {
	for i := range m.plan.Steps {
		st := &m.plan.Steps[i]
		if st.Prompt == nil {
			continue
		}
		s := m.stepOf(st.ID)
		if s == nil || s.Action == nil || s.Action.Lens == nil {
			continue
		}
		for _, v := range st.Prompt.Values {
			if _, given := s.InputBindings[v.Name]; given {
				continue
			}
			if name := v.Name; m.wanted[name] && identifier(name) == name {
				if key := m.input("input."+name, name); key != name {
					m.edges.bound = append(m.edges.bound, bound{s, name, "input." + key})
				}
				continue
			}
			field := "." + v.Name
			if identifier(v.Name) != v.Name {
				quoted, _ := jsonx.Canonical(v.Name) // no text fails
				field = "[" + string(quoted) + "]"
			}
			m.edges.bound = append(m.edges.bound, bound{s, v.Name, "input." + m.input("input", "input") + field})
		}
	}
	return nil
}

// stepOf returns the step of an id, if it moves.
func (m *move) stepOf(id string) *recipe.Step {
	if s := m.byID[id]; m.inside[s] {
		return s
	}
	return nil
}

// readInput has a field of the input passed on under its own name, or all of it if the field may be missing.
func (m *move) readInput(e texts.Use, ref expr.Ref) error {
	if len(ref.Path) > 0 && ref.Path[0] == "fileHashes" {
		m.files = true
		return nil
	}
	if len(ref.Path) > 0 && m.wanted[ref.Path[0]] && identifier(ref.Path[0]) == ref.Path[0] {
		field := ref.Path[0]
		if got := m.input("input."+field, field); got == field {
			return nil
		}
		span := spanOf(e.Source, ref, 1)
		if span < 0 {
			return refuse("%s reads %s in a way that cannot be rewritten", named(e.Step), ref.Name)
		}
		m.replace(e, ref, span, "input."+m.input("input."+field, field), true)
		return nil
	}
	m.replace(e, ref, len([]rune(ref.Name)), "input."+m.input("input", "input"), true)
	return nil
}

// readValue has a field of workflow passed on, which the recipe says.
func (m *move) readValue(e texts.Use, ref expr.Ref) error {
	if len(ref.Path) == 0 || m.recipe.Values[ref.Path[0]] == nil || identifier(ref.Path[0]) != ref.Path[0] {
		return refuse("%s reads workflow, which is another one in a run of its own", named(e.Step)).in(e.Pointer)
	}
	span := spanOf(e.Source, ref, 1)
	if span < 0 {
		return refuse("%s reads workflow in a way that cannot be rewritten", named(e.Step)).in(e.Pointer)
	}
	m.replace(e, ref, span, "input."+m.input("workflow."+ref.Path[0], ref.Path[0]), true)
	return nil
}

// readStep looks at the result of a step that a step which moves reads.
func (m *move) readStep(e texts.Use, ref expr.Ref, id string, path []string) error {
	s := m.byID[id]
	switch {
	case s == nil:
		return refuse("%s reads the step %q, which has no id in the text", named(e.Step), id)
	case m.inside[s]:
		return nil
	}
	names := len(ref.Path) - len(path) // of the path that name the step
	source, rest := "steps"+member(id), ""
	switch {
	case isOutput(path) && definite(s):
		source, names = source+".output", names+1
	case isOutput(path) && m.asked(e, ref):
		return refuse("%s asks for a field of %s, which may not complete", named(e.Step), named(s)).in(e.Pointer)
	case isOutput(path):
		rest, names = "."+path[0], names+1 // which the dialect pipeline leaves out
	}
	span := spanOf(e.Source, ref, names)
	if span < 0 {
		return refuse("%s reads the step %q in a way that cannot be rewritten", named(e.Step), id)
	}
	m.replace(e, ref, span, "input."+m.input(source, identifier(id))+rest, true)
	return nil
}

// asked reports whether a reference is in what the dialect pipeline makes of has(steps.a.b), whose first part is not in
// the text: (has(steps.a.output) && has(steps.a.output.b)).
func (m *move) asked(e texts.Use, ref expr.Ref) bool {
	before := []rune(e.Source)[:ref.Offset]
	return m.d.Name == "pipeline" && strings.HasSuffix(string(before), asking)
}

// asking and thenHas are before the two references.
const asking, thenHas = "(has(", ") && has("

// readOutside looks at a name that others read.
func (m *move) readOutside(e texts.Use, ref expr.Ref) error {
	id, path, at := ref.Name, ref.Path, 0
	if id == "steps" && len(path) > 0 {
		id, path, at = path[0], path[1:], 1
	} else {
		switch what, b, frame := m.meaningOf(ref.Name, e); {
		case what == isBinding && b.in && b.out:
			return refuse("%q is bound by steps that move and by steps that stay, and %s reads it", ref.Name, reader(e))
		case what == isBinding && b.in && e.Kind == texts.Formula:
			return refuse("the formula of the estimation reads %q", ref.Name)
		case what == isBinding && b.in && frame == m.frame():
			m.replace(e, ref, len([]rune(ref.Name)), m.bind+"."+m.output(ref.Name, ref.Name), false)
			return nil
		case what != isStep:
			return nil
		}
	}
	s := m.byID[id]
	if s == nil || !m.inside[s] {
		return nil
	}
	if !isOutput(path) || !definite(s) {
		return refuse("%s reads of %s more than an output that is always there", reader(e), named(s))
	}
	span := spanOf(e.Source, ref, at+1)
	if span < 0 || e.Kind == texts.Formula {
		return refuse("%s reads %s in a way that cannot be rewritten", reader(e), named(s))
	}
	m.replace(e, ref, span, m.ofNew(m.output("steps"+member(id)+".output", identifier(id))), false)
	return nil
}

// isOutput reports whether a path within a step begins with its output.
func isOutput(path []string) bool {
	return len(path) > 0 && (path[0] == "output" || path[0] == "result")
}

func reader(e texts.Use) subject { return subject{e.Step} }

// frame is the loop in whose body the steps are; nil = they are in none.
func (m *move) frame() *recipe.Step {
	if len(m.list.loops) == 0 {
		return nil
	}
	return m.list.loops[0]
}

func (m *move) replace(e texts.Use, ref expr.Ref, n int, to string, inside bool) {
	m.rewrites = append(m.rewrites, rewrite{e, ref.Offset, n, to, inside})
}

// input returns the name under which a value is passed in.
func (m *move) input(source, name string) string { return pass(&m.inputs, source, name) }

// output returns the name under which a value is passed out.
func (m *move) output(source, name string) string {
	return pass(&m.outputs, source, identifier(name))
}

func pass(list *[]crossing, source, name string) string {
	for _, c := range *list {
		if c.source == source {
			return c.key
		}
	}
	key := name
	for k := 2; slices.ContainsFunc(*list, func(c crossing) bool { return c.key == key }) || key == "fileHashes"; k++ {
		key = name + "_" + strconv.Itoa(k)
	}
	*list = append(*list, crossing{key, source})
	return key
}

// captured refuses expressions that give a name of their own to what a rewritten name begins with.
func (m *move) captured() error {
	for _, r := range m.rewrites {
		if unlabelled(r.e) {
			return refuse("a part of a json_object in %s has no label and is called by what it names; give it a label", named(r.e.Step))
		}
		word, _, _ := strings.Cut(r.to, ".")
		word, _, _ = strings.Cut(word, "[")
		local := regexp.MustCompile(`\(\s*` + word + `\s*,|,\s*` + word + `\s*,|(for|set)\s+` + word + `\b`)
		if local.MatchString(r.e.Source) {
			return refuse("%s has a variable %q of its own", reader(r.e), word)
		}
	}
	return nil
}

// unlabelled reports whether an expression is a part of a merged object whose field is called by what it names.
func unlabelled(e texts.Use) bool {
	at := strings.LastIndex(e.Pointer, "/from/")
	if e.Step == nil || at < 0 || !strings.Contains(e.Pointer[:at], "/inputBindings/") {
		return false
	}
	name := jsonx.UnescapeToken(e.Pointer[strings.LastIndexByte(e.Pointer[:at], '/')+1 : at])
	b := e.Step.InputBindings[name]
	i, err := strconv.Atoi(strings.TrimSuffix(e.Pointer[at+len("/from/"):], "/expression"))
	return err == nil && b.Merge == "json_object" && i < len(b.From) && b.From[i] != nil && b.From[i].Label == ""
}

// unique returns a name that the recipe does not have.
func (m *move) unique(name string) string {
	taken := func(name string) bool {
		for frame, names := range m.frames {
			if _, ok := names[name]; ok || frame != nil && slices.Contains(frame.Loop.Names(), name) {
				return true
			}
		}
		if s := m.byID[name]; s != nil && !m.inside[s] {
			return true
		}
		return m.words[name] || slices.Contains([]string{"input", "inputs", "item", "index", "steps", "files", "fileHashes", "workflow", "parameters", "_context", "budget"}, name)
	}
	out := name
	for k := 2; taken(out); k++ {
		out = name + "_" + strconv.Itoa(k)
	}
	return out
}

var notWord = regexp.MustCompile(`[^A-Za-z0-9_]+`)

// identifier makes a name of CEL of an id.
func identifier(id string) string {
	name := notWord.ReplaceAllString(id, "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	if slices.Contains(reserved, name) {
		name += "_"
	}
	return name
}

// reserved are words that CEL does not take as names.
var reserved = strings.Fields("as break const continue else false for function if import in let loop null package namespace return true var void while bool bytes double int list map null_type string type uint optional_type")

// member is how an expression selects a step.
func member(id string) string {
	if identifier(id) == id {
		return "." + id
	}
	return "['" + id + "']"
}

// spanOf returns how many runes a reference and the first names of its path have in the source, or -1 if they are
// not written one after the other.
func spanOf(src string, ref expr.Ref, names int) int {
	runes := []rune(src)
	rest := string(runes[min(ref.Offset, len(runes)):])
	text := rest
	if !strings.HasPrefix(text, ref.Name) {
		return -1
	}
	text = text[len(ref.Name):]
	for _, name := range ref.Path[:min(names, len(ref.Path))] {
		found := false
		for _, form := range []string{"." + name, "['" + name + "']", `["` + name + `"]`} {
			if after, ok := strings.CutPrefix(text, form); ok && (form[0] == '[' || after == "" || !word(after[0])) {
				text, found = after, true
				break
			}
		}
		if !found {
			return -1
		}
	}
	if names > len(ref.Path) {
		return -1
	}
	return len([]rune(rest)) - len([]rune(text))
}

func word(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// required returns the fields that a schema of the input requires.
func required(schema []byte) (names []string) {
	if len(schema) == 0 {
		return nil
	}
	v, err := jsonx.Decode(schema, jsonx.Limits{Bytes: len(schema) + 1})
	if err != nil {
		return nil
	}
	s, _ := v.(map[string]any)
	list, _ := s["required"].([]any)
	for _, item := range list {
		if name, ok := item.(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// schemaOf returns the schema of a field of the input.
func schemaOf(schema []byte, name string) any {
	v, err := jsonx.Decode(schema, jsonx.Limits{Bytes: len(schema) + 1})
	if err != nil || strings.Contains(string(schema), `"$ref"`) {
		return map[string]any{}
	}
	s, _ := v.(map[string]any)
	props, _ := s["properties"].(map[string]any)
	if p, ok := props[name].(map[string]any); ok {
		return p
	}
	return map[string]any{}
}
