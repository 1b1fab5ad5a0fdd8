// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"cmp"
	"math"
	"slices"
)

// A cell is the text of one cell of a table.
type cell []styled

// Bounds and tolerances of ruled tables, in points.
const (
	maxGridRules = 4_000
	maxGrids     = 200
	maxGridCells = 20_000
	touching     = 2.5 // how far rules may miss each other
)

// A bar is a rule in turned coordinates: at a place, from one end to the other.
type bar struct {
	at, from, to float64
	flat         bool // along u, else along v
}

func turnRules(rules []rule, turn int) []bar {
	var out []bar
	for _, r := range rules {
		u0, v0 := along(turn, r.x0, r.y0)
		u1, v1 := along(turn, r.x1, r.y1)
		if math.Abs(v1-v0) < math.Abs(u1-u0) {
			out = append(out, bar{v0, min(u0, u1), max(u0, u1), true})
		} else {
			out = append(out, bar{u0, min(v0, v1), max(v0, v1), false})
		}
	}
	return out
}

// joinBars puts pieces of one line together: cells are often framed one by one.
func joinBars(bars []bar, flat bool) []bar {
	var list []bar
	for _, b := range bars {
		if b.flat == flat {
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b bar) int { return cmp.Compare(a.at, b.at) })
	// Lines that lie closer than a pen is thick are one.
	for i := 1; i < len(list); i++ {
		if list[i].at-list[i-1].at < 1 {
			list[i].at = list[i-1].at
		}
	}
	slices.SortStableFunc(list, func(a, b bar) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.from, b.from)) })
	var out []bar
	for _, b := range list {
		if n := len(out); n > 0 && out[n-1].at == b.at && b.from <= out[n-1].to+touching {
			out[n-1].to = max(out[n-1].to, b.to)
			continue
		}
		out = append(out, b)
	}
	return out
}

// withGrids replaces the pieces inside ruled tables by the tables.
func withGrids(pieces []piece, bars []bar) []piece {
	if len(bars) < 4 || len(pieces) == 0 {
		return pieces
	}
	across, down := joinBars(bars, true), joinBars(bars, false)
	if len(across)+len(down) > maxGridRules {
		return pieces
	}
	for n, g := range gridsOf(across, down) {
		if n >= maxGrids {
			break
		}
		pieces = g.take(pieces)
	}
	sortPieces(pieces)
	return pieces
}

// A lattice is where the rules of a table stand.
type lattice struct{ us, vs []float64 }

// gridsOf finds rules that cross each other, group by group.
func gridsOf(across, down []bar) []lattice {
	group := make([]int, len(across)+len(down))
	for i := range group {
		group[i] = i
	}
	find := func(i int) int {
		for group[i] != i {
			group[i] = group[group[i]]
			i = group[i]
		}
		return i
	}
	for i, a := range across {
		for j, d := range down {
			if d.at >= a.from-touching && d.at <= a.to+touching && a.at >= d.from-touching && a.at <= d.to+touching {
				group[find(len(across)+j)] = find(i)
			}
		}
	}
	byGroup := map[int]*lattice{}
	var order []int
	at := func(i int) *lattice {
		g := find(i)
		if byGroup[g] == nil {
			byGroup[g] = &lattice{}
			order = append(order, g)
		}
		return byGroup[g]
	}
	for i, a := range across {
		l := at(i)
		l.vs = append(l.vs, a.at)
	}
	for j, d := range down {
		l := at(len(across) + j)
		l.us = append(l.us, d.at)
	}
	var out []lattice
	for _, g := range order {
		l := byGroup[g]
		l.us, l.vs = distinct(l.us), distinct(l.vs)
		slices.Reverse(l.vs) // from top to bottom
		cols, rows := len(l.us)-1, len(l.vs)-1
		if cols >= 2 && rows >= 2 && cols*rows <= maxGridCells {
			out = append(out, *l)
		}
	}
	return out
}

// distinct sorts places and keeps one of those that lie together.
func distinct(at []float64) (out []float64) {
	slices.Sort(at)
	for _, x := range at {
		if len(out) == 0 || x-out[len(out)-1] > touching {
			out = append(out, x)
		}
	}
	return out
}

// take moves the pieces that stand in a table's cells into it. What is no table
// of text (a drawing, a frame around paragraphs) leaves them as they are.
func (l lattice) take(pieces []piece) []piece {
	cols, rows := len(l.us)-1, len(l.vs)-1
	cells := make([][]cell, rows)
	for i := range cells {
		cells[i] = make([]cell, cols)
	}
	table := piece{u0: l.us[0], u1: l.us[cols], top: l.vs[0], bottom: l.vs[rows]}
	var rest []piece
	inside := 0
	for _, p := range pieces {
		row := slices.IndexFunc(l.vs[1:], func(v float64) bool { return p.v+0.3*p.size > v })
		col := slices.IndexFunc(l.us[1:], func(u float64) bool { return p.u0+0.3*p.size < u })
		if row < 0 || col < 0 || p.v+0.3*p.size > l.vs[0] || p.u0 < l.us[0]-touching || p.grid != nil {
			rest = append(rest, p)
			continue
		}
		inside++
		cells[row][col] = cells[row][col].join(p.text)
		table.size = max(table.size, p.size)
	}
	usedRows, usedCols := 0, map[int]bool{}
	for _, row := range cells {
		used := false
		for i, c := range row {
			if len(c) > 0 {
				used, usedCols[i] = true, true
			}
		}
		if used {
			usedRows++
		}
	}
	if usedRows < 2 || len(usedCols) < 2 {
		return pieces
	}
	table.v = (table.top + table.bottom) / 2
	table.grid = compact(cells, usedCols)
	return append(rest, table)
}

// compact leaves out rows and columns without any text, as double rules make.
func compact(cells [][]cell, used map[int]bool) (out [][]cell) {
	for _, row := range cells {
		var kept []cell
		filled := false
		for i, c := range row {
			if used[i] {
				kept = append(kept, c)
				filled = filled || len(c) > 0
			}
		}
		if filled {
			out = append(out, kept)
		}
	}
	return out
}

// join adds the text of a further line, or of a further piece of a line.
func (c cell) join(text []styled) cell {
	if len(c) == 0 {
		return slices.Clone(text)
	}
	return joinText(c, text)
}
