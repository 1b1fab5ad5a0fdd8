// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// A tree is the nesting of the graph. Internally, every graph leads downwards:
// x is across the direction, y along it.
type tree struct {
	g     *Graph
	style Style
	right bool
	root  *item
	items []*item // all but the root
	byID  map[string]*item
	edges []edge
}

// An item is a box or a group.
type item struct {
	id       string
	order    int
	seq      int // position in a preorder walk of the tree
	group    bool
	depth    int
	parent   *item
	children []*item

	w, h int
	x, y int // in the parent's box; after place, in the picture
	pad  struct{ before, after, start, end int }

	enter, leave ports
	links        map[linkKey]*link
}

// ports are the places on a group's border that edges cross, by the inner item
// that they start or end at. Edges of one source share a port.
type ports map[*item]*port

type port struct {
	inner *item
	x     int // position across, in the group's box
}

// An end is one end of a link: a child of the level's group, with its port if
// the child is a group; or a port of the group itself.
type end struct {
	item *item
	port *port
}

type linkKey struct{ from, to end }

type edge struct {
	id       string
	from, to *item
	parts    []edgePart
}

// An edgePart is the part of an edge that one level draws.
type edgePart struct {
	group *item
	link  *link
}

func newTree(g *Graph) (*tree, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	t := &tree{g: g, style: g.Style, right: g.Direction == Right, byID: map[string]*item{}}
	t.root = &item{group: true, links: map[linkKey]*link{}}
	parents := map[*item]string{}
	add := func(it *item, w, h int, parent string) error {
		if it.id == "" || t.byID[it.id] != nil {
			return invalid("the id %q is empty or given twice", it.id)
		}
		t.swapAxes(&it.w, &it.h, w, h)
		t.byID[it.id] = it
		t.items = append(t.items, it)
		parents[it] = parent
		return nil
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if err := add(&item{id: n.ID, order: n.Order}, n.W, n.H, n.Group); err != nil {
			return nil, err
		}
	}
	for i := range g.Groups {
		n := &g.Groups[i]
		it := &item{id: n.ID, order: n.Order, group: true, links: map[linkKey]*link{}}
		it.pad.before, it.pad.end, it.pad.after, it.pad.start = n.Pad[0], n.Pad[1], n.Pad[2], n.Pad[3]
		if t.right {
			it.pad.before, it.pad.end, it.pad.after, it.pad.start = n.Pad[3], n.Pad[2], n.Pad[1], n.Pad[0]
		}
		if err := add(it, n.W, n.H, n.Group); err != nil {
			return nil, err
		}
	}
	for _, it := range t.items {
		it.parent = t.root
		if name := parents[it]; name != "" {
			it.parent = t.byID[name]
			if it.parent == nil || !it.parent.group {
				return nil, invalid("%q is in the group %q, which does not exist", it.id, name)
			}
		}
		it.parent.children = append(it.parent.children, it)
	}
	return t, t.number()
}

// number numbers the items and detects groups that contain themselves.
func (t *tree) number() error {
	next := 0
	var walk func(it *item) error
	walk = func(it *item) error {
		if it.depth > MaxDepth {
			return fault.New(fault.DepthExceeded, "graph: groups lie more than %d deep in each other", MaxDepth)
		}
		it.seq = next
		next++
		slices.SortFunc(it.children, func(a, b *item) int {
			return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.id, b.id))
		})
		for _, c := range it.children {
			c.depth = it.depth + 1
			if err := walk(c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(t.root); err != nil {
		return err
	}
	if next != len(t.items)+1 {
		return invalid("groups lie in each other in a circle")
	}
	return nil
}

// connect splits each edge into the parts that the levels draw.
func (t *tree) connect() error {
	ids := map[string]bool{}
	for _, e := range t.g.Edges {
		from, to := t.byID[e.From], t.byID[e.To]
		switch {
		case from == nil || to == nil:
			return invalid("the edge %q leads from %q to %q, and one of them does not exist", e.ID, e.From, e.To)
		case e.ID == "" || ids[e.ID]:
			return invalid("the edge id %q is empty or given twice", e.ID)
		case from == to || inside(from, to) || inside(to, from):
			return invalid("the edge %q leads from %q to %q, of which one lies in the other", e.ID, e.From, e.To)
		}
		ids[e.ID] = true
		t.edges = append(t.edges, edge{id: e.ID, from: from, to: to, parts: splitEdge(from, to)})
	}
	return nil
}

func inside(it, group *item) bool {
	for it != nil && it.depth > group.depth {
		it = it.parent
	}
	return it == group
}

func splitEdge(from, to *item) []edgePart {
	outer := from.parent
	for !inside(to, outer) {
		outer = outer.parent
	}
	var parts []edgePart
	a := end{item: from}
	for a.item.parent != outer {
		g := a.item.parent
		p := g.leave.get(&g.leave, from)
		parts = append(parts, edgePart{g, g.link(a, end{port: p})})
		a = end{g, p}
	}
	var inner []edgePart
	b := end{item: to}
	for b.item.parent != outer {
		g := b.item.parent
		p := g.enter.get(&g.enter, to)
		inner = append(inner, edgePart{g, g.link(end{port: p}, b)})
		b = end{g, p}
	}
	parts = append(parts, edgePart{outer, outer.link(a, b)})
	slices.Reverse(inner)
	return append(parts, inner...)
}

func (ps ports) get(at *ports, inner *item) *port {
	if *at == nil {
		*at = ports{}
	}
	p := (*at)[inner]
	if p == nil {
		p = &port{inner: inner}
		(*at)[inner] = p
	}
	return p
}

func (ps ports) sorted() []*port {
	list := make([]*port, 0, len(ps))
	for _, p := range ps {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *port) int { return cmp.Compare(a.inner.seq, b.inner.seq) })
	return list
}

func (it *item) link(from, to end) *link {
	key := linkKey{from, to}
	l := it.links[key]
	if l == nil {
		l = &link{from: from, to: to}
		it.links[key] = l
	}
	return l
}

// arrange lays out the contents of a group, innermost first, and sets the size
// of the group.
func (t *tree) arrange(it *item) {
	for _, c := range it.children {
		if c.group {
			t.arrange(c)
		}
	}
	l := newLevel(t.g, it)
	w, h := l.arrange()
	least := [2]int{it.w, it.h}
	it.w, it.h = max(least[0], w+it.pad.start+it.pad.end), max(least[1], h+it.pad.before+it.pad.after)
	l.finalize(it, it.pad.start+(it.w-it.pad.start-it.pad.end-w)/2, it.pad.before)
}

// place converts coordinates in the parent's box to those of the picture.
func (it *item) place(dx, dy int) {
	it.x, it.y = it.x+dx, it.y+dy
	for _, c := range it.children {
		c.place(it.x, it.y)
	}
}

// route joins the parts of an edge.
func (e *edge) route(style Style) []Point {
	var points []Point
	for _, p := range e.parts {
		for _, q := range p.link.points {
			q = Point{q.X + p.group.x, q.Y + p.group.y}
			if n := len(points); n == 0 || points[n-1] != q {
				points = append(points, q)
			}
		}
	}
	return straighten(points, style)
}

// straighten removes points within a straight line along the direction, and for
// orthogonal routes also those across it.
func straighten(points []Point, style Style) []Point {
	out := points[:0:0]
	for i, p := range points {
		n := len(out)
		if n > 0 && i < len(points)-1 {
			a, b := out[n-1], points[i+1]
			if a.X == p.X && p.X == b.X || style == Orthogonal && a.Y == p.Y && p.Y == b.Y {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}
