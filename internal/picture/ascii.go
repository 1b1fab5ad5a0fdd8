// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/layout"
)

// textLengths are the text lengths tried for cards, widest first.
var textLengths = []int{44, 30, 22, 16}

// Text draws the picture with the characters of a terminal. A picture that does
// not fit the width, or is too large to be readable, becomes an indented list.
func (p *Picture) Text(o Options) (string, error) {
	if o.Width == 0 {
		o.Width = 120
	}
	if len(p.Nodes) > 200 {
		return p.list(o.Width), nil
	}
	for _, length := range textLengths {
		d, err := place(p.textGraph(o, length))
		if err != nil {
			return "", err
		}
		if d.W <= o.Width {
			return p.header(o.Width) + p.drawText(d, o, length), nil
		}
	}
	return p.list(o.Width), nil
}

func (p *Picture) header(width int) string {
	text := oneLine(p.Name)
	if p.Note != "" {
		text += ": " + oneLine(p.Note)
	}
	if slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Critical }) {
		text += " with *"
	}
	return fitColumns(text, width) + "\n\n"
}

// cardText returns the lines of a card.
func (p *Picture) cardText(n *Node, length int) []string {
	name := n.Label
	if status := p.status(n); status != "" {
		name = StyleOf(status).Glyph + " " + name
	}
	if n.Critical {
		name = "* " + name
	}
	lines := []string{name}
	if p.Run {
		lines = append(lines, p.cardLines(n)...)
	} else {
		for i, text := range p.cardLines(n) {
			if i == 0 && n.Kind != "action" {
				text = strings.TrimSuffix(n.Kind+": "+text, ": ")
			}
			lines = append(lines, text)
		}
	}
	for i := range lines {
		lines[i] = fitColumns(lines[i], length)
	}
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}

func (p *Picture) groupTitle(g *Group) string {
	if g.Title != "" && g.Untaken {
		return g.Title + " (not taken)"
	}
	return g.Title
}

func (p *Picture) textGraph(o Options, length int) *layout.Graph {
	g := p.graph(func(n *Node) (int, int) {
		lines := p.cardText(n, length)
		w := 0
		for _, l := range lines {
			w = max(w, columns(l))
		}
		return w + 4, len(lines) + 2
	}, func(g *Group) layout.Group {
		title := columns(fitColumns(p.groupTitle(g), length))
		if title > 0 {
			title += 6
		}
		return layout.Group{Pad: [4]int{1, 2, 1, 2}, W: max(title, 5), H: 3}
	})
	g.Direction, g.Style = o.Direction, layout.Orthogonal
	g.BoxGap, g.RankGap, g.LineGap, g.TrackGap = 2, 2, 2, 1
	if o.Direction == layout.Right {
		g.BoxGap, g.RankGap, g.LineGap, g.TrackGap = 1, 5, 1, 2
	}
	return g
}

// A canvas is a grid of characters for lines and text. Where lines meet, their
// characters join.
type canvas struct {
	cells [][]rune
	joins [][]uint8
}

// Directions in which a line leaves a cell.
const (
	up uint8 = 1 << iota
	right
	down
	left
)

var joints = [16]rune{' ', '│', '─', '└', '│', '│', '┌', '├', '─', '┘', '─', '┴', '┐', '┤', '┬', '┼'}

func newCanvas(w, h int) *canvas {
	c := &canvas{cells: make([][]rune, h), joins: make([][]uint8, h)}
	for y := range c.cells {
		c.cells[y], c.joins[y] = make([]rune, w), make([]uint8, w)
	}
	return c
}

func (c *canvas) set(x, y int, r rune) {
	if y >= 0 && y < len(c.cells) && x >= 0 && x < len(c.cells[y]) {
		c.cells[y][x] = r
	}
}

func (c *canvas) join(x, y int, bits uint8) {
	if y >= 0 && y < len(c.joins) && x >= 0 && x < len(c.joins[y]) {
		c.joins[y][x] |= bits
	}
}

// text writes s. A wide character also takes the next cell.
func (c *canvas) text(x, y int, s string) {
	for _, r := range s {
		n := column(r)
		if n == 0 {
			continue
		}
		c.set(x, y, r)
		if n == 2 {
			c.set(x+1, y, -1)
		}
		x += n
	}
}

// box draws a border. across and along are the characters of its lines.
func (c *canvas) box(b layout.Box, corners string, across, along rune) {
	k := []rune(corners)
	for x := b.X + 1; x < b.X+b.W-1; x++ {
		c.set(x, b.Y, across)
		c.set(x, b.Y+b.H-1, across)
	}
	for y := b.Y + 1; y < b.Y+b.H-1; y++ {
		c.set(b.X, y, along)
		c.set(b.X+b.W-1, y, along)
	}
	c.set(b.X, b.Y, k[0])
	c.set(b.X+b.W-1, b.Y, k[1])
	c.set(b.X, b.Y+b.H-1, k[2])
	c.set(b.X+b.W-1, b.Y+b.H-1, k[3])
}

