// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/layout"
)

// Sizes of a card and of the space around it, in pixels.
const (
	cardWidth  = 200
	cardHeight = 56
	lineHeight = 16
	nameSize   = 13
	lineSize   = 12
	chipSize   = 11
	margin     = 24
	headHeight = 32
)

// SVG writes the picture as one self-contained document with both themes. It
// has no script and refers to no font or other external resource.
func (p *Picture) SVG(o Options) (string, error) {
	d, err := place(p.pixelGraph(o))
	if err != nil {
		return "", err
	}
	w := max(d.W, pixels(p.Name, 16)+pixels(p.Note, lineSize)+16, cardWidth) + 2*margin
	h := d.H + 2*margin + headHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n", escape(p.title()), escape(p.summary()))
	b.WriteString("<style>\n" + stylesheet() + "</style>\n")
	fmt.Fprintf(&b, `<rect class="canvas" width="%d" height="%d"/>`+"\n", w, h)
	fmt.Fprintf(&b, `<text class="head" x="%d" y="%d">%s<tspan class="second" dx="12">%s</tspan></text>`+"\n", margin, margin+6, escape(oneLine(p.Name)), escape(oneLine(p.Note)))
	fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", (w-d.W)/2, margin+headHeight)
	p.svgGroups(&b, d)
	p.svgEdges(&b, d, o)
	for i := range p.Nodes {
		p.svgNode(&b, &p.Nodes[i], d.boxes[p.Nodes[i].ID])
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String(), nil
}

func (p *Picture) title() string {
	if p.Run {
		return strings.TrimSpace("Run of " + oneLine(p.Name) + ": " + oneLine(p.Note))
	}
	return "Recipe " + oneLine(p.Name)
}

// summary describes the picture in a sentence, for screen readers.
func (p *Picture) summary() string {
	counts := map[string]int{}
	for i := range p.Nodes {
		counts[p.status(&p.Nodes[i])]++
	}
	text := fmt.Sprintf("A graph of %d steps", len(p.Nodes))
	if !p.Run {
		return text + "."
	}
	var parts []string
	for _, status := range countOrder {
		if counts[status] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[status], statusWord(status)))
		}
	}
	return text + ": " + strings.Join(parts, ", ") + "."
}

func (p *Picture) pixelGraph(o Options) *layout.Graph {
	g := p.graph(func(n *Node) (int, int) {
		return cardWidth, cardHeight + lineHeight*max(0, len(p.cardRows(n))-1)
	}, func(g *Group) layout.Group {
		if g.Role == "step" {
			return layout.Group{Pad: [4]int{12, 12, 12, 12}}
		}
		return layout.Group{Pad: [4]int{28, 14, 14, 14}, W: min(cardWidth+28, pixels(g.Title, chipSize)+24), H: 44}
	})
	g.Direction, g.Style, g.MaxRank = o.Direction, layout.Curved, maxPerRank
	g.BoxGap, g.RankGap, g.LineGap, g.PortGap = 24, 40, 10, 12
	return g
}

