// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// narrowest is how far a column of a table is cut, unless it is narrower itself.
const narrowest = 12

// fitTable is a table that fits into so many columns of a terminal. It cuts the
// columns of the table that flex lists, the first of them first: i at its end, ^i at
// its beginning, where what tells one cell from another comes last. Where that is not
// enough each row becomes two lines.
func fitTable(rows [][]string, columns int, flex ...int) string {
	width := widths(rows)
	over := -columns - columnGap
	for _, w := range width {
		over += w + columnGap
	}
	for _, i := range flex {
		if i = max(i, ^i); i < len(width) {
			over -= max(0, width[i]-narrowest)
		}
	}
	if over > 0 {
		return stacked(rows, columns, flex)
	}
	return cutLines(table(narrowed(rows, columns, flex)), columns)
}

// narrowed cuts cells of the columns that flex lists, as far as it is needed or can be.
func narrowed(rows [][]string, columns int, flex []int) [][]string {
	width := widths(rows)
	over := -columns - columnGap
	for _, w := range width {
		over += w + columnGap
	}
	for _, i := range flex {
		shorten := cutColumns
		if i < 0 {
			i, shorten = ^i, cutBeginning
		}
		if over <= 0 || i >= len(width) || width[i] <= narrowest {
			continue
		}
		to := max(narrowest, width[i]-over)
		over -= width[i] - to
		for _, row := range rows {
			if i < len(row) && len(row) > 1 {
				row[i] = shorten(row[i], to)
			}
		}
	}
	return rows
}

// stacked is a table for a narrow terminal: the first cell of each row stands in a
// line of its own, and the others, as columns, in the one below.
func stacked(rows [][]string, columns int, flex []int) string {
	const indent = "  "
	rest := make([][]string, len(rows))
	for i, row := range rows {
		if rest[i] = row[1:]; len(row) == 2 {
			rest[i] = append(rest[i], "") // or it would span what the others have
		}
	}
	var others []int
	first := cutColumns
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
	below := strings.Split(table(narrowed(rest, columns-len(indent), others)), "\n")
	var b strings.Builder
	for i, row := range rows {
		b.WriteString(first(row[0], columns) + "\n")
		if len(rest[i]) > 0 {
			b.WriteString(indent + below[i] + "\n")
		}
	}
	return cutLines(b.String(), columns)
}

// cutLines cuts each line to so many columns.
func cutLines(text string, columns int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(cutColumns(strings.TrimSuffix(line, "\n"), columns) + "\n")
	}
	return b.String()
}

// cutColumns shortens s to n columns of a terminal.
func cutColumns(s string, n int) string {
	if lipgloss.Width(s) <= n {
		return s
	}
	return lipgloss.NewStyle().MaxWidth(n-1).Render(s) + "…"
}

// cutBeginning shortens s to n columns and keeps its end.
func cutBeginning(s string, n int) string {
	if lipgloss.Width(s) <= n {
		return s
	}
	r := []rune(s)
	for len(r) > 0 && lipgloss.Width(string(r)) > n-1 {
		r = r[1:]
	}
	return "…" + string(r)
}
