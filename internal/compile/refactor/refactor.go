// SPDX-License-Identifier: Apache-2.0

// Package refactor moves steps of a recipe into a recipe of their own, and finds steps that are worth it.
//
// It decides which steps can be moved so that a run has the same status and the same result, what the new recipe
// takes and gives, and which characters of the text change: those of the steps that move, and of the names that
// others read of them. Everything else, comments and layout included, stays byte for byte. What it cannot move
// without a change of meaning it refuses, with the reason. It compiles what it has made, and returns nothing that
// does not compile. It reads and writes no file.
package refactor

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A Text is a recipe that compiles.
type Text struct {
	File    string // its name
	Bytes   []byte
	Options compile.Options // what it is compiled against

	recipe *recipe.Recipe
	source *recipe.Source
	plan   *plan.Plan
	diags  []fault.Diagnostic
	d      *dialect.Dialect
	uses   []texts.Use
	words  map[string]bool // of the expressions
	starts []int           // of lines
	mixed  bool            // it has line breaks of several kinds

	byID    map[string]*recipe.Step
	loopsOf map[*recipe.Step][]*recipe.Step // around a step, the innermost first
	planned map[string]*plan.Step           // by id
	wanted  map[string]bool                 // fields of the input that are always there

	flowEdges []*edge         // of a flow
	carried   map[string]bool // pointers of the bindings that these carry
}

// Load compiles a text. The error has its diagnostics.
func Load(file string, text []byte, opt compile.Options) (*Text, error) {
	t := &Text{File: file, Bytes: text, Options: opt}
	t.plan, t.recipe, t.source, t.diags = compile.Source(file, text, opt)
	if t.plan == nil {
		return nil, fault.Invalid(fault.RecipeInvalid, t.diags)
	}
	if len(t.recipe.Extends) > 0 {
		return nil, fault.New(fault.RecipeInvalid, "%s extends other recipes, and steps that come from these cannot be moved: refactor those, or `roux convert` this one, which writes it in one text", file)
	}
	t.d, t.starts = dialect.Of(file, text), startsOf(text)
	t.mixed = yamlx.NewText(text).Lines() != len(t.starts)
	t.index()
	t.flowEdges, t.carried = t.edgesOf()
	return t, nil
}

// An Extraction says what is to be moved, and where.
type Extraction struct {
	First, Last string // ids of steps of one list
	Name        string // of the new recipe, and id of the step that runs it
	Path        string // of the file of the new recipe, beside the text; "" = it becomes a part of the text
}

// A Result is what an extraction has made.
type Result struct {
	Text    []byte   // with one step in place of those that were moved
	New     []byte   // the new recipe; nil if it is a part of the text
	Steps   int      // how many were moved, with those within them
	Inputs  []string // of the new recipe
	Outputs []string // that others read
}

// Extract moves steps into a recipe of their own.
func (t *Text) Extract(e Extraction) (*Result, error) {
	m, err := t.prepare(e)
	if err != nil {
		return nil, t.placed(err, e)
	}
	res, err := m.write()
	if err == nil {
		err = m.verify(res)
	}
	if err != nil {
		return nil, t.placed(err, e)
	}
	return res, nil
}

// A move is an extraction in the making.
type move struct {
	*Text
	Extraction
	list        list
	first, last int // of the list
	inside      map[*recipe.Step]bool
	names

	// What the step that takes their place has, beside the new recipe:
	depends *[]string
	trailer bool // the last step moves, and its output is that of the scope
	results bool // the result of the recipe has to be written out
	bind    string
	edits   []edit
	edges   edges
}

// prepare decides what is moved, and refuses what must stay.
func (t *Text) prepare(e Extraction) (*move, error) {
	m := &move{Text: t, Extraction: e, inside: map[*recipe.Step]bool{}}
	if err := m.findList(); err != nil {
		return nil, err
	}
	for _, s := range m.moved() {
		each(s, func(s *recipe.Step) { m.inside[s] = true })
	}
	for _, check := range []func() error{m.checkName, m.checkText, m.checkSteps, m.checkScope, m.readEdges, m.readPrompts, m.resolve, m.dependencies, m.result} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *move) moved() []*recipe.Step { return m.list.steps[m.first : m.last+1] }

