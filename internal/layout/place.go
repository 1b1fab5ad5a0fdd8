// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
)

// arrange ranks, orders and places the vertices, and returns their total size.
func (l *level) arrange() (w, h int) {
	if len(l.verts) == 0 {
		return 0, 0
	}
	l.breakCycles()
	l.assignRanks()
	l.insertBends()
	l.orderRanks()
	xs := l.brandesKoepf()
	if low, high := l.extent(xs); 2*(high-low) > maxWidthRatio*l.packedWidth()+20*l.g.BoxGap {
		xs = l.compactPlacement()
	}
	for i, x := range xs {
		l.verts[i].x = x
	}
	w = l.separate()
	l.routeGaps()
	return w, l.placeRanks()
}

// minDistance is the least distance between the centres of two neighbours in a
// rank.
func (l *level) minDistance(a, b *vertex) int {
	gap := l.g.BoxGap
	switch {
	case a.item == nil && b.item == nil:
		gap = l.g.LineGap
	case a.item == nil || b.item == nil:
		gap = min(l.g.BoxGap, 2*l.g.LineGap)
	}
	return a.right + gap + b.left
}

// brandesKoepf places the centres of the vertices by the method of Brandes and
// Köpf, "Fast and Simple Horizontal Coordinate Assignment": four placements,
// each of which aligns a vertex with its median neighbour above or below where
// it can, starting from one corner. The result is the mean of the two middle
// ones.
func (l *level) brandesKoepf() []int {
	crossed := l.conflicts()
	var xs [4][]int
	var low, high [4]int
	narrowest := 0
	for i := range xs {
		s := &bkPass{level: l, up: i < 2, left: i%2 == 0, crossed: crossed}
		xs[i] = s.place()
		low[i], high[i] = l.extent(xs[i])
		if high[i]-low[i] < high[narrowest]-low[narrowest] {
			narrowest = i
		}
	}
	out := make([]int, len(l.verts))
	for i := range xs {
		shift := low[narrowest] - low[i]
		if i%2 == 1 {
			shift = high[narrowest] - high[i]
		}
		for v := range xs[i] {
			xs[i][v] += shift
		}
	}
	for v := range out {
		four := [4]int{xs[0][v], xs[1][v], xs[2][v], xs[3][v]}
		slices.Sort(four[:])
		out[v] = floorHalf(four[1] + four[2])
	}
	return out
}

func floorHalf(n int) int { return n >> 1 }

func (l *level) extent(x []int) (low, high int) {
	for i := range l.verts {
		v := &l.verts[i]
		if i == 0 || x[i]-v.left < low {
			low = x[i] - v.left
		}
		if i == 0 || x[i]+v.right > high {
			high = x[i] + v.right
		}
	}
	return low, high
}

type pair struct{ a, b int32 }

// conflicts returns the lines that cross a line between two bends (type 1
// conflicts). They are not aligned, because a line between two bends should be
// straight.
func (l *level) conflicts() map[pair]bool {
	crossed := map[pair]bool{}
	for r := 1; r < len(l.ranks); r++ {
		left, scanned := 0, 0
		rank := l.ranks[r]
		for i, v := range rank {
			inner := l.innerAbove(v)
			if inner < 0 && i < len(rank)-1 {
				continue
			}
			right := len(l.ranks[r-1])
			if inner >= 0 {
				right = l.verts[inner].pos
			}
			for ; scanned <= i; scanned++ {
				for _, u := range l.verts[rank[scanned]].up {
					pos := l.verts[u].pos
					if (pos < left || pos > right) && (!l.verts[u].bend() || !l.verts[rank[scanned]].bend()) {
						crossed[pair{u, rank[scanned]}] = true
					}
				}
			}
			left = right
		}
	}
	return crossed
}

func (l *level) innerAbove(v int32) int32 {
	if l.verts[v].bend() {
		for _, u := range l.verts[v].up {
			if l.verts[u].bend() {
				return u
			}
		}
	}
	return -1
}

// A bkPass is one of the four placements. It visits ranks from above (up) or
// from below, and prefers the left or the right of two medians.
type bkPass struct {
	level   *level
	up      bool
	left    bool
	crossed map[pair]bool
	root    []int32 // of each vertex: the first vertex of its block
	next    []int32 // the next vertex of its block, circular
}

func (s *bkPass) place() []int {
	s.align()
	x, ok := s.compact()
	if !ok {
		// Alignments that do not cross cannot make blocks wait for each other. If
		// they do all the same, every vertex becomes a block of its own.
		for v := range s.root {
			s.root[v] = int32(v)
		}
		x, _ = s.compact()
	}
	return x
}

