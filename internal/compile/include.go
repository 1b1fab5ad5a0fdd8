// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/extend"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

const (
	// maxUnits is how many recipes one compilation includes.
	maxUnits = 1000
	// maxIncluded is how many bytes their texts have together.
	maxIncluded = form.MaxBytes
)

// Recipes finds the recipes that steps name. The caller implements it, because this
// package reads no files. Its errors are of type fault.Error: fault.RecipeNotFound when
// there is no such recipe.
type Recipes interface {
	// File returns the recipe in the file at path, which is relative to the text called
	// from: the file name that the compiled recipe has, or the one of a Text.
	File(from, path string) (*Text, error)
	// Find returns the newest registered recipe of that name whose version satisfies
	// version, as [Admits] defines it.
	Find(name, version string) (*Text, error)
	// Names lists what the registered recipes can be found by, sorted.
	Names() []string
}

// A Text is the text of a recipe; see [extend.Text].
type Text = extend.Text

// An includer compiles a recipe and every recipe that it includes, each once.
type includer struct {
	opt   Options
	main  *recipe.Source   // of the root; nil when there is none
	units map[string]*unit // by file
	// variants are recipes in files that inherit something.
	variants map[variant]*unit
	found    map[lookup]found
	path     []*unit // the recipes being compiled; each includes the next
	count    int     // of recipes
	bytes    int     // of texts

	// What all of them share, because it depends on the options alone.
	decls    map[*action.Action]*declared
	programs *expressions.Cache
}

// A lookup is a question to Recipes, and found its answer; from is "" for a registered
// recipe.
type lookup struct {
	from, name, version string
	lens                bool // it is one to Lenses
}

type found struct {
	u     *unit
	lens  *catalogue.Lens
	names []string // of its placeholders
	err   error
}

// A unit is one recipe.
type unit struct {
	file   string
	inline bool // in the text of another recipe
	base   string
	r      *recipe.Recipe // nil when the text is malformed
	src    *recipe.Source
	text   *Text // of a recipe in a file
	state  unitState
	p      *plan.Plan // of a compiled unit; nil when there are errors
	// diags are the problems of the unit, with those of what it includes.
	diags []fault.Diagnostic
	told  bool // the problems were reported to a recipe that includes the unit
	uses  []use
	depth int64 // how deep child runs may nest below a run of it: its own limit, or the default
	decl  *declared

	inheritance inheritance
	reads       []read // where it reads what it inherits, parallel to the Inherits of its plan
}

type unitState uint8

const (
	parsed unitState = iota
	compiling
	compiled
)

// A use is a step that runs another recipe.
type use struct {
	pos   fault.Pos // where the step names it
	ptr   string
	step  string
	unit  *unit // nil when it is not known
	ref   plan.ChildRef
	depth int64 // how deep the run, and those below it, may stand; 0 when the step sets no limit
}

func newIncluder(opt Options) *includer {
	if opt.Lenses == nil {
		opt.Lenses = catalogue.NewLenses()
	}
	return &includer{
		opt: opt, units: map[string]*unit{}, variants: map[variant]*unit{}, found: map[lookup]found{},
		decls: map[*action.Action]*declared{}, programs: cmp.Or(opt.Expressions, expressions.NewCache()),
	}
}

func (in *includer) root(r *recipe.Recipe, src *recipe.Source) *unit {
	u := &unit{r: r, src: src}
	if src != nil {
		in.main, u.file = src, src.File()
		in.units[path.Clean(u.file)] = u
	}
	return u
}

// label names a recipe in messages.
func (u *unit) label() string {
	switch {
	case u.r == nil:
		return u.file
	case u.r.Version == "":
		return u.r.Name
	}
	return u.r.Name + "@" + u.r.Version
}

