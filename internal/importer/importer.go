// SPDX-License-Identifier: Apache-2.0

// Package importer turns definitions of other workflow systems into recipes.
//
// It decides, for the Amazon States Language, Argo Workflows and the Serverless Workflow DSL, which steps a
// definition becomes, how its expressions are written in CEL, and what cannot be had. Every name in a
// definition is accounted for: it is mapped, dropped with a note, or refused. A definition of which a part is
// refused becomes no recipe, so a recipe never quietly does something else. The package never decides
// whether a recipe is valid (package compile does), knows no actions, and does no I/O.
package importer

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A Format is a language of definitions.
type Format struct {
	Name  string // as in --from
	Title string
	// marks are names at the top of a definition that tell the language; all of them are there.
	marks  []string
	read   func(im *importing, top value) *recipe.Recipe // nil = this program does not read it
	refuse string                                        // the name that says why not
}

var formats = []*Format{
	{Name: "asl", Title: "Amazon States Language", marks: []string{"States", "StartAt"}, read: (*importing).asl},
	{Name: "argo", Title: "Argo Workflows", marks: []string{"apiVersion", "kind", "spec"}, read: (*importing).argo},
	{Name: "serverless", Title: "Serverless Workflow DSL 1.0", marks: []string{"document", "do"}, read: (*importing).serverless},
	{Name: "conductor", Title: "Conductor", marks: []string{"tasks", "schemaVersion"}, refuse: "tasks"},
	{Name: "kestra", Title: "Kestra", marks: []string{"tasks", "namespace"}, refuse: "tasks"},
}

// Names returns the names of the languages that this program reads.
func Names() (names []string) {
	for _, f := range formats {
		if f.read != nil {
			names = append(names, f.Name)
		}
	}
	return names
}

// Options say how a definition is imported.
type Options struct {
	From string // the name of its language; "" = its names tell it
	// Actions maps what a definition calls to the names of actions. An unknown one has the name that the
	// definition has for it, in the letters of names of actions.
	Actions map[string]string
	// MaxBytes is the size of the text. Default [form.DefaultBytes].
	MaxBytes int
}

// An Action is what a definition calls.
type Action struct {
	Source string `json:"source"` // as the definition names it
	Name   string `json:"name"`   // as the recipe does
	Uses   int    `json:"uses"`   // steps that call it
}

// A Result is what a definition became.
type Result struct {
	Format  string   `json:"format"`
	Name    string   `json:"name"` // of the recipe
	Text    []byte   `json:"-"`    // the recipe, YAML; nil if something was refused
	Notes   []Note   `json:"notes"`
	Keys    Keys     `json:"keys"`
	Actions []Action `json:"actions"`
}

// importing is the import of one definition.
type importing struct {
	w       *writer
	src     *source
	name    string
	opt     Options
	actions []Action
}

// Import reads a definition. The error is about a text that cannot be read at all, or whose language is not known;
// what is wrong with the definition is in the notes.
func Import(file string, src []byte, opt Options) (*Result, error) {
	if len(src) > 0 && looksLikeJSON(src) {
		src = withoutComments(src)
	}
	tree, d := form.Read(strings.TrimSuffix(file, ".json"), src, form.Options{MaxBytes: opt.MaxBytes})
	if problems := d.Diagnostics(); len(problems) > 0 || tree == nil {
		for i := range problems {
			problems[i].Pos.File = file
		}
		return nil, fault.Invalid(fault.RecipeInvalid, problems)
	}
	f, err := formatOf(file, tree, opt.From)
	if err != nil {
		return nil, err
	}
	im := &importing{w: newWriter(), src: newSource(tree), name: nameOf(file), opt: opt}
	top := value{tree, im.src}
	res := &Result{Format: f.Name, Name: im.name, Notes: []Note{}, Actions: []Action{}}
	var r *recipe.Recipe
	if f.read == nil {
		for _, c := range tree.Children {
			im.src.mark(c, Refused)
		}
		top.get(f.refuse).refuse("this is a definition of %s, which this program does not read: write it as a recipe, or import one in the languages %s", f.Title, strings.Join(Names(), ", "))
	} else if r = f.read(im, top); r != nil {
		res.Name = r.Name
	}
	if r != nil && len(r.Steps) == 0 && !im.src.refused() {
		top.refuse("the definition has no steps")
	}
	res.Keys = im.src.finish()
	res.Notes = append(res.Notes, im.src.notes...)
	res.Actions = append(res.Actions, im.actions...)
	if r == nil || im.src.refused() || im.src.full > 0 {
		return res, nil
	}
	res.Text, err = encode(r)
	return res, err
}

