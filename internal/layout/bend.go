// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
)

// A trunk is the chain of bends that the long links of one source, or of one
// target, share.
type trunk struct {
	verts  []int32
	pieces []int32
}

type trunkKey struct {
	vert   int32
	port   *port
	target bool
}

// bends cuts links over more than one rank into pieces. Long links of one
// source, or into one target, whichever has more, share their bends: a fan-out
// to 400 steps is one line that spreads at its end, not 400 lines side by side.
func (l *level) bends() {
	source := func(k *link) trunkKey { return trunkKey{k.a, k.aport(), false} }
	target := func(k *link) trunkKey { return trunkKey{k.b, k.bport(), true} }
	span := func(k *link) int { return l.verts[k.b].rank - l.verts[k.a].rank }
	long := map[trunkKey]int{}
	for _, k := range l.links {
		if span(k) > 1 {
			long[source(k)]++
			long[target(k)]++
		}
	}
	nets := map[trunkKey]int32{}
	net := func(key trunkKey) int32 {
		n, ok := nets[key]
		if !ok {
			n = int32(len(nets))
			nets[key] = n
		}
		return n
	}
	trunks := map[trunkKey]*trunk{}
	// Short links first: when the bends run out, the longest go without.
	byLength := slices.Clone(l.links)
	slices.SortStableFunc(byLength, func(x, y *link) int { return cmp.Compare(span(x), span(y)) })
	left := maxBends
	for _, k := range byLength {
		key := source(k)
		if span(k) > 1 && long[target(k)] > long[source(k)] {
			key = target(k)
		}
		if span(k) == 1 {
			k.pieces = []int32{l.addPiece(k.a, k.b, k.aport(), k.bport(), net(key))}
			continue
		}
		t := trunks[key]
		if t == nil {
			t = new(trunk)
			trunks[key] = t
		}
		need := span(k) - 1
		if left -= max(0, need-len(t.verts)); left < 0 {
			k.direct = true
			continue
		}
		l.extend(t, key, k, need, net(key))
		if key.target {
			k.pieces = append(k.pieces, l.addPiece(k.a, t.verts[need-1], k.aport(), nil, net(key)))
			for i := need - 1; i >= 0; i-- {
				k.pieces = append(k.pieces, t.pieces[i])
			}
		} else {
			k.pieces = append(slices.Clone(t.pieces[:need]), l.addPiece(t.verts[need-1], k.b, nil, k.bport(), net(key)))
		}
	}
}

func (k *link) aport() *port {
	if k.back {
		return portOf(k.to)
	}
	return portOf(k.from)
}

func (k *link) bport() *port {
	if k.back {
		return portOf(k.from)
	}
	return portOf(k.to)
}

// portOf is the port of a child that a link's end passes; the group's own
// ports are vertices themselves.
func portOf(e end) *port {
	if e.item == nil {
		return nil
	}
	return e.port
}

// extend makes a trunk long enough: away from its source, or from its target.
func (l *level) extend(t *trunk, key trunkKey, k *link, need int, net int32) {
	for i := len(t.verts); i < need; i++ {
		rank, before := l.verts[k.a].rank+1+i, k.a
		if key.target {
			rank, before = l.verts[k.b].rank-1-i, k.b
		}
		port := key.port
		if i > 0 {
			before, port = t.verts[i-1], nil
		}
		v := int32(len(l.verts))
		l.verts = append(l.verts, vert{rank: rank, net: net})
		t.verts = append(t.verts, v)
		if key.target {
			t.pieces = append(t.pieces, l.addPiece(v, before, nil, port, net))
		} else {
			t.pieces = append(t.pieces, l.addPiece(before, v, port, nil, net))
		}
	}
}

func (l *level) addPiece(a, b int32, aport, bport *port, net int32) int32 {
	l.pieces = append(l.pieces, piece{a: a, b: b, aport: aport, bport: bport, net: net})
	l.verts[a].down = append(l.verts[a].down, b)
	l.verts[b].up = append(l.verts[b].up, a)
	return int32(len(l.pieces) - 1)
}
