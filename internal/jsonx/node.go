// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Pos is a position in a text: line and column from 1, columns and length in characters.
// The zero Pos is unknown.
type Pos struct{ Line, Col, Len int32 }

// A Kind is what a Node is.
type Kind uint8

// The kinds.
const (
	Null Kind = iota
	Bool
	Int
	Float
	String
	Array
	Object
	// Refused is a value for which a problem was reported; no more are reported for it.
	Refused
)

var kindNames = [...]string{"null", "a boolean", "an integer", "a number", "a string", "a list", "an object", "a refused value"}

// String returns the kind for messages, with its article.
func (k Kind) String() string { return kindNames[k] }

// A Style is how a string is written, which determines the positions of its characters in
// the text.
type Style uint8

// The styles. A Plain string is written as its characters; the others have escapes or span
// lines.
const (
	Quoted  Style = iota // "…" with backslash escapes; all strings of JSON
	Plain                // YAML: no quotes
	Single               // YAML: '…'
	Literal              // YAML: |
	Folded               // YAML: >
)

// A Node is a value with its position in a text. JSON and YAML have equal trees for equal
// values, so that one strict decoder serves both.
type Node struct {
	Kind  Kind
	Style Style // of a String
	Bool  bool
	Pos   Pos
	// Key and KeyPos are the name of a child of an Object and its position.
	Key    string
	KeyPos Pos

	Int      int64
	Float    float64
	Text     string  // of a String
	Children []*Node // of an Array or an Object, in the order of the text
}

// Child returns an Object's child of that name, the first one of duplicates, or nil.
func (n *Node) Child(name string) *Node {
	if n == nil || n.Kind != Object {
		return nil
	}
	for _, c := range n.Children {
		if c.Key == name {
			return c
		}
	}
	return nil
}

// Find returns the node at a JSON pointer (RFC 6901), or nil.
func (n *Node) Find(pointer string) *Node {
	if pointer == "" {
		return n
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if n == nil {
			return nil
		}
		if n.Kind != Array {
			n = n.Child(UnescapeToken(token))
			continue
		}
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(n.Children) {
			return nil
		}
		n = n.Children[i]
	}
	return n
}

// Value returns the value of the tree. Of duplicate names the first one counts.
func (n *Node) Value() any {
	switch n.Kind {
	case Null, Refused:
		return nil
	case Bool:
		return n.Bool
	case Int:
		return n.Int
	case Float:
		return n.Float
	case String:
		return n.Text
	case Array:
		list := make([]any, len(n.Children))
		for i, c := range n.Children {
			list[i] = c.Value()
		}
		return list
	default:
		m := make(map[string]any, len(n.Children))
		for _, c := range n.Children {
			if _, ok := m[c.Key]; !ok {
				m[c.Key] = c.Value()
			}
		}
		return m
	}
}

// EscapeToken escapes a name as a token of a JSON pointer.
func EscapeToken(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// UnescapeToken is the inverse of [EscapeToken].
func UnescapeToken(token string) string {
	if !strings.Contains(token, "~") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// MaxProblems is how many problems of one text are reported.
const MaxProblems = 100

// Parse parses data into a tree with positions. It continues after some problems (a
// duplicate name, a number out of range), so that a person sees all of them; after others
// the tree is nil. A tree that is returned with problems is only for finding further ones.
func Parse(data []byte, lim Limits) (*Node, []*Error) {
	r, err := newReader(data, lim, true)
	if err != nil {
		return nil, []*Error{asError(err)}
	}
	p := &parser{reader: r, line: 1, col: 1}
	root, err := p.node(0)
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, append(p.problems, asError(err))
	}
	return root, p.problems
}

func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Rule: RuleSyntax, Msg: err.Error()}
}

// A parser builds nodes and counts lines as it moves forward.
type parser struct {
	*reader
	path     Path
	problems []*Error

	at        int // byte offset that line and col belong to
	line, col int32
}

// pos returns the position of the bytes from start to the end of the last token.
func (p *parser) pos(start int) Pos {
	for i := p.at; i < start; i++ {
		switch c := p.data[i]; {
		case c == '\n':
			p.line, p.col = p.line+1, 1
		case utf8.RuneStart(c):
			p.col++
		}
	}
	p.at = start
	end := int(p.dec.InputOffset())
	return Pos{Line: p.line, Col: p.col, Len: int32(utf8.RuneCount(p.data[start:end]))}
}