// encode writes a recipe as YAML.
func encode(r *recipe.Recipe) ([]byte, error) {
	to := dialect.Named("recipe")
	tree, err := to.Encode(r, to)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, err, "the recipe cannot be written")
	}
	text := yamlx.Encode(tree)
	out, problems := yamlx.Format(text, jsonx.Limits{Bytes: len(text) + 1, Depth: maxDepth, Tokens: len(text) + 1}, to.Form.KeyOrder())
	if len(problems) > 0 {
		return nil, fault.Wrap(fault.InternalError, problems[0], "the recipe cannot be written")
	}
	return out, nil
}

// maxDepth is more than the deepest recipe that a definition becomes.
const maxDepth = 1000

// formatOf returns the language of a definition.
func formatOf(file string, tree *jsonx.Node, from string) (*Format, error) {
	if from != "" {
		for _, f := range formats {
			if f.Name == from {
				return f, nil
			}
		}
		return nil, fault.New(fault.Usage, "--from %q: want %s", from, strings.Join(Names(), ", "))
	}
	for _, f := range formats {
		if !slices.ContainsFunc(f.marks, func(m string) bool { return tree.Child(m) == nil }) {
			return f, nil
		}
	}
	if tree.Child("steps") != nil || tree.Child("nodes") != nil {
		return nil, fault.New(fault.RecipeInvalid, "%s has the form of a recipe of Roux: there is nothing to import", file)
	}
	return nil, fault.New(fault.RecipeInvalid, "%s: its names do not tell what language it is in; say --from with %s", file, strings.Join(Names(), ", "))
}

var notName = regexp.MustCompile(`[^\pL\pN._-]+`)

// nameOf returns the name of a recipe whose definition has none: that of its file without its extensions.
func nameOf(file string) string {
	stem, _, _ := strings.Cut(path.Base(strings.ReplaceAll(file, `\`, "/")), ".")
	if stem = strings.Trim(notName.ReplaceAllString(stem, "-"), "-"); stem == "" || stem == "-" {
		return "imported"
	}
	return stem
}

var notAction = regexp.MustCompile(`[^a-z0-9]+`)

// action returns the action that a step calls for what the definition names, under the name that the user has said for it or a
// name that is made of it.
func (im *importing) action(at value, source, name string) *recipe.Action {
	as, ok := im.opt.Actions[source]
	if !ok {
		as, ok = im.opt.Actions[name]
	}
	if !ok {
		as = strings.Trim(notAction.ReplaceAllString(strings.ToLower(name), "-"), "-")
		if as == "" || as[0] >= '0' && as[0] <= '9' {
			as = "action-" + as
		}
		as = strings.Trim(as[:min(len(as), 64)], "-")
	}
	for i := range im.actions {
		if im.actions[i].Source == source && im.actions[i].Name == as {
			im.actions[i].Uses++
			return &recipe.Action{Name: as}
		}
	}
	im.actions = append(im.actions, Action{Source: source, Name: as, Uses: 1})
	return &recipe.Action{Name: as}
}

func looksLikeJSON(src []byte) bool {
	text := bytes.TrimLeft(src, "\ufeff \t\r\n")
	return bytes.HasPrefix(text, []byte("{")) || bytes.HasPrefix(text, []byte("//")) || bytes.HasPrefix(text, []byte("/*"))
}

// withoutComments blanks the comments of JSON, which definitions of the States Language may have. Nothing moves, so all
// places stay right. That commas may end lists, the reader of YAML knows.
func withoutComments(src []byte) []byte {
	out := bytes.Clone(src)
	quote := byte(0)
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote || c == '\n' {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '/' && i+1 < len(src) && (src[i+1] == '/' || src[i+1] == '*'):
			ending, extra := []byte("\n"), 0
			if src[i+1] == '*' {
				ending, extra = []byte("*/"), 2
			}
			n := bytes.Index(src[i+2:], ending)
			if n < 0 {
				n = len(src) - i - 2
				extra = 0
			}
			last := i + 2 + n + extra
			for ; i < last; i++ {
				if out[i] != '\n' && out[i] != '\r' {
					out[i] = ' '
				}
			}
			i--
		}
	}
	return out
}

// String is the note for people.
func (n Note) String() string {
	at := ""
	if n.Pointer != "" {
		at = " " + syntax.Short(n.Pointer)
	}
	return fmt.Sprintf("%d:%d: %s%s: %s", n.Line, n.Col, n.Kind, at, n.Msg)
}
