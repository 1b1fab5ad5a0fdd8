// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/texts"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A symbolKind is what a name is that an author has chosen.
type symbolKind uint8

const (
	aStep symbolKind = iota
	aBinding
	aLoopVariable
)

// A symbol is a name that an author has chosen.
type symbol struct {
	kind symbolKind
	name string
	doc  *recipeScope
	by   []*recipe.Step // the step of that id, those that set the binding, or the loop
}

// An occurrence is a place where a symbol is named.
type occurrence struct {
	sym      *symbol
	from, to int  // in bytes
	def      bool // it is named for the first time here: an id, an outputBinding
	code     bool // it is in an expression or a template
	// in is the text that has the expression; nil = none has it as it is.
	in *jsonx.Node
}

// A recipeScope is one recipe of a text: the document, or one within it. Ids are its own.
type recipeScope struct {
	r       *recipe.Recipe
	pointer string // of its document in the text
	root    *frame
	steps   map[string]*symbol
	frames  map[string]*frame // by the pointer of a step: where its names are looked for
	within  map[string]*recipe.Step
}

// A frame has the names of bindings: the recipe, or the body of a loop.
type frame struct {
	outer *frame
	names map[string]*symbol
}

// find returns the symbol that a name means, as package compile resolves it: bindings and loop variables
// from the inside outward, then steps.
func (f *frame) find(doc *recipeScope, name string) *symbol {
	if slices.Contains(reserved, name) {
		return nil
	}
	for ; f != nil; f = f.outer {
		if s := f.names[name]; s != nil {
			return s
		}
	}
	return doc.steps[name]
}

// reserved are names that nothing hides.
var reserved = []string{"_context", "fileHashes", "files", "input", "inputs", "parameters", "workflow", "steps"}

// A reading is what was read of a version of a document: its recipes, and where their names are.
type reading struct {
	d       *document
	src     *form.Source
	tree    *jsonx.Node // nil = nothing could be read
	cache   *expressions.Cache
	recipes []*recipeScope
	occurs  []occurrence // in the order of the text
	lost    map[*symbol]bool
	seen    map[int]bool // where they begin; nil = the places of names are not wanted
}

// reading reads a document, once.
func (s *server) reading(d *document) *reading {
	d.read.Do(func() { d.texts = read(d, s.cache) })
	return d.texts
}

// read reads a document and finds its names and all places where they are.
func read(d *document, cache *expressions.Cache) *reading {
	x := &reading{d: d, cache: cache, lost: map[*symbol]bool{}, seen: map[int]bool{}}
	x.names()
	for _, doc := range x.recipes {
		x.uses(doc)
	}
	if len(x.recipes) > 0 {
		x.plainIDs()
	}
	slices.SortFunc(x.occurs, func(a, b occurrence) int { return cmp.Compare(a.from, b.from) })
	return x
}

// names reads the document and finds its names.
func (x *reading) names() {
	r, src, _ := dialect.Read(filepath.ToSlash(x.d.file), []byte(x.d.text), x.d.reads())
	if r == nil {
		r = src.Recovered()
	}
	if x.src, x.tree = src.Source, src.Tree(); r != nil && x.tree != nil {
		x.recipe(r)
	}
}

// recipe notes the names of a recipe and those within it.
func (x *reading) recipe(r *recipe.Recipe) {
	doc := &recipeScope{r: r, pointer: r.Ptr, steps: map[string]*symbol{}, frames: map[string]*frame{}, within: map[string]*recipe.Step{}}
	x.recipes = append(x.recipes, doc)
	doc.root = &frame{names: map[string]*symbol{}}
	x.declare(doc, doc.root, r.Steps)
	r.EachInline(func(_ *recipe.Step, inner *recipe.Recipe) { x.recipe(inner) })
}

