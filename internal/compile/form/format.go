// SPDX-License-Identifier: Apache-2.0

package form

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/roux-engine/roux/fault"
)

// maxExcerpt is how many characters of a long line an excerpt shows.
const maxExcerpt = 120

// Format formats a diagnostic for people: the one-line form, the source line with a
// marker under the place, and the related places.
//
//	digest.yaml:4:5: error RECIPE_INVALID/unknown-field: a step has no field "acton"; did you mean "action"?
//	  |
//	4 |     acton: {name: file-inspect}
//	  |     ^~~~~
func (s *Source) Format(d fault.Diagnostic) string {
	var b strings.Builder
	b.WriteString(printable(d.String()))
	b.WriteByte('\n')
	s.excerpt(&b, d.Pos)
	for _, r := range d.Related {
		fmt.Fprintf(&b, "  = %s: %s\n", r.Pos, printable(r.Msg))
	}
	return b.String()
}

func (s *Source) excerpt(b *strings.Builder, p fault.Pos) {
	text := s.of(p.File)
	if p.Line == 0 || text == nil {
		return
	}
	line := []rune(text.Line(p.Line))
	from := max(0, min(p.Col-1, len(line)))
	first := max(0, from-maxExcerpt/2)
	if len(line) <= maxExcerpt {
		first = 0
	}
	last := min(len(line), first+maxExcerpt)
	length := max(1, min(p.Len, last-from))

	number := strconv.Itoa(p.Line)
	margin := strings.Repeat(" ", len(number))
	fmt.Fprintf(b, "%s |\n%s | ", margin, number)
	if first > 0 {
		b.WriteString("...")
	}
	b.WriteString(printable(string(line[first:last])))
	if last < len(line) {
		b.WriteString("...")
	}
	fmt.Fprintf(b, "\n%s | ", margin)
	if first > 0 {
		b.WriteString("   ")
	}
	for _, c := range line[first:from] {
		// A tab moves the marker as it moves the text above.
		if c == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteByte(' ')
		}
	}
	b.WriteString("^" + strings.Repeat("~", length-1) + "\n")
}

// printable replaces characters that a terminal would interpret or hide, because a
// source is not trusted.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c == '\t' || c == ' ' || unicode.IsGraphic(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
