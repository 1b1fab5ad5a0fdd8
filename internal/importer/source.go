// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Kind is what became of a part of a definition.
type Kind string

// The kinds. A definition of which something is refused becomes no recipe.
const (
	Mapped  Kind = "mapped"  // a step or a field of the recipe says it
	Changed Kind = "changed" // mapped, but the recipe does not quite do the same
	Dropped Kind = "dropped" // the recipe does not have it
	Refused Kind = "refused" // the recipe would be wrong without it
)

// A Note says what became of a part of a definition, at its place.
type Note struct {
	Kind    Kind   `json:"kind"`
	Line    int32  `json:"line"`
	Col     int32  `json:"column"`
	Pointer string `json:"pointer"` // JSON pointer into the definition
	Msg     string `json:"message"`
}

// Keys counts the names of the objects of a definition. All is the sum of the others.
type Keys struct {
	All     int `json:"all"`
	Mapped  int `json:"mapped"`
	Dropped int `json:"dropped"`
	Refused int `json:"refused"`
}

// A source is a definition that is being read. It knows of every name in it whether it was used, so that
// none is lost without a note.
type source struct {
	root  *jsonx.Node
	ptr   map[*jsonx.Node]string
	state map[*jsonx.Node]Kind // of nodes that have a name
	notes []Note
	said  map[Note]bool
	full  int // notes that had no place
}

// maxNotes bounds the notes on one definition.
const maxNotes = 1000

func newSource(root *jsonx.Node) *source {
	s := &source{root: root, ptr: map[*jsonx.Node]string{}, state: map[*jsonx.Node]Kind{}, said: map[Note]bool{}}
	s.place(root, "")
	return s
}

func (s *source) place(n *jsonx.Node, ptr string) {
	s.ptr[n] = ptr
	for i, c := range n.Children {
		if n.Kind == jsonx.Object {
			s.place(c, ptr+"/"+jsonx.EscapeToken(c.Key))
		} else {
			s.place(c, ptr+"/"+strconv.Itoa(i))
		}
	}
}

func (s *source) note(k Kind, n *jsonx.Node, msg string) {
	pos := n.KeyPos
	if pos.Line == 0 {
		pos = n.Pos
	}
	note := Note{Kind: k, Line: pos.Line, Col: pos.Col, Pointer: s.ptr[n], Msg: msg}
	switch {
	case s.said[note]: // a part that is used twice is told once
	case len(s.notes) >= maxNotes:
		s.full++
	default:
		s.said[note] = true
		s.notes = append(s.notes, note)
	}
}

// mark sets what became of a name and of all below it. What was refused stays so.
func (s *source) mark(n *jsonx.Node, k Kind) {
	if n == nil {
		return
	}
	if n.Key != "" || n.KeyPos.Line > 0 {
		if s.state[n] != Refused {
			s.state[n] = k
		}
	}
	for _, c := range n.Children {
		s.mark(c, k)
	}
}

// finish refuses what nothing has looked at, and counts the names.
func (s *source) finish() Keys {
	var k Keys
	why := "%q is not supported here"
	if s.refused() {
		why = "%q was not looked at, because of what else is refused"
	}
	var walk func(n *jsonx.Node)
	walk = func(n *jsonx.Node) {
		for _, c := range n.Children {
			if n.Kind == jsonx.Object {
				if s.state[c] == "" {
					s.note(Refused, c, fmt.Sprintf(why, syntax.Short(c.Key)))
					s.mark(c, Refused)
				}
				k.All++
				switch s.state[c] {
				case Mapped:
					k.Mapped++
				case Dropped:
					k.Dropped++
				default:
					k.Refused++
				}
			}
			walk(c)
		}
	}
	walk(s.root)
	slices.SortStableFunc(s.notes, func(a, b Note) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col)) })
	return k
}

// A value is a value of a definition. The zero value is one that is not there.
type value struct {
	n *jsonx.Node
	s *source
}

func (v value) there() bool { return v.n != nil }

func (v value) is(k jsonx.Kind) bool { return v.n != nil && v.n.Kind == k }

// get returns the value of a name of an object, which counts as mapped.
func (v value) get(name string) value {
	if v.n == nil {
		return value{s: v.s}
	}
	c := v.n.Child(name)
	if c != nil && v.s.state[c] == "" {
		v.s.state[c] = Mapped
	}
	return value{c, v.s}
}

// has reports whether an object has a name.
func (v value) has(name string) bool { return v.n.Child(name) != nil }

// peek is get for deciding how to read a value, which does not count as reading it.
func (v value) peek(name string) value { return value{v.n.Child(name), v.s} }

func (v value) key() string { return v.n.Key }