func (p *parser) problem(e *Error) {
	if len(p.problems) < MaxProblems {
		e.Pointer = p.path.Pointer()
		p.problems = append(p.problems, e)
	}
}

// node reads the next value, or returns nil at the end of a list.
func (p *parser) node(depth int) (*Node, error) {
	tok, start, err := p.token()
	if err != nil {
		return nil, err
	}
	n := &Node{Pos: p.pos(start)}
	switch tok.Kind() {
	case ']', '}':
		return nil, nil
	case 'n':
		n.Kind = Null
	case 't', 'f':
		n.Kind, n.Bool = Bool, tok.Kind() == 't'
	case '"':
		n.Kind, n.Text = String, tok.String()
	case '0':
		num := p.number(start)
		n.Kind, n.Int, n.Float = Float, num.i, num.f
		if num.isInt {
			n.Kind = Int
		}
		if num.err != "" {
			n.Kind = Refused
			p.problem(&Error{Rule: RuleNumber, Msg: num.err, Pos: n.Pos})
		}
	case '[':
		n.Kind = Array
		if err := p.open(depth, start); err != nil {
			return nil, err
		}
		return n, p.items(n, depth)
	case '{':
		n.Kind = Object
		if err := p.open(depth, start); err != nil {
			return nil, err
		}
		return n, p.members(n, depth)
	}
	return n, nil
}

func (p *parser) items(n *Node, depth int) error {
	for {
		p.path.PushIndex(len(n.Children))
		c, err := p.node(depth + 1)
		p.path.Pop()
		if c == nil || err != nil {
			return err
		}
		n.Children = append(n.Children, c)
	}
}

func (p *parser) members(n *Node, depth int) error {
	var names NameSet
	for {
		tok, start, err := p.token()
		if err != nil || tok.Kind() == '}' {
			return err
		}
		name, keyPos := tok.String(), p.pos(start)
		p.path.Push(name)
		if first, again := names.Add(name, keyPos); again {
			p.problem(Duplicate(name, keyPos, first))
		}
		c, err := p.node(depth + 1)
		p.path.Pop()
		if err != nil {
			return err
		}
		c.Key, c.KeyPos = name, keyPos
		n.Children = append(n.Children, c)
	}
}

// A Path is the path from the root to the current value. The pointer is built only for a
// problem, because names may be long and problems are rare.
type Path struct{ parts []part }

type part struct {
	name  string
	index int // -1: name counts
}

// Push descends to a child of an Object.
func (p *Path) Push(name string) { p.parts = append(p.parts, part{name, -1}) }

// PushIndex descends to a child of an Array.
func (p *Path) PushIndex(i int) { p.parts = append(p.parts, part{"", i}) }

// Pop ascends to the parent.
func (p *Path) Pop() { p.parts = p.parts[:len(p.parts)-1] }

// Pointer returns the path as a JSON pointer.
func (p *Path) Pointer() string {
	var b strings.Builder
	for _, part := range p.parts {
		b.WriteByte('/')
		if part.index >= 0 {
			b.WriteString(strconv.Itoa(part.index))
		} else {
			b.WriteString(EscapeToken(part.name))
		}
	}
	return b.String()
}

// Duplicate returns the problem of a duplicate name.
func Duplicate(name string, at, first Pos) *Error {
	return &Error{
		Rule:  RuleDuplicate,
		Msg:   fmt.Sprintf("the name %q occurs twice in one object; the first is at line %d", shorten(name), first.Line),
		Pos:   at,
		First: first,
	}
}

// A NameSet is the set of names of one object, with their positions.
type NameSet struct {
	few  []namePos
	many map[string]Pos
}

type namePos struct {
	name string
	pos  Pos
}

// Add adds a name. If the set has it already, again is true, first is its position, and
// the set does not change.
func (s *NameSet) Add(name string, pos Pos) (first Pos, again bool) {
	if s.many != nil {
		if first, again = s.many[name]; !again {
			s.many[name] = pos
		}
		return first, again
	}
	for _, n := range s.few {
		if n.name == name {
			return n.pos, true
		}
	}
	if s.few = append(s.few, namePos{name, pos}); len(s.few) > 16 {
		s.many = make(map[string]Pos, 2*len(s.few))
		for _, n := range s.few {
			s.many[n.name] = n.pos
		}
	}
	return Pos{}, false
}