// row returns a rank in the order of the pass; at returns the position of a
// vertex in that order.
func (s *bkPass) row(r int) []int32 {
	rank := s.level.ranks[r]
	if !s.left {
		rank = slices.Clone(rank)
		slices.Reverse(rank)
	}
	return rank
}

func (s *bkPass) at(v int32) int {
	if s.left {
		return s.level.verts[v].pos
	}
	return -s.level.verts[v].pos
}

// align joins vertices to blocks, which will share one coordinate.
func (s *bkPass) align() {
	n := len(s.level.verts)
	s.root, s.next = make([]int32, n), make([]int32, n)
	for v := range s.root {
		s.root[v], s.next[v] = int32(v), int32(v)
	}
	for i := range s.level.ranks {
		r := i
		if !s.up {
			r = len(s.level.ranks) - 1 - i
		}
		reached, any := 0, false
		for _, v := range s.row(r) {
			near := s.level.verts[v].up
			if !s.up {
				near = s.level.verts[v].down
			}
			if len(near) == 0 {
				continue
			}
			near = slices.Clone(near)
			slices.SortFunc(near, func(a, b int32) int { return cmp.Compare(s.at(a), s.at(b)) })
			for _, m := range []int{(len(near) - 1) / 2, len(near) / 2} {
				u := near[m]
				if s.next[v] != v || any && s.at(u) <= reached || s.conflict(u, v) {
					continue
				}
				s.next[u], s.root[v] = v, s.root[u]
				s.next[v] = s.root[v]
				reached, any = s.at(u), true
			}
		}
	}
}

func (s *bkPass) conflict(u, v int32) bool {
	if !s.up {
		u, v = v, u
	}
	return s.crossed[pair{u, v}]
}

// compact gives each block the least coordinate that its left neighbours allow,
// then moves it right as far as its right neighbours allow. ok is false when
// blocks wait for each other.
func (s *bkPass) compact() (x []int, ok bool) {
	l := s.level
	type fence struct {
		block int32
		gap   int
	}
	n := len(l.verts)
	after, before := make([][]fence, n), make([][]fence, n)
	for r := range l.ranks {
		row := s.row(r)
		for i := 1; i < len(row); i++ {
			a, b := s.root[row[i-1]], s.root[row[i]]
			gap := l.minDistance(&l.verts[row[i-1]], &l.verts[row[i]])
			if !s.left {
				gap = l.minDistance(&l.verts[row[i]], &l.verts[row[i-1]])
			}
			after[a] = append(after[a], fence{b, gap})
			before[b] = append(before[b], fence{a, gap})
		}
	}
	at := make([]int, n)
	left := make([]int, n)
	var order []int32
	blocks := 0
	for v := range n {
		if s.root[v] != int32(v) {
			continue
		}
		blocks++
		if left[v] = len(before[v]); left[v] == 0 {
			order = append(order, int32(v))
		}
	}
	for i := 0; i < len(order); i++ {
		for _, f := range after[order[i]] {
			at[f.block] = max(at[f.block], at[order[i]]+f.gap)
			if left[f.block]--; left[f.block] == 0 {
				order = append(order, f.block)
			}
		}
	}
	if len(order) != blocks {
		return nil, false
	}
	for i := len(order) - 1; i >= 0; i-- {
		b := order[i]
		for j, f := range after[b] {
			if room := at[f.block] - f.gap; j == 0 || room < left[b] {
				left[b] = room
			}
		}
		if len(after[b]) > 0 {
			at[b] = max(at[b], left[b])
		}
	}
	x = make([]int, n)
	for v := range x {
		x[v] = at[s.root[v]]
		if !s.left {
			x[v] = -x[v]
		}
	}
	return x, true
}

// separate restores distances that were lost in rounding, moves the left edge
// to 0, and returns the width.
func (l *level) separate() int {
	for _, rank := range l.ranks {
		for i := 1; i < len(rank); i++ {
			a, b := &l.verts[rank[i-1]], &l.verts[rank[i]]
			b.x = max(b.x, a.x+l.minDistance(a, b))
		}
	}
	xs := make([]int, len(l.verts))
	for i := range l.verts {
		xs[i] = l.verts[i].x
	}
	low, high := l.extent(xs)
	for i := range l.verts {
		l.verts[i].x -= low
	}
	return high - low
}