// items yields the elements of a list, or the values of an object, which then count as mapped.
func (v value) items() (list []value) {
	if v.n == nil {
		return nil
	}
	for _, c := range v.n.Children {
		if v.n.Kind == jsonx.Object && v.s.state[c] == "" {
			v.s.state[c] = Mapped
		}
		list = append(list, value{c, v.s})
	}
	return list
}

// text returns a string; ok is false, with a note, when the value is something else.
func (v value) text() (text string, ok bool) {
	if v.n == nil {
		return "", false
	}
	if v.n.Kind != jsonx.String {
		v.refuse("this must be text, not %s", v.n.Kind)
		return "", false
	}
	return v.n.Text, true
}

// str is text for a value that may be missing.
func (v value) str() string {
	t, _ := v.text()
	return t
}

// scalar returns a text, number or boolean as text.
func (v value) scalar() (text string, ok bool) {
	if v.n == nil {
		return "", false
	}
	switch v.n.Kind {
	case jsonx.String:
		return v.n.Text, true
	case jsonx.Int:
		return strconv.FormatInt(v.n.Int, 10), true
	case jsonx.Float:
		return strconv.FormatFloat(v.n.Float, 'g', -1, 64), true
	case jsonx.Bool:
		return strconv.FormatBool(v.n.Bool), true
	}
	v.refuse("this must be text or a number, not %s", v.n.Kind)
	return "", false
}

// whole returns a whole number that is not negative.
func (v value) whole() (n int64, ok bool) {
	if v.n == nil {
		return 0, false
	}
	if v.n.Kind != jsonx.Int || v.n.Int < 0 {
		v.refuse("this must be a whole number that is not negative")
		return 0, false
	}
	return v.n.Int, true
}

// number returns a number.
func (v value) number() (f float64, ok bool) {
	switch {
	case v.n == nil:
		return 0, false
	case v.n.Kind == jsonx.Int:
		return float64(v.n.Int), true
	case v.n.Kind == jsonx.Float:
		return v.n.Float, true
	}
	v.refuse("this must be a number, not %s", v.n.Kind)
	return 0, false
}

// object reports whether the value is an object, and refuses one that is not.
func (v value) object(what string) bool { return v.want(jsonx.Object, what) }

// list reports whether the value is a list, and refuses one that is not.
func (v value) list(what string) bool { return v.want(jsonx.Array, what) }

func (v value) want(k jsonx.Kind, what string) bool {
	if v.n == nil {
		return false
	}
	if v.n.Kind != k {
		v.refuse("%s must be %s, not %s", what, k, v.n.Kind)
		return false
	}
	return true
}

// literal returns the value as it is. Every name in it counts as mapped.
func (v value) literal() any {
	v.s.mark(v.n, Mapped)
	return v.n.Value()
}

func (v value) mapped(format string, args ...any) { v.say(Mapped, format, args...) }

func (v value) changed(format string, args ...any) { v.say(Changed, format, args...) }

// drop leaves out the value and everything in it.
func (v value) drop(format string, args ...any) {
	if v.n != nil {
		v.say(Dropped, format, args...)
		v.s.mark(v.n, Dropped)
	}
}

// refuse refuses the value, and everything in it that was not read.
func (v value) refuse(format string, args ...any) {
	if v.n == nil {
		return
	}
	v.say(Refused, format, args...)
	if v.n == v.s.root {
		return
	}
	if v.n.KeyPos.Line > 0 {
		v.s.state[v.n] = Refused
	}
	var rest func(n *jsonx.Node)
	rest = func(n *jsonx.Node) {
		for _, c := range n.Children {
			if n.Kind == jsonx.Object && v.s.state[c] == "" {
				v.s.state[c] = Refused
			}
			rest(c)
		}
	}
	rest(v.n)
}

func (v value) say(k Kind, format string, args ...any) {
	if v.n != nil {
		v.s.note(k, v.n, fmt.Sprintf(format, args...))
	}
}

// dropEach drops the names of an object that are in the table, each with the reason there.
func (v value) dropEach(reasons map[string]string) {
	if v.n == nil || v.n.Kind != jsonx.Object {
		return
	}
	for _, c := range v.n.Children {
		if why, ok := reasons[c.Key]; ok && v.s.state[c] == "" {
			value{c, v.s}.drop("%s: %s", c.Key, why)
		}
	}
}

// rest refuses the names of an object that nothing has read.
func (v value) rest(what string) {
	if v.n == nil || v.n.Kind != jsonx.Object {
		return
	}
	for _, c := range v.n.Children {
		if v.s.state[c] == "" {
			value{c, v.s}.refuse("%q of %s is not supported", syntax.Short(c.Key), what)
		}
	}
}

// refused reports whether anything was refused.
func (s *source) refused() bool {
	return slices.ContainsFunc(s.notes, func(n Note) bool { return n.Kind == Refused })
}
