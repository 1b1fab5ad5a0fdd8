// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"cmp"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/reference"
	"github.com/roux-engine/roux/internal/userfile"
)

// maxItems bounds the list of what may stand at a place.
const maxItems = 1000

// A completer collects what may stand at the place of a cursor.
type completer struct {
	s    *server
	d    *document
	edit textRange // the word that an item replaces
	typed,
	rest string // of the word, before the cursor and behind it
	list []completionItem
	seen map[string]bool
}

// complete answers textDocument/completion.
func (s *server) complete(d *document, p *documentParams) (any, error) {
	offset := d.offset(p.Position)
	none := completionList{Items: []completionItem{}}
	if d.is(s.cfg.Ignore) == aLens {
		return none, nil
	}
	c := s.cursorAt(d, offset)
	if c == nil {
		return none, nil
	}
	w := &completer{s: s, d: d, seen: map[string]bool{}}
	if code, template, ok := c.inCode(); ok {
		w.word(offset, "")
		w.code(c, code, template)
	} else {
		w.word(offset, "-./@")
		w.plain(c)
	}
	list := completionList{Items: w.list}
	// With fewer letters there would be more items, so the editor asks again when a letter goes.
	list.IsIncomplete = w.typed != "" || len(w.list) > maxItems
	list.Items = list.Items[:min(len(list.Items), maxItems)]
	if list.Items == nil {
		list.Items = none.Items
	}
	return list, nil
}

// word finds the word at an offset, of letters, digits, _ and some more.
func (w *completer) word(offset int, more string) {
	in := func(c byte) bool { return nameByte(c) || strings.IndexByte(more, c) >= 0 }
	from, to := offset, offset
	for from > 0 && in(w.d.text[from-1]) {
		from--
	}
	for to < len(w.d.text) && in(w.d.text[to]) {
		to++
	}
	w.edit, w.typed, w.rest = w.d.rangeOf(from, to), w.d.text[from:offset], w.d.text[to:]
}

// add adds an item that begins, whatever its case, as what was typed does.
func (w *completer) add(kind int, label, text, detail, doc string) {
	if w.seen[label] || !strings.HasPrefix(strings.ToLower(label), strings.ToLower(w.typed)) || strings.Contains(label, stand) {
		return
	}
	w.seen[label] = true
	item := completionItem{Label: label, Kind: kind, Detail: detail, TextEdit: &textEdit{w.edit, cmp.Or(text, label)}}
	if doc != "" {
		item.Documentation = &markup{"markdown", doc}
	}
	w.list = append(w.list, item)
}

// plain completes outside of expressions.
func (w *completer) plain(c *cursor) {
	if c.key {
		w.fields(c)
		return
	}
	field := c.field()
	switch {
	case c.spot.Pattern() == recipe.ID && !strings.HasSuffix(c.pointer, "/id"):
		w.ids(c)
	case (strings.HasSuffix(field, "/action/name") || strings.HasSuffix(field, "/action/version")) && !strings.HasSuffix(c.pointer, "/version"):
		w.actions()
	case strings.HasSuffix(field, "/action/version"):
		for _, v := range w.s.cfg.Actions.Versions(c.action()) {
			w.add(itemValue, v, "", "version of "+c.action(), "")
		}
	case strings.HasSuffix(field, "/action/lens") || strings.HasSuffix(field, "/action/lens/id"):
		w.lenses()
	case strings.HasSuffix(field, "/recipe/ref"):
		for _, name := range w.files().Names() {
			w.add(itemModule, name, "", "recipe", "")
		}
	case strings.HasSuffix(field, "/recipe/file"):
		w.beside()
	}
	doc := ""
	if f, ok := c.spot.Field(); ok {
		doc = f.Doc
	}
	for _, text := range c.spot.Texts() {
		w.add(itemValue, text, "", "", doc)
	}
}

