// SPDX-License-Identifier: Apache-2.0

package pdf

import "math"

// A rule is a horizontal or vertical line on the page: of a table, a box, a
// separator.
type rule struct {
	x0, y0, x1, y1 float64 // x0 == x1 or y0 == y1
}

// Limits and sizes of rules, in points.
const (
	maxRules     = 20_000
	maxThickness = 3
	minRule      = 6
	atEdge       = 1.5
)

// A path is the current path: what has been constructed but not painted yet.
type path struct {
	x, y, sx, sy float64 // the current point, and the start of the subpath
	lines        []rule
	boxes        []rect
}

// draw interprets path operators, as far as they produce rules.
func (d *contentState) draw(op string, args []operand) {
	p := &d.path
	point := func(i int) (float64, float64) { return d.state.ctm.apply(args[i].num, args[i+1].num) }
	switch op {
	case "m":
		p.x, p.y = point(0)
		p.sx, p.sy = p.x, p.y
	case "l":
		x, y := point(0)
		p.line(x, y)
	case "c":
		p.x, p.y = point(4)
	case "v", "y":
		p.x, p.y = point(2)
	case "h":
		p.line(p.sx, p.sy)
	case "re":
		x0, y0 := point(0)
		x1, y1 := d.state.ctm.apply(args[0].num+args[2].num, args[1].num+args[3].num)
		if len(p.boxes) < maxRules {
			p.boxes = append(p.boxes, rect{min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)})
		}
	case "S", "s", "B", "B*", "b", "b*":
		if op[0] == 's' || op[0] == 'b' {
			p.line(p.sx, p.sy)
		}
		d.stroke()
	case "f", "F", "f*":
		d.fill()
	case "n":
		d.path.clear()
	}
}

func (p *path) clear() { p.lines, p.boxes = p.lines[:0], p.boxes[:0] }

// line adds a line segment if it is horizontal or vertical.
func (p *path) line(x, y float64) {
	r := rule{min(p.x, x), min(p.y, y), max(p.x, x), max(p.y, y)}
	p.x, p.y = x, y
	if (r.x1-r.x0 < 0.5) != (r.y1-r.y0 < 0.5) && len(p.lines) < maxRules {
		p.lines = append(p.lines, r)
	}
}

func (d *contentState) stroke() {
	for _, r := range d.path.lines {
		d.rule(r)
	}
	for _, b := range d.path.boxes {
		if !d.thin(b) {
			d.frame(b)
		}
	}
	d.path.clear()
}

// fill keeps boxes that are thin enough to be lines, and lines that enclose
// such a box, which some programs write instead.
func (d *contentState) fill() {
	for _, b := range d.path.boxes {
		d.thin(b)
	}
	if n := len(d.path.lines); n > 0 && n <= 4 {
		b := rect{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
		for _, r := range d.path.lines {
			b = rect{min(b[0], r.x0), min(b[1], r.y0), max(b[2], r.x1), max(b[3], r.y1)}
		}
		d.thin(b)
	}
	d.path.clear()
}

func (d *contentState) thin(b rect) bool {
	w, h := b[2]-b[0], b[3]-b[1]
	switch {
	case h <= maxThickness && w > h:
		y := (b[1] + b[3]) / 2
		d.rule(rule{b[0], y, b[2], y})
	case w <= maxThickness && h > w:
		x := (b[0] + b[2]) / 2
		d.rule(rule{x, b[1], x, b[3]})
	default:
		return false
	}
	return true
}

func (d *contentState) frame(b rect) {
	d.rule(rule{b[0], b[1], b[2], b[1]})
	d.rule(rule{b[0], b[3], b[2], b[3]})
	d.rule(rule{b[0], b[1], b[0], b[3]})
	d.rule(rule{b[2], b[1], b[2], b[3]})
}

func (d *contentState) rule(r rule) {
	if max(r.x1-r.x0, r.y1-r.y0) < minRule || len(d.page.rules) >= maxRules || math.IsNaN(r.x0+r.x1+r.y0+r.y1) {
		return
	}
	m := d.in.media
	if r.x1-m[0] < atEdge || r.y1-m[1] < atEdge || m[2]-r.x0 < atEdge || m[3]-r.y0 < atEdge {
		return // a frame around the page
	}
	d.page.rules = append(d.page.rules, r)
}
