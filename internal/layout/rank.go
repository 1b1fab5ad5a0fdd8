// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
)

// A level is the inside of one group, with its children and ports as vertices.
type level struct {
	g     *Graph
	verts []vertex
	links []*link
	ranks [][]int32
	// segments are the lines between vertices of neighbouring ranks; gaps are the
	// segments below each rank.
	segments   []segment
	gaps       [][]int32
	tops       []int // y of the upper edge of each rank
	heights    []int // height of each rank
	gapHeights []int // height of the gap below it
	gapTracks  []int // number of tracks in that gap
}

// A vertex is a child, a port of the group, or a bend, which has neither item
// nor port.
type vertex struct {
	item     *item
	port     *port
	left     int // extent to the left of x
	right    int // extent to the right of x
	h        int
	rank     int
	pos      int
	x        int // where lines meet it: its centre; for a group, the port by which lines enter
	up, down []int32
	net      int32 // of a bend: the net of its line
}

func (v *vertex) bend() bool { return v.item == nil && v.port == nil }

// A link is an edge within a level.
type link struct {
	from, to end
	a, b     int32 // its vertices, a above b
	back     bool  // reversed to break a cycle: it leads from b to a
	segments []int32
	direct   bool // drawn without bends
	points   []Point
}

// A segment is a line between two vertices of neighbouring ranks. Links share
// segments: all links that leave one source, or end at one target, run
// together.
type segment struct {
	a, b         int32
	portA, portB *port
	net          int32
	xa, xb       int
	track        int
}

func newLevel(g *Graph, it *item) *level {
	l := &level{g: g}
	index := map[end]int32{}
	add := func(v vertex) {
		index[end{v.item, v.port}] = int32(len(l.verts))
		l.verts = append(l.verts, v)
	}
	for _, c := range it.children {
		left := c.w / 2
		if len(c.enter) == 1 {
			for _, p := range c.enter {
				left = p.x
			}
		}
		add(vertex{item: c, left: left, right: c.w - left, h: c.h})
	}
	for _, p := range it.enter.sorted() {
		add(vertex{port: p, rank: -1})
	}
	for _, p := range it.leave.sorted() {
		add(vertex{port: p, rank: 1})
	}
	of := func(e end) int32 {
		if e.item != nil {
			e.port = nil
		}
		return index[e]
	}
	for _, k := range it.links {
		k.a, k.b = of(k.from), of(k.to)
		l.links = append(l.links, k)
	}
	slices.SortFunc(l.links, func(x, y *link) int {
		return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), comparePorts(x.from.port, y.from.port), comparePorts(x.to.port, y.to.port))
	})
	return l
}

func comparePorts(a, b *port) int {
	n := func(p *port) int {
		if p == nil {
			return -1
		}
		return p.inner.seq
	}
	return cmp.Compare(n(a), n(b))
}

// breakCycles reverses the links that lead back in a depth-first walk in the
// order of the vertices.
func (l *level) breakCycles() {
	out := make([][]int32, len(l.verts))
	for i, k := range l.links {
		out[k.a] = append(out[k.a], int32(i))
	}
	const fresh, open, done = 0, 1, 2
	state := make([]uint8, len(l.verts))
	type frame struct {
		v    int32
		next int
	}
	for root := range l.verts {
		if state[root] != fresh {
			continue
		}
		state[root] = open
		stack := []frame{{int32(root), 0}}
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.next == len(out[f.v]) {
				state[f.v] = done
				stack = stack[:len(stack)-1]
				continue
			}
			k := l.links[out[f.v][f.next]]
			f.next++
			switch state[k.b] {
			case fresh:
				state[k.b] = open
				stack = append(stack, frame{k.b, 0})
			case open:
				k.back = true
			}
		}
	}
	for _, k := range l.links {
		if k.back {
			k.a, k.b = k.b, k.a
		}
	}
}

// assignRanks gives every vertex a rank: as early as its predecessors allow,
// then moved to where its edges are shorter. Only where a rank would exceed
// MaxRank, vertices go to later ranks instead.
func (l *level) assignRanks() {
	in, out := l.neighbours()
	first := 0
	fixed := make([]int, len(l.verts)) // -1 above all, 1 below all
	for i := range l.verts {
		if l.verts[i].port != nil {
			fixed[i] = l.verts[i].rank
			if fixed[i] < 0 {
				first = 1
			}
		}
	}
	order := topological(in, out)
	last := l.earliest(order, in, fixed, first, 0)
	l.tighten(order, in, out, fixed, first, last)
	if most := l.g.MaxRank; most > 0 && l.widest(fixed) > most {
		l.earliest(order, in, fixed, first, most)
	}
}

// earliest ranks every vertex as early as its predecessors allow, and returns
// the last rank. No rank gets more than most; 0 = no limit.
func (l *level) earliest(order []int32, in [][]int32, fixed []int, first, most int) (last int) {
	for i := range l.verts {
		l.verts[i].rank = 0
	}
	count := map[int]int{}
	last = first - 1
	for _, v := range order {
		if fixed[v] != 0 {
			continue
		}
		r := first
		for _, u := range in[v] {
			r = max(r, l.verts[u].rank+1)
		}
		for most > 0 && count[r] >= most {
			r++
		}
		count[r]++
		l.verts[v].rank = r
		last = max(last, r)
	}
	for i := range l.verts {
		if fixed[i] > 0 {
			l.verts[i].rank = last + 1
		}
	}
	return last
}

// widest is the number of children in the fullest rank.
func (l *level) widest(fixed []int) (most int) {
	count := map[int]int{}
	for i := range l.verts {
		if fixed[i] == 0 {
			count[l.verts[i].rank]++
			most = max(most, count[l.verts[i].rank])
		}
	}
	return most
}

func (l *level) neighbours() (in, out [][]int32) {
	in, out = make([][]int32, len(l.verts)), make([][]int32, len(l.verts))
	for _, k := range l.links {
		out[k.a] = append(out[k.a], k.b)
		in[k.b] = append(in[k.b], k.a)
	}
	return in, out
}

// topological returns a topological order in which smaller numbers come first
// where possible.
func topological(in, out [][]int32) []int32 {
	left := make([]int, len(in))
	order := make([]int32, 0, len(in))
	for v := range in {
		if left[v] = len(in[v]); left[v] == 0 {
			order = append(order, int32(v))
		}
	}
	for i := 0; i < len(order); i++ {
		for _, w := range out[order[i]] {
			if left[w]--; left[w] == 0 {
				order = append(order, w)
			}
		}
	}
	return order
}

// tighten moves a vertex with more edges below than above downwards, and the
// other way round, until nothing moves. Each move reduces the sum of edge
// lengths.
func (l *level) tighten(order []int32, in, out [][]int32, fixed []int, first, last int) {
	for sweep := range 16 {
		moved := false
		for i := range order {
			v := order[i]
			if sweep%2 == 0 {
				v = order[len(order)-1-i]
			}
			if fixed[v] != 0 || len(in[v]) == len(out[v]) {
				continue
			}
			low, high := first, last
			for _, u := range in[v] {
				low = max(low, l.verts[u].rank+1)
			}
			for _, w := range out[v] {
				high = min(high, l.verts[w].rank-1)
			}
			want := low
			if len(out[v]) > len(in[v]) {
				want = high
			}
			if want != l.verts[v].rank {
				l.verts[v].rank, moved = want, true
			}
		}
		if !moved && sweep > 0 {
			return
		}
	}
}
