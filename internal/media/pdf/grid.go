// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"cmp"
	"math"
	"slices"

	"github.com/roux-engine/roux/internal/heap"
)

// A cell is the text of one table cell.
type cell []styledText

// Limits and tolerances of ruled tables, in points.
const (
	maxGridRules = 4_000
	maxGrids     = 200
	maxGridCells = 20_000
	touching     = 2.5 // largest gap between rules that meet
)

// An axisRule is a rule in text coordinates: its position on one axis and its
// extent along the other.
type axisRule struct {
	at, from, to float64
	horizontal   bool // extends along u, else along v
}

func rotateRules(rules []rule, rotation int) []axisRule {
	var out []axisRule
	for _, r := range rules {
		u0, v0 := toTextAxes(rotation, r.x0, r.y0)
		u1, v1 := toTextAxes(rotation, r.x1, r.y1)
		if math.Abs(v1-v0) < math.Abs(u1-u0) {
			out = append(out, axisRule{v0, min(u0, u1), max(u0, u1), true})
		} else {
			out = append(out, axisRule{u0, min(v0, v1), max(v0, v1), false})
		}
	}
	return out
}

// joinRules joins the parts of one line, because cells are often framed one by
// one.
func joinRules(rules []axisRule, flat bool) []axisRule {
	var list []axisRule
	for _, b := range rules {
		if b.horizontal == flat {
			list = append(list, b)
		}
	}
	heap.Sort(list, func(a, b axisRule) int { return cmp.Compare(a.at, b.at) })
	// Lines closer than the width of a stroke are one line.
	for i := 1; i < len(list); i++ {
		if list[i].at-list[i-1].at < 1 {
			list[i].at = list[i-1].at
		}
	}
	heap.Sort(list, func(a, b axisRule) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.from, b.from)) })
	var out []axisRule
	for _, b := range list {
		if n := len(out); n > 0 && out[n-1].at == b.at && b.from <= out[n-1].to+touching {
			out[n-1].to = max(out[n-1].to, b.to)
			continue
		}
		out = append(out, b)
	}
	return out
}

// withGrids replaces the fragments inside ruled tables by the tables.
func withGrids(fragments []fragment, rules []axisRule) []fragment {
	if len(rules) < 4 || len(fragments) == 0 {
		return fragments
	}
	across, down := joinRules(rules, true), joinRules(rules, false)
	if len(across)+len(down) > maxGridRules {
		return fragments
	}
	for n, g := range gridsOf(across, down) {
		if n >= maxGrids {
			break
		}
		fragments = g.extract(fragments)
	}
	sortFragments(fragments)
	return fragments
}

// A lattice holds the positions of the rules of a table.
type lattice struct{ us, vs []float64 }

// gridsOf finds groups of rules that cross each other.
func gridsOf(across, down []axisRule) []lattice {
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
		l.us, l.vs = distinctPositions(l.us), distinctPositions(l.vs)
		slices.Reverse(l.vs) // from top to bottom
		cols, rows := len(l.us)-1, len(l.vs)-1
		if cols >= 2 && rows >= 2 && cols*rows <= maxGridCells {
			out = append(out, *l)
		}
	}
	return out
}

// distinctPositions sorts positions and keeps one of each group that touch.
func distinctPositions(at []float64) (out []float64) {
	slices.Sort(at)
	for _, x := range at {
		if len(out) == 0 || x-out[len(out)-1] > touching {
			out = append(out, x)
		}
	}
	return out
}

// extract moves the fragments inside the cells of a table into one table
// fragment. It leaves them alone where the rules are not a table of text but a
// drawing, or a frame around paragraphs.
func (l lattice) extract(fragments []fragment) []fragment {
	cols, rows := len(l.us)-1, len(l.vs)-1
	cells := make([][]cell, rows)
	for i := range cells {
		cells[i] = make([]cell, cols)
	}
	table := fragment{u0: l.us[0], u1: l.us[cols], top: l.vs[0], bottom: l.vs[rows]}
	var rest []fragment
	inside := 0
	for _, p := range fragments {
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
		return fragments
	}
	table.v = (table.top + table.bottom) / 2
	table.grid = dropEmptyCells(cells, usedCols)
	return append(rest, table)
}

// dropEmptyCells drops rows and columns without text, which double rules cause.
func dropEmptyCells(cells [][]cell, used map[int]bool) (out [][]cell) {
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

// join appends the text of a further line, or of a further fragment of a line.
func (c cell) join(text []styledText) cell {
	if len(c) == 0 {
		return slices.Clone(text)
	}
	return joinText(c, text)
}
