// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A line is what stands on one baseline of a flow.
type line struct {
	pieces []piece
	u0, u1 float64
	v      float64
	size   float64
	look   emphasis // what most of it has
}

func linesOf(f flow) []line {
	var out []line
	for _, row := range rowsOf(f.pieces) {
		l := line{pieces: row, u0: row[0].u0, u1: row[len(row)-1].u1, v: row[0].v}
		all, with := 0, [3]int{}
		for _, p := range row {
			l.size = max(l.size, p.size)
			for _, t := range p.text {
				n := utf8.RuneCountInString(t.text)
				all += n
				for bit := range with {
					if t.look&(1<<bit) != 0 {
						with[bit] += n
					}
				}
			}
		}
		for bit, n := range with {
			if 2*n > all {
				l.look |= 1 << bit
			}
		}
		out = append(out, l)
	}
	return out
}

func (l line) isGrid() bool { return len(l.pieces) == 1 && l.pieces[0].grid != nil }

// text is the whole line, with a space between its pieces.
func (l line) text() []styled {
	if len(l.pieces) == 1 {
		return l.pieces[0].text
	}
	var out []styled
	parts := l.pieces
	if mostlyRTL(parts) {
		parts = slices.Clone(parts)
		slices.Reverse(parts)
	}
	for i, p := range parts {
		if i > 0 {
			out = append(out, styled{" ", 0})
		}
		out = append(out, p.text...)
	}
	return out
}

func (l line) plain() string { return plainOf(l.text()) }

// style is what a document's text looks like on the whole.
type style struct {
	body   float64
	look   emphasis  // of the body itself
	levels []float64 // sizes of headings, largest first
}

// maxLevels is how many sizes above the body are told apart.
const maxLevels = 4

// larger is by how much a heading is larger than the body, at least.
const larger = 1.15

// styleStats counts what styles are made of, page by page.
type styleStats struct {
	chars    map[float64]int // by size
	headings map[float64]int // lines that could be headings, by size
	all      int
	with     [3]int // characters that are bold, italic, of equal widths
}

func (s *styleStats) add(lines []line) {
	if s.chars == nil {
		s.chars, s.headings = map[float64]int{}, map[float64]int{}
	}
	for _, l := range lines {
		n := len(l.plain())
		s.chars[round(l.size)] += n
		s.all += n
		for bit := range s.with {
			if l.look&(1<<bit) != 0 {
				s.with[bit] += n
			}
		}
		if couldHead(l) {
			s.headings[round(l.size)]++
		}
	}
}

// style finds the size that most characters have, and the larger ones of lines
// that could be headings. It is of the whole document, so that a level means the
// same on each page.
func (s *styleStats) style() style {
	var st style
	for bit, n := range s.with {
		if 2*n > s.all {
			st.look |= 1 << bit
		}
	}
	most := 0
	for size, n := range s.chars {
		if n > most || n == most && size < st.body {
			st.body, most = size, n
		}
	}
	var sizes []float64
	for size := range s.headings {
		if size >= larger*st.body {
			sizes = append(sizes, size)
		}
	}
	slices.SortFunc(sizes, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, size := range sizes {
		if n := len(st.levels); n > 0 && st.levels[n-1] < 1.06*size {
			continue // the same heading, measured a little differently
		}
		st.levels = append(st.levels, size)
	}
	return st
}

func round(size float64) float64 { return math.Round(size*2) / 2 }

// maxHeading is how long a heading may be, in bytes; longer large text is a quote.
const maxHeading = 200

func couldHead(l line) bool {
	text := l.plain()
	letters := 0
	for _, r := range text {
		if unicode.IsLetter(r) {
			letters++
		}
	}
	return !l.isGrid() && len(text) <= maxHeading && len(l.pieces) <= 2 && letters >= 2 && 3*letters >= utf8.RuneCountInString(text)
}

// level is the heading level of a line, 0 = none.
func (st style) level(l line) int {
	if !couldHead(l) {
		return 0
	}
	size := round(l.size)
	if size >= larger*st.body {
		for i, s := range st.levels {
			if size*1.06 > s {
				return min(i+1, maxLevels)
			}
		}
	}
	text := l.plain()
	if l.look&bold != 0 && st.look&bold == 0 && size >= st.body && utf8.RuneCountInString(text) <= 80 && len(l.pieces) == 1 &&
		len(l.pieces[0].text) == 1 && !strings.ContainsAny(text[len(text)-1:], ".,;:!?") {
		return min(len(st.levels)+1, maxLevels)
	}
	return 0
}
