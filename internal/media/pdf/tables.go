// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"slices"
	"unicode/utf8"
)

// What makes a table without rules, lengths in units of the font size.
const (
	maxCell     = 60  // characters; columns of running text are longer
	maxRowGap   = 3.2 // from baseline to baseline
	minGutter2  = 1.6 // white between columns of a table of two rows
	maxTableRow = 2_000
)

// A strip is where a column of a table stands.
type strip struct {
	u0, u1 float64
	rows   int // with text in it
}

// tableAt recognises a table at the start of lines and returns how many lines it
// takes: a ruled one, or at least two rows whose cells stand below each other
// with white between them.
func tableAt(lines []line) (block, int) {
	if lines[0].isGrid() {
		return block{kind: table, rows: lines[0].pieces[0].grid}, 1
	}
	if len(lines[0].pieces) < 2 || len(lines) < 2 || isListRow(lines[0]) {
		return block{}, 0
	}
	var cols []strip
	n, full := 0, 0
	for n < len(lines) && n < maxTableRow {
		l := lines[n]
		if l.isGrid() || n > 0 && !near(lines[n-1], l) || n > 0 && isListRow(l) {
			break
		}
		if len(l.pieces) == 1 && !belongs(lines, n, cols) {
			break
		}
		merged, ok := mergeStrips(cols, l)
		if !ok {
			break
		}
		if cols = merged; len(l.pieces) > 1 {
			full++
		}
		n++
	}
	for n > 0 && len(lines[n-1].pieces) == 1 {
		if k := columnOf(cols, lines[n-1].pieces[0]); k > 0 {
			break // the end of a cell of several lines
		}
		n--
	}
	if full < 2 || 2*full < n || len(cols) < 2 || !tabular(lines[:n], cols, full) {
		return block{}, 0
	}
	return block{kind: table, rows: cellsOf(lines[:n], cols)}, n
}

func near(a, b line) bool {
	gap := a.v - b.v
	return gap > 0 && gap <= maxRowGap*max(a.size, b.size)
}

// isListRow: the mark of an item and its text are no two cells.
func isListRow(l line) bool {
	mark, _ := listMark(l.plain())
	return mark != "" && len(l.pieces) == 2
}

// belongs says whether a line with one piece is part of a table: the further
// lines of a cell, or a row of which only one cell is filled.
func belongs(lines []line, n int, cols []strip) bool {
	p := lines[n].pieces[0]
	k := columnOf(cols, p)
	if k < 0 || n == 0 {
		return false
	}
	if k > 0 {
		return lines[n-1].v-lines[n].v <= 1.5*lines[n].size
	}
	return n+1 < len(lines) && len(lines[n+1].pieces) > 1 && near(lines[n], lines[n+1]) &&
		utf8.RuneCountInString(p.plain()) <= maxCell/2
}

// columnOf is the one column that a piece stands in, -1 when it is none or more.
func columnOf(cols []strip, p piece) int {
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

// mergeStrips widens the columns by the pieces of a line; ok is false when the
// line does not go with them.
func mergeStrips(cols []strip, l line) ([]strip, bool) {
	out := slices.Clone(cols)
	for _, p := range l.pieces {
		lo := slices.IndexFunc(out, func(c strip) bool { return p.u1 > c.u0-0.2*p.size && p.u0 < c.u1+0.2*p.size })
		if lo < 0 {
			if len(cols) > 0 && len(l.pieces) == 1 {
				return nil, false
			}
			at := slices.IndexFunc(out, func(c strip) bool { return c.u0 > p.u0 })
			if at < 0 {
				at = len(out)
			}
			out = slices.Insert(out, at, strip{p.u0, p.u1, 1})
			continue
		}
		hi := lo
		for hi+1 < len(out) && out[hi+1].u0 < p.u1+0.2*p.size {
			hi++
		}
		if hi > lo {
			return nil, false // it stands across two columns
		}
		out[lo] = strip{min(out[lo].u0, p.u0), max(out[lo].u1, p.u1), out[lo].rows + 1}
	}
	return out, true
}

// tabular tells a table from lines that have wide gaps by chance.
func tabular(lines []line, cols []strip, full int) bool {
	var lengths []int
	size := 0.0
	for _, l := range lines {
		size = max(size, l.size)
		for _, p := range l.pieces {
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
	// A column that few rows fill is a word that stands apart.
	filled := 0
	for _, c := range cols {
		if 3*c.rows >= full || c.rows >= 2 {
			filled++
		}
	}
	return filled >= 2
}

// cellsOf puts the pieces of lines into cells; a line that leaves the first
// column empty and stands close goes on with the row before.
func cellsOf(lines []line, cols []strip) [][]cell {
	var rows [][]cell
	pitch := pitchOf(lines, cols)
	for i, l := range lines {
		row := make([]cell, len(cols))
		for _, p := range l.pieces {
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

// pitchOf is the usual distance of rows that fill the first column; 0 when the
// lines of all rows stand equally close.
func pitchOf(lines []line, cols []strip) float64 {
	var gaps []float64
	for i := 1; i < len(lines); i++ {
		if columnOf(cols, lines[i].pieces[0]) == 0 {
			gaps = append(gaps, lines[i-1].v-lines[i].v)
		}
	}
	if len(gaps) == 0 {
		return 1e9
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}
