// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/heap"
)

// Limits of the search for columns.
const (
	maxColumnDepth = 8
	maxGutters     = 64
	minColumnRows  = 3
	// gutterWidth is the minimum width of the gap between columns, in units of the
	// font size.
	gutterWidth = 0.85
)

// A gutter is a vertical strip without text through some rows.
type gutter struct {
	x0, x1   float64
	from, to int // rows, inclusive
}

// readingOrder sorts fragments into flows. Where a gutter divides some rows
// into columns, the order is: the rows above, the columns one by one, the rows
// below. Each of these is divided again in the same way.
func readingOrder(fragments []fragment, depth int) []flow {
	if len(fragments) == 0 {
		return nil
	}
	rows := rowsOf(fragments)
	if depth < maxColumnDepth && len(rows) >= minColumnRows {
		if g, ok := bestGutter(rows); ok {
			left, right := splitRows(rows[g.from:g.to+1], g)
			if mostlyRTL(fragments) {
				left, right = right, left
			}
			out := readingOrder(flatten(rows[:g.from]), depth+1)
			out = append(out, readingOrder(left, depth+1)...)
			out = append(out, readingOrder(right, depth+1)...)
			return append(out, readingOrder(flatten(rows[g.to+1:]), depth+1)...)
		}
	}
	return []flow{{fragments: fragments}}
}

func flatten(rows [][]fragment) (out []fragment) {
	for _, row := range rows {
		out = append(out, row...)
	}
	return out
}

// splitRows splits rows at a gutter. Both sides stay ordered from top to
// bottom.
func splitRows(rows [][]fragment, g gutter) (left, right []fragment) {
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

func mostlyRTL(fragments []fragment) bool {
	rtl := 0
	for _, p := range fragments {
		if isRTLText(p.plain()) {
			rtl++
		}
	}
	return 2*rtl > len(fragments)
}

// bestGutter finds the gutter with most text on both sides that separates
// columns of text and not of a table.
func bestGutter(rows [][]fragment) (best gutter, ok bool) {
	score := 0.0
	for _, g := range gutters(rows) {
		g, left, right := trimGutter(rows, g)
		n := min(len(left), len(right))
		if n < minColumnRows || float64(n) < score || !areColumns(rows[g.from:g.to+1], g, left, right) {
			continue
		}
		if s := float64(n) + min(g.x1-g.x0, 100)/1000; s > score {
			best, score, ok = g, s, true
		}
	}
	return best, ok
}

// gutters finds the gutters that extend over some rows, the longest first.
func gutters(rows [][]fragment) []gutter {
	least, most := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		for _, p := range row {
			least, most = min(least, p.u0), max(most, p.u1)
		}
	}
	wide := gutterWidth * medianSize(flatten(rows))
	var open, done []gutter
	for i, row := range rows {
		gaps := gapsOf(row, least, most, wide)
		var next []gutter
		for _, g := range open {
			kept := false
			for _, w := range gaps {
				if x0, x1 := max(g.x0, w.x0), min(g.x1, w.x1); x1-x0 >= wide {
					next = addGutter(next, gutter{x0, x1, g.from, i})
					kept = kept || x0 == g.x0 && x1 == g.x1
				}
			}
			if !kept {
				done = append(done, g)
			}
		}
		for _, w := range gaps {
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
	heap.Sort(list, func(a, b gutter) int { return cmp.Compare(b.to-b.from, a.to-a.from) })
	return list[:min(len(list), maxGutters)]
}

// gapsOf lists the gaps of a row that could be part of a gutter. They include
// the row's ends, because short lines belong to columns too.
func gapsOf(row []fragment, least, most, wide float64) (out []gutter) {
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

// Distances between rows, in units of the font size. A row further above or
// below the columns, with text on one side only, is not part of them.
const (
	aboveColumns = 1.6
	belowColumns = 3.2
)

// trimGutter removes rows from both ends of a gutter that have text on one side
// only and are set apart. left and right are the indexes of the rows with text
// on that side.
func trimGutter(rows [][]fragment, g gutter) (out gutter, left, right []int) {
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

// areColumns distinguishes columns of text from those of a table. Lines of text
// fill their column, or are not aligned with those of the other; table cells
// are short and aligned.
func areColumns(rows [][]fragment, g gutter, left, right []int) bool {
	both := 0
	for _, i := range left {
		if slices.Contains(right, i) {
			both++
		}
	}
	if aligned := float64(both) / float64(min(len(left), len(right))); aligned < 0.6 {
		return true
	}
	var l, r gutterSide
	for _, row := range rows {
		lp, rp := splitRows([][]fragment{row}, g)
		l.add(lp)
		r.add(rp)
	}
	return l.isText() && r.isText() || r.listItems*2 >= max(len(r.widths), 4) && l.listItems*2 >= max(len(l.widths), 4)
}

// A gutterSide collects the rows on one side of a gutter.
type gutterSide struct {
	u0, u1    float64
	widths    []float64
	chars     []int // of each fragment
	listItems int   // rows that begin with a list marker
}

func (s *gutterSide) add(row []fragment) {
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
	if marker, _ := listMarker(row[0].plain()); marker != "" {
		s.listItems++
	}
}

// minTextChars is the median length of fragments of running text; table cells
// are shorter.
const minTextChars = 14

// isText reports whether the side is running text: lines of some length, many
// of which fill the column.
func (s *gutterSide) isText() bool {
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
