// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
)

// definition answers textDocument/definition.
func (s *server) definition(d *document, p *documentParams) (any, error) {
	x := s.reading(d)
	list := []location{}
	if o := x.at(d.offset(p.Position)); o != nil {
		for _, other := range x.occurs {
			if other.sym == o.sym && other.def {
				list = append(list, location{d.uri, d.rangeOf(other.from, other.to)})
			}
		}
		if len(list) == 0 {
			list = append(list, s.inheritedStep(d, d.offset(p.Position))...)
		}
		return list, nil
	}
	if to := s.childFile(d, d.offset(p.Position)); to != "" {
		return append(list, location{URI: uriOf(to, s.cfg.Dir)}), nil
	}
	return append(list, s.inheritedStep(d, d.offset(p.Position))...), nil
}

// childFile returns the file of the recipe that a step names, or that the recipe extends, at an offset, or "".
func (s *server) childFile(d *document, offset int) string {
	recipes := s.cfg.Options(d.file).Recipes
	c := s.cursorAt(d, offset)
	if c == nil || c.key || c.scope == nil || recipes == nil {
		return ""
	}
	field := c.field()
	if entry := entryOfExtends.FindStringSubmatch(field); c.step == nil && entry != nil {
		if field = "/recipe/file"; entry[1] == "/ref" {
			field = "/recipe/ref"
		}
	} else if c.step == nil {
		return ""
	}
	switch field {
	case "/recipe/file":
		if t, err := recipes.File(d.file, c.text); err == nil {
			return t.File
		}
	case "/recipe/ref":
		name, version, _ := strings.Cut(c.text, "@")
		if t, err := recipes.Find(name, version); err == nil {
			return t.File
		}
	}
	return ""
}

// references answers textDocument/references.
func (s *server) references(d *document, p *documentParams) (any, error) {
	x := s.reading(d)
	list := []location{}
	if o := x.at(d.offset(p.Position)); o != nil {
		for _, other := range x.occurs {
			if other.sym == o.sym && (p.Context.IncludeDeclaration || !other.def) {
				list = append(list, location{d.uri, d.rangeOf(other.from, other.to)})
			}
		}
	}
	return list, nil
}

// prepareRename answers textDocument/prepareRename.
func (s *server) prepareRename(d *document, p *documentParams) (any, error) {
	o, err := s.renamed(d, p)
	if err != nil {
		return nil, err
	}
	return prepareRename{d.rangeOf(o.from, o.to), o.sym.name}, nil
}

// renamed returns the occurrence at a position, of a name that can be changed.
func (s *server) renamed(d *document, p *documentParams) (*occurrence, error) {
	x := s.reading(d)
	o := x.at(d.offset(p.Position))
	switch {
	case o == nil:
		return nil, failed(codeRequestFailed, "there is no id, binding or loop variable here that has its name in this text")
	case !slices.ContainsFunc(x.occurs, func(other occurrence) bool { return other.sym == o.sym && other.def }):
		return nil, failed(codeRequestFailed, "%q is the usual name of the variable of a loop: give the loop a name for it with `as` or `index`", o.sym.name)
	case o.sym.kind == aStep && len(o.sym.by) > 1:
		return nil, failed(codeRequestFailed, "%d steps have the id %q, and nobody knows which of them is meant: change one of them first", len(o.sym.by), o.sym.name)
	case x.lost[o.sym]:
		return nil, failed(codeRequestFailed, "%q is also named where its place is not known, such as in a text over several lines with escapes", o.sym.name)
	}
	return o, nil
}

var bindingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
var idName = regexp.MustCompile(recipe.ID.Expr)

