// SPDX-License-Identifier: Apache-2.0

// Package dialect reads recipes in all the ways in which they may be written.
//
// It decides, by the keys of a text, which dialect it is written in, and has that dialect read it
// into the one model of package recipe. Recipes within a text have dialects of their own. It never
// decides what a recipe means, and nothing that works with the model knows how it was written.
package dialect

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
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
}

// Schema returns the JSON Schema of the dialect, for editors. Recipes within a text may have any
// dialect that this program reads.
func (l *Dialect) Schema() []byte {
	var choices []form.Choice
	for _, c := range all {
		choices = append(choices, form.Choice{Name: c.Name, Form: c.Form, When: c.says()})
	}
	return l.Form.Schema("Roux "+l.Name, "A text of Roux: "+l.What+".", choices)
}

type m = map[string]any

// says is the schema of documents that are in this dialect, as [of] finds out; nil = all others are.
func (l *Dialect) says() m {
	if l == recipes {
		return nil
	}
	has := func(key string) any { return m{"required": []string{key}} }
	not := []any{m{"required": []string{"dialect"}, "properties": m{"dialect": m{"type": "string"}}}, has("steps")}
	for _, key := range keys {
		if key[1] == l.Name {
			return m{"anyOf": []any{
				m{"required": []string{"dialect"}, "properties": m{"dialect": m{"const": l.Name}}},
				m{"required": []string{key[0]}, "not": m{"anyOf": not}},
			}}
		}
		not = append(not, has(key[0]))
	}
	panic("dialect: " + l.Name + " has no key")
}

var recipes = &Dialect{
	Name: "recipe", Form: recipe.Form,
	What: "a recipe in the recipe dialect, also wrapped in plan_definition",
	decode: func(d *form.Decoder, n *jsonx.Node) *recipe.Recipe {
		r := &recipe.Recipe{}
		d.Decode(n, recipe.Form, r)
		return r
	},
}

// All returns the dialects that this program reads. The first of them is that of a text that has
// the keys of none.
func All() []*Dialect { return slices.Clone(all) }

// Parse reads a recipe in JSON or YAML. The recipe is nil when there are diagnostics; they are all
// the problems of the text, in its order. The Source is never nil.
func Parse(file string, src []byte, opt form.Options) (*recipe.Recipe, *recipe.Source, []fault.Diagnostic) {
	tree, d := form.Read(file, src, opt)
	d.Always(within)
	var r *recipe.Recipe
	if tree != nil {
		if r = decode(d, tree); r != nil && r.Name == "" && of(tree) != recipes {
			r.Name = nameOf(file)
		}
	}
	if diags := d.Diagnostics(); len(diags) > 0 {
		return nil, recipe.NewSource(d.Source(), r), diags
	}
	return r, recipe.NewSource(d.Source(), nil), nil
}

// decode decodes a document in its dialect.
func decode(d *form.Decoder, n *jsonx.Node) *recipe.Recipe {
	l := of(n)
	if l == nil {
		unknown(d, n)
		return nil
	}
	return l.decode(d, n)
}

// within decodes a recipe within a text, which has a dialect of its own.
func within(d *form.Decoder, n *jsonx.Node, v any) bool {
	r, ok := v.(*recipe.Recipe)
	if !ok {
		return false
	}
	if inner := decode(d, n); inner != nil {
		*r = *inner
	}
	return true
}

// of returns the dialect of a document: what it says, or what its keys say. It returns nil when
// that is a dialect which this program does not read.
func of(n *jsonx.Node) *Dialect {
	if w := n.Child("plan_definition"); w != nil {
		n = w
	}
	if tell := n.Child("dialect"); tell != nil && tell.Kind == jsonx.String {
		if slices.Contains(names, tell.Text) {
			return named(tell.Text)
		}
		return recipes // which reports it
	}
	if n.Child("steps") == nil {
		for _, key := range keys {
			if n.Child(key[0]) != nil {
				return named(key[1])
			}
		}
	}
	return recipes
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

// Of returns the dialect of a text as far as it can be read, and the dialect of the recipes
// otherwise.
func Of(file string, src []byte) *Dialect {
	if tree, _ := form.Read(file, src, form.Options{MaxBytes: form.MaxBytes}); tree != nil {
		if l := of(tree); l != nil {
			return l
		}
	}
	return recipes
}

// names are those of all dialects, also of those that this program does not read.
var names = []string{"recipe", "pipeline", "flow", "dag"}

// keys are fields at the top of texts, and the dialects that have them. The first one counts.
var keys = [][2]string{{"workflow", "pipeline"}, {"edges", "flow"}, {"nodes", "dag"}}

// unknown reports that a text is in a dialect which this program does not read.
func unknown(d *form.Decoder, n *jsonx.Node) {
	if w := n.Child("plan_definition"); w != nil {
		n = w
	}
	at, name := n.Child("dialect"), ""
	if at != nil {
		name = at.Text
	}
	for _, key := range keys {
		if c := n.Child(key[0]); at == nil && c != nil {
			at, name = c, key[1]
		}
	}
	var read []string
	for _, l := range all {
		read = append(read, strconv.Quote(l.Name))
	}
	d.Refuse(at, fault.NotAvailable, "dialect", fmt.Sprintf("%q is a key of the %s dialect, which this program does not read", at.Key, name),
		"write it in the dialect "+strings.Join(read, " or "))
}

// nameOf is the name of a recipe whose text has none: that of its file without its extensions.
func nameOf(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return name
}
