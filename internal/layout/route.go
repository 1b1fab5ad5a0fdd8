// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
)

// routeGaps decides where segments meet their boxes, and on which track each
// net crosses its gap.
func (l *level) routeGaps() {
	l.gaps = make([][]int32, len(l.ranks))
	tops, bottoms := make([][]int32, len(l.verts)), make([][]int32, len(l.verts))
	for i := range l.segments {
		p := &l.segments[i]
		p.xa, p.xb = l.attachX(p.a, p.portA), l.attachX(p.b, p.portB)
		l.gaps[l.verts[p.a].rank] = append(l.gaps[l.verts[p.a].rank], int32(i))
		if l.verts[p.a].item != nil && p.portA == nil {
			bottoms[p.a] = append(bottoms[p.a], int32(i))
		}
		if l.verts[p.b].item != nil && p.portB == nil {
			tops[p.b] = append(tops[p.b], int32(i))
		}
	}
	if l.g.PortGap > 0 {
		for v := range l.verts {
			l.spreadPorts(int32(v), bottoms[v], func(p *segment) (*int, int) { return &p.xa, p.xb })
			l.spreadPorts(int32(v), tops[v], func(p *segment) (*int, int) { return &p.xb, p.xa })
		}
	}
	if l.g.Style == Orthogonal {
		for _, gap := range l.gaps {
			l.assignTracks(gap)
		}
	}
}

// attachX is where a line meets a vertex: at its port, else at its centre.
func (l *level) attachX(v int32, p *port) int {
	vx := &l.verts[v]
	if p != nil {
		return vx.x - vx.left + p.x
	}
	return vx.x
}

// spreadPorts separates the nets that meet one side of a box, in the order of
// their other ends, so that lines do not cross at the box.
func (l *level) spreadPorts(v int32, segments []int32, ends func(*segment) (mine *int, far int)) {
	type bundle struct {
		net, sum, n int
	}
	byNet := map[int32]*bundle{}
	var bundles []*bundle
	for _, i := range segments {
		p := &l.segments[i]
		b := byNet[p.net]
		if b == nil {
			b = &bundle{net: int(p.net)}
			byNet[p.net] = b
			bundles = append(bundles, b)
		}
		_, far := ends(p)
		b.sum, b.n = b.sum+far, b.n+1
	}
	if len(bundles) < 2 {
		return
	}
	slices.SortFunc(bundles, func(a, b *bundle) int {
		return cmp.Or(cmp.Compare(a.sum*b.n, b.sum*a.n), cmp.Compare(a.net, b.net))
	})
	room := min(min(l.verts[v].left, l.verts[v].right)*12/10, (len(bundles)-1)*l.g.PortGap)
	at := map[int32]int{}
	for i, b := range bundles {
		at[int32(b.net)] = l.verts[v].x - room/2 + room*i/(len(bundles)-1)
	}
	for _, i := range segments {
		mine, _ := ends(&l.segments[i])
		*mine = at[l.segments[i].net]
	}
}

// assignTracks gives nets of a gap that overlap different tracks. Nets that
// lead right are stacked from the right, those that lead left from the left, so
// that nets of one kind do not cross.
func (l *level) assignTracks(gap []int32) {
	type span struct {
		net            int32
		low, high, key int
		left           bool
		track          int
	}
	byNet := map[int32]*span{}
	var spans []*span
	for _, i := range gap {
		p := &l.segments[i]
		if p.xa == p.xb {
			continue
		}
		s := byNet[p.net]
		if s == nil {
			s = &span{net: p.net, low: min(p.xa, p.xb), high: max(p.xa, p.xb), key: p.xa, left: p.xb < p.xa}
			byNet[p.net] = s
			spans = append(spans, s)
		}
		s.low, s.high = min(s.low, p.xa, p.xb), max(s.high, p.xa, p.xb)
	}
	slices.SortFunc(spans, func(a, b *span) int {
		if a.left != b.left {
			if b.left {
				return -1
			}
			return 1
		}
		if a.left {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.net, b.net))
		}
		return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.net, b.net))
	})
	for i, s := range spans {
		for _, t := range spans[max(0, i-2_000):i] {
			if t.low <= s.high+l.g.LineGap && s.low <= t.high+l.g.LineGap {
				s.track = max(s.track, t.track)
			}
		}
		s.track++
	}
	for _, i := range gap {
		if s := byNet[l.segments[i].net]; s != nil {
			l.segments[i].track = s.track
		}
	}
}

