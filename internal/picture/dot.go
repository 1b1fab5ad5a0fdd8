// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/layout"
)

// DOT writes the picture in the language of Graphviz, which does its own
// layout.
func (p *Picture) DOT(o Options) string {
	names := p.names()
	var b strings.Builder
	dir := "TB"
	if o.Direction == layout.Right {
		dir = "LR"
	}
	fmt.Fprintf(&b, "digraph %s {\n  compound=true; rankdir=%s;\n", dotText([]string{oneLine(p.Name)}, ""), dir)
	if p.Imported { // DOT has no other place for a note about the run
		fmt.Fprintf(&b, "  label=%s; labelloc=t;\n", dotText([]string{p.title()}, ""))
	}
	b.WriteString("  node [shape=box, style=rounded, fontname=\"Helvetica\", fontsize=11];\n  edge [color=\"#8a929c\"];\n")
	// An edge to a cluster is an edge to a node in it, clipped at the cluster's
	// border.
	anchor := map[string]string{}
	var open []*Group
	p.eachMember(func(n *Node, indent string) {
		fmt.Fprintf(&b, "%s%s [label=%s", indent, names[n.ID], dotText(p.cardText(n, 60), "\\l"))
		if status := p.status(n); status != "" {
			fmt.Fprintf(&b, ", color=%q", StyleOf(status).Light)
		}
		if n.Untaken {
			b.WriteString(", style=\"rounded,dashed\"")
		}
		b.WriteString("];\n")
		for _, g := range open {
			if anchor[g.ID] == "" {
				anchor[g.ID] = names[n.ID]
			}
		}
	}, func(g *Group, indent string) {
		open = append(open, g)
		style := "rounded"
		if g.Role == "step" || g.Dashed() {
			style = "rounded,dashed"
		}
		fmt.Fprintf(&b, "%ssubgraph cluster_%s {\n%s  label=%s; labeljust=l; style=%q; color=\"#8a929c\"; fontname=\"Helvetica\"; fontsize=10;\n",
			indent, names[g.ID], indent, dotText([]string{p.groupTitle(g)}, ""), style)
	}, func(g *Group, indent string) {
		open = open[:len(open)-1]
		if anchor[g.ID] == "" { // an empty graph
			anchor[g.ID] = names[g.ID] + "_"
			fmt.Fprintf(&b, "%s  %s_ [shape=point, style=invis];\n", indent, names[g.ID])
		}
		b.WriteString(indent + "}\n")
	})
	for i := range p.Edges {
		p.dotEdge(&b, &p.Edges[i], names, anchor)
	}
	b.WriteString("}\n")
	return b.String()
}

func (p *Picture) dotEdge(b *strings.Builder, e *Edge, names, anchor map[string]string) {
	from, to := names[e.From], names[e.To]
	var attrs []string
	if a, group := anchor[e.From]; group {
		attrs = append(attrs, "ltail=cluster_"+from)
		from = a
	}
	if a, group := anchor[e.To]; group {
		attrs = append(attrs, "lhead=cluster_"+to)
		to = a
	}
	switch {
	case e.Critical:
		attrs = append(attrs, `penwidth=3.5, color="#7a5c00"`)
	case e.Taken:
		attrs = append(attrs, `penwidth=2, color="#16191d"`)
	case e.Untaken, e.Aside(), e.Kind == Reads:
		attrs = append(attrs, "style=dashed")
	}
	if e.Kind == Reads {
		attrs = append(attrs, "constraint=false, label="+dotText([]string{e.Label}, ""))
	}
	if word := e.caption(); word != "" {
		attrs = append(attrs, "label="+dotText([]string{word}, ""))
	}
	fmt.Fprintf(b, "  %s -> %s", from, to)
	if len(attrs) > 0 {
		fmt.Fprintf(b, " [%s]", strings.Join(attrs, ", "))
	}
	b.WriteString(";\n")
}

// dotText quotes lines for DOT. Each is terminated with end; "" only joins
// them.
func dotText(lines []string, end string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, text := range lines {
		b.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;").Replace(oneLine(text)) + end)
	}
	b.WriteByte('"')
	return b.String()
}
