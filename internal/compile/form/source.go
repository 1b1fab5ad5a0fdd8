// SPDX-License-Identifier: Apache-2.0

package form

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A Source is a text with the positions of its values. Pointers are JSON pointers from the root
// of the text, as in Diagnostic.Pointer.
type Source struct {
	file string
	tree *jsonx.Node // nil when the text could not be parsed
	text *yamlx.Text
	json []string // the lines of a JSON text; YAML splits lines differently

	starts []int // the byte offsets of the first of these lines

	included []*Source // texts that this one includes
	grafts   map[string]graft

	partial bool // a part of the text could not be read

	// places are where what stands at a pointer of the model is in the text, with all below it;
	// the rest is where the model has it. models is the reverse.
	places, models map[string]string
	semantic       []fault.Diagnostic
	dropped        []*jsonx.Node
	later          []func(*Source)     // that note further ones
	inModel        map[string][]*later // by the pointers that they are below
	inText         map[string][]*later
	edits          map[string][][]Edit // of texts of the model, by pointer; the last were made last
}

// An Edit is a part of a text of the model that stands for another one of the source. Lengths and
// places are in characters.
type Edit struct {
	At, Is, Was int // place and length in the model, length in the source
}

// Edit notes how a text of the model differs from that of the source.
func (s *Source) Edit(pointer string, edits []Edit) {
	s, pointer = s.in(pointer)
	if s.edits == nil {
		s.edits = map[string][][]Edit{}
	}
	s.edits[pointer] = append(s.edits[pointer], edits)
}

// original returns the place and length in the source of a part of a text of the model.
func original(edits []Edit, offset, length int) (int, int) {
	place := func(at int) int {
		shift := 0
		for _, e := range edits {
			switch {
			case at >= e.At+e.Is:
				shift += e.Was - e.Is
			case at > e.At:
				return min(at+shift, e.At+shift+e.Was)
			}
		}
		return at + shift
	}
	from := place(offset)
	return from, max(place(offset+length)-from, min(1, length))
}

// Partial reports whether a part of the text could not be read at all; it may contain
// what the rest lacks.
func (s *Source) Partial() bool { return s.partial }

func newSource(file string, data []byte, tree *jsonx.Node, yaml bool) *Source {
	s := &Source{file: file, tree: tree}
	if yaml {
		s.text = yamlx.NewText(data)
	} else {
		s.json = strings.Split(string(data), "\n")
	}
	return s
}

// Include adds a text that this one includes, so that Format can show the
// lines that diagnostics in it point at.
func (s *Source) Include(other *Source) { s.included = append(s.included, other) }

// Alias notes that what the model has at a pointer stands at another one in the text, with all
// that is below it and has no alias of its own.
func (s *Source) Alias(model, text string) {
	if s.places == nil {
		s.places, s.models = map[string]string{}, map[string]string{}
	}
	s.places[model], s.models[text] = text, model
}

// SemanticErrors returns the problems of how the parts of the text fit together that only its dialect can know. A text
// that has one has the right form.
func (s *Source) SemanticErrors() []fault.Diagnostic { return s.semantic }

// AddSemantic adds a problem to those of SemanticErrors: at a part of a text of the model, length characters from
// offset on.
func (s *Source) AddSemantic(code fault.Code, pointer string, offset, length int, rule, msg, hint string) {
	s.addSemantic(fault.Diagnostic{Code: code, Rule: rule, Msg: msg, Hint: hint, Pos: s.PosIn(pointer, offset, length), Pointer: s.Pointer(pointer)})
}

func (s *Source) addSemantic(d fault.Diagnostic) {
	if len(s.semantic) < MaxDiagnostics {
		s.semantic = append(s.semantic, d)
	}
}

// Drop notes that the model does not have a field of the text, which means nothing to a plan. nil = there is none.
func (s *Source) Drop(field *jsonx.Node) {
	if field != nil {
		s.dropped = append(s.dropped, field)
	}
}

// EachDropped calls f with each field that the model does not have, and its line.
func (s *Source) EachDropped(f func(line int, field string)) {
	for _, n := range s.dropped {
		value, _ := jsonx.Canonical(n.Value())
		f(int(n.KeyPos.Line), n.Key+": "+string(value))
	}
}

// AliasLater notes a function that notes aliases. It is called before the first of them is looked for, because most
// texts have no problems that need one.
func (s *Source) AliasLater(alias func(*Source)) { s.later = append(s.later, alias) }

// AliasBelow is AliasLater for a function that notes only aliases of what is at a pointer or below it, both in the model
// and in the text. It is called before something there is looked for.
func (s *Source) AliasBelow(model, text string, alias func(*Source)) {
	if s.inModel == nil {
		s.inModel, s.inText = map[string][]*later{}, map[string][]*later{}
	}
	l := &later{alias}
	s.inModel[model], s.inText[text] = append(s.inModel[model], l), append(s.inText[text], l)
}

