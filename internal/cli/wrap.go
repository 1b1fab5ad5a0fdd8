// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"strings"

	"charm.land/lipgloss/v2"
)

// excerpt is a line that shows source text; what stands under what matters in
// it, so it is never broken.
var excerpt = regexp.MustCompile(`^ *\d* *\|`)

// fold breaks lines that are wider than a terminal between words, so that the
// terminal does not break them inside one. What follows is indented by indent
// columns. A command between backticks stays in one piece: with a line break in
// it, it could not be copied.
func fold(text string, columns, indent int) string {
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
		for j, word := range unbroken(line) {
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

// unbroken are the pieces of a line between which it may be broken, each with
// the spaces that more than separate it.
func unbroken(line string) (words []string) {
	open := 0 // backticks before the present word, in the words that are one
	for _, word := range strings.Split(line, " ") {
		if n := len(words); n > 0 && (open%2 == 1 || strings.Trim(words[n-1], " ") == "" || word == "") {
			words[n-1] += " " + word
		} else {
			words, open = append(words, word), 0
		}
		open += strings.Count(word, "`")
	}
	return words
}
