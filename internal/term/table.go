// SPDX-License-Identifier: Apache-2.0

package term

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// ColumnGap is the space between two columns of a table.
const ColumnGap = 2

// minColumn is the width below which a column of a table is not cut.
const minColumn = 12

// Table returns rows as columns. By convention the first row is a heading in
// capitals. A row of one cell spans all columns.
func Table(rows [][]string) string {
	width := widths(rows)
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-lipgloss.Width(cell)+ColumnGap))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// widths returns the widths of the columns. Rows of one cell do not count.
func widths(rows [][]string) (width []int) {
	for _, row := range rows {
		if len(row) == 1 {
			continue
		}
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], lipgloss.Width(cell))
		}
	}
	return width
}

// FitTable is [Table] for a terminal of that many columns. It cuts the columns
// of the table that flex lists, in that order: i cuts a column at its end, ^i
// at its beginning, for cells that differ at their end. When that is not
// enough, each row becomes two lines. The cells of rows may be changed.
func FitTable(rows [][]string, columns int, flex ...int) string {
	width := widths(rows)
	excess := -columns - ColumnGap
	for _, w := range width {
		excess += w + ColumnGap
	}
	for _, i := range flex {
		if i = max(i, ^i); i < len(width) {
			excess -= max(0, width[i]-minColumn)
		}
	}
	if excess > 0 {
		return stacked(rows, columns, flex)
	}
	return cutLines(Table(narrowed(rows, columns, flex)), columns)
}

// narrowed cuts cells of the columns that flex lists, as far as is necessary
// and possible.
func narrowed(rows [][]string, columns int, flex []int) [][]string {
	width := widths(rows)
	excess := -columns - ColumnGap
	for _, w := range width {
		excess += w + ColumnGap
	}
	for _, i := range flex {
		shorten := Cut
		if i < 0 {
			i, shorten = ^i, cutBeginning
		}
		if excess <= 0 || i >= len(width) || width[i] <= minColumn {
			continue
		}
		to := max(minColumn, width[i]-excess)
		excess -= width[i] - to
		for _, row := range rows {
			if i < len(row) && len(row) > 1 {
				row[i] = shorten(row[i], to)
			}
		}
	}
	return rows
}

// stacked is a table for a narrow terminal: the first cell of each row has a
// line of its own, and the others are columns on the line below.
func stacked(rows [][]string, columns int, flex []int) string {
	const indent = "  "
	rest := make([][]string, len(rows))
	for i, row := range rows {
		if rest[i] = row[1:]; len(row) == 2 {
			rest[i] = append(rest[i], "") // a row of one cell would span the columns
		}
	}
	var others []int
	first := Cut
	for _, i := range flex {
		switch {
		case i == ^0:
			first = cutBeginning
		case i < 0:
			others = append(others, i+1)
		case i > 0:
			others = append(others, i-1)
		}
	}
	below := strings.Split(Table(narrowed(rest, columns-len(indent), others)), "\n")
	var b strings.Builder
	for i, row := range rows {
		b.WriteString(first(row[0], columns) + "\n")
		if len(rest[i]) > 0 {
			b.WriteString(indent + below[i] + "\n")
		}
	}
	return cutLines(b.String(), columns)
}

// Sheet returns rows whose last column holds sentences, which are wrapped
// within their column. columns is the width of the terminal; 0 means that there
// is none, and nothing is wrapped.
func Sheet(rows [][]string, columns int) string {
	text := Table(rows)
	if columns == 0 {
		return text
	}
	indent := 0
	width := widths(rows)
	for _, w := range width[:max(len(width)-1, 0)] {
		indent += w + ColumnGap
	}
	if indent > columns/2 {
		indent = 2 * ColumnGap // the last column would be too narrow to read
	}
	return Wrap(text, columns, indent)
}
