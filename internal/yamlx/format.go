// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/jsonx"
	"go.yaml.in/yaml/v4"
)

// An Order is the order of the names of a mapping. Names that are not in it follow, or stand where it has
// the name "", in their original order. A nil Order keeps everything as it is.
type Order struct {
	Names  []string
	Fields map[string]*Order // the order of the value of a name
	Items  *Order            // the order of each item of a list
}

func (o *Order) field(name string) *Order {
	if o == nil {
		return nil
	}
	return o.Fields[name]
}

func (o *Order) items() *Order {
	if o == nil {
		return nil
	}
	return o.Items
}

// rank returns the position of a name.
func (o *Order) rank(name string) int {
	if i := slices.Index(o.Names, name); i >= 0 {
		return i
	}
	if i := slices.Index(o.Names, ""); i >= 0 {
		return i
	}
	return len(o.Names)
}

// Format formats a YAML text in the canonical layout: two spaces per level, names in their
// order, no more quotes than needed, at most one empty line in a row, comments next to what
// they describe. The result has the same meaning: Format parses it again and returns an
// error of rule [RuleLoss] if anything differs. If Parse refuses the text, Format returns
// the same problems.
func Format(src []byte, lim jsonx.Limits, order *Order) ([]byte, []*jsonx.Error) {
	lim = defaults(lim)
	before, problems := Parse(src, lim)
	if len(problems) > 0 {
		return nil, problems
	}
	text := unified(src)
	out, comments, err := format(text, lim, order)
	if err != nil {
		return nil, []*jsonx.Error{err}
	}
	lim.Bytes *= 2 // the result may be longer; it is parsed only for the comparison
	lim.Tokens *= 2
	after, problems := Parse(out, lim)
	again, kept, err := format(out, lim, order)
	switch {
	case len(problems) > 0 || err != nil:
		return nil, []*jsonx.Error{loss("the result could not be read")}
	case !reflect.DeepEqual(before.Value(), after.Value()):
		return nil, []*jsonx.Error{loss("the result would mean something else")}
	case !slices.Equal(comments, kept):
		return nil, []*jsonx.Error{loss("a comment would be lost")}
	case !bytes.Equal(out, again):
		return nil, []*jsonx.Error{loss("formatting the result again would change it")}
	}
	return out, nil
}

// RuleLoss is the rule of a text that cannot be formatted without loss.
const RuleLoss = "loss"

func loss(msg string) *jsonx.Error {
	return &jsonx.Error{Rule: RuleLoss, Msg: "this text cannot be formatted: " + msg, Hint: "simplify its comments and line breaks"}
}