// fields completes the name of a field: those of the object that it does not have, or inputs of the action.
func (w *completer) fields(c *cursor) {
	has := map[string]bool{}
	if c.parent != nil {
		for _, n := range c.parent.Children {
			has[n.Key] = n != c.node
		}
	}
	colon := ": "
	if rest := strings.TrimLeft(w.rest, " \"'"); strings.HasPrefix(rest, ":") || c.node.KeyPos.Len > 0 && quotedBefore(w.d.text, w.d.offset(w.edit.Start)) {
		colon = ""
	}
	for _, f := range c.inside.Fields(c.parent) {
		if !has[f.Name] {
			w.add(itemField, f.Name, f.Name+colon, f.Takes, fieldText(f))
		}
	}
	up := c.pointer[:strings.LastIndexByte(c.pointer, '/')]
	model := c.src.ModelPointer(up)
	if c.step == nil || !strings.HasSuffix(model, "/action/parameters") && !strings.HasSuffix(model, "/inputBindings") && !strings.HasSuffix(up, "/inputBindings") {
		return
	}
	for _, p := range w.s.properties(c.action(), "") {
		if !has[p.name] {
			w.add(itemProperty, p.name, p.name+colon, p.kind, p.text())
		}
	}
}

func quotedBefore(text string, at int) bool {
	return at > 0 && (text[at-1] == '"' || text[at-1] == '\'')
}

// action returns the name of the action of the step, or "".
func (c *cursor) action() string {
	if c.step == nil || c.step.Action == nil {
		return ""
	}
	return strings.Replace(c.step.Action.Name, stand, "", 1)
}

// ids completes the id of a step. Where it waits for others, it is offered those of its own list of steps
// first.
func (w *completer) ids(c *cursor) {
	for _, id := range slices.Sorted(maps.Keys(c.scope.steps)) {
		if s := c.scope.steps[id]; c.step == nil || s.by[0] != c.step || !strings.Contains(c.field(), "/dependsOn") {
			w.add(itemRef, id, "", w.s.kindOf(s), "")
		}
	}
}

func (w *completer) actions() {
	for _, name := range w.s.cfg.Actions.Names() {
		w.add(itemFunction, name, "", "action", w.s.actionText(name, ""))
	}
}

func (w *completer) lenses() {
	if lenses := w.s.cfg.Options(w.d.file).Lenses; lenses != nil {
		for _, id := range lenses.LensIDs() {
			w.add(itemModule, id, "", "lens", w.s.lensText(w.d, id, ""))
		}
	}
}

func (w *completer) files() namer {
	if recipes := w.s.cfg.Options(w.d.file).Recipes; recipes != nil {
		return recipes
	}
	return noNames{}
}

type namer interface{ Names() []string }

type noNames struct{}

// Names returns no names.
func (noNames) Names() []string { return nil }

// beside completes the path of a recipe in a file: those in the directory of the text.
func (w *completer) beside() {
	dir := filepath.Dir(w.d.file)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.s.cfg.Dir, dir)
	}
	names, _ := userfile.ListWithin(dir, maxItems, ".yaml", ".yml", ".json") // of a directory that cannot be read there are none
	for _, name := range names {
		if name != filepath.Base(w.d.file) {
			w.add(itemFile, name, "", "recipe", "")
		}
	}
}

// inCode returns the expression or template before the cursor, if it is in one. Of a template it is the
// placeholder alone.
func (c *cursor) inCode() (code string, template, ok bool) {
	if c.key || c.node.Kind != jsonx.String {
		return "", false, false
	}
	field := c.field()
	until := c.text[:c.at]
	if c.isExpression(field) {
		return until, false, true
	}
	open := max(strings.LastIndex(until, "{{"), strings.LastIndex(until, "{%"))
	if open < 0 || strings.Contains(until[open:], "}}") || strings.Contains(until[open:], "%}") {
		return "", false, false
	}
	return until[open+2:], true, true
}

