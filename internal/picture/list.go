// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"strings"
)

// list writes the steps in the order of the definition, indented by nesting.
// Where a step does not wait for the one above it, the list names its predecessors.
func (p *Picture) list(width int) string {
	l := &lister{p: p, width: width, inner: p.members(), before: map[string][]string{}}
	for i := range p.Edges {
		if e := &p.Edges[i]; e.Kind == Follows {
			l.before[e.To] = append(l.before[e.To], strings.TrimSuffix(e.From, "/"))
		}
	}
	l.b.WriteString(p.header(width))
	l.members("", "")
	return l.b.String()
}

type lister struct {
	p      *Picture
	width  int
	b      strings.Builder
	inner  map[string][]member
	before map[string][]string
}

// members writes the contents of a group. A step and the graphs it owns share a
// frame; the graphs are listed below the step.
func (l *lister) members(group, indent string) {
	above := ""
	for _, m := range l.inner[group] {
		switch {
		case m.node != nil:
			l.node(m.node, indent, above)
			above = m.node.ID
		case m.group.Role == "step":
			inner := l.inner[m.group.ID]
			owner := inner[0].node
			l.node(owner, indent, above)
			above = owner.ID
			for _, g := range inner[1:] {
				l.write(indent + "  " + l.p.groupTitle(g.group))
				l.members(g.group.ID, indent+"    ")
			}
		}
	}
}

// node writes a step. above is the step listed before it in its group.
func (l *lister) node(n *Node, indent, above string) {
	text := indent
	if status := l.p.status(n); status != "" {
		text += StyleOf(status).Glyph + " "
	}
	if n.Critical {
		text += "* "
	}
	text += n.Label
	kind := n.Kind
	if n.Kind == "action" && len(n.Lines) > 0 {
		kind = n.Lines[0]
	}
	text += " (" + kind + ")"
	if before := l.before[n.ID]; len(before) > 1 || len(before) == 1 && before[0] != above || len(before) == 0 && above != "" {
		text += l.after(before)
	}
	if l.p.Run {
		text += ": " + strings.Join(l.p.cardLines(n), ", ")
	}
	l.write(text)
}

func (l *lister) after(before []string) string {
	if len(before) == 0 {
		return ", at once"
	}
	var names []string
	for i, id := range before {
		if i == 3 && len(before) > 4 {
			names = append(names, "…")
			break
		}
		names = append(names, oneLine(id[strings.LastIndexAny(id, ".]")+1:]))
	}
	return ", after " + strings.Join(names, ", ")
}

func (l *lister) write(text string) { l.b.WriteString(fitColumns(text, l.width) + "\n") }
