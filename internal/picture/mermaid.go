// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/layout"
)

// Mermaid writes the picture as a Mermaid flowchart; Mermaid does its own
// layout.
func (p *Picture) Mermaid(o Options) string {
	names := p.names()
	var b strings.Builder
	dir := "TD"
	if o.Direction == layout.Right {
		dir = "LR"
	}
	if p.Imported {
		fmt.Fprintf(&b, "---\ntitle: \"%s\"\n---\n", mermaidText([]string{p.title()}))
	}
	fmt.Fprintf(&b, "flowchart %s\n", dir)
	p.eachMember(func(n *Node, indent string) {
		shape := [2]string{"[", "]"}
		switch n.Kind {
		case "condition":
			shape = [2]string{"{{", "}}"}
		case "wait", "fail":
			shape = [2]string{"([", "])"}
		case "loop":
			shape = [2]string{"[[", "]]"}
		}
		fmt.Fprintf(&b, "%s%s%s\"%s\"%s", indent, names[n.ID], shape[0], mermaidText(p.cardText(n, 60)), shape[1])
		if status := p.status(n); status != "" {
			b.WriteString(":::" + status)
		}
		b.WriteString("\n")
	}, func(g *Group, indent string) {
		title := mermaidText([]string{p.groupTitle(g)})
		if title == "" {
			title = "#160;" // a title may not be empty
		}
		fmt.Fprintf(&b, "%ssubgraph %s[\"%s\"]\n", indent, names[g.ID], title)
	}, func(_ *Group, indent string) { b.WriteString(indent + "end\n") })
	for i := range p.Edges {
		e := &p.Edges[i]
		arrow := "-->"
		switch {
		case e.Kind == Reads || e.Untaken || e.Aside() && !e.Taken:
			arrow = "-.->"
		case e.Taken:
			arrow = "==>"
		}
		if label := cmp.Or(e.caption(), e.dataName()); label != "" {
			arrow += "|\"" + mermaidText([]string{label}) + "\"|"
		}
		fmt.Fprintf(&b, "  %s %s %s\n", names[e.From], arrow, names[e.To])
	}
	for i := range p.Groups {
		if p.Groups[i].Role == "step" || p.Groups[i].Dashed() {
			fmt.Fprintf(&b, "  style %s fill:none,stroke-dasharray:3 3\n", names[p.Groups[i].ID])
		}
	}
	if p.Run {
		for _, status := range countOrder {
			fmt.Fprintf(&b, "  classDef %s stroke:%s,stroke-width:2px\n", status, StyleOf(status).Light)
		}
	}
	return b.String()
}

// mermaidText escapes lines for a quoted label: everything that could end it,
// or be taken for markup or an entity.
func mermaidText(lines []string) string {
	var b strings.Builder
	for i, text := range lines {
		if i > 0 {
			b.WriteString("<br/>")
		}
		for _, r := range oneLine(text) {
			if strings.ContainsRune("\"<>&#;`*_\\{}[]()|~", r) {
				fmt.Fprintf(&b, "#%d;", r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
