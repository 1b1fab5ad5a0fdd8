// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// table writes a table to standard output. On a terminal it is fitted to the
// width as [term.FitTable] does; elsewhere it is complete.
func (a *app) table(rows [][]string, flex ...int) {
	if columns, ok := a.stdoutColumns(); ok {
		a.text("%s", term.FitTable(rows, columns, flex...))
		return
	}
	a.text("%s", term.Table(rows))
}

// sheet writes a table whose last column holds sentences. On a terminal they are
// wrapped within their column.
func (a *app) sheet(rows [][]string) {
	columns, _ := a.stdoutColumns()
	a.text("%s", term.Sheet(rows, columns))
}

// folded wraps text for standard output when that is a terminal.
func (a *app) folded(text string, indent int) string {
	if columns, ok := a.stdoutColumns(); ok {
		return term.Wrap(text, columns, indent)
	}
	return text
}

// ago says how long ago a time was.
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

// stdoutColumns returns the width of the terminal that standard output is; ok
// is false when it is not a terminal.
func (a *app) stdoutColumns() (columns int, ok bool) { return term.Columns(a.stdout) }
