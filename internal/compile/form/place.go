// SPDX-License-Identifier: Apache-2.0

package form

import (
	"slices"
	"strconv"

	"github.com/roux-engine/roux/internal/jsonx"
)

// A Spot is what a form says of one value of a text, for editors: which fields or texts it may have.
// The zero Spot is a value of which it says nothing.
type Spot struct {
	shape  *shape
	object *object // in which the value is; nil = it is a document
	name   string  // of its field in there; "" = it is an entry of a list or a map
}

// Walk calls f for each value of a document, from the outside inward, with its JSON pointer and what the
// form says of it. inner returns the form of a document within it. f returns false to leave out what is
// within a value.
func (f *Form) Walk(doc *jsonx.Node, pointer string, inner func(*jsonx.Node) *Form, each func(n *jsonx.Node, pointer string, at Spot) bool) {
	root := &shape{form: formObject, object: f.shapes().root}
	walker{inner, each}.walk(doc, pointer, Spot{shape: root})
}

type walker struct {
	inner func(*jsonx.Node) *Form
	each  func(*jsonx.Node, string, Spot) bool
}

func (w walker) walk(n *jsonx.Node, pointer string, at Spot) {
	if !w.each(n, pointer, at) {
		return
	}
	if at.shape != nil && at.shape.rule.Document && n.Kind == jsonx.Object {
		doc := Unwrapped(n)
		if doc != n {
			pointer += "/" + wrapper
		}
		at = Spot{shape: &shape{form: formObject, object: w.inner(doc).shapes().root}, object: at.object, name: at.name}
		n = doc
	}
	for i, c := range n.Children {
		token := strconv.Itoa(i)
		if n.Kind == jsonx.Object {
			token = jsonx.EscapeToken(c.Key)
		}
		w.walk(c, pointer+"/"+token, at.child(n, c))
	}
}

// child returns what the form says of a child of a value.
func (s Spot) child(n, c *jsonx.Node) Spot {
	switch {
	case s.shape == nil:
	case s.shape.form == formList && n.Kind == jsonx.Array:
		return Spot{shape: s.shape.elem, object: s.object}
	case s.shape.form == formMap && n.Kind == jsonx.Object:
		return Spot{shape: s.shape.elem}
	case s.shape.form == formObject && n.Kind == jsonx.Object:
		o := s.of(n)
		if f := o.byName[c.Key]; f != nil {
			return Spot{shape: f.shape.pick(n), object: o, name: f.name}
		}
	}
	return Spot{}
}

// of returns the object that a node is, which may be written in another way.
func (s Spot) of(n *jsonx.Node) *object {
	if o := s.shape.object; o.also != nil && n.Child(o.key) != nil {
		return o.also
	}
	return s.shape.object
}

// Object returns the name of the object that the value is, as [Form.Fields] takes it, or "".
func (s Spot) Object() string {
	if s.shape == nil || s.shape.form != formObject {
		return ""
	}
	return s.shape.object.name
}

// Field returns the field that the value belongs to; false = it is none of the form's.
func (s Spot) Field() (Field, bool) {
	if s.object == nil || s.name == "" {
		return Field{}, false
	}
	f := s.object.byName[s.name]
	return s.object.describeField(f), true
}

// Fields returns the fields that the value may have, those that n has already included; nil = it is no
// object, or one of any fields. n may be nil.
func (s Spot) Fields(n *jsonx.Node) []Field {
	switch {
	case s.shape == nil || s.shape.form != formObject:
		return nil
	case n != nil && n.Kind == jsonx.Object:
		return s.of(n).describeFields()
	}
	fields := s.shape.object.describeFields()
	if also := s.shape.object.also; also != nil {
		for _, f := range also.describeFields() {
			if s.shape.object.byName[f.Name] == nil {
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// Texts returns the values that the value may have, if they are few: those of a list of words, or of those
// that decide what another field is.
func (s Spot) Texts() []string {
	if s.shape == nil {
		return nil
	}
	var texts []string
	switch {
	case s.shape.rule.Enum != nil:
		texts = slices.Clone(s.shape.rule.Enum)
	case s.shape.form == formBool:
		return []string{"true", "false"}
	case s.shape.rule.Short != "":
		if f := s.shape.object.byName[s.shape.rule.Short]; f != nil {
			texts = append(texts, f.shape.rule.Enum...)
		}
	}
	if s.shape.rule.Toggle {
		texts = append(texts, "true", "false")
	}
	if s.object != nil && s.name != "" {
		for _, f := range s.object.fields {
			if f.shape.form == formVariant && f.shape.rule.By == s.name {
				for _, c := range f.shape.rule.Cases {
					texts = append(texts, c.Value)
				}
			}
		}
	}
	return texts
}

// Pattern returns the pattern of a text, or nil.
func (s Spot) Pattern() *Pattern {
	if s.shape == nil {
		return nil
	}
	return s.shape.rule.Pattern
}

// List reports whether the value is a list.
func (s Spot) List() bool { return s.shape != nil && s.shape.form == formList }

// Map reports whether the value is an object whose names the author chooses.
func (s Spot) Map() bool { return s.shape != nil && s.shape.form == formMap }
