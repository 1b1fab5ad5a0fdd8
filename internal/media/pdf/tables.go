// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"slices"
	"unicode/utf8"
)

// Limits of a table without rules, lengths in units of the font size.
const (
	maxCell     = 60  // characters; columns of running text are longer
	maxRowGap   = 3.2 // from baseline to baseline
	minGutter2  = 1.6 // gap between columns of a table with two rows
	maxTableRow = 2_000
)

// A columnExtent is the extent of a table column.
type columnExtent struct {
	u0, u1 float64
	rows   int // number of rows with text in it
}

// tableAt recognises a table at the start of lines and returns its number of
// lines. The table is a ruled one, or it has at least two rows of aligned cells
// with gaps between the columns.
func tableAt(lines []line) (block, int) {
	if lines[0].isGrid() {
		return block{kind: table, rows: lines[0].fragments[0].grid}, 1
	}
	if len(lines[0].fragments) < 2 || len(lines) < 2 || isListRow(lines[0]) {
		return block{}, 0
	}
	var cols []columnExtent
	n, full := 0, 0
	for n < len(lines) && n < maxTableRow {
		l := lines[n]
		if l.isGrid() || n > 0 && !nearLines(lines[n-1], l) || n > 0 && isListRow(l) {
			break
		}
		if len(l.fragments) == 1 && !belongsToTable(lines, n, cols) {
			break
		}
		merged, ok := mergeColumns(cols, l)
		if !ok {
			break
		}
		if cols = merged; len(l.fragments) > 1 {
			full++
		}
		n++
	}
	for n > 0 && len(lines[n-1].fragments) == 1 {
		if k := columnOf(cols, lines[n-1].fragments[0]); k > 0 {
			break // the last line of a multi-line cell
		}
		n--
	}
	if full < 2 || 2*full < n || len(cols) < 2 || !isTable(lines[:n], cols, full) {
		return block{}, 0
	}
	return block{kind: table, rows: cellsOf(lines[:n], cols)}, n
}

func nearLines(a, b line) bool {
	gap := a.v - b.v
	return gap > 0 && gap <= maxRowGap*max(a.size, b.size)
}

// isListRow reports whether a line is a list marker and its text, which are not
// two cells.
func isListRow(l line) bool {
	marker, _ := listMarker(l.plain())
	return marker != "" && len(l.fragments) == 2
}

// belongsToTable reports whether a line with one fragment is part of a table: a
// further line of a cell, or a row with only one cell filled.
func belongsToTable(lines []line, n int, cols []columnExtent) bool {
	p := lines[n].fragments[0]
	k := columnOf(cols, p)
	if k < 0 || n == 0 {
		return false
	}
	if k > 0 {
		return lines[n-1].v-lines[n].v <= 1.5*lines[n].size
	}
	return n+1 < len(lines) && len(lines[n+1].fragments) > 1 && nearLines(lines[n], lines[n+1]) &&
		utf8.RuneCountInString(p.plain()) <= maxCell/2
}

// columnOf returns the only column that a fragment is in, or -1 when there is
// none or more than one.
func columnOf(cols []columnExtent, p fragment) int {
	found := -1
	for i, c := range cols {
		if p.u0 < c.u1 && p.u1 > c.u0 {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}

// mergeColumns widens the columns by the fragments of a line. ok is false when
// the line does not fit the columns.
func mergeColumns(cols []columnExtent, l line) ([]columnExtent, bool) {
	out := slices.Clone(cols)
	for _, p := range l.fragments {
		lo := slices.IndexFunc(out, func(c columnExtent) bool { return p.u1 > c.u0-0.2*p.size && p.u0 < c.u1+0.2*p.size })
		if lo < 0 {
			if len(cols) > 0 && len(l.fragments) == 1 {
				return nil, false
			}
			at := slices.IndexFunc(out, func(c columnExtent) bool { return c.u0 > p.u0 })
			if at < 0 {
				at = len(out)
			}
			out = slices.Insert(out, at, columnExtent{p.u0, p.u1, 1})
			continue
		}
		hi := lo
		for hi+1 < len(out) && out[hi+1].u0 < p.u1+0.2*p.size {
			hi++
		}
		if hi > lo {
			return nil, false // it spans two columns
		}
		out[lo] = columnExtent{min(out[lo].u0, p.u0), max(out[lo].u1, p.u1), out[lo].rows + 1}
	}
	return out, true
}

// isTable distinguishes a table from lines that have wide gaps by chance.
func isTable(lines []line, cols []columnExtent, full int) bool {
	var lengths []int
	size := 0.0
	for _, l := range lines {
		size = max(size, l.size)
		for _, p := range l.fragments {
			lengths = append(lengths, utf8.RuneCountInString(p.plain()))
		}
	}
	slices.Sort(lengths)
	if lengths[len(lengths)/2] > maxCell || lengths[len(lengths)-1] > 4*maxCell {
		return false
	}
	white := 1e9
	for i := 1; i < len(cols); i++ {
		white = min(white, cols[i].u0-cols[i-1].u1)
	}
	if full == 2 && (white < minGutter2*size || lengths[len(lengths)-1] > maxCell) {
		return false
	}
	// A column with few filled rows is only a word set apart.
	filled := 0
	for _, c := range cols {
		if 3*c.rows >= full || c.rows >= 2 {
			filled++
		}
	}
	return filled >= 2
}

// cellsOf distributes the fragments of lines over cells. A line with an empty
// first column that is close to the row before continues that row.
func cellsOf(lines []line, cols []columnExtent) [][]cell {
	var rows [][]cell
	pitch := rowPitch(lines, cols)
	for i, l := range lines {
		row := make([]cell, len(cols))
		for _, p := range l.fragments {
			if k := columnOf(cols, p); k >= 0 {
				row[k] = row[k].join(p.text)
			}
		}
		if i > 0 && len(row[0]) == 0 && lines[i-1].v-l.v < 0.85*pitch {
			last := rows[len(rows)-1]
			for k, c := range row {
				if len(c) > 0 {
					last[k] = last[k].join(c)
				}
			}
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

// rowPitch is the usual distance between rows that fill the first column. It is
// 1e9 when no row fills it, so that all lines form one row.
func rowPitch(lines []line, cols []columnExtent) float64 {
	var gaps []float64
	for i := 1; i < len(lines); i++ {
		if columnOf(cols, lines[i].fragments[0]) == 0 {
			gaps = append(gaps, lines[i-1].v-lines[i].v)
		}
	}
	if len(gaps) == 0 {
		return 1e9
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}