// rename answers textDocument/rename. It refuses a name with which the text would mean something else: the
// changed text is read, and every name in it must mean what it meant.
func (s *server) rename(d *document, p *documentParams) (any, error) {
	o, err := s.renamed(d, p)
	if err != nil {
		return nil, err
	}
	sym, name := o.sym, p.NewName
	switch {
	case sym.kind == aStep && !idName.MatchString(name):
		return nil, failed(codeRequestFailed, "%.80q is no id: want %s", name, recipe.ID.Want)
	case sym.kind != aStep && !bindingName.MatchString(name):
		return nil, failed(codeRequestFailed, "%.80q is no name of a binding: want up to 64 letters, digits or _, beginning with a letter or _", name)
	case sym.kind == aStep && sym.doc.steps[name] != nil && name != sym.name:
		return nil, failed(codeRequestFailed, "another step has the id %q", name)
	case sym.kind != aStep && slices.Contains(reserved, name):
		return nil, failed(codeRequestFailed, "%q is a name that every expression has", name)
	}
	x := s.reading(d)
	var changes []change
	for _, way := range []spelling{{}, {whole: true}, {quoted: true}, {whole: true, quoted: true}} {
		changes = x.changes(sym, name, way)
		after := d.like(d.file, d.version, applied(d.text, changes))
		after.known = true
		if err = s.sameNames(x, after, sym, name, changes); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	edits := []textEdit{}
	for _, c := range changes {
		edits = append(edits, textEdit{d.rangeOf(c.from, c.to), c.is})
	}
	return workspaceEdit{map[string][]textEdit{d.uri: edits}}, nil
}

// A spelling is how names are written where one word is not enough.
type spelling struct {
	whole  bool // a step that is named by its id alone gets steps before it, because something else has its name
	quoted bool // a text without quotation marks gets them, because it would end at a bracket
}

// A change replaces a part of a text.
type change struct {
	from, to int
	is       string
	name     int // where the new name is in is; -1 = it is not
}

func applied(text string, changes []change) string {
	var b strings.Builder
	at := 0
	for _, c := range changes {
		b.WriteString(text[at:c.from] + c.is)
		at = c.to
	}
	return b.String() + text[at:]
}

// changes returns how a text changes when a symbol gets another name.
func (x *reading) changes(sym *symbol, name string, way spelling) (list []change) {
	wrapped := map[*jsonx.Node]bool{}
	for _, o := range x.occurs {
		if o.sym != sym {
			continue
		}
		c := change{o.from, o.to, name, 0}
		if sym.kind == aStep && o.code {
			c = x.coding(o, name, way.whole)
		}
		if n := o.in; way.quoted && n != nil && n.Style == jsonx.Plain && strings.Contains(c.is, "[") && !wrapped[n] && !strings.ContainsAny(n.Text, "\"\\") {
			wrapped[n] = true
			from, to := span(x.d, x.src, fault.Pos{Line: int(n.Pos.Line), Col: int(n.Pos.Col), Len: int(n.Pos.Len)})
			list = append(list, change{from, from, `"`, -1}, change{to, to, `"`, -1})
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(a.from, b.from) })
	return list
}

// coding returns how an occurrence in an expression changes. An id that is no name is an index.
func (x *reading) coding(o occurrence, name string, whole bool) change {
	before, quote := x.d.text[:o.from], x.quote(o.from)
	indexed := "[" + quote + name + quote + "]"
	switch {
	case strings.HasSuffix(before, `'`) || strings.HasSuffix(before, `"`): // it is one
	case isName(name) || !isName(o.sym.name): // where an id that is no name stands for itself, another one does, too
		if whole && !strings.HasSuffix(before, ".") && !strings.HasSuffix(before, "?") {
			return change{o.from, o.to, "steps." + name, len("steps.")}
		}
	case strings.HasSuffix(before, ".?"):
		return change{o.from - 2, o.to, "[?" + indexed[1:], 2 + len(quote)}
	case strings.HasSuffix(before, "."):
		return change{o.from - 1, o.to, indexed, 1 + len(quote)}
	default:
		return change{o.from, o.to, "steps" + indexed, len("steps[") + len(quote)}
	}
	return change{o.from, o.to, name, 0}
}

// quote returns the quotation mark that a text in an expression has here: not the one around the expression.
func (x *reading) quote(at int) string {
	line := x.d.text[strings.LastIndexByte(x.d.text[:at], '\n')+1 : at]
	if strings.Count(line, "'")%2 == 1 && strings.Count(line, `"`)%2 == 0 {
		return `"`
	}
	return "'"
}

// sameNames compares the names in a text before and after a change of one of them: all others must be what
// they were, and there may be no new errors.
func (s *server) sameNames(x *reading, after *document, sym *symbol, name string, changes []change) error {
	y := s.reading(after)
	if len(x.occurs) != len(y.occurs) || len(x.recipes) != len(y.recipes) {
		return failed(codeRequestFailed, "with the name %q the text would mean something else; choose another one", name)
	}
	to, from := map[*symbol]*symbol{}, map[*symbol]*symbol{}
	shift, next := 0, 0
	for i := range x.occurs {
		was, is := &x.occurs[i], &y.occurs[i]
		place := -1
		for ; next < len(changes) && changes[next].from <= was.from; next++ {
			c := changes[next]
			if c.name >= 0 {
				place = c.from + shift + c.name
			}
			shift += len(c.is) - (c.to - c.from)
		}
		if was.sym != sym {
			place = was.from + shift
		}
		if to[was.sym] == nil && from[is.sym] == nil {
			to[was.sym], from[is.sym] = is.sym, was.sym
		}
		if to[was.sym] != is.sym || from[is.sym] != was.sym || is.from != place || is.sym.kind != was.sym.kind {
			return failed(codeRequestFailed, "with the name %q, line %d would mean something else; choose another one", name, x.d.position(was.from).Line+1)
		}
	}
	had := map[string]int{}
	old, _ := s.validate(x.d)
	for _, d := range old {
		had[d.Rule]++
	}
	now, _ := s.validate(after)
	for _, d := range now {
		if had[d.Rule]--; had[d.Rule] < 0 && d.Severity == fault.SeverityError {
			return failed(codeRequestFailed, "with the name %q the text would be wrong: %s", name, d.Msg)
		}
	}
	return nil
}

// The kinds of symbols in an outline.
const (
	outlineModule   = 2
	outlineFunction = 12
	outlineVariable = 13
	outlineObject   = 19
	outlineEvent    = 24
	outlineOperator = 25
)

// symbols answers textDocument/documentSymbol: the steps, with those within them.
func (s *server) symbols(d *document, _ *documentParams) (any, error) {
	x := s.reading(d)
	list := []documentSymbol{}
	if len(x.recipes) == 0 {
		return list, nil
	}
	return append(list, x.outline(s, x.recipes[0].r.Steps)...), nil
}

func (x *reading) outline(s *server, steps []*recipe.Step) (list []documentSymbol) {
	for _, st := range steps {
		if st == nil {
			continue
		}
		from, _ := span(x.d, x.src, x.src.Pos(st.Ptr))
		to := from
		if n := x.tree.Find(x.src.Pointer(st.Ptr)); n != nil {
			to = x.end(n, from)
		}
		name := documentSymbol{Name: cmp.Or(st.ID, st.Name, "step"), Detail: s.kindOf(&symbol{by: []*recipe.Step{st}}), Kind: outlineOf(st)}
		name.Range = x.d.rangeOf(from, to)
		name.SelectionRange = x.d.rangeOf(from, from)
		if a, b := span(x.d, x.src, x.src.PosIn(st.Ptr+"/id", 0, len(st.ID))); st.ID != "" && a >= from && b <= to {
			name.SelectionRange = x.d.rangeOf(a, b)
		}
		for _, inner := range st.Scopes() {
			name.Children = append(name.Children, x.outline(s, inner)...)
		}
		if st.Loop != nil {
			name.Children = append(name.Children, x.outline(s, st.Loop.Steps)...)
		}
		if st.Recipe != nil && st.Recipe.Inline != nil {
			name.Children = append(name.Children, x.outline(s, st.Recipe.Inline.Steps)...)
		}
		list = append(list, name)
	}
	return list
}

func outlineOf(s *recipe.Step) int {
	switch {
	case s.Condition != nil, s.Parallel != nil, s.Loop != nil:
		return outlineOperator
	case s.Transform != nil:
		return outlineVariable
	case s.Wait != nil, s.Fail != nil:
		return outlineEvent
	case s.Recipe != nil:
		return outlineModule
	case s.Action != nil:
		return outlineFunction
	}
	return outlineObject
}

// end returns where a value ends, as far as that is known: with the last of what is in it.
func (x *reading) end(n *jsonx.Node, from int) int {
	_, to := span(x.d, x.src, fault.Pos{Line: int(n.Pos.Line), Col: int(n.Pos.Col), Len: int(n.Pos.Len)})
	if n.Kind == jsonx.String && (n.Style == jsonx.Literal || n.Style == jsonx.Folded) {
		if at := x.src.Offset(int(n.Pos.Line)+strings.Count(n.Text, "\n"), 1); at > to {
			to = at
		}
	}
	for _, c := range n.Children {
		to = max(to, x.end(c, from))
	}
	return max(to, from)
}