// placeRanks gives ranks and gaps their position along the direction and
// returns the height.
func (l *level) placeRanks() int {
	n := len(l.ranks)
	l.tops, l.heights, l.gapHeights, l.gapTracks = make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	y := 0
	for r, rank := range l.ranks {
		ports := true
		for _, v := range rank {
			l.heights[r] = max(l.heights[r], l.verts[v].h)
			ports = ports && l.verts[v].item == nil
		}
		if l.tops[r] = y; r == n-1 {
			return y + l.heights[r]
		}
		room := l.g.RankGap
		if ports || l.portsOnly(r+1) {
			room = (room + 1) / 2
		}
		for _, i := range l.gaps[r] {
			l.gapTracks[r] = max(l.gapTracks[r], l.segments[i].track)
		}
		if l.g.Style == Orthogonal {
			room = max(room, (l.gapTracks[r]+2)*l.g.TrackGap)
		}
		if l.g.Style == Curved {
			room += min(3*room, 3*max(0, l.countCurved(l.gaps[r])-8))
		}
		l.gapHeights[r] = room
		y += l.heights[r] + room
	}
	return y
}

// countCurved is the number of nets that do not run straight through a gap:
// many curves need more space.
func (l *level) countCurved(gap []int32) int {
	nets := map[int32]bool{}
	for _, i := range gap {
		if p := &l.segments[i]; p.xa != p.xb {
			nets[p.net] = true
		}
	}
	return len(nets)
}

func (l *level) portsOnly(r int) bool {
	for _, v := range l.ranks[r] {
		if l.verts[v].port == nil {
			return false
		}
	}
	return true
}

// finalize moves the level to (dx, dy) in its group's box, sets the positions
// of children and ports, and draws the links.
func (l *level) finalize(group *item, dx, dy int) {
	for i := range l.verts {
		v := &l.verts[i]
		switch {
		case v.item != nil:
			v.item.x, v.item.y = v.x-v.left+dx, l.tops[v.rank]+dy
		case v.port != nil:
			v.port.x = v.x + dx
		}
	}
	for _, k := range l.links {
		k.points = l.waypoints(k)
		for j := range k.points {
			k.points[j].X += dx
			k.points[j].Y += dy
		}
		l.extendToBorder(k, group)
		if k.back {
			slices.Reverse(k.points)
		}
	}
}

// extendToBorder extends an end at one of the group's own ports to the group's
// border.
func (l *level) extendToBorder(k *link, group *item) {
	if l.verts[k.a].port != nil {
		k.points = append([]Point{{k.points[0].X, 0}}, k.points...)
	}
	if l.verts[k.b].port != nil {
		k.points = append(k.points, Point{k.points[len(k.points)-1].X, group.h})
	}
}

func (l *level) waypoints(k *link) []Point {
	a, b := &l.verts[k.a], &l.verts[k.b]
	if k.direct {
		return []Point{{l.attachX(k.a, k.portA()), l.tops[a.rank] + a.h}, {l.attachX(k.b, k.portB()), l.tops[b.rank]}}
	}
	var points []Point
	for _, i := range k.segments {
		p := &l.segments[i]
		a := &l.verts[p.a]
		upper := l.tops[a.rank] + l.heights[a.rank] // upper edge of the gap
		lower := upper + l.gapHeights[a.rank]
		if a.item != nil {
			points = append(points, Point{p.xa, l.tops[a.rank] + a.h})
		}
		points = append(points, Point{p.xa, upper})
		if l.g.Style == Orthogonal && p.xa != p.xb {
			y := upper + l.trackOffset(a.rank, p.track)
			points = append(points, Point{p.xa, y}, Point{p.xb, y})
		}
		points = append(points, Point{p.xb, lower})
	}
	return points
}

// trackOffset is the distance of a track from the upper edge of its gap. Tracks
// divide the gap evenly.
func (l *level) trackOffset(rank, track int) int {
	return l.gapHeights[rank] * track / (l.gapTracks[rank] + 1)
}
