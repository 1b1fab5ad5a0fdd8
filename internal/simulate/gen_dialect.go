// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

// dialects are those in which drawn recipes are written.
var dialects = dialect.All()

// A Way is how a step names the recipe that it runs.
type Way int

// The ways. A name that an expression gives counts as that of a registered recipe, and a text as inline.
const (
	Inline Way = iota
	InFile
	Registered
	numWays
)

func (w Way) String() string { return [...]string{"inline", "file", "registered"}[w] }

// An origin is where the text of a recipe was.
type origin struct {
	dialect int // index into dialects
	way     Way
}

// sources are the texts of the recipes of a case. They implement compile.Recipes.
type sources struct {
	files      map[string]*compile.Text
	registered []registeredText
	origins    map[string]origin // by name, or name@version of a registered one
	roots      map[string]int    // dialects, by the keys of the plans that users start
	lenses     catalogue.Lenses
}

// A registeredText is a version of a registered recipe.
type registeredText struct {
	name, version string
	text          *compile.Text
}

// Find implements compile.Recipes.
func (s *sources) Find(name, version string) (*compile.Text, error) {
	found, err := s.find(name, version)
	if err != nil {
		return nil, err
	}
	return found.text, nil
}

func (s *sources) find(name, version string) (found *registeredText, err error) {
	for i := range s.registered {
		r := &s.registered[i]
		if r.name == name && catalogue.Admits(version, r.version) && (found == nil || catalogue.CompareVersions(found.version, r.version) < 0) {
			found = r
		}
	}
	if found == nil {
		return nil, fault.New(fault.RecipeNotFound, "no recipe %s %s", name, version)
	}
	return found, nil
}

// File implements compile.Recipes. All files are in one directory.
func (s *sources) File(_, path string) (*compile.Text, error) {
	if t := s.files[path]; t != nil {
		return t, nil
	}
	return nil, fault.New(fault.RecipeNotFound, "no file %s", path)
}