// compile compiles a unit. Nothing in the result depends on the step that led to it, so
// that it serves every other step as well.
func (in *includer) compile(u *unit) {
	in.path = append(in.path, u)
	u.state = compiling
	c := newCompiler(u.r, u.src, in.opt)
	c.in, c.unit = in, u
	c.decls, c.programs = in.decls, in.programs
	if u.base != "" {
		c.base = u.base
	}
	if u.p = c.run(); u.p != nil {
		u.p.Embedded = embedded(u.uses)
	}
	u.diags = append(c.diags, c.foreign...)
	sortDiagnostics(u.diags, u.file)
	u.state = compiled
	in.path = in.path[:len(in.path)-1]
}

// embedded returns the plans of the recipes that are embedded in one with these uses, and
// those embedded in them, each once.
func embedded(uses []use) []*plan.Plan {
	byKey := map[string]*plan.Plan{}
	for _, s := range uses {
		if s.ref.Key == "" {
			continue
		}
		byKey[s.unit.p.Key()] = s.unit.p
		for _, e := range s.unit.p.Embedded {
			byKey[e.Key()] = e
		}
	}
	var list []*plan.Plan
	for _, p := range byKey {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *plan.Plan) int { return strings.Compare(a.Key(), b.Key()) })
	return list
}

// inline returns the unit of a recipe in the text of the one being compiled.
func (in *includer) inline(r *recipe.Recipe, within *unit, base string) (*unit, error) {
	if err := in.admit(0); err != nil {
		return nil, err
	}
	return &unit{file: within.file, inline: true, base: base, r: r, src: within.src}, nil
}

// inFile returns the unit of the recipe in a file.
func (in *includer) inFile(from, name string) (*unit, error) {
	if in.opt.Recipes == nil {
		return nil, fault.New(fault.RecipeNotFound, "recipes in files cannot be read here: this recipe was given without its directory")
	}
	return in.find(lookup{from: cmp.Or(from, "."), name: name}, func() (*Text, error) { return in.opt.Recipes.File(from, name) })
}

// registered returns the unit of a registered recipe, or nil when it is not known. It
// does not compile it.
func (in *includer) registered(name, version string) (*unit, error) {
	for _, u := range slices.Backward(in.path) {
		if !u.inline { // a text that names itself means itself (X61)
			if u.isCalled(name, version) {
				return u, nil
			}
			break
		}
	}
	if in.opt.Recipes != nil {
		return in.find(lookup{name: name, version: version}, func() (*Text, error) { return in.opt.Recipes.Find(name, version) })
	}
	for _, u := range slices.Backward(in.path) {
		// Nothing can be looked up, but the recipes that include this one are known.
		if !u.inline && u.isCalled(name, version) {
			return u, nil
		}
	}
	return nil, nil
}

// isCalled reports whether a reference may mean the recipe.
func (u *unit) isCalled(name, version string) bool {
	return (u.r.Name == name || u.r.ID == name) && catalogue.Admits(version, cmp.Or(u.r.Version, "0.0.0"))
}

// find asks Recipes, once per question, and parses the answer, once per file.
func (in *includer) find(q lookup, ask func() (*Text, error)) (*unit, error) {
	if f, ok := in.found[q]; ok {
		return f.u, f.err
	}
	if err := in.full(); err != nil {
		return nil, err // no more texts are read
	}
	var f found
	text, err := ask()
	if err != nil {
		f.err = err
	} else {
		f.u, f.err = in.parse(text)
	}
	in.found[q] = f
	return f.u, f.err
}

func (in *includer) parse(text *Text) (*unit, error) {
	if u := in.units[path.Clean(text.File)]; u != nil {
		return u, nil
	}
	if err := in.admit(len(text.Data)); err != nil {
		return nil, err
	}
	u := &unit{file: text.File, text: text}
	u.r, u.src, u.diags = extend.Parse(text.File, text.Data, in.opt.extending(text.Name))
	switch {
	case u.r == nil:
		u.state = compiled
	case text.Version != "":
		u.r.Version = text.Version
	}
	if in.main != nil {
		in.main.Include(u.src)
	}
	in.units[path.Clean(text.File)] = u
	return u, nil
}