// uses notes where a recipe uses its names.
func (x *reading) uses(doc *recipeScope) {
	texts.Code(doc.r, func(t *texts.Text) {
		f := doc.root
		switch {
		case t.Inside:
			f = doc.frames[t.Step.Ptr+"/loop/steps"]
		case t.Step != nil:
			f = doc.frames[t.Step.Ptr]
		}
		x.code(doc, f, t)
	})
	doc.r.Each(func(s *recipe.Step) { x.dependencies(doc, s) })
}

// declare notes the ids and bindings of steps, which may be named before they are set.
func (x *reading) declare(doc *recipeScope, f *frame, steps []*recipe.Step) {
	for _, s := range steps {
		if s == nil {
			continue
		}
		doc.frames[s.Ptr], doc.within[s.Ptr] = f, s
		if s.ID != "" {
			sym := doc.steps[s.ID]
			if sym == nil {
				sym = &symbol{kind: aStep, name: s.ID, doc: doc}
				doc.steps[s.ID] = sym
			}
			sym.by = append(sym.by, s)
			x.name(sym, s.Ptr+"/id", true)
		}
		x.bind(doc, f, s, s.OutputBinding, "/outputBinding")
		if s.Transform != nil {
			x.bind(doc, f, s, s.Transform.OutputBinding, "/transform/outputBinding")
		}
		for _, inner := range s.Scopes() {
			x.declare(doc, f, inner)
		}
		if l := s.Loop; l != nil {
			body := &frame{outer: f, names: map[string]*symbol{}}
			if l.Over != "" || l.As != "" {
				x.variable(doc, body, s, l.As, "item", "/loop/as")
			}
			x.variable(doc, body, s, l.Index, "index", "/loop/index")
			if a := l.Accumulate; a != nil && a.As != "" {
				x.variable(doc, body, s, a.As, "", "/loop/accumulate/as")
			}
			x.declare(doc, body, l.Steps)
			doc.frames[s.Ptr+"/loop/steps"] = body
		}
	}
}

func (x *reading) bind(doc *recipeScope, f *frame, s *recipe.Step, name, at string) {
	if name == "" {
		return
	}
	sym := f.names[name]
	if sym == nil || sym.kind != aBinding {
		sym = &symbol{kind: aBinding, name: name, doc: doc}
		f.names[name] = sym
	}
	sym.by = append(sym.by, s)
	x.name(sym, s.Ptr+at, true)
}

func (x *reading) variable(doc *recipeScope, body *frame, s *recipe.Step, name, usual, at string) {
	sym := &symbol{kind: aLoopVariable, name: cmp.Or(name, usual), doc: doc, by: []*recipe.Step{s}}
	body.names[sym.name] = sym
	if name != "" {
		x.name(sym, s.Ptr+at, true)
	}
}

// dependencies notes the steps that a step waits for.
func (x *reading) dependencies(doc *recipeScope, s *recipe.Step) {
	if s.DependsOn == nil {
		return
	}
	for i, id := range *s.DependsOn {
		if sym := doc.steps[id]; sym != nil {
			x.name(sym, s.Ptr+"/dependsOn/"+strconv.Itoa(i), false)
		}
	}
}

// code notes what an expression or a template names.
func (x *reading) code(doc *recipeScope, f *frame, t *texts.Text) {
	src, lead, template := t.Source, 0, t.Kind == texts.Template
	if !template {
		cut := strings.TrimLeft(src, " \t\r\n")
		lead = utf8.RuneCountInString(src) - utf8.RuneCountInString(cut)
		src = strings.TrimSpace(src)
	}
	for _, u := range usesIn(x.cache, src, template) {
		sym := doc.steps[u.name]
		if !u.step {
			sym = f.find(doc, u.name)
		}
		if sym == nil {
			continue
		}
		u.at, u.start = u.at+lead, u.start+lead
		x.coded(sym, t.Pointer, src, u)
	}
}

