// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
)

// A trunk is a chain of bends that the long links of one source, or of one
// target, share.
type trunk struct {
	verts    []int32
	segments []int32
}

type trunkKey struct {
	vert   int32
	port   *port
	target bool
}

// insertBends splits links over more than one rank into segments, with a bend
// (a dummy vertex) on each rank between. Long links of one source, or into one
// target, whichever has more, share their bends: a fan-out to 400 steps is one
// line that spreads at its end, not 400 parallel lines.
func (l *level) insertBends() {
	source := func(k *link) trunkKey { return trunkKey{k.a, k.portA(), false} }
	target := func(k *link) trunkKey { return trunkKey{k.b, k.portB(), true} }
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
	// Short links come first, so that the longest go without bends when the limit
	// is reached.
	byLength := slices.Clone(l.links)
	slices.SortStableFunc(byLength, func(x, y *link) int { return cmp.Compare(span(x), span(y)) })
	left := maxBends
	for _, k := range byLength {
		key := source(k)
		if span(k) > 1 && long[target(k)] > long[source(k)] {
			key = target(k)
		}
		if span(k) == 1 {
			k.segments = []int32{l.addSegment(k.a, k.b, k.portA(), k.portB(), net(key))}
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
			k.segments = append(k.segments, l.addSegment(k.a, t.verts[need-1], k.portA(), nil, net(key)))
			for i := need - 1; i >= 0; i-- {
				k.segments = append(k.segments, t.segments[i])
			}
		} else {
			k.segments = append(slices.Clone(t.segments[:need]), l.addSegment(t.verts[need-1], k.b, nil, k.portB(), net(key)))
		}
	}
}

func (k *link) portA() *port {
	if k.back {
		return portOf(k.to)
	}
	return portOf(k.from)
}

func (k *link) portB() *port {
	if k.back {
		return portOf(k.from)
	}
	return portOf(k.to)
}

// portOf returns the port through which the end of a link enters a child. It is
// nil for an end at one of the group's own ports, which are vertices themselves.
func portOf(e end) *port {
	if e.item == nil {
		return nil
	}
	return e.port
}

// extend adds bends to a trunk until it has need of them: downwards from its
// source, or upwards from its target.
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
		l.verts = append(l.verts, vertex{rank: rank, net: net})
		t.verts = append(t.verts, v)
		if key.target {
			t.segments = append(t.segments, l.addSegment(v, before, nil, port, net))
		} else {
			t.segments = append(t.segments, l.addSegment(before, v, port, nil, net))
		}
	}
}

func (l *level) addSegment(a, b int32, portA, portB *port, net int32) int32 {
	l.segments = append(l.segments, segment{a: a, b: b, portA: portA, portB: portB, net: net})
	l.verts[a].down = append(l.verts[a].down, b)
	l.verts[b].up = append(l.verts[b].up, a)
	return int32(len(l.segments) - 1)
}