func (c *canvas) String() string {
	var b strings.Builder
	for y := range c.cells {
		var row strings.Builder
		for x, r := range c.cells[y] {
			switch bits := c.joins[y][x]; {
			case r == -1:
			case bits != 0 && (r == '─' || r == '┄' || r == '╌'):
				row.WriteRune(joints[bits|left|right])
			case bits != 0 && (r == '│' || r == '┆' || r == '╎'):
				row.WriteRune(joints[bits|up|down])
			case r != 0:
				row.WriteRune(r)
			default:
				row.WriteRune(joints[bits])
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return b.String()
}

func (p *Picture) drawText(d *placement, o Options, length int) string {
	c := newCanvas(d.W, d.H)
	for i := range p.Groups {
		g, box := &p.Groups[i], d.boxes[p.Groups[i].ID]
		switch {
		case g.Role == "step":
			c.box(box, "╭╮╰╯", '┄', '┆')
		case g.Dashed():
			c.box(box, "┌┐└┘", '╌', '╎')
		default:
			c.box(box, "╭╮╰╯", '─', '│')
		}
		if title := fitColumns(p.groupTitle(g), length); title != "" {
			c.text(box.X+2, box.Y, " "+title+" ")
		}
	}
	for i := range p.Edges {
		c.route(d.routes[p.Edges[i].ID], o.Direction)
	}
	for i := range p.Edges {
		points := d.routes[p.Edges[i].ID]
		end := points[len(points)-1]
		if o.Direction == layout.Right {
			c.set(end.X-1, end.Y, '▶')
		} else {
			c.set(end.X, end.Y-1, '▼')
		}
	}
	for i := range p.Edges {
		if word, points := p.Edges[i].caption(), d.routes[p.Edges[i].ID]; word != "" {
			c.caption(points, o.Direction, word)
		}
	}
	for i := range p.Nodes {
		n, box := &p.Nodes[i], d.boxes[p.Nodes[i].ID]
		c.box(box, "┌┐└┘", '─', '│')
		if n.Repeated || n.Kind == "loop" {
			c.set(box.X+box.W-1, box.Y+box.H-1, '╝')
		}
		for j, text := range p.cardText(n, length) {
			c.text(box.X+2, box.Y+1+j, text)
		}
	}
	return c.String()
}

// caption writes the caption of an edge beside its line where there is room:
// after the first turn, where other edges of the same box have parted from it.
func (c *canvas) caption(points []layout.Point, dir layout.Direction, word string) {
	first := 1
	for i := 2; i < len(points); i++ {
		if points[i].X != points[0].X && points[i].Y != points[0].Y {
			first = i
			break
		}
	}
	for i := first; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if dir == layout.Right {
			for x := min(a.X, b.X) + 1; a.Y == b.Y && x < max(a.X, b.X); x++ {
				if c.isFree(x, a.Y-1, columns(word)) {
					c.text(x, a.Y-1, word)
					return
				}
			}
			continue
		}
		for y := min(a.Y, b.Y) + 1; a.X == b.X && y < max(a.Y, b.Y); y++ {
			if c.isFree(a.X+2, y, columns(word)) {
				c.text(a.X+2, y, word)
				return
			}
		}
	}
}

// isFree reports whether n cells of a row, and those right beside them, are
// empty.
func (c *canvas) isFree(x, y, n int) bool {
	if y < 0 || y >= len(c.cells) || x < 1 || x+n >= len(c.cells[y]) {
		return false
	}
	for i := x - 1; i <= x+n; i++ {
		if r := c.cells[y][i]; r != 0 && r != ' ' || c.joins[y][i] != 0 {
			return false
		}
	}
	return true
}

// route draws a line along a route. The last point is inside the target box and
// is not drawn.
func (c *canvas) route(points []layout.Point, dir layout.Direction) {
	points = slices.Clone(points)
	if last := &points[len(points)-1]; dir == layout.Right {
		last.X--
	} else {
		last.Y--
	}
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		switch {
		case a.X == b.X:
			for y := min(a.Y, b.Y); y < max(a.Y, b.Y); y++ {
				c.join(a.X, y, down)
				c.join(a.X, y+1, up)
			}
		case a.Y == b.Y:
			for x := min(a.X, b.X); x < max(a.X, b.X); x++ {
				c.join(x, a.Y, right)
				c.join(x+1, a.Y, left)
			}
		}
	}
	// A line starts at the border of its box.
	if dir == layout.Right {
		c.join(points[0].X, points[0].Y, left)
	} else {
		c.join(points[0].X, points[0].Y, up)
	}
}