// admit counts a recipe and its bytes.
func (in *includer) admit(size int) error {
	in.count++
	in.bytes += size
	return in.full()
}

// full returns an error once too much was admitted.
func (in *includer) full() error {
	switch {
	case in.count > maxUnits:
		return fault.New(fault.RecipeInvalid, "the recipe includes more than %d recipes", maxUnits)
	case in.bytes > maxIncluded:
		return fault.New(fault.RecipeInvalid, "the recipes that this one includes have more than %d bytes together", maxIncluded)
	}
	return nil
}

// compiles returns the unit of the same recipe that is being compiled, or nil.
func (in *includer) compiles(u *unit) *unit {
	for _, on := range in.path {
		if on == u || !on.inline && !u.inline && path.Clean(on.file) == path.Clean(u.file) {
			return on
		}
	}
	return nil
}

// chain names the recipes from u, which is being compiled, to the innermost one, and
// then u again.
func (in *includer) chain(u *unit) string {
	return formatCycle(in.path[slices.Index(in.path, u):])
}

// formatCycle names recipes each of which runs the next, and the last of which the first.
func formatCycle(units []*unit) string { return formatChain(append(slices.Clip(units), units[0])) }

// formatChain names recipes each of which runs the next.
func formatChain(units []*unit) string {
	var names []string
	for _, u := range units {
		names = append(names, u.label())
	}
	if len(names) > 2*maxNamed {
		names = slices.Concat(names[:maxNamed], []string{"…"}, names[len(names)-maxNamed:])
	}
	return strings.Join(names, " → ")
}

// callee returns what a step must know of the recipe to give it its input. Whether the
// schema is valid is checked where the recipe is compiled.
func (u *unit) callee(cache *expressions.Cache) *declared {
	if u.decl == nil {
		u.decl = newDeclared(cache, &action.Action{Name: u.r.Name, Input: u.r.InputSchema}, fmt.Sprintf("the recipe %q", u.r.Name))
	}
	return u.decl
}

// invalidRecipe is the rule of the diagnostic at a step whose recipe does not compile.
const invalidRecipe = "invalid-recipe"

// invalid explains why a unit that does not compile cannot be used: the code and message
// for the place that names it. The reason may be in a recipe that the unit includes.
func (u *unit) invalid() (fault.Code, string) {
	code, msg, more := fault.RecipeInvalid, fmt.Sprintf("the recipe in %s does not compile", u.file), -1
	for _, d := range u.diags {
		if d.Severity != fault.SeverityError || d.Rule == invalidRecipe {
			continue
		}
		if more++; more > 0 {
			continue
		}
		msg = fmt.Sprintf("%s: %s: %s", msg, d.Pos, d.Msg)
		switch d.Code {
		case fault.CircularDependency, fault.DepthExceeded, fault.RecipeNotFound, fault.NotAvailable:
			code = d.Code
		}
	}
	if more > 0 {
		msg += fmt.Sprintf(" (and %d more)", more)
	}
	return code, msg
}

// tell returns the errors of a unit for the recipe that includes it, each with the place
// that led to it. It returns them once, so that they are not repeated for every place.
func (u *unit) tell(by ...fault.Place) []fault.Diagnostic {
	if u.told {
		return nil
	}
	u.told = true
	var list []fault.Diagnostic
	for _, d := range u.diags {
		if d.Severity == fault.SeverityError && len(list) < form.MaxDiagnostics {
			d.Related = append(slices.Clone(d.Related), by...)
			list = append(list, d)
		}
	}
	return list
}

// codeOf returns the code and rule of an error of Recipes.
func codeOf(err error) (fault.Code, string) {
	var f *fault.Error
	switch {
	case !errors.As(err, &f):
		return fault.RecipeNotFound, "unusable-recipe"
	case f.Code == fault.RecipeNotFound:
		return f.Code, "unknown-recipe"
	}
	return f.Code, "unusable-recipe"
}
