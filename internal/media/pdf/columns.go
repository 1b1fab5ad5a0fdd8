// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"
)

// Bounds of the search for columns.
const (
	maxColumnsDeep = 8
	maxGutters     = 64
	minColumnRows  = 3
	// gutterWidth is how wide the white between columns is at least, in units of
	// the font size.
	gutterWidth = 0.85
)

// A gutter is a strip of white that runs down through some rows.
type gutter struct {
	x0, x1   float64
	from, to int // rows, both included
}

// order puts pieces into reading order. Where a gutter divides some rows into
// columns, what stands above comes first, then the columns one by one, then what
// stands below; each of these is looked at in the same way again.
func order(pieces []piece, deep int) []flow {
	if len(pieces) == 0 {
		return nil
	}
	rows := rowsOf(pieces)
	if deep < maxColumnsDeep && len(rows) >= minColumnRows {
		if g, ok := bestGutter(rows); ok {
			left, right := divide(rows[g.from:g.to+1], g)
			if mostlyRTL(pieces) {
				left, right = right, left
			}
			out := order(flat(rows[:g.from]), deep+1)
			out = append(out, order(left, deep+1)...)
			out = append(out, order(right, deep+1)...)
			return append(out, order(flat(rows[g.to+1:]), deep+1)...)
		}
	}
	return []flow{{pieces: pieces}}
}

func flat(rows [][]piece) (out []piece) {
	for _, row := range rows {
		out = append(out, row...)
	}
	return out
}

// divide splits rows at a gutter; both sides stay in order from top to bottom.
func divide(rows [][]piece, g gutter) (left, right []piece) {
	for _, row := range rows {
		for _, p := range row {
			if p.u1 <= g.x0+0.01 {
				left = append(left, p)
			} else {
				right = append(right, p)
			}
		}
	}
	return left, right
}

func mostlyRTL(pieces []piece) bool {
	rtl := 0
	for _, p := range pieces {
		if rightToLeft(p.plain()) {
			rtl++
		}
	}
	return 2*rtl > len(pieces)
}

// bestGutter finds the strip of white with most text on both sides that reads as
// columns and not as a table.
func bestGutter(rows [][]piece) (best gutter, ok bool) {
	score := 0.0
	for _, g := range gutters(rows) {
		g, left, right := trim(rows, g)
		n := min(len(left), len(right))
		if n < minColumnRows || float64(n) < score || !columns(rows[g.from:g.to+1], g, left, right) {
			continue
		}
		if s := float64(n) + min(g.x1-g.x0, 100)/1000; s > score {
			best, score, ok = g, s, true
		}
	}
	return best, ok
}

// gutters finds the strips of white between text that last for some rows, the
// longest ones first.
func gutters(rows [][]piece) []gutter {
	least, most := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		for _, p := range row {
			least, most = min(least, p.u0), max(most, p.u1)
		}
	}
	wide := gutterWidth * medianSize(flat(rows))
	var open, done []gutter
	for i, row := range rows {
		white := whiteOf(row, least, most, wide)
		var next []gutter
		for _, g := range open {
			kept := false
			for _, w := range white {
				if x0, x1 := max(g.x0, w.x0), min(g.x1, w.x1); x1-x0 >= wide {
					next = addGutter(next, gutter{x0, x1, g.from, i})
					kept = kept || x0 == g.x0 && x1 == g.x1
				}
			}
			if !kept {
				done = append(done, g)
			}
		}
		for _, w := range white {
			next = addGutter(next, gutter{w.x0, w.x1, i, i})
		}
		open = next
		if len(done) > 4*maxGutters {
			done = longestGutters(done)
		}
	}
	return longestGutters(append(done, open...))
}

func addGutter(list []gutter, g gutter) []gutter {
	for i, o := range list {
		if o.x0 == g.x0 && o.x1 == g.x1 {
			list[i].from = min(o.from, g.from)
			return list
		}
	}
	if len(list) < maxGutters {
		list = append(list, g)
	}
	return list
}

