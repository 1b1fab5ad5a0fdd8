// SPDX-License-Identifier: Apache-2.0

package term

import (
	"regexp"
	"strings"

	"charm.land/lipgloss/v2"
)

// excerpt matches a line that quotes source text. It is never broken, because
// the line below it marks a column of it.
var excerpt = regexp.MustCompile(`^ *\d* *\|`)

// Wrap breaks lines that are wider than columns between words, so that the
// terminal does not break them inside a word. Continuation lines are indented
// by indent columns. A command between backticks stays on one line, because it
// could not be copied otherwise.
func Wrap(text string, columns, indent int) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		if lipgloss.Width(line) <= columns || excerpt.MatchString(line) {
			b.WriteString(line)
			continue
		}
		width := 0
		for j, word := range words(line) {
			w := lipgloss.Width(word)
			switch {
			case j == 0:
			case width+1+w > columns:
				b.WriteString("\n" + strings.Repeat(" ", indent))
				width = indent
			default:
				b.WriteByte(' ')
				width++
			}
			b.WriteString(word)
			width += w
		}
	}
	return b.String()
}

// words splits a line where it may be broken. Spaces beyond the first between
// two words stay with a word, and a command between backticks is one word.
func words(line string) (list []string) {
	open := 0 // backticks so far in the last element of list
	for _, word := range strings.Split(line, " ") {
		if n := len(list); n > 0 && (open%2 == 1 || strings.Trim(list[n-1], " ") == "" || word == "") {
			list[n-1] += " " + word
		} else {
			list, open = append(list, word), 0
		}
		open += strings.Count(word, "`")
	}
	return list
}

// Width returns how many columns s takes on a terminal.
func Width(s string) int { return lipgloss.Width(s) }

// Pad appends spaces to s until it is n columns wide.
func Pad(s string, n int) string {
	return s + strings.Repeat(" ", max(n-lipgloss.Width(s), 0))
}

// Truncate drops what exceeds n columns of s.
func Truncate(s string, n int) string { return lipgloss.NewStyle().MaxWidth(n).Render(s) }

// Cut shortens s to n columns and marks the cut with an ellipsis.
func Cut(s string, n int) string {
	if lipgloss.Width(s) <= n {
		return s
	}
	return Truncate(s, n-1) + "…"
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

// cutLines shortens each line of text to n columns.
func cutLines(text string, n int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(Cut(strings.TrimSuffix(line, "\n"), n) + "\n")
	}
	return b.String()
}