// Names implements compile.Recipes.
func (s *sources) Names() (names []string) {
	for i := range s.registered {
		names = append(names, s.registered[i].name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// options are those with which the texts of the case are compiled.
func (s *sources) options() compile.Options {
	opt := compile.Options{Actions: drawnActions, Limits: drawnLimits, Lenses: s.lenses}
	if len(s.registered)+len(s.files) > 0 {
		opt.Recipes = s
	}
	return opt
}

// A writer writes drawn recipes, each in a dialect that it draws. It writes a recipe that a step runs into the
// text of that step or into a file of its own. A text means the same in every dialect, and the writer has
// random numbers of its own, so that the runs of a seed do not depend on how its recipes are written.
type writer struct {
	dice    *rand.Rand
	texts   bool // expressions give the texts of some recipes that steps run
	sources *sources
	n       int // recipes within others
}

func newWriter(n uint64) *writer {
	return &writer{
		dice:    rand.New(rand.NewPCG(n, 0x6469616c)),
		texts:   names(n),
		sources: &sources{files: map[string]*compile.Text{}, origins: map[string]origin{}, roots: map[string]int{}, lenses: drawnLenses},
	}
}

// register writes a registered recipe.
func (w *writer) register(r *recipe.Recipe) error {
	name, version := r.Name, r.Version
	tree, from, err := w.write(r, nil)
	if err != nil {
		return err
	}
	from.way = Registered
	w.sources.origins[name+"@"+version] = from
	w.sources.registered = append(w.sources.registered, registeredText{name: name, version: version, text: w.text(name+"-"+version, tree)})
	return nil
}

// text writes a tree in JSON or YAML.
func (w *writer) text(name string, tree *jsonx.Node) *compile.Text {
	if w.dice.IntN(2) == 0 {
		return &compile.Text{File: name + ".yaml", Data: yamlx.Encode(tree)}
	}
	return &compile.Text{File: name + ".json", Data: yamlx.EncodeJSON(tree)}
}

// write writes a recipe in a drawn dialect, or in the next one that can express it. within returns the name of
// a recipe within another one, which depends on the dialect; nil = the recipe keeps its name.
func (w *writer) write(r *recipe.Recipe, within func(*dialect.Dialect) string) (tree *jsonx.Node, from origin, err error) {
	inner, err := w.inner(r)
	if err != nil {
		return nil, from, err
	}
	drawn, err := json.Marshal(r)
	if err != nil {
		return nil, from, err
	}
	first := w.dice.IntN(len(dialects))
	for k := range dialects {
		from.dialect = (first + k) % len(dialects)
		to := dialects[from.dialect]
		if k > 0 { // the one before may have changed it
			r = &recipe.Recipe{}
			if err := json.Unmarshal(drawn, r); err != nil {
				return nil, from, err
			}
		}
		if within != nil {
			r.Name = within(to)
		}
		if tree, err = to.Encode(r, nil); err == nil {
			return tree, from, replaceInner(tree, inner)
		}
	}
	return nil, from, fmt.Errorf("no dialect can express it: %w\n%s", err, drawn)
}

// inner writes the recipes within a recipe. Into the step of one that is neither in a file nor given by an
// expression it puts a stand-in with a name of its own, and returns the trees by these names, for replaceInner.
func (w *writer) inner(r *recipe.Recipe) (map[string]*jsonx.Node, error) {
	trees := map[string]*jsonx.Node{}
	var failed error
	r.EachInline(func(st *recipe.Step, in *recipe.Recipe) {
		w.n++
		id := w.n
		way := Way(w.dice.IntN(2))
		given := w.texts && len(st.Recipe.Inherit) == 0 && w.dice.IntN(2) == 0
		if given {
			way = Inline
		}
		tree, from, err := w.write(in, func(d *dialect.Dialect) string { return innerName(d.Name, way) })
		if err != nil {
			failed = err
			return
		}
		w.sources.origins[innerName(dialects[from.dialect].Name, way)] = origin{dialect: from.dialect, way: way}
		if given {
			text, err := json.Marshal(string(w.text("made", tree).Data)) // a text of JSON is one of CEL
			failed = errors.Join(failed, err)
			st.Recipe.Inline, st.Recipe.Definition = nil, string(text)
			return
		}
		if way == InFile {
			t := w.text(fmt.Sprint("part", id), tree)
			w.sources.files[t.File] = t
			st.Recipe.Inline, st.Recipe.File = nil, t.File
			return
		}
		name := fmt.Sprint("stand-in ", id)
		trees[name] = tree
		st.Recipe.Inline = &recipe.Recipe{Head: recipe.Head{Name: name}, Steps: []*recipe.Step{{ID: "s", Transform: &recipe.Transform{Expression: "1"}}}}
	})
	return trees, failed
}

// innerName is the name of recipes of a dialect within others. All have the length of the name that recipes
// are drawn with, which is a part of journals.
func innerName(dialect string, way Way) string { return dialect[:3] + "-" + way.String()[:1] }

// replaceInner replaces all stand-ins in a tree by the recipes.
func replaceInner(n *jsonx.Node, trees map[string]*jsonx.Node) error {
	if replaceStandIns(n, trees); len(trees) > 0 {
		return fmt.Errorf("%d recipes within others were not written", len(trees))
	}
	return nil
}

func replaceStandIns(n *jsonx.Node, trees map[string]*jsonx.Node) {
	if len(trees) == 0 {
		return
	}
	if name := n.Child("name"); name != nil {
		if tree := trees[name.Text]; tree != nil {
			delete(trees, name.Text)
			n.Children = tree.Children
			return
		}
	}
	for _, c := range n.Children {
		replaceStandIns(c, trees)
	}
}

// writeCase writes the recipe of case n, and those that are registered.
func writeCase(n uint64, r *recipe.Recipe, registered library) (*compile.Text, *sources, error) {
	w := newWriter(n)
	for _, member := range registered {
		if err := w.register(member); err != nil {
			return nil, nil, err
		}
	}
	tree, from, err := w.write(r, nil)
	if err != nil {
		return nil, nil, err
	}
	text := w.text("drawn", tree)
	w.sources.origins[text.File] = from
	return text, w.sources, nil
}

// compile compiles the recipe of a case, and the registered recipes that users start themselves.
func (s *sources) compile(text *compile.Text) (p *plan.Plan, others []*plan.Plan, err error) {
	p, _, _, diags := compile.Source(text.File, text.Data, s.options())
	if p == nil {
		return nil, nil, fmt.Errorf("a drawn recipe does not compile: %v\n%s", diags, text.Data)
	}
	s.roots[p.Key()] = s.origins[text.File].dialect
	others, err = s.plans()
	return p, others, err
}