// unified returns a text without a byte order mark, and with one kind of line breaks.
func unified(src []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(src, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
}

// A Comment is a comment of a text, with its # sign.
type Comment struct {
	Line int // from 1
	Text string
}

// Comments returns the comments of a text, in their order; none of one that cannot be read.
func Comments(src []byte, lim jsonx.Limits) (list []Comment) {
	text := unified(src)
	root, problem := load(text, defaults(lim))
	if problem != nil {
		return nil
	}
	s := newScan(text)
	s.tree(root)
	s.run()
	for _, c := range s.comments {
		list = append(list, Comment{c.line, c.text})
	}
	return list
}

// format formats a text and returns its comments, sorted.
func format(text []byte, lim jsonx.Limits, order *Order) (out []byte, comments []string, problem *jsonx.Error) {
	root, problem := load(text, lim)
	if problem != nil {
		return nil, nil, problem
	}
	if bytes.HasPrefix(text, []byte("%")) {
		return nil, nil, loss("it begins with a YAML directive")
	}
	s := newScan(text)
	s.tree(root)
	s.run()
	for _, c := range s.comments {
		comments = append(comments, c.text)
	}
	slices.Sort(comments)
	d := &document{scan: s}
	if !d.isBlock(root) {
		if len(comments) > 0 {
			return nil, nil, loss("a single value has comments")
		}
		var b strings.Builder
		value, lines := d.value(root, false)
		b.WriteString(value + "\n")
		for _, line := range lines {
			if line != "" {
				line = "  " + line
			}
			b.WriteString(line + "\n")
		}
		return []byte(b.String()), nil, nil
	}
	d.root = d.block(root, nil)
	d.attach()
	sortBlock(d.root, order)
	e := &emitter{d: d}
	e.document()
	return []byte(e.b.String()), comments, nil
}

// sortBlock sorts the names of a mapping, and of all mappings below it.
func sortBlock(b *block, order *Order) {
	if order != nil && !b.seq && order.Names != nil {
		slices.SortStableFunc(b.entries, func(x, y *entry) int { return order.rank(x.key.Value) - order.rank(y.key.Value) })
	}
	for _, e := range b.entries {
		below := order.items()
		if !b.seq {
			below = order.field(e.key.Value)
		}
		if e.child != nil {
			sortBlock(e.child, below)
		} else {
			sortFlow(e.val, below)
		}
	}
}

// sortFlow is sortBlock for collections in brackets.
func sortFlow(n *yaml.Node, order *Order) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, c := range n.Content {
			sortFlow(c, order.items())
		}
	case yaml.MappingNode:
		if order != nil && order.Names != nil {
			pairs := slices.Collect(slices.Chunk(n.Content, 2))
			slices.SortStableFunc(pairs, func(x, y []*yaml.Node) int { return order.rank(x[0].Value) - order.rank(y[0].Value) })
			n.Content = slices.Concat(pairs...)
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			sortFlow(n.Content[i+1], order.field(n.Content[i].Value))
		}
	}
}

// FormatJSON is Format for JSON: two spaces per level, names in their order.
func FormatJSON(src []byte, lim jsonx.Limits, order *Order) ([]byte, []*jsonx.Error) {
	lim = defaults(lim)
	root, problems := jsonx.Parse(src, lim)
	if len(problems) > 0 {
		return nil, problems
	}
	before := root.Value()
	sortTree(root, order)
	var b bytes.Buffer
	writeJSON(&b, root, "")
	b.WriteByte('\n')
	lim.Bytes *= 2
	after, problems := jsonx.Parse(b.Bytes(), lim)
	if len(problems) > 0 || !reflect.DeepEqual(before, after.Value()) {
		return nil, []*jsonx.Error{loss("the result would mean something else")}
	}
	return b.Bytes(), nil
}

func sortTree(n *jsonx.Node, order *Order) {
	if order != nil && n.Kind == jsonx.Object && order.Names != nil {
		slices.SortStableFunc(n.Children, func(x, y *jsonx.Node) int { return order.rank(x.Key) - order.rank(y.Key) })
	}
	for _, c := range n.Children {
		if n.Kind == jsonx.Object {
			sortTree(c, order.field(c.Key))
		} else {
			sortTree(c, order.items())
		}
	}
}

// writeJSON writes a tree with its fields in their order.
func writeJSON(b *bytes.Buffer, n *jsonx.Node, indent string) {
	open, end := "{", "}"
	switch n.Kind {
	case jsonx.String:
		b.WriteString(jsonText(n.Text))
		return
	case jsonx.Array:
		open, end = "[", "]"
	case jsonx.Object:
	default:
		b.WriteString(scalarText(n, 0))
		return
	}
	b.WriteString(open)
	for i, c := range n.Children {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "\n%s  ", indent)
		if n.Kind == jsonx.Object {
			b.WriteString(jsonText(c.Key) + ": ")
		}
		writeJSON(b, c, indent+"  ")
	}
	if len(n.Children) > 0 {
		b.WriteString("\n" + indent)
	}
	b.WriteString(end)
}

// EncodeJSON returns a tree as JSON with its fields in their order and two spaces per
// level.
func EncodeJSON(n *jsonx.Node) []byte {
	var b bytes.Buffer
	writeJSON(&b, n, "")
	b.WriteByte('\n')
	return b.Bytes()
}
