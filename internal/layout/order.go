// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
)

// orderRanks orders each rank so that few lines cross: an initial order by a
// walk from the first vertices, then sweeps of medians and swaps of neighbours.
// It keeps the best order found. A later one must be better, not equal, so that
// a small change of the graph changes little.
func (l *level) orderRanks() {
	l.firstOrder()
	best, crossings := l.positions(), l.crossings()
	work := len(l.verts) + 4*len(l.segments) + 1
	sweeps := min(12, max(2, 240_000/work))
	idle := 0
	for i := 0; i < sweeps && crossings > 0 && idle < 4; i++ {
		l.sweep(i%2 == 0)
		if work < 40_000 {
			l.transpose()
		}
		if n := l.crossings(); n < crossings {
			best, crossings, idle = l.positions(), n, 0
		} else {
			idle++
		}
	}
	for v, pos := range best {
		l.verts[v].pos = pos
	}
	for _, rank := range l.ranks {
		l.byPosition(rank)
	}
}

// firstOrder sets the initial order by a depth-first walk from the first
// vertices.
func (l *level) firstOrder() {
	deepest := 0
	for i := range l.verts {
		deepest = max(deepest, l.verts[i].rank)
	}
	l.ranks = make([][]int32, deepest+1)
	seen := make([]bool, len(l.verts))
	var stack []int32
	visit := func(root int32) {
		stack = append(stack, root)
		for len(stack) > 0 {
			v := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[v] {
				continue
			}
			seen[v] = true
			vx := &l.verts[v]
			vx.pos = len(l.ranks[vx.rank])
			l.ranks[vx.rank] = append(l.ranks[vx.rank], v)
			down := slices.Clone(vx.down)
			slices.SortFunc(down, func(a, b int32) int { return cmp.Compare(b, a) })
			stack = append(stack, down...)
		}
	}
	for v := range l.verts {
		if len(l.verts[v].up) == 0 {
			visit(int32(v))
		}
	}
}

func (l *level) positions() []int {
	p := make([]int, len(l.verts))
	for i := range l.verts {
		p[i] = l.verts[i].pos
	}
	return p
}

func (l *level) byPosition(rank []int32) {
	slices.SortFunc(rank, func(a, b int32) int { return cmp.Compare(l.verts[a].pos, l.verts[b].pos) })
}

// sweep moves every vertex to the median of its neighbours in the previous
// rank, downwards or upwards. A vertex without neighbours keeps its place.
func (l *level) sweep(down bool) {
	median := make([]float64, len(l.verts))
	var at []int
	for i := range l.ranks {
		rank := l.ranks[i]
		if !down {
			rank = l.ranks[len(l.ranks)-1-i]
		}
		var movers []int32
		for _, v := range rank {
			near := l.verts[v].up
			if !down {
				near = l.verts[v].down
			}
			if len(near) == 0 {
				continue
			}
			at = at[:0]
			for _, u := range near {
				at = append(at, l.verts[u].pos)
			}
			slices.Sort(at)
			median[v] = weightedMedian(at)
			movers = append(movers, v)
		}
		slots := make([]int, len(movers))
		for j, v := range movers {
			slots[j] = l.verts[v].pos
		}
		slices.SortStableFunc(movers, func(a, b int32) int { return cmp.Compare(median[a], median[b]) })
		for j, v := range movers {
			l.verts[v].pos = slots[j]
		}
		l.byPosition(rank)
	}
}

// weightedMedian is the median of Gansner et al.: between the two middle
// positions, nearer to the side with denser neighbours.
func weightedMedian(at []int) float64 {
	m := len(at) / 2
	switch {
	case len(at)%2 == 1:
		return float64(at[m])
	case len(at) == 2:
		return float64(at[0]+at[1]) / 2
	}
	left, right := at[m-1]-at[0], at[len(at)-1]-at[m]
	if left+right == 0 {
		return float64(at[m-1]+at[m]) / 2
	}
	return float64(at[m-1]*right+at[m]*left) / float64(left+right)
}

// transpose swaps neighbours as long as that removes crossings.
func (l *level) transpose() {
	for range 4 {
		better := false
		for _, rank := range l.ranks {
			for i := 0; i+1 < len(rank); i++ {
				v, w := rank[i], rank[i+1]
				up := l.pairCrossings(l.verts[v].up, l.verts[w].up)
				down := l.pairCrossings(l.verts[v].down, l.verts[w].down)
				if up+down > 0 {
					rank[i], rank[i+1] = w, v
					l.verts[v].pos, l.verts[w].pos = i+1, i
					better = true
				}
			}
		}
		if !better {
			return
		}
	}
}

// pairCrossings is the number of crossings between the edges of v and those of
// w when v is left of w, less the number when v is right of w.
func (l *level) pairCrossings(v, w []int32) int {
	if len(v) == 0 || len(w) == 0 || len(v)*len(w) > 4_096 {
		return 0
	}
	gain := 0
	for _, a := range v {
		for _, b := range w {
			gain += cmp.Compare(l.verts[a].pos, l.verts[b].pos)
		}
	}
	return gain
}

// crossings counts the pairs of lines that cross between neighbouring ranks,
// with a Fenwick tree: taken in the order of their upper ends, a line crosses
// the earlier ones that end further right.
func (l *level) crossings() int {
	total := 0
	var ends []int
	for r := 0; r+1 < len(l.ranks); r++ {
		tree := make([]int, len(l.ranks[r+1])+1)
		n := 0
		for _, v := range l.ranks[r] {
			ends = ends[:0]
			for _, w := range l.verts[v].down {
				ends = append(ends, l.verts[w].pos)
			}
			for _, e := range ends {
				passed := 0
				for i := e + 1; i > 0; i -= i & -i {
					passed += tree[i]
				}
				total += n - passed
			}
			for _, e := range ends {
				for i := e + 1; i < len(tree); i += i & -i {
					tree[i]++
				}
			}
			n += len(ends)
		}
	}
	return total
}