// A later notes aliases, once.
type later struct{ alias func(*Source) }

// aliases has the aliases noted that the place of something depends on. below are the functions by pointers like its own.
func (s *Source) aliases(below map[string][]*later, pointer string) {
	for _, alias := range s.later {
		alias(s)
	}
	s.later = nil
	for at := 0; len(below) > 0 && at <= len(pointer); at++ { // from the outside inward
		if at < len(pointer) && pointer[at] != '/' {
			continue
		}
		for _, l := range below[pointer[:at]] {
			if l.alias != nil {
				l.alias(s)
				l.alias = nil
			}
		}
		delete(below, pointer[:at])
	}
}

// Pointer returns where in the text something is that the model has at a pointer. A field of an object for
// which a text is short is where the text is.
func (s *Source) Pointer(model string) string {
	s, model = s.in(model)
	s.aliases(s.inModel, model)
	p := translate(s.places, model)
	if at := strings.LastIndexByte(p, '/'); at >= 0 && s.tree != nil {
		if n := s.tree.Find(p[:at]); n != nil && n.Kind == jsonx.String {
			return p[:at]
		}
	}
	return p
}

// ModelPointer returns where the model has what is at a pointer of the text.
func (s *Source) ModelPointer(text string) string {
	for {
		s.aliases(s.inText, text)
		model := translate(s.models, text)
		if model == text {
			return model
		}
		text = model // what is within it may have been translated, and not what it is in
	}
}

// translate replaces the longest part of a pointer that has an alias.
func translate(aliases map[string]string, pointer string) string {
	for at := len(pointer); at > 0 && len(aliases) > 0; at = strings.LastIndexByte(pointer[:at], '/') {
		if to, ok := aliases[pointer[:at]]; ok {
			return to + pointer[at:]
		}
	}
	return pointer
}

// of returns the text in a file, or nil when it is not known.
func (s *Source) of(file string) *Source {
	if file == s.file {
		return s
	}
	for _, o := range s.included {
		if found := o.of(file); found != nil {
			return found
		}
	}
	return nil
}

// File returns the file name of positions.
func (s *Source) File() string { return s.file }

// Line returns line n, from 1, without its line break, or "" when there is none.
func (s *Source) Line(n int) string {
	switch {
	case s.text != nil:
		return s.text.Line(n)
	case n < 1 || n > len(s.json):
		return ""
	default:
		return strings.TrimSuffix(s.json[n-1], "\r")
	}
}

// Tree returns the tree of the text, or nil when nothing of it could be read.
func (s *Source) Tree() *jsonx.Node { return s.tree }

// Offset returns the byte offset of a place in the text, without a mark at its beginning (U+FEFF), or -1 when
// there is no such place.
func (s *Source) Offset(line, col int) int {
	start := 0
	switch {
	case line < 1 || col < 1:
		return -1
	case s.text != nil:
		if start = s.text.Start(line); start < 0 {
			return -1
		}
	case line > len(s.json):
		return -1
	default:
		for len(s.starts) < line {
			last := len(s.starts) - 1
			if last < 0 {
				s.starts = append(s.starts, 0)
				continue
			}
			s.starts = append(s.starts, s.starts[last]+len(s.json[last])+1)
		}
		start = s.starts[line-1]
	}
	for text := s.Line(line); col > 1 && text != ""; col-- {
		_, n := utf8.DecodeRuneInString(text)
		start, text = start+n, text[n:]
	}
	return start
}

// Pos returns the position of a value that the model has at a pointer. If there is no value at the pointer, it returns
// the position of the nearest enclosing value.
func (s *Source) Pos(pointer string) fault.Pos {
	s, pointer = s.in(pointer)
	n, _ := s.find(pointer)
	if n == nil {
		return fault.Pos{File: s.file}
	}
	return place(s.file, n.Pos)
}

// KeyPos returns the position of the name of a value, or that of the value if it has no
// name.
func (s *Source) KeyPos(pointer string) fault.Pos {
	s, pointer = s.in(pointer)
	n, _ := s.find(pointer)
	if n == nil {
		return fault.Pos{File: s.file}
	}
	return place(s.file, at(n))
}

// PosIn returns a position inside a string: length characters from offset on, counted in
// its value. It is exact for strings on one line, quoted or not, and for block scalars of
// YAML; for others it is the position of the whole string.
func (s *Source) PosIn(pointer string, offset, length int) fault.Pos {
	s, pointer = s.in(pointer)
	n, exact := s.find(pointer)
	if n == nil {
		return fault.Pos{File: s.file}
	}
	whole := place(s.file, n.Pos)
	for _, edits := range slices.Backward(s.edits[pointer]) {
		offset, length = original(edits, offset, length)
	}
	if !exact || n.Kind != jsonx.String || offset < 0 || offset > utf8.RuneCountInString(n.Text) {
		return whole
	}
	start, ok := s.locate(n, offset)
	if !ok {
		return whole
	}
	start.Len = max(1, length)
	if end, ok := s.locate(n, offset+length); ok && end.Line == start.Line && end.Col > start.Col {
		start.Len = end.Col - start.Col // escapes are longer in the text than in the value
	} else if rest := utf8.RuneCountInString(s.Line(start.Line)) - start.Col + 1; length > 0 {
		start.Len = max(1, min(start.Len, rest))
	}
	return start
}

