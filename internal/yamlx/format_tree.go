// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/jsonx"
	"go.yaml.in/yaml/v4"
)

// A document is a text as a tree of entries with their comments.
type document struct {
	*scan
	root    *block
	head    []commentLine // before everything
	blank   bool          // there is an empty line between head and the first entry
	entries []*entry
}

// A block is a list or mapping with one entry per line.
type block struct {
	seq     bool
	col     int        // of its entries; not valid if it was in brackets
	flow    *yaml.Node // set if it was in brackets
	up      *block
	entries []*entry
	foot    []commentLine // after the last entry
}

// An entry is an item of a list, or a name with its value.
type entry struct {
	in    *block
	key   *yaml.Node // nil for an item
	val   *yaml.Node
	child *block // when val is written as a block
	position
	head  []commentLine
	tail  string // on the entry's own line
	blank bool   // there is an empty line before it
}

// A commentLine is a comment on a line of its own.
type commentLine struct {
	text  string
	blank bool // there is an empty line before it
}

// isBlock reports whether a node is written with one entry per line: it was before, or
// there is a comment inside its brackets.
func (d *document) isBlock(n *yaml.Node) bool {
	if n.Kind == yaml.ScalarNode || len(n.Content) == 0 {
		return false
	}
	if n.Style&yaml.FlowStyle == 0 {
		return true
	}
	i, _ := slices.BinarySearchFunc(d.comments, at(n), func(c *comment, p position) int {
		if (position{c.line, c.col}).before(p) {
			return -1
		}
		return 1
	})
	return i < len(d.comments) && d.insideFlow(d.comments[i], n)
}

// insideFlow reports whether a comment is between the brackets of n.
func (d *document) insideFlow(c *comment, n *yaml.Node) bool {
	end, ok := d.ends[n]
	place := position{c.line, c.col}
	return ok && at(n).before(place) && place.before(end)
}

// block returns the entries of a node, in the order of the text.
func (d *document) block(n *yaml.Node, up *block) *block {
	b := &block{seq: n.Kind == yaml.SequenceNode, col: n.Column, up: up}
	if n.Style&yaml.FlowStyle != 0 {
		b.flow = n
	}
	step := 2
	if b.seq {
		step = 1
	}
	for i := 0; i+step <= len(n.Content); i += step {
		e := &entry{in: b, val: n.Content[i+step-1], position: at(n.Content[i])}
		if !b.seq {
			e.key = n.Content[i]
		} else if b.flow == nil {
			e.position = d.dash(e.position, n.Column)
		}
		if e.line > 1 {
			e.blank = d.scan.blank(e.line - 1)
		}
		b.entries = append(b.entries, e)
		d.entries = append(d.entries, e)
		if d.isBlock(e.val) {
			e.child = d.block(e.val, b)
		}
	}
	return b
}

// dash returns the position of the dash of an item whose value is at s.
func (d *document) dash(s position, col int) position {
	for l := s.line; l >= 1; l-- {
		if line := d.line(l); !d.content[l] && len(line) >= col && line[col-1] == '-' && strings.TrimSpace(string(line[:col-1])) == "" ||
			l == s.line && len(line) >= col && line[col-1] == '-' && s.col > col {
			return position{l, col}
		}
	}
	return s
}

// attach attaches each comment to the entry that it describes.
func (d *document) attach() {
	first := d.entries[0]
	d.blank = first.blank
	for _, c := range d.comments {
		n := commentLine{c.text, c.line > 1 && d.scan.blank(c.line-1)}
		place := position{c.line, c.col}
		switch {
		case place.before(first.position):
			d.head = append(d.head, n)
		case c.own:
			d.attachOwn(c, n)
		default:
			e := d.entries[d.entriesBefore(place)-1]
			if e.tail != "" {
				e.head = append(e.head, n)
			} else {
				e.tail = c.text
			}
		}
	}
}

// entriesBefore returns how many entries begin before a position.
func (d *document) entriesBefore(place position) int {
	n, _ := slices.BinarySearchFunc(d.entries, place, func(e *entry, p position) int {
		if e.position.before(p) {
			return -1
		}
		return 1
	})
	return n
}