// isExpression reports whether a field of a step, or of a recipe, is an expression.
func (c *cursor) isExpression(field string) bool {
	if c.step == nil {
		return strings.HasPrefix(field, "/outputs/") || field == "/creditEstimation/formula"
	}
	switch field {
	case "/when", "/condition/expression", "/transform/expression", "/loop/over", "/loop/while", "/loop/until", "/loop/accumulate/expression", "/wait/until", "/recipe/files", "/cache/key":
		return true
	}
	for _, at := range [...]string{"/inputBindings/", "/compensate/inputBindings/"} {
		if rest, ok := strings.CutPrefix(field, at); ok {
			_, inner, deep := strings.Cut(rest, "/")
			return !deep || strings.HasSuffix(inner, "expression") || strings.HasPrefix(inner, "from/") && strings.Count(inner, "/") == 1
		}
	}
	return false
}

// code completes in an expression.
func (w *completer) code(c *cursor, code string, template bool) {
	chain := chainBefore(code)
	if len(chain) == 0 {
		if template && filterBefore(code) {
			for _, f := range filters() {
				w.add(itemFunction, f.name, "", f.example, f.doc)
			}
			return
		}
		w.names(c)
		return
	}
	if chain[0] == "steps" && len(chain) == 1 {
		w.visibleSteps(c, quotedBefore(w.d.text, w.d.offset(w.edit.Start)) || strings.HasSuffix(strings.TrimRight(code, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"), "['"))
		return
	}
	for _, p := range w.s.members(c, chain) {
		w.add(itemProperty, p.name, "", p.kind, p.text())
	}
	for _, f := range functions() {
		if f.member {
			w.add(itemFunction, f.name, "", f.example, f.doc)
		}
	}
}

// visibleSteps completes the id after steps: those of the lists of steps that the step is in.
func (w *completer) visibleSteps(c *cursor, inQuotes bool) {
	for _, id := range slices.Sorted(maps.Keys(c.scope.steps)) {
		s := c.scope.steps[id]
		if s.by[0] == c.step || !c.sees(s.by[0]) || !inQuotes && !isName(id) {
			continue
		}
		w.add(itemRef, id, "", w.s.kindOf(s), "")
	}
}

// sees reports whether a step is in a list of steps that the step of the cursor is in, or one around it.
func (c *cursor) sees(s *recipe.Step) bool {
	list := s.Ptr[:strings.LastIndexByte(s.Ptr, '/')]
	if strings.HasSuffix(s.Ptr, "/fallbackStep") {
		return false
	}
	at := c.pointer
	if c.step != nil {
		at = c.step.Ptr
	}
	if field := c.field(); (field == "/loop/until" || field == "/loop/accumulate/expression") && list == at+"/loop/steps" {
		return true // they are evaluated when its iteration has ended
	}
	return c.step == nil && strings.Count(list[len(c.scope.r.Ptr):], "/") == 1 || strings.HasPrefix(at, list+"/") ||
		c.step != nil && strings.HasPrefix(c.src.Pointer(at), c.src.Pointer(list)+"/")
}

// names completes a name that stands alone: bindings, steps, what every expression has, and functions.
func (w *completer) names(c *cursor) {
	for f := c.frame; f != nil; f = f.outer {
		for _, name := range slices.Sorted(maps.Keys(f.names)) {
			w.add(itemVariable, name, "", w.s.kindOf(f.names[name]), "")
		}
	}
	for _, n := range everyName {
		w.add(itemVariable, n.name, "", n.what, "")
	}
	for _, id := range slices.Sorted(maps.Keys(c.scope.steps)) {
		if s := c.scope.steps[id]; isName(id) && s.by[0] != c.step && c.sees(s.by[0]) {
			w.add(itemRef, id, "", w.s.kindOf(s), "")
		}
	}
	for _, f := range functions() {
		if !f.member {
			w.add(itemFunction, f.name, "", f.example, f.doc)
		}
	}
}

// chainBefore returns the names that are selected before the word at the end of an expression:
// [steps a] of "x + steps.a.out".
func chainBefore(code string) (chain []string) {
	rest := strings.TrimRightFunc(code, nameRune)
	for {
		switch {
		case strings.HasSuffix(rest, "."), strings.HasSuffix(rest, ".?"):
			rest = strings.TrimSuffix(strings.TrimSuffix(rest, "?"), ".")
		case strings.HasSuffix(rest, "['"), strings.HasSuffix(rest, `["`):
			rest = rest[:len(rest)-2]
		default:
			slices.Reverse(chain)
			return chain
		}
		switch name := rest[len(strings.TrimRightFunc(rest, nameRune)):]; {
		case name != "":
			chain, rest = append(chain, name), rest[:len(rest)-len(name)]
		case strings.HasSuffix(rest, "]"):
			open := strings.LastIndexByte(rest, '[')
			if open < 0 {
				return []string{""}
			}
			inner := strings.Trim(rest[open+1:len(rest)-1], `'"`)
			if rest = rest[:open]; inner != "" && strings.Trim(inner, "0123456789") != "" {
				chain = append(chain, inner)
				if !strings.HasSuffix(rest, ".") {
					rest += "."
					name := strings.TrimSuffix(rest, ".")
					word := name[len(strings.TrimRightFunc(name, nameRune)):]
					if word == "" {
						return []string{""}
					}
					chain, rest = append(chain, word), name[:len(name)-len(word)]
				}
			}
		default:
			return []string{""} // of a value that is computed: only functions of it are known
		}
	}
}

// filterBefore reports whether a | is before the word at the end of a placeholder.
func filterBefore(code string) bool {
	before := strings.TrimRight(strings.TrimRightFunc(code, nameRune), " ")
	return strings.HasSuffix(before, "|") && !strings.HasSuffix(before, "||")
}

func isName(id string) bool {
	return id != "" && (id[0] < '0' || id[0] > '9') && !strings.Contains(id, "-") && !slices.Contains([]string{"in", "true", "false", "null"}, id)
}

// everyName are the names that every expression has.
var everyName = []struct{ name, what string }{
	{"input", "the run's input: parameters and file hashes"}, {"parameters", "the run's parameters"}, {"fileHashes", "the hashes of the run's files"},
	{"files", "the run's files: hash, name, mimeType, sizeBytes, extended"}, {"steps", "the steps by their ids: output, status, error"},
	{"workflow", "the run and its recipe"}, {"_context", "the context of the run"}, {"budget", "credits: used, remaining"},
}

// A function is one that expressions may call.
type function struct {
	name, example, doc string
	member             bool // it is called of a value: text.trim()
}

// calls matches the calls in an expression without its literals.
var calls = regexp.MustCompile(`(\.?)([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\(`)

// namespaces are the names before functions that are called of no value.
var namespaces = []string{"math", "strings", "json", "base64", "cel", "lists", "sets", "optional"}

// functions returns the functions of expressions, with the examples of the reference.
var functions = sync.OnceValue(func() []function {
	list := []function{
		{name: "now", example: "now()", doc: "The time of the step, the same at every evaluation."},
		{name: "uuid", example: "uuid()", doc: "A UUID of the step, the same at every evaluation."},
	}
	literal := regexp.MustCompile(`'(?:[^'\\]|\\.)*'`)
	for _, g := range reference.Examples {
		for _, e := range g.List {
			for _, m := range calls.FindAllStringSubmatch(literal.ReplaceAllString(e.Source, "''"), -1) {
				f := function{name: m[2], example: e.Source, doc: "`" + e.Source + "` is `" + e.Result + "`", member: m[1] != ""}
				if space, _, ok := strings.Cut(f.name, "."); ok && (f.member || !slices.Contains(namespaces, space)) {
					f.name, f.member = f.name[strings.LastIndexByte(f.name, '.')+1:], true
				}
				if !slices.ContainsFunc(list, func(o function) bool { return o.name == f.name && o.member == f.member }) {
					list = append(list, f)
				}
			}
		}
	}
	return list
})

// filters returns the filters of templates, with the examples of the reference.
var filters = sync.OnceValue(func() []function {
	var list []function
	name := regexp.MustCompile(`\| ([a-z]+)`)
	for _, e := range reference.Templates[0].List {
		for _, m := range name.FindAllStringSubmatch(e.Source, -1) {
			if !slices.ContainsFunc(list, func(o function) bool { return o.name == m[1] }) {
				list = append(list, function{name: m[1], example: e.Source, doc: "`" + e.Source + "` is `" + e.Result + "`"})
			}
		}
	}
	return list
})