// each calls f for a step and those within it.
func each(s *recipe.Step, f func(*recipe.Step)) {
	(&recipe.Recipe{Steps: []*recipe.Step{s}}).Each(f)
}

// checkName checks the name of the new recipe.
func (m *move) checkName() error {
	if !idPattern.MatchString(m.Name) {
		return fault.New(fault.Usage, "the name %q: want %s", m.Name, recipe.ID.Want)
	}
	if s := m.byID[m.Name]; s != nil && !m.inside[s] {
		return fault.New(fault.Usage, "the recipe has a step %q already: give the new recipe another name", m.Name)
	}
	return nil
}

// checkSteps refuses steps that mean something else in a run of their own.
func (m *move) checkSteps() error {
	var found error
	refused := func(s *recipe.Step, why string) {
		if found == nil {
			found = refuse("%s %s", named(s), why)
		}
	}
	for _, s := range m.moved() {
		each(s, func(s *recipe.Step) {
			switch {
			case s.Compensate != nil:
				refused(s, "has a compensation, which undoes it only when its own run fails")
			case s.Wait != nil && s.Wait.Signal != "":
				refused(s, "waits for a signal, which is sent to the run of this recipe")
			case m.tolerates(s) && m.after(s, false):
				refused(s, "says what happens when a step before it fails, and in a run of its own it does not begin then")
			case s.Recipe != nil && s.Recipe.Inherits(recipe.InheritContext):
				refused(s, "runs a recipe that inherits the context of this one, which would be another one; pass on what it reads with its inputs")
			case s.Recipe != nil && s.Recipe.Limits != nil && s.Recipe.Limits.MaxDepth > 0:
				refused(s, "limits how deep its runs may be, which counts from the run of this recipe")
			}
		})
	}
	for i, s := range m.list.steps {
		if (i < m.first || i > m.last) && s != nil && m.tolerates(s) && m.after(s, true) {
			refused(s, "comes after them and runs although some of them fail; the run of the new recipe fails as a whole")
		}
	}
	return found
}

// tolerates reports whether a step does not simply share the fate of those before it.
func (m *move) tolerates(s *recipe.Step) bool {
	return s.OnParentFailure != "" && s.OnParentFailure != "propagate"
}

// after reports whether a step of the list waits for one that moves, or for one that stays.
func (m *move) after(s *recipe.Step, moves bool) bool {
	if !slices.Contains(m.list.steps, s) {
		return false // what it waits for is within the same step as it is
	}
	st := m.planned[s.ID]
	return st == nil || slices.ContainsFunc(st.Preds, func(p int32) bool { return m.inside[m.byID[m.plan.Steps[p].ID]] == moves })
}

// checkScope refuses what the settings of the recipe make impossible.
func (m *move) checkScope() error {
	if err := m.checkLeaves(); err != nil {
		return err
	}
	if s := m.errorsRead(); s != nil {
		return refuse("%s passes on the error when one of them fails, and others read it: its message would name the new recipe", named(s))
	}
	if m.list.owner != nil && m.last == len(m.list.steps)-1 && m.outputRead(m.list.owner) {
		s := m.list.steps[m.last]
		if !definite(s) {
			return refuse("%s may not complete, and its output is that of %s", named(s), named(m.list.owner))
		}
		m.trailer = true
	}
	if m.list.owner == nil && m.last == len(m.list.steps)-1 && len(m.recipe.Outputs) == 0 && len(m.recipe.OutputSchema) > 0 {
		return refuse("the output of %s is the result of the recipe, which has an outputSchema and no outputs", named(m.list.steps[m.last]))
	}
	return nil
}

