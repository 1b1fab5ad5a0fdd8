// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/roux-engine/roux/internal/view"
)

// table prints rows in columns, the first row in capitals by convention.
func table(rows [][]string) string {
	width := widths(rows)
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-lipgloss.Width(cell)+columnGap))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// columnGap is the space between two columns of a table.
const columnGap = 2

// widths are those of the columns. A row of one cell spans them all.
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

// table writes a table to standard output. On a terminal it fits into its columns
// by cutting those that flex lists, the first of them first; a pipe gets all.
func (a *app) table(rows [][]string, flex ...int) {
	if columns, ok := a.stdoutColumns(); ok {
		a.text("%s", fitTable(rows, columns, flex...))
		return
	}
	a.text("%s", table(rows))
}

// sheet writes a table whose last column holds sentences. On a terminal these are
// folded in their column.
func (a *app) sheet(rows [][]string) {
	indent := 0
	width := widths(rows)
	for _, w := range width[:max(len(width)-1, 0)] {
		indent += w + columnGap
	}
	if columns, ok := a.stdoutColumns(); ok && indent > columns/2 {
		indent = 2 * columnGap // or the column would be too narrow to be read
	}
	a.text("%s", a.folded(table(rows), indent))
}

// folded breaks text for standard output between words where that is a terminal.
func (a *app) folded(text string, indent int) string {
	if columns, ok := a.stdoutColumns(); ok {
		return fold(text, columns, indent)
	}
	return text
}

// ago is how long ago a moment was.
func ago(now time.Time, micros int64) string {
	d := now.Sub(view.UTC(micros))
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d m ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d d ago", int(d.Hours())/24)
}
