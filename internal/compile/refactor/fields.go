// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A field is one of an object in the text, with what it has to be, as YAML where fields are inserted.
type field struct{ name, value string }

// plain matches texts that need no quotes.
var plain = regexp.MustCompile(`^[A-Za-z_][\w.-]*$`)

// scalar writes a text as one of YAML, also within brackets.
func scalar(text string) string {
	if plain.MatchString(text) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(text)) {
		return text
	}
	quoted, _ := jsonx.Canonical(text) // no text fails
	return string(quoted)
}

// setFields changes fields of an object, and adds those that it has not.
func (m *move) setFields(pointer string, fields ...field) error {
	n := m.source.Tree().Find(pointer)
	var added []field
	for _, f := range fields {
		c := n.Child(f.name)
		switch {
		case c == nil:
			added = append(added, field{f.name, scalar(f.value)})
			continue
		case c.Text == f.value:
			continue
		case c.Kind != jsonx.String || c.Style == jsonx.Literal || c.Style == jsonx.Folded:
			return refuse("%q is written on several lines", f.name).in(pointer + "/" + f.name)
		}
		from := m.offset(placeOf(c.Pos))
		line := []rune(string(m.Bytes[from:m.line(int(c.Pos.Line)+1)]))
		to := from + len(string(line[:min(len(line), int(c.Pos.Len))]))
		if got := strings.Trim(string(m.Bytes[from:to]), `'"`); got != c.Text {
			return refuse("%q is written in a way that cannot be changed", f.name).in(pointer + "/" + f.name)
		}
		m.edits = append(m.edits, edit{from, to, scalar(f.value)})
	}
	for _, f := range added {
		if err := m.insert(n, pointer, after(n, f.name), []field{f}); err != nil {
			return err
		}
	}
	return nil
}

// after returns the place of a new field of an edge: behind the id of the node that it is about.
func after(edge *jsonx.Node, name string) int {
	end := "target_node_id"
	if name == "source_output_key" {
		end = "source_node_id"
	}
	k := slices.IndexFunc(edge.Children, func(c *jsonx.Node) bool { return c.Key == end }) + 1
	if k == len(edge.Children) {
		k = 1
	}
	return k
}

func placeOf(p jsonx.Pos) fault.Pos { return fault.Pos{Line: int(p.Line), Col: int(p.Col)} }

// insert adds fields to an object before field number k of it, which begins on a line of its own or is in brackets.
func (m *move) insert(n *jsonx.Node, pointer string, k int, fields []field) error {
	if len(fields) == 0 {
		return nil
	}
	if k >= len(n.Children) {
		return refuse("there is no place for the field %q", fields[0].name).in(pointer)
	}
	next := placeOf(n.Children[k].KeyPos)
	at := m.offset(next)
	var with strings.Builder
	if start := m.offset(placeOf(n.Pos)); m.Bytes[start] == '{' {
		for _, f := range fields {
			with.WriteString(f.name + ": " + f.value + ", ")
		}
		m.edits = append(m.edits, edit{at, at, with.String()})
		return nil
	}
	indent := strings.Repeat(" ", next.Col-1)
	line := next.Line
	if strings.TrimSpace(string(m.Bytes[m.line(line):at])) == "" {
		line = m.above(line, next.Col-1)
		at = m.line(line)
		for _, f := range fields {
			with.WriteString(indent + f.name + ": " + f.value + m.breaks("\n"))
		}
	} else { // the first field of an item, after its dash
		for _, f := range fields {
			with.WriteString(f.name + ": " + f.value + m.breaks("\n") + indent)
		}
	}
	m.edits = append(m.edits, edit{at, at, with.String()})
	return nil
}

// bindInputs gives the steps that move bindings in place of what edges, or inputs of the run, gave to them.
func (m *move) bindInputs() error {
	var steps []*recipe.Step
	lists := map[*recipe.Step][]field{}
	for _, b := range m.edges.bound {
		if lists[b.step] == nil {
			steps = append(steps, b.step)
		}
		lists[b.step] = append(lists[b.step], field{scalar(b.label), scalar(b.expression)})
	}
	for _, s := range steps {
		pointer := m.source.Pointer(s.Ptr)
		n := m.source.Tree().Find(pointer)
		if given := n.Child("inputBindings"); given != nil {
			if err := m.insert(given, pointer+"/inputBindings", 0, lists[s]); err != nil {
				return err
			}
			continue
		}
		var list []string
		for _, f := range lists[s] {
			list = append(list, f.name+": "+f.value)
		}
		if err := m.insert(n, pointer, 1, []field{{"inputBindings", "{" + strings.Join(list, ", ") + "}"}}); err != nil {
			return err
		}
	}
	return nil
}