func (p *Picture) svgGroups(b *strings.Builder, d *placement) {
	// Outer groups come first, so that inner ones are drawn over them.
	groups := slices.Clone(p.Groups)
	slices.SortStableFunc(groups, func(x, y Group) int { return d.boxes[y.ID].W*d.boxes[y.ID].H - d.boxes[x.ID].W*d.boxes[x.ID].H })
	for i := range groups {
		g, box := &groups[i], d.boxes[groups[i].ID]
		class := "group"
		if g.Role == "step" {
			class = "frame"
		}
		if g.Dashed() {
			class += " dashed"
		}
		if g.Untaken {
			class += " untaken"
		}
		fmt.Fprintf(b, `<g class="%s"><rect x="%d" y="%d" width="%d" height="%d" rx="6"/>`, class, box.X, box.Y, box.W, box.H)
		if g.Title != "" {
			title := g.Title
			if g.Untaken {
				title += " (not taken)"
			}
			fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`, box.X+10, box.Y+17, escape(fit(title, chipSize, box.W-20)))
		}
		b.WriteString("</g>\n")
	}
}

func (p *Picture) svgEdges(b *strings.Builder, d *placement, o Options) {
	rank := func(e *Edge) int {
		switch {
		case e.Critical:
			return 3
		case e.Taken:
			return 2
		case e.Kind == Reads:
			return 0
		}
		return 1
	}
	edges := slices.Clone(p.Edges)
	slices.SortStableFunc(edges, func(x, y Edge) int { return rank(&x) - rank(&y) })
	for i := range edges {
		e := &edges[i]
		points := d.routes[e.ID]
		class := "edge " + string(e.Kind)
		for _, is := range []struct {
			so   bool
			name string
		}{{e.Taken, "taken"}, {e.Untaken, "untaken"}, {e.Aside(), "aside"}, {e.Critical, "critical"}} {
			if is.so {
				class += " " + is.name
			}
		}
		path, arrow := curve(points, o.Direction)
		fmt.Fprintf(b, `<g class="%s"><title>%s</title><path d="%s"/><path class="tip" d="%s"/>`, class, escape(p.edgeText(e)), path, arrow)
		if word := e.caption(); word != "" && len(points) > 1 {
			at, anchor := points[1], "start" // where the edges of one box have separated
			x := at.X + 5
			if len(points) == 2 {
				x, anchor = at.X-6, "end"
			}
			fmt.Fprintf(b, `<text class="word" text-anchor="%s" x="%d" y="%d">%s</text>`, anchor, x, at.Y-6, escape(word))
		}
		b.WriteString("</g>\n")
	}
}

// edgeText describes an edge in words.
func (p *Picture) edgeText(e *Edge) string {
	from, to := strings.TrimSuffix(e.From, "/"), e.To
	switch e.Kind {
	case Opens:
		return oneLine(from) + " opens " + oneLine(to)
	case Reads:
		return oneLine(to) + " reads " + oneLine(e.Label) + " of " + oneLine(from)
	case Passes:
		return oneLine(from) + ", and when it is false then " + oneLine(to)
	case Rejoins:
		return oneLine(from) + " in its place, then " + oneLine(to)
	}
	if e.Label != "" {
		return oneLine(from) + ", then " + oneLine(to) + ", which reads " + oneLine(e.Label)
	}
	return oneLine(from) + ", then " + oneLine(to)
}

// curve returns a route as path data, and the arrowhead at its end.
func curve(points []layout.Point, dir layout.Direction) (path, tip string) {
	if len(points) < 2 {
		return "", ""
	}
	var b strings.Builder
	last := len(points) - 1
	end := points[last]
	// The line ends where the arrowhead starts.
	stop := layout.Point{X: end.X, Y: end.Y - 6}
	tip = fmt.Sprintf("M%d %dl-4 -7h8z", end.X, end.Y)
	if dir == layout.Right {
		stop = layout.Point{X: end.X - 6, Y: end.Y}
		tip = fmt.Sprintf("M%d %dl-7 -4v8z", end.X, end.Y)
	}
	fmt.Fprintf(&b, "M%d %d", points[0].X, points[0].Y)
	for i := 1; i <= last; i++ {
		a, c := points[i-1], points[i]
		if i == last {
			c = stop
		}
		switch {
		case dir == layout.Down && a.X != c.X:
			m := (a.Y + c.Y) / 2
			fmt.Fprintf(&b, "C%d %d %d %d %d %d", a.X, m, c.X, m, c.X, c.Y)
		case dir == layout.Right && a.Y != c.Y:
			m := (a.X + c.X) / 2
			fmt.Fprintf(&b, "C%d %d %d %d %d %d", m, a.Y, m, c.Y, c.X, c.Y)
		default:
			fmt.Fprintf(&b, "L%d %d", c.X, c.Y)
		}
	}
	return b.String(), tip
}

func (p *Picture) svgNode(b *strings.Builder, n *Node, box layout.Box) {
	status := p.status(n)
	class := "node"
	if status != "" {
		class += " " + status
	}
	if n.Untaken {
		class += " untaken"
	}
	if n.Critical {
		class += " critical"
	}
	fmt.Fprintf(b, `<g class="%s" transform="translate(%d %d)">`, class, box.X, box.Y)
	fmt.Fprintf(b, "<title>%s</title><desc>%s</desc>", escape(oneLine(n.Label)+p.statusText(n)), escape(p.describe(n)))
	if n.Repeated || n.Kind == "loop" {
		fmt.Fprintf(b, `<rect class="card" x="6" y="6" width="%d" height="%d" rx="6"/><rect class="card" x="3" y="3" width="%d" height="%d" rx="6"/>`, box.W, box.H, box.W, box.H)
	}
	fmt.Fprintf(b, `<rect class="card" width="%d" height="%d" rx="6"/><path class="bar" d="M1.5 5V%d"/>`, box.W, box.H, box.H-5)
	x := 12
	if status != "" {
		fmt.Fprintf(b, `<path class="sign" d="%s"/>`, icons[status])
		x = 30
	}
	fmt.Fprintf(b, `<text class="name" x="%d" y="23">%s</text>`, x, escape(fitBold(n.Label, nameSize, box.W-x-14)))
	if chip := p.chip(n); chip != "" {
		chipWidth := pixels(chip, chipSize) + 12
		fmt.Fprintf(b, `<rect class="chip" x="%d" y="9" width="%d" height="18" rx="4"/><text class="kind" x="%d" y="22">%s</text>`,
			box.W-chipWidth-8, chipWidth, box.W-chipWidth-2, escape(chip))
	}
	for i, text := range p.cardRows(n) {
		class := "line"
		if i == 0 && status != "" {
			class = "line state"
		}
		fmt.Fprintf(b, `<text class="%s" x="12" y="%d">%s</text>`, class, 44+i*lineHeight, escape(text))
	}
	b.WriteString("</g>\n")
}

// chip is the text of a card's chip: the kind of step. There is none for
// actions, which most steps are, nor where the name needs the space.
func (p *Picture) chip(n *Node) string {
	room := cardWidth - 12 - 22
	if p.Run {
		room -= 18
	}
	if n.Kind == "action" || pixels(n.Label, nameSize)*112/100 > room-pixels(n.Kind, chipSize)-12 {
		return ""
	}
	return n.Kind
}

// cardRows are the lines below the name, wrapped to the card. A long line takes
// two rows.
func (p *Picture) cardRows(n *Node) []string {
	var rows []string
	for i, text := range p.cardLines(n) {
		if i == 0 && !p.Run && n.Kind != "action" && p.chip(n) == "" {
			text = strings.TrimSuffix(n.Kind+": "+text, ": ")
		}
		rows = append(rows, wrap(text, lineSize, cardWidth-24)...)
	}
	return rows
}

// statusText is the status after the name, for screen readers.
func (p *Picture) statusText(n *Node) string {
	switch {
	case !p.Run:
		return ""
	case n.State != nil:
		return ", " + n.State.accessibleText(n.Repeated)
	}
	return ", " + n.statusLine()
}

// describe returns everything that the picture knows about a step.
func (p *Picture) describe(n *Node) string {
	parts := []string{oneLine(n.ID), n.Kind}
	parts = append(parts, n.Lines...)
	if n.State != nil {
		if d := n.State.detailLine(); d != "" {
			parts = append(parts, d)
		}
	}
	if n.Critical {
		parts = append(parts, "on the critical path")
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " · ")
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

func escape(s string) string { return escaper.Replace(s) }