// errorsRead returns a step around those that move whose errors others may read, or nil.
func (m *move) errorsRead() *recipe.Step {
	for owner := m.list.owner; owner != nil; owner = m.ownerOf(owner) {
		collects := owner.Loop != nil && owner.Loop.FailureStrategy != "" && owner.Loop.FailureStrategy != "fail_fast" ||
			owner.Parallel != nil && owner.Parallel.FailureStrategy != "" && owner.Parallel.FailureStrategy != "fail_fast"
		collects = collects || owner.Parallel != nil && owner.Parallel.WaitFor != "" && owner.Parallel.WaitFor != "all"
		if collects && m.outputRead(owner) || m.errorRead(owner) {
			return owner
		}
	}
	return nil
}

// definite reports whether a step has an output whenever the steps after it run.
func definite(s *recipe.Step) bool {
	return s.When == "" && !s.ContinueOnError && s.Fail == nil && (s.OnError == nil || s.OnError.Strategy != "skip")
}

// verify compiles what was made, and compares it with what was.
func (m *move) verify(res *Result) error {
	opt := m.Options
	opt.Recipes = &overlay{Recipes: opt.Recipes, path: m.Path, text: res.New}
	p, _, _, diags := compile.Source(m.File, res.Text, opt)
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			return refuse("what would come of it does not compile: %s", d)
		}
	}
	if p == nil {
		return refuse("what would come of it does not compile")
	}
	if len(res.New) > 0 {
		_, _, _, more := compile.Source(m.Path, res.New, opt)
		diags = append(diags, more...)
	}
	for _, d := range diags {
		if d.Rule == "maybe-unbound" && m.crosses(d) {
			return refuse("a name would be passed on where it may have no value: %s", d.Msg)
		}
	}
	before, after := comments(m.Bytes), slices.Sorted(slices.Values(append(comments(res.Text), comments(res.New)...)))
	if !slices.Equal(before, after) {
		return refuse("a comment would be lost")
	}
	return nil
}

// crosses reports whether a diagnostic of what was made is at a value that is passed on.
func (m *move) crosses(d fault.Diagnostic) bool {
	step := m.source.Pointer(m.list.ptr) + "/" + strconv.Itoa(m.first)
	switch {
	case d.Pos.File == m.Path && m.Path != "":
		return strings.HasPrefix(d.Pointer, m.form().root+"/outputs/")
	case strings.HasPrefix(d.Pointer, step+"/inputBindings/"):
		return true
	case strings.HasPrefix(d.Pointer, step+m.form().within+"/outputs/"):
		return true
	}
	return m.results && strings.HasPrefix(d.Pointer, m.recipe.Ptr+"/outputs/")
}

func comments(text []byte) (list []string) {
	for _, c := range yamlx.Comments(text, jsonx.Limits{Bytes: 2*len(text) + 1}) {
		list = append(list, strings.TrimSpace(c.Text))
	}
	return slices.Sorted(slices.Values(list))
}

var idPattern = regexp.MustCompile(recipe.ID.Expr)

// An overlay has the new recipe beside those that there are.
type overlay struct {
	compile.Recipes // nil = there are no others
	path            string
	text            []byte
}

// File implements compile.Recipes.
func (o *overlay) File(from, path string) (*compile.Text, error) {
	if o.text != nil && path == o.path {
		return &compile.Text{File: path, Data: o.text}, nil
	}
	if o.Recipes == nil {
		return nil, fault.New(fault.RecipeNotFound, "there is no file %s", path)
	}
	return o.Recipes.File(from, path)
}

// Find implements compile.Recipes.
func (o *overlay) Find(name, version string) (*compile.Text, error) {
	if o.Recipes == nil {
		return nil, fault.New(fault.RecipeNotFound, "there is no recipe %s", name)
	}
	return o.Recipes.Find(name, version)
}

// Names implements compile.Recipes.
func (o *overlay) Names() []string {
	if o.Recipes == nil {
		return nil
	}
	return o.Recipes.Names()
}
