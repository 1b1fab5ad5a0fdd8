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

// A line is the text on one baseline of a flow.
type line struct {
	fragments []fragment
	u0, u1    float64
	v         float64
	size      float64
	style     fontStyle // of most of its text
}

func linesOf(f flow) []line {
	var out []line
	for _, row := range rowsOf(f.fragments) {
		l := line{fragments: row, u0: row[0].u0, u1: row[len(row)-1].u1, v: row[0].v}
		all, with := 0, [3]int{}
		for _, p := range row {
			l.size = max(l.size, p.size)
			for _, t := range p.text {
				n := utf8.RuneCountInString(t.text)
				all += n
				for bit := range with {
					if t.style&(1<<bit) != 0 {
						with[bit] += n
					}
				}
			}
		}
		for bit, n := range with {
			if 2*n > all {
				l.style |= 1 << bit
			}
		}
		out = append(out, l)
	}
	return out
}

func (l line) isGrid() bool { return len(l.fragments) == 1 && l.fragments[0].grid != nil }

// text returns the whole line, with a space between its fragments.
func (l line) text() []styledText {
	if len(l.fragments) == 1 {
		return l.fragments[0].text
	}
	var out []styledText
	parts := l.fragments
	if mostlyRTL(parts) {
		parts = slices.Clone(parts)
		slices.Reverse(parts)
	}
	for i, p := range parts {
		if i > 0 {
			out = append(out, styledText{" ", 0})
		}
		out = append(out, p.text...)
	}
	return out
}

func (l line) plain() string { return plainOf(l.text()) }

// docStyle is the style of a document as a whole.
type docStyle struct {
	bodySize  float64
	bodyStyle fontStyle // of the body text
	levels    []float64 // font sizes of headings, largest first
}

// maxLevels is the number of heading levels.
const maxLevels = 4

// minHeadingRatio is the minimum font size of a heading, relative to the body.
const minHeadingRatio = 1.15

// styleStats counts characters and lines by style, page by page.
type styleStats struct {
	chars    map[float64]int // by size
	headings map[float64]int // lines that could be headings, by size
	all      int
	with     [3]int // characters that are bold, italic, monospaced
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
			if l.style&(1<<bit) != 0 {
				s.with[bit] += n
			}
		}
		if couldBeHeading(l) {
			s.headings[round(l.size)]++
		}
	}
}

// docStyle finds the font size of most characters, and the larger sizes of
// lines that could be headings. It covers the whole document, so that a level
// means the same on each page.
func (s *styleStats) docStyle() docStyle {
	var st docStyle
	for bit, n := range s.with {
		if 2*n > s.all {
			st.bodyStyle |= 1 << bit
		}
	}
	most := 0
	for size, n := range s.chars {
		if n > most || n == most && size < st.bodySize {
			st.bodySize, most = size, n
		}
	}
	var sizes []float64
	for size := range s.headings {
		if size >= minHeadingRatio*st.bodySize {
			sizes = append(sizes, size)
		}
	}
	slices.SortFunc(sizes, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, size := range sizes {
		if n := len(st.levels); n > 0 && st.levels[n-1] < 1.06*size {
			continue // the same size within measuring error
		}
		st.levels = append(st.levels, size)
	}
	return st
}

func round(size float64) float64 { return math.Round(size*2) / 2 }

// maxHeading is the longest heading in bytes. Longer text in a large font is a
// quote.
const maxHeading = 200

func couldBeHeading(l line) bool {
	text := l.plain()
	letters := 0
	for _, r := range text {
		if unicode.IsLetter(r) {
			letters++
		}
	}
	return !l.isGrid() && len(text) <= maxHeading && len(l.fragments) <= 2 && letters >= 2 && 3*letters >= utf8.RuneCountInString(text)
}

// level returns the heading level of a line, or 0.
func (st docStyle) level(l line) int {
	if !couldBeHeading(l) {
		return 0
	}
	size := round(l.size)
	if size >= minHeadingRatio*st.bodySize {
		for i, s := range st.levels {
			if size*1.06 > s {
				return min(i+1, maxLevels)
			}
		}
	}
	text := l.plain()
	if l.style&bold != 0 && st.bodyStyle&bold == 0 && size >= st.bodySize && utf8.RuneCountInString(text) <= 80 && len(l.fragments) == 1 &&
		len(l.fragments[0].text) == 1 && !strings.ContainsAny(text[len(text)-1:], ".,;:!?") {
		return min(len(st.levels)+1, maxLevels)
	}
	return 0
}