// attachOwn attaches a comment on its own line to the entry after it, or, if the comment is
// indented deeper, to the end of the block before it.
func (d *document) attachOwn(c *comment, n commentLine) {
	i := d.entriesBefore(position{c.line, c.col})
	prev := d.entries[i-1]
	var next *entry
	if i < len(d.entries) {
		next = d.entries[i]
	}
	if b := d.flowOf(c, prev); b != nil {
		// Inside brackets, columns have no meaning.
		if next != nil && d.within(next, b) {
			next.head = append(next.head, n)
		} else {
			b.foot = append(b.foot, n)
		}
		return
	}
	if next != nil && c.col <= next.col {
		next.head = append(next.head, n)
		return
	}
	owner := (*block)(nil)
	for b := prev.in; b != nil; b = b.up {
		if b.flow != nil || next != nil && b.col <= next.col {
			continue
		}
		owner = b
		if b.col <= c.col {
			break
		}
	}
	switch {
	case owner != nil:
		owner.foot = append(owner.foot, n)
	case next != nil:
		next.head = append(next.head, n)
	default:
		d.root.foot = append(d.root.foot, n)
	}
}

// flowOf returns the innermost block that was in brackets and contains a comment.
func (d *document) flowOf(c *comment, prev *entry) *block {
	b := prev.in
	if prev.child != nil {
		b = prev.child
	}
	for ; b != nil; b = b.up {
		if b.flow != nil && d.insideFlow(c, b.flow) {
			return b
		}
	}
	return nil
}

func (d *document) within(e *entry, b *block) bool {
	for in := e.in; in != nil; in = in.up {
		if in == b {
			return true
		}
	}
	return false
}

// value returns a node as it is written on the line of its name, and the further lines of a
// block scalar without indentation. flow is set inside brackets.
func (d *document) value(n *yaml.Node, flow bool) (text string, lines []string) {
	switch {
	case n.Kind == yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		for i, c := range n.Content {
			parts[i], _ = d.value(c, true)
		}
		return "[" + strings.Join(parts, ", ") + "]", nil
	case n.Kind == yaml.MappingNode:
		var parts []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, _ := d.value(n.Content[i+1], true)
			parts = append(parts, d.name(n.Content[i])+": "+v)
		}
		return "{" + strings.Join(parts, ", ") + "}", nil
	case n.Style&blockStyle != 0 && d.body[n] != nil:
		return d.body[n][0], d.body[n][1:]
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|blockStyle) != 0:
		if block, ok := literal(n.Value, 0); ok && !flow {
			lines = strings.Split(block, "\n")
			return lines[0], lines[1:]
		}
		return minimallyQuoted(n.Value), nil
	case n.Value == "" && flow:
		return "null", nil
	case d.isOneLine(n):
		return n.Value, nil
	}
	return minimallyQuoted(n.Value), nil // plain text over several lines
}

// isOneLine reports whether plain text is on one line of the source, exactly as its value.
// It reads only as much of the line as the value is long, because a line may be as long as
// the whole text.
func (d *document) isOneLine(n *yaml.Node) bool {
	line, i := d.line(n.Line), n.Column-1
	for _, r := range n.Value {
		if i >= len(line) || line[i] != r {
			return false
		}
		i++
	}
	return true
}

// name returns a name as it is written: plain ones stay, others lose unnecessary quotes.
func (d *document) name(k *yaml.Node) string {
	if k.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		return k.Value
	}
	if plain(k.Value) && k.Value != "<<" && !ambiguous(k.Value) {
		return k.Value
	}
	return quotes(k.Value)
}

// minimallyQuoted returns text with quotes only if it needs them.
func minimallyQuoted(s string) string {
	var as jsonx.Node
	if plain(s) && !ambiguous(s) {
		if msg, _ := resolve(s, &as); msg == "" && as.Kind == jsonx.String {
			return s
		}
	}
	return quotes(s)
}

// quotes returns text in single quotes if they need no escapes, because expressions often
// contain double quotes; else in the quotes that need fewer escapes.
func quotes(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !visible(r) }) ||
		strings.Contains(s, "'") && !strings.ContainsAny(s, `"\`) {
		return quoted(s)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