// coded notes an occurrence in an expression.
func (x *reading) coded(sym *symbol, pointer, src string, u use) {
	n := x.tree.Find(x.src.Pointer(pointer))
	if n != nil && n.Text == sym.name && src != sym.name {
		x.plain(sym, x.src.Pos(pointer)) // the model has an expression where the text has an id, such as in an edge
		return
	}
	from, to := span(x.d, x.src, x.src.PosIn(pointer, u.at, u.n))
	if x.d.text[from:to] == sym.name {
		x.add(occurrence{sym: sym, from: from, to: to, code: true, in: n})
		return
	}
	// The model has the reference in another way than the text has.
	from, to = span(x.d, x.src, x.src.PosIn(pointer, u.start, u.all))
	if at := wordIn(x.d.text[from:to], sym.name); at >= 0 && to-from <= u.all+len("steps['']") {
		x.add(occurrence{sym: sym, from: from + at, to: from + at + len(sym.name), code: true, in: n})
		return
	}
	x.plain(sym, x.src.Pos(pointer))
}

// name notes an occurrence that is a whole value.
func (x *reading) name(sym *symbol, pointer string, def bool) {
	if x.seen == nil {
		return
	}
	pos := x.src.PosIn(pointer, 0, utf8.RuneCountInString(sym.name))
	from, to := span(x.d, x.src, pos)
	switch text := x.d.text[from:to]; {
	case text == sym.name:
		x.add(occurrence{sym: sym, from: from, to: to, def: def})
		return
	case strings.Trim(text, `"'`) == sym.name:
		at := from + strings.Index(text, sym.name)
		x.add(occurrence{sym: sym, from: at, to: at + len(sym.name), def: def})
		return
	}
	from, to = span(x.d, x.src, x.src.KeyPos(pointer))
	if strings.Trim(x.d.text[from:to], `"'`) == sym.name {
		at := from + strings.Index(x.d.text[from:to], sym.name)
		x.add(occurrence{sym: sym, from: at, to: at + len(sym.name), def: def})
		return
	}
	x.lost[sym] = true
}

// plain notes an occurrence in a value that the model says in other words, such as an edge.
func (x *reading) plain(sym *symbol, pos fault.Pos) {
	from, to := span(x.d, x.src, pos)
	if text := x.d.text[from:to]; strings.Trim(text, `"'`) == sym.name {
		at := from + strings.Index(text, sym.name)
		x.add(occurrence{sym: sym, from: at, to: at + len(sym.name)})
		return
	}
	x.lost[sym] = true
}

func (x *reading) add(o occurrence) {
	if !x.seen[o.from] {
		x.seen[o.from] = true
		x.occurs = append(x.occurs, o)
	}
}

// plainIDs notes the ids in fields of which the forms say that they hold ids, such as the ends of edges.
func (x *reading) plainIDs() {
	inner := func(doc *jsonx.Node) *form.Form {
		l, _ := dialect.Tell(doc)
		return l.Form
	}
	doc, at := form.Unwrapped(x.tree), ""
	if doc != x.tree {
		at = x.recipes[0].pointer
	}
	inner(doc).Walk(doc, at, inner, func(n *jsonx.Node, pointer string, spot form.Spot) bool {
		if n.Kind != jsonx.String || spot.Pattern() != recipe.ID {
			return true
		}
		scope := x.scopeOf(pointer)
		if sym := scope.steps[n.Text]; sym != nil && pointer != scope.pointer+"/id" {
			pos := x.src.Pos(pointer)
			pos.Line, pos.Col, pos.Len = int(n.Pos.Line), int(n.Pos.Col), int(n.Pos.Len)
			x.plain(sym, pos)
		}
		return true
	})
}

// scopeOf returns the recipe that a place in the text belongs to.
func (x *reading) scopeOf(pointer string) *recipeScope {
	best := x.recipes[0]
	for _, r := range x.recipes[1:] {
		at := x.src.Pointer(r.pointer)
		if (pointer == at || strings.HasPrefix(pointer, at+"/")) && len(at) >= len(best.pointer) {
			best = r
		}
	}
	return best
}

// at returns the occurrence at an offset; nil = there is none.
func (x *reading) at(offset int) *occurrence {
	for i := range x.occurs {
		if o := &x.occurs[i]; o.from <= offset && offset <= o.to {
			return o
		}
	}
	return nil
}