func longestGutters(list []gutter) []gutter {
	slices.SortStableFunc(list, func(a, b gutter) int { return cmp.Compare(b.to-b.from, a.to-a.from) })
	return list[:min(len(list), maxGutters)]
}

// whiteOf lists the white of a row that could be part of a gutter, also at its
// ends: short lines belong to columns too.
func whiteOf(row []piece, least, most, wide float64) (out []gutter) {
	at := least
	for _, p := range row {
		if p.u0-at >= wide {
			out = append(out, gutter{x0: at, x1: p.u0})
		}
		at = max(at, p.u1)
	}
	if most-at >= wide {
		out = append(out, gutter{x0: at, x1: most})
	}
	return out
}

// Distances between rows, in units of the font size: what is further above or
// below the columns, and stands at one side only, is not part of them.
const (
	aboveColumns = 1.6
	belowColumns = 3.2
)

// trim takes rows off a gutter that have text on one side of it only and stand
// apart. left and right are the rows that have text on the side, as indexes.
func trim(rows [][]piece, g gutter) (out gutter, left, right []int) {
	for i := g.from; i <= g.to; i++ {
		l, r := false, false
		for _, p := range rows[i] {
			if p.u1 <= g.x0+0.01 {
				l = true
			} else {
				r = true
			}
		}
		if l {
			left = append(left, i)
		}
		if r {
			right = append(right, i)
		}
	}
	if len(left) == 0 || len(right) == 0 {
		return g, nil, nil
	}
	apart := func(i int, by float64) bool {
		a, b := rows[i], rows[i+1]
		return a[0].bottom-b[0].top > (by-1)*max(b[0].size, 1)
	}
	from, to := max(left[0], right[0]), min(left[len(left)-1], right[len(right)-1])
	for from > g.from && !apart(from-1, aboveColumns) {
		from--
	}
	for to < g.to && !apart(to, belowColumns) {
		to++
	}
	if from > to {
		return g, nil, nil
	}
	g.from, g.to = from, to
	within := func(list []int) []int {
		return slices.DeleteFunc(list, func(i int) bool { return i < from || i > to })
	}
	return g, within(left), within(right)
}

// columns tells columns of text from those of a table: lines of text fill their
// column or do not stand beside each other, cells are short and do.
func columns(rows [][]piece, g gutter, left, right []int) bool {
	both := 0
	for _, i := range left {
		if slices.Contains(right, i) {
			both++
		}
	}
	if aligned := float64(both) / float64(min(len(left), len(right))); aligned < 0.6 {
		return true
	}
	var l, r side
	for _, row := range rows {
		lp, rp := divide([][]piece{row}, g)
		l.add(lp)
		r.add(rp)
	}
	return l.isText() && r.isText() || r.marked*2 >= max(len(r.widths), 4) && l.marked*2 >= max(len(l.widths), 4)
}

// side is one side of a gutter, row by row.
type side struct {
	u0, u1 float64
	widths []float64
	chars  []int // of each piece
	marked int   // rows that begin as items of lists do
}

func (s *side) add(row []piece) {
	if len(row) == 0 {
		return
	}
	if len(s.widths) == 0 {
		s.u0, s.u1 = row[0].u0, row[0].u1
	}
	end := row[0].u1
	for _, p := range row {
		end = max(end, p.u1)
		s.chars = append(s.chars, utf8.RuneCountInString(p.plain()))
	}
	s.u0, s.u1 = min(s.u0, row[0].u0), max(s.u1, end)
	s.widths = append(s.widths, end-row[0].u0)
	if mark, _ := listMark(row[0].plain()); mark != "" {
		s.marked++
	}
}

// minTextChars is how long the pieces of running text are; cells are shorter.
const minTextChars = 14

// isText: lines of some length, many of which fill the column.
func (s *side) isText() bool {
	if len(s.widths) == 0 {
		return false
	}
	full := 0
	for _, w := range s.widths {
		if w >= 0.7*(s.u1-s.u0) {
			full++
		}
	}
	chars := slices.Clone(s.chars)
	slices.Sort(chars)
	return chars[len(chars)/2] >= minTextChars && 2*full >= len(s.widths)
}
