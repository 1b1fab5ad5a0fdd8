// SPDX-License-Identifier: Apache-2.0

package layout

// maxWidthRatio is, in halves, how much wider than the widest rank the
// placement in straight columns may be before the compact one is used.
const maxWidthRatio = 3

// compactPlacement starts with every rank packed around one centre. Then, rank
// by rank, it moves each vertex as close to the mean of its neighbours as those
// beside it allow. No vertex moves beyond its neighbours, so the picture is
// about as wide as its widest rank. It serves graphs with so many long lines
// that straight columns for them would pull the picture apart.
func (l *level) compactPlacement() []int {
	x := make([]int, len(l.verts))
	for _, rank := range l.ranks {
		at := 0
		for i, v := range rank {
			if i > 0 {
				at += l.minDistance(&l.verts[rank[i-1]], &l.verts[v])
			}
			x[v] = at
		}
		for _, v := range rank {
			x[v] -= at / 2
		}
	}
	for sweep := range 6 {
		for i := range l.ranks {
			rank, near := l.ranks[i], func(v *vertex) []int32 { return v.up }
			if sweep%2 == 1 {
				rank, near = l.ranks[len(l.ranks)-1-i], func(v *vertex) []int32 { return v.down }
			}
			l.placeRank(rank, near, x)
		}
	}
	return x
}

// placeRank gives a rank the positions with the least sum of squared distances
// to those wanted, keeping order and distances. Neighbours whose wanted
// positions conflict are pooled and share the mean (the pool-adjacent-violators
// algorithm).
func (l *level) placeRank(rank []int32, near func(*vertex) []int32, x []int) {
	type pool struct{ sum, weight, n int }
	pools := make([]pool, 0, len(rank))
	offset := make([]int, len(rank))
	for i, v := range rank {
		if i > 0 {
			offset[i] = offset[i-1] + l.minDistance(&l.verts[rank[i-1]], &l.verts[v])
		}
		want, weight := x[v], 1
		if list := near(&l.verts[v]); len(list) > 0 {
			sum := 0
			for _, u := range list {
				sum += x[u]
			}
			want, weight = sum/len(list), 4
			if l.verts[v].bend() {
				weight = 8
			}
		}
		pools = append(pools, pool{(want - offset[i]) * weight, weight, 1})
		for n := len(pools); n > 1 && pools[n-2].sum*pools[n-1].weight > pools[n-1].sum*pools[n-2].weight; n = len(pools) {
			a, b := pools[n-2], pools[n-1]
			pools = append(pools[:n-2], pool{a.sum + b.sum, a.weight + b.weight, a.n + b.n})
		}
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			x[rank[i]] = p.sum/p.weight + offset[i]
			i++
		}
	}
}

// packedWidth is the width of the widest rank with the least gaps.
func (l *level) packedWidth() (widest int) {
	for _, rank := range l.ranks {
		at := 0
		for i := 1; i < len(rank); i++ {
			at += l.minDistance(&l.verts[rank[i-1]], &l.verts[rank[i]])
		}
		widest = max(widest, at)
	}
	return widest
}
