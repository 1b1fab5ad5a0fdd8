// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// width is the maximum length of a line with a collection in brackets; a longer one is
// written as a block.
const width = 120

// An emitter writes a document in the canonical layout.
type emitter struct {
	d *document
	b strings.Builder
}

func (e *emitter) document() {
	for i, n := range e.d.head {
		if n.blank && i > 0 {
			e.b.WriteByte('\n')
		}
		e.b.WriteString(n.text + "\n")
	}
	if len(e.d.head) > 0 && e.d.blank {
		e.b.WriteByte('\n')
	}
	e.block(e.d.root, 0, false)
}

// block writes entries at an indentation. inline is set when the first one continues the
// line of a dash, before which its comments were written.
func (e *emitter) block(b *block, indent int, inline bool) {
	for i, x := range b.entries {
		e.open(x, indent)
		if i > 0 || !inline {
			e.notes(e.headOf(x), indent, i == 0)
			if x.blank && i > 0 {
				e.b.WriteByte('\n')
			}
			e.indent(indent)
		}
		e.entry(x, indent)
	}
	e.notes(b.foot, indent, false)
}

func (e *emitter) indent(n int) { e.b.WriteString(strings.Repeat(" ", n)) }

func (e *emitter) notes(notes []commentLine, indent int, first bool) {
	for i, n := range notes {
		if n.blank && (i > 0 || !first) {
			e.b.WriteByte('\n')
		}
		e.indent(indent)
		e.b.WriteString(n.text + "\n")
	}
}

// headOf returns the comments that are written before an entry. For an item whose value is
// a block they include those of the block's first entry, because that entry is on the line
// of the dash.
func (e *emitter) headOf(x *entry) []commentLine {
	notes := x.head
	if x.in.seq && x.child != nil {
		notes = append([]commentLine{}, notes...)
		if x.tail != "" {
			notes = append(notes, commentLine{text: x.tail})
		}
		notes = append(notes, e.headOf(x.child.entries[0])...)
	}
	return notes
}

// entry writes an entry, beginning with its name or dash.
func (e *emitter) entry(x *entry, indent int) {
	tail := ""
	if x.tail != "" {
		tail = " " + x.tail
	}
	switch {
	case x.in.seq && x.child != nil:
		e.b.WriteString("- ")
		e.block(x.child, indent+2, true)
		return
	case x.in.seq:
		e.b.WriteByte('-')
	default:
		e.b.WriteString(e.d.name(x.key) + ":")
	}
	if x.child != nil {
		e.b.WriteString(tail + "\n")
		e.block(x.child, indent+2, false)
		return
	}
	text, lines := e.d.value(x.val, false)
	if text != "" {
		text = " " + text
	}
	e.b.WriteString(text + tail + "\n")
	for _, line := range lines {
		if line != "" {
			e.indent(indent + 2)
		}
		e.b.WriteString(line + "\n")
	}
}

// open converts a collection in brackets that does not fit its line into a block. It must
// be called before headOf.
func (e *emitter) open(x *entry, indent int) {
	if x.child == nil && e.tooLong(x, indent) {
		x.child = e.d.blockOf(x.val, x.in)
	}
	if x.in.seq && x.child != nil {
		e.open(x.child.entries[0], indent+2)
	}
}

// tooLong reports whether a collection in brackets does not fit its line.
func (e *emitter) tooLong(x *entry, indent int) bool {
	if x.val.Kind == yaml.ScalarNode || len(x.val.Content) == 0 {
		return false
	}
	text, _ := e.d.value(x.val, false)
	name := "-"
	if x.key != nil {
		name = e.d.name(x.key) + ":"
	}
	return indent+utf8.RuneCountInString(name)+1+utf8.RuneCountInString(text) > width
}

// blockOf converts a collection in brackets without comments into a block. Collections
// inside it stay in brackets if they fit.
func (d *document) blockOf(n *yaml.Node, up *block) *block {
	b := &block{seq: n.Kind == yaml.SequenceNode, flow: n, up: up}
	for i := 0; i < len(n.Content); i++ {
		x := &entry{in: b, val: n.Content[i]}
		if !b.seq {
			x.key = n.Content[i]
			i++
			x.val = n.Content[i]
		}
		b.entries = append(b.entries, x)
	}
	return b
}