// find returns the node at a pointer; exact is false when it is an enclosing node.
func (s *Source) find(pointer string) (n *jsonx.Node, exact bool) {
	if s.tree == nil {
		return nil, false
	}
	pointer = s.Pointer(pointer)
	for exact = true; ; exact = false {
		if n = s.tree.Find(pointer); n != nil {
			return n, exact
		}
		i := strings.LastIndexByte(pointer, '/')
		if i < 0 {
			return s.tree, false
		}
		pointer = pointer[:i]
	}
}

// locate finds the position in the text of a character of a string's value.
func (s *Source) locate(n *jsonx.Node, offset int) (fault.Pos, bool) {
	pos := fault.Pos{File: s.file, Line: int(n.Pos.Line), Col: int(n.Pos.Col)}
	switch n.Style {
	case jsonx.Literal, jsonx.Folded:
		return s.locateInBlock(n, offset)
	case jsonx.Plain:
		if utf8.RuneCountInString(n.Text) != int(n.Pos.Len) {
			return pos, false
		}
		pos.Col += offset
		return pos, true
	}
	raw := []rune(s.Line(pos.Line))
	at := pos.Col - 1
	if at >= len(raw) || at+int(n.Pos.Len) > len(raw) {
		return pos, false
	}
	raw = raw[at : at+int(n.Pos.Len)]
	if len(raw) < 2 || raw[0] != raw[len(raw)-1] {
		return pos, false // the string continues on the next line
	}
	i := 1
	for ; offset > 0 && i < len(raw)-1; offset-- {
		i += escapeLength(raw[i:], n.Style)
	}
	pos.Col += i
	return pos, offset == 0
}

// escapeLength returns how many characters of the text represent the first one of the
// value.
func escapeLength(raw []rune, style jsonx.Style) int {
	switch {
	case style == jsonx.Single && raw[0] == '\'':
		return 2
	case style == jsonx.Single || raw[0] != '\\' || len(raw) < 2:
		return 1
	}
	switch raw[1] {
	case 'x':
		return 4
	case 'u':
		// A pair of surrogates is one character.
		if len(raw) >= 12 && (raw[2] == 'd' || raw[2] == 'D') && strings.ContainsRune("89abAB", raw[3]) && raw[6] == '\\' {
			return 12
		}
		return 6
	case 'U':
		return 10
	default:
		return 2
	}
}

// locateInBlock walks a block scalar and its value in parallel. A mismatch means that
// the indentation was guessed wrong.
func (s *Source) locateInBlock(n *jsonx.Node, offset int) (fault.Pos, bool) {
	line := int(n.Pos.Line) + 1
	indent := -1
	for l := line; l <= line+1000; l++ {
		if text := s.Line(l); strings.TrimLeft(text, " ") != "" {
			indent = len(text) - len(strings.TrimLeft(text, " "))
			break
		}
	}
	if indent < 0 {
		return fault.Pos{}, false
	}
	// If the header gives the indentation, the value may begin with spaces.
	lead := len(n.Text) - len(strings.TrimLeft(n.Text, "\n"))
	indent -= len(n.Text[lead:]) - len(strings.TrimLeft(n.Text[lead:], " "))
	row := func(l int) []rune {
		text := []rune(s.Line(l))
		return text[min(len(text), max(0, indent)):]
	}
	col, text := 0, row(line)
	for _, c := range n.Text {
		if offset == 0 {
			break
		}
		offset--
		switch {
		case col < len(text) && text[col] == c:
			col++
		case col < len(text):
			return fault.Pos{}, false
		case c == '\n' && n.Style == jsonx.Folded && foldable(text) && len(row(line+1)) == 0 && foldable(s.below(line, row)):
			// Folding removes the line break before empty lines.
			line, col = line+2, 0
			text = row(line)
		case c == '\n', c == ' ' && n.Style == jsonx.Folded:
			line, col = line+1, 0
			text = row(line)
		default:
			return fault.Pos{}, false
		}
	}
	return fault.Pos{File: s.file, Line: line, Col: max(0, indent) + col + 1}, offset == 0
}

// below returns the first line after n that is not empty, or nil.
func (s *Source) below(n int, row func(int) []rune) []rune {
	for l := n + 1; l <= n+1000; l++ {
		if text := row(l); len(text) > 0 {
			return text
		}
	}
	return nil
}

// foldable reports whether line breaks next to a line of a folded scalar are removed:
// those next to empty or further indented lines are not.
func foldable(line []rune) bool { return len(line) > 0 && line[0] != ' ' && line[0] != '\t' }
