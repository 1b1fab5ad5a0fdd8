// SPDX-License-Identifier: Apache-2.0

// Package dialect reads recipes in all the ways in which they may be written.
//
// It decides, by the keys of a text, which dialect it is written in, and has that dialect read it
// into the one model of package recipe. Recipes within a text have dialects of their own. It never
// decides what a recipe means, and nothing that works with the model knows how it was written.
package dialect

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A Dialect is a way of writing recipes.
type Dialect struct {
	// Name is what the field `dialect` of a text says.
	Name string
	// Form is how a text is written.
	Form *form.Form
	// What describes a text of it in a few words.
	What string

	// decode decodes a document into the model. It reports what does not fit to d, and returns
	// what it could read.
	decode func(d *form.Decoder, n *jsonx.Node) *recipe.Recipe
	// encode returns what writes a recipe in the dialect as JSON; written is true if it was read in
	// that dialect. The recipe may change.
	encode func(r *recipe.Recipe, written bool) (any, error)
	// outer has a recipe that was read in the dialect name steps of an outer one, by ids with dashes, as recipes do; nil =
	// the dialect names them like that.
	outer func(r *recipe.Recipe, src *form.Source, ids map[string]bool)
}

var recipes = &Dialect{
	Name: "recipe", Form: recipe.Form,
	What: "a recipe in the recipe dialect, also wrapped in plan_definition",
	decode: func(d *form.Decoder, n *jsonx.Node) *recipe.Recipe {
		r := &recipe.Recipe{}
		d.Decode(n, recipe.Form, r)
		return r
	},
	encode: func(r *recipe.Recipe, _ bool) (any, error) {
		r.Dialect = ""
		return r, nil
	},
}

// marks are the fields at the top of texts that tell their dialect, also of those that this program
// does not read. The first one that a text has counts.
var marks = []struct{ key, dialect string }{{"steps", "recipe"}, {"workflow", "pipeline"}, {"edges", "flow"}, {"nodes", "dag"}}

// All returns the dialects that this program reads, that of the recipes first.
func All() []*Dialect { return slices.Clone(all) }

// Named returns the dialect of that name, or nil when this program does not write it.
func Named(name string) *Dialect { return named(name) }

// Encode writes a recipe that was read in the dialect from in this one: a tree whose recipes within have the
// dialect of recipes. The recipe may change. The error says what this dialect cannot say.
func (l *Dialect) Encode(r *recipe.Recipe, from *Dialect) (*jsonx.Node, error) {
	nameInner(r)
	r.Extends, r.Override, r.TemplateParameters = nil, nil, nil // the recipe has the parts
	text, err := l.encode(r, from == l)
	if err != nil {
		return nil, err
	}
	data, err := jsonx.Marshal(text)
	if err != nil {
		return nil, err
	}
	n, problems := yamlx.Parse(data, jsonx.Limits{Bytes: len(data) + 1, Depth: math.MaxInt32, Tokens: len(data) + 1})
	if len(problems) > 0 {
		return nil, problems[0]
	}
	return n, nil
}

// nameInner gives recipes within a recipe that have no name, which not all dialects allow, the ids of their
// steps. Names are no part of plans.
func nameInner(r *recipe.Recipe) {
	r.EachInline(func(s *recipe.Step, inner *recipe.Recipe) {
		inner.Name = cmp.Or(inner.Name, s.ID, "inner")
		nameInner(inner)
	})
}

// Of returns the dialect of a text, and that of the recipes if it cannot be read or is none of this
// program's.
func Of(file string, src []byte) *Dialect {
	if tree, _ := form.Read(file, src, form.Options{MaxBytes: form.MaxBytes}); tree != nil {
		name, _ := tell(form.Unwrapped(tree))
		if l := named(name); l != nil {
			return l
		}
	}
	return recipes
}

// Parse reads a recipe in JSON or YAML. The recipe is nil when there are diagnostics; they are all
// the problems of the text, in its order. The Source is never nil. What the text extends is not read.
func Parse(file string, src []byte, opt form.Options) (*recipe.Recipe, *recipe.Source, []fault.Diagnostic) {
	r, read, diags := Read(file, src, opt)
	if r != nil {
		replaceCalls(r, read, nil, true)
	} else if recovered := read.Recovered(); recovered != nil { // what could be read is checked, too
		replaceCalls(recovered, read, nil, true)
	}
	return r, read, diags
}

// ReplaceCalls replaces the calls of functions in a recipe of [Read].
func ReplaceCalls(r *recipe.Recipe, src *recipe.Source) { replaceCalls(r, src, nil, true) }

// Read is [Parse] without the replacement of the calls of functions.
func Read(file string, src []byte, opt form.Options) (*recipe.Recipe, *recipe.Source, []fault.Diagnostic) {
	tree, d := form.Read(file, src, opt)
	d.Always(within)
	var r *recipe.Recipe
	if tree != nil {
		d.Document(tree, func(doc *jsonx.Node) {
			if r = decode(d, doc); r == nil {
				return
			}
			if nameOuter(r, d.Source(), nil); r.Name == "" {
				name(r, d, doc, file, opt.Name)
			}
		})
	}
	if diags := d.Diagnostics(); len(diags) > 0 {
		return nil, recipe.NewSource(d.Source(), r), diags
	}
	return r, recipe.NewSource(d.Source(), nil), nil
}

// within decodes a recipe within a text, which has a dialect of its own.
func within(d *form.Decoder, n *jsonx.Node, v any) bool {
	r, ok := v.(*recipe.Recipe)
	if !ok {
		return false
	}
	d.Document(n, func(doc *jsonx.Node) {
		if inner := decode(d, doc); inner != nil {
			*r = *inner
		}
	})
	return true
}

// decode decodes a document in its dialect; nil = this program does not read that.
func decode(d *form.Decoder, n *jsonx.Node) *recipe.Recipe {
	name, by := tell(n)
	if l := named(name); l != nil {
		return l.decode(d, n)
	}
	var read []string
	for _, l := range all {
		read = append(read, strconv.Quote(l.Name))
	}
	d.Refuse(by, "dialect", fmt.Sprintf("%q says that this is the dialect %s, which this program does not read", by.Key, name),
		"write it in the dialect "+strings.Join(read, " or "))
	return nil
}

// tell returns the name of the dialect of a document, and the field that tells it. A text that tells
// none is a recipe, and one that names another one too, which reports it.
func tell(n *jsonx.Node) (dialect string, by *jsonx.Node) {
	if by = n.Child("dialect"); by != nil && by.Kind == jsonx.String {
		for _, m := range marks {
			if m.dialect == by.Text {
				return by.Text, by
			}
		}
		return recipes.Name, by
	}
	for _, m := range marks {
		if by = n.Child(m.key); by != nil {
			return m.dialect, by
		}
	}
	return recipes.Name, nil
}

// named returns the dialect of that name, or nil when this program does not read it.
func named(name string) *Dialect {
	for _, l := range all {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// name gives a recipe that has no name the one that its reader has for it, or that of its file without
// its extensions. A text that is in no file needs one. The dialect of the recipes has reported that
// already.
func name(r *recipe.Recipe, d *form.Decoder, doc *jsonx.Node, file, known string) {
	if dialect, _ := tell(doc); dialect == recipes.Name {
		return
	}
	if known != "" {
		r.Name = known
		return
	}
	base := path.Base(file)
	if stem, _, ok := strings.Cut(base, "."); ok && stem != "" {
		r.Name = stem
		return
	}
	d.Add(doc.Pos, "missing-field", `the text needs the field "name", because it is not in a file that gives it one`, `for example "summarize"`)
}
