// SPDX-License-Identifier: Apache-2.0

package media

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A line is what stands on one baseline; wide gaps split it into cells.
type line struct {
	cells []string
	u0    float64
	v     float64
	size  float64
	bold  bool
	turn  int
}

func (l line) text() string { return strings.Join(l.cells, " ") }

// Gaps within a baseline, in units of the font size.
const (
	gapSpace = 0.17
	gapCell  = 1.6
)

// lines puts the runs of a page into reading order: by writing direction, the
// one with most text first, then from top to bottom and left to right.
func lines(runs []run) []line {
	weight := map[int]int{}
	for _, r := range runs {
		weight[r.turn] += len(r.text)
	}
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b run) int {
		return cmp.Or(
			cmp.Compare(weight[b.turn], weight[a.turn]), cmp.Compare(a.turn, b.turn),
			cmp.Compare(b.v, a.v))
	})
	var out []line
	for i := 0; i < len(runs); {
		j := i + 1
		for j < len(runs) && runs[j].turn == runs[i].turn && sameBaseline(runs[i], runs[j]) {
			j++
		}
		out = append(out, joinRuns(runs[i:j]))
		i = j
	}
	return slices.DeleteFunc(out, func(l line) bool { return len(l.cells) == 0 })
}

func sameBaseline(a, b run) bool {
	return math.Abs(a.v-b.v) <= 0.35*min(a.size, b.size)
}

func joinRuns(runs []run) line {
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.u0, b.u0) })
	l := line{u0: runs[0].u0, v: runs[0].v, turn: runs[0].turn}
	var cell strings.Builder
	flush := func() {
		if s := strings.Join(strings.Fields(cell.String()), " "); s != "" {
			l.cells = append(l.cells, s)
		}
		cell.Reset()
	}
	chars, boldChars := 0, 0
	end := runs[0].u0
	for i, r := range runs {
		if i > 0 && twice(runs[i-1], r) {
			continue // drawn twice to look bold
		}
		gap := (r.u0 - end) / r.size
		switch {
		case i > 0 && gap > gapCell:
			flush()
		case i > 0 && gap > gapSpace:
			cell.WriteByte(' ')
		}
		cell.WriteString(r.text)
		end = max(end, r.u1)
		n := utf8.RuneCountInString(r.text)
		if chars += n; r.bold {
			boldChars += n
		}
		l.size = max(l.size, r.size)
	}
	flush()
	l.bold = boldChars*2 > chars
	return l
}

func twice(a, b run) bool {
	return a.text == b.text && math.Abs(a.u0-b.u0) < 0.1*a.size && math.Abs(a.v-b.v) < 0.1*a.size
}

// style is what a document's text looks like on the whole.
type style struct {
	body   float64
	bold   bool      // the body itself is bold
	levels []float64 // sizes of headings, largest first
}

// maxLevels is how many sizes above the body are told apart.
const maxLevels = 4

// styleOf finds the size that most characters have, and the larger ones.
func styleOf(pages [][]line) style {
	chars := map[float64]int{}
	bold, all := 0, 0
	for _, page := range pages {
		for _, l := range page {
			n := len(l.text())
			chars[round(l.size)] += n
			if all += n; l.bold {
				bold += n
			}
		}
	}
	st := style{bold: bold*2 > all}
	most := 0
	for size, n := range chars {
		if n > most || n == most && size < st.body {
			st.body, most = size, n
		}
	}
	var larger []float64
	for size := range chars {
		if size >= 1.15*st.body {
			larger = append(larger, size)
		}
	}
	slices.SortFunc(larger, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, size := range larger {
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

// level is the heading level of a line, 0 = none.
func (st style) level(l line) int {
	text := l.text()
	if len(text) > maxHeading || len(l.cells) > 2 || !strings.ContainsFunc(text, unicode.IsLetter) {
		return 0
	}
	size := round(l.size)
	if size >= 1.15*st.body {
		for i, s := range st.levels {
			if size*1.06 > s {
				return min(i+1, maxLevels)
			}
		}
	}
	if l.bold && !st.bold && size >= st.body && len(text) <= 80 && len(l.cells) == 1 &&
		!strings.ContainsAny(text[len(text)-1:], ".,;:!?") {
		return min(len(st.levels)+1, maxLevels)
	}
	return 0
}
