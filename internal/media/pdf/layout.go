// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// styledText is text in one font style.
type styledText struct {
	text  string
	style fontStyle
}

// A fragment is the text that is set together on one baseline, or a whole ruled
// table, which takes part in the layout as one fragment.
type fragment struct {
	u0, u1 float64
	v      float64 // baseline; of a table, its middle
	size   float64
	top    float64 // top edge, above the baseline
	bottom float64
	text   []styledText
	grid   [][]cell
}

func (p fragment) plain() string { return plainOf(p.text) }

func plainOf(text []styledText) string {
	if len(text) == 1 {
		return text[0].text
	}
	var out strings.Builder
	for _, t := range text {
		out.WriteString(t.text)
	}
	return out.String()
}

// A flow is text that is read from top to bottom: a column, or a whole page.
type flow struct {
	fragments []fragment
	margin    bool // a header or a footer of the page
	rotation  int
}

// maxLayoutFragments limits the search for columns and tables. A page with more
// fragments is not a page of text.
const maxLayoutFragments = 20_000

// layout returns the content of a page in reading order: by writing direction,
// the one with most text first, then column by column.
func layout(s pageContent) []flow {
	weight, groups := [4]int{}, [4][]textRun{}
	for _, r := range s.runs {
		weight[r.rotation] += len(r.text)
		groups[r.rotation] = append(groups[r.rotation], r)
	}
	rotations := []int{0, 1, 2, 3}
	slices.SortStableFunc(rotations, func(a, b int) int { return cmp.Compare(weight[b], weight[a]) })
	var out []flow
	for _, rotation := range rotations {
		if len(groups[rotation]) == 0 {
			continue
		}
		rules := rotateRules(s.rules, rotation)
		fragments := fragmentsOf(groups[rotation], rules)
		if len(fragments) > maxLayoutFragments {
			out = append(out, flow{fragments: fragments, rotation: rotation})
			continue
		}
		fragments = withGrids(fragments, rules)
		bottom, top := vRange(s.media, rotation)
		head, body, foot := margins(fragments, bottom, top)
		flows := append(head, readingOrder(body, 0)...)
		flows = append(flows, foot...)
		for i := range flows {
			flows[i].rotation = rotation
		}
		out = append(out, flows...)
	}
	return out
}

func vRange(m rect, rotation int) (bottom, top float64) {
	_, v0 := toTextAxes(rotation, m[0], m[1])
	_, v1 := toTextAxes(rotation, m[2], m[3])
	return min(v0, v1), max(v0, v1)
}

// fragmentsOf joins the runs of one writing direction into fragments, from top
// to bottom.
func fragmentsOf(runs []textRun, rules []axisRule) []fragment {
	down := joinRules(rules, false)
	if len(down) > maxVerticalRules {
		down = nil
	}
	slices.SortStableFunc(runs, func(a, b textRun) int { return cmp.Compare(b.v, a.v) })
	var rows [][]textRun
	for i := 0; i < len(runs); {
		j := i + 1
		for j < len(runs) && runs[i].v-runs[j].v <= 0.35*min(runs[i].size, runs[j].size) {
			j++
		}
		rows = append(rows, slices.Clone(runs[i:j]))
		i = j
	}
	raiseScripts(rows)
	var out []fragment
	for _, row := range rows {
		out = joinRuns(out, row, down)
	}
	return out
}

// raiseScripts moves superscripts and subscripts to the baseline of the letter
// they are attached to.
func raiseScripts(rows [][]textRun) {
	const manyRuns = 500
	for i := range rows {
		for _, j := range []int{i + 1, i - 1} {
			if j < 0 || j >= len(rows) || len(rows[i]) > manyRuns || len(rows[j]) > manyRuns {
				continue
			}
			rows[i] = slices.DeleteFunc(rows[i], func(small textRun) bool {
				for _, r := range rows[j] {
					touches := math.Abs(small.u0-r.u1) < 0.25*r.size || math.Abs(r.u0-small.u1) < 0.25*r.size
					if small.size <= 0.8*r.size && touches && math.Abs(small.v-r.v) <= 0.6*r.size {
						small.v = r.v
						rows[j] = append(rows[j], small)
						return true
					}
				}
				return false
			})
		}
	}
}

// joinRuns joins the runs of one baseline into fragments.
func joinRuns(out []fragment, row []textRun, down []axisRule) []fragment {
	slices.SortStableFunc(row, func(a, b textRun) int { return cmp.Compare(a.u0, b.u0) })
	if len(row) <= maxRowRuns {
		row = placeAccents(row)
	}
	first := len(out)
	var last textRun
	for i, r := range row {
		if i > 0 && r.text == last.text && math.Abs(r.u0-last.u0) < 0.1*r.size && math.Abs(r.v-last.v) < 0.1*r.size {
			continue // drawn twice to look bold, or as a shadow
		}
		p := len(out) - 1
		gap := 0.0
		if p >= first {
			gap = (r.u0 - out[p].u1) / max(r.size, last.size)
		}
		if p < first || gap > gapFragment || gap > 0 && ruleBetween(down, out[p].u1, r) {
			out = append(out, fragment{u0: r.u0, u1: r.u1, v: r.v, size: r.size, text: []styledText{{r.text, r.style}}})
		} else {
			apart := gap > gapSpace || gap < -0.5 || (r.before || last.after) && math.Abs(gap) > minSpace
			out[p].add(r, apart)
		}
		last = r
	}
	for i := first; i < len(out); i++ {
		out[i].finish()
	}
	return out
}

// maxRowRuns limits the runs of a baseline that are compared with each other.
const maxRowRuns = 2_000

// maxVerticalRules limits the rules that runs are compared with.
const maxVerticalRules = 500

// ruleBetween reports whether a vertical rule is between end and r.
func ruleBetween(down []axisRule, end float64, r textRun) bool {
	return slices.ContainsFunc(down, func(b axisRule) bool {
		return b.at > end-0.5 && b.at < r.u0+0.5 && b.from <= r.v && b.to >= r.v
	})
}

func (p *fragment) add(r textRun, apart bool) {
	text := r.text
	if apart {
		text = " " + text
	}
	if n := len(p.text); p.text[n-1].style == r.style {
		p.text[n-1].text += text
	} else {
		p.text = append(p.text, styledText{text, r.style})
	}
	p.u1 = max(p.u1, r.u1)
	if r.size > p.size {
		p.size, p.v = r.size, r.v
	}
}

// finish completes a fragment whose runs have all been added: its height, and
// the order of right-to-left words.
func (p *fragment) finish() {
	p.top, p.bottom = p.v+0.8*p.size, p.v-0.2*p.size
	if s := p.plain(); isRTLText(s) {
		p.text = []styledText{{strings.Join(logicalOrder(strings.Fields(s)), " "), p.text[0].style}}
	}
}

// rowsOf groups fragments, which are ordered from top to bottom, by baseline.
func rowsOf(fragments []fragment) [][]fragment {
	var rows [][]fragment
	for i := 0; i < len(fragments); {
		j := i + 1
		for j < len(fragments) && sameRow(fragments[i:j], fragments[j]) {
			j++
		}
		row := slices.Clone(fragments[i:j])
		slices.SortStableFunc(row, func(a, b fragment) int { return cmp.Compare(a.u0, b.u0) })
		rows = append(rows, row)
		i = j
	}
	return rows
}

// sameRow reports whether a fragment belongs to a row. The baselines of
// fragments beside each other (a label and its field) may differ more than
// those of fragments that would overlap.
func sameRow(row []fragment, p fragment) bool {
	first := row[0]
	if first.grid != nil || p.grid != nil {
		return false
	}
	apart := (first.v - p.v) / min(first.size, p.size)
	if apart <= 0.35 || apart > 0.6 {
		return apart <= 0.35
	}
	return !slices.ContainsFunc(row[:min(len(row), maxRowFragments)], func(r fragment) bool { return r.u0 < p.u1 && p.u0 < r.u1 })
}

// maxRowFragments limits the fragments of a row that are compared.
const maxRowFragments = 50

func sortFragments(fragments []fragment) {
	slices.SortStableFunc(fragments, func(a, b fragment) int { return cmp.Compare(b.v, a.v) })
}

// Headers and footers of a page: one or more rows near its edge, well separated
// from the rest.
const (
	marginShare = 0.12
	marginGap   = 1.8
	marginRows  = 3
	marginChars = 160
)

// margins separates headers and footers, so that they neither end a column nor
// are read between two.
func margins(fragments []fragment, bottom, top float64) (head []flow, body []fragment, foot []flow) {
	rows := rowsOf(fragments)
	height := top - bottom
	median := medianSize(fragments)
	near := func(row []fragment, upper bool) bool {
		chars := 0
		for _, p := range row {
			chars += utf8.RuneCountInString(p.plain())
			if p.grid != nil || p.size > 1.1*median {
				return false
			}
		}
		if upper {
			return chars <= marginChars && row[0].v > top-marginShare*height
		}
		return chars <= marginChars && row[0].v < bottom+marginShare*height
	}
	apart := func(a, b []fragment) bool { return a[0].v-b[0].v > marginGap*max(a[0].size, b[0].size) }
	from, to := 0, len(rows)
	for n := 1; n <= marginRows && n < len(rows) && near(rows[n-1], true); n++ {
		if apart(rows[n-1], rows[n]) {
			from = n
			break
		}
	}
	for n := 1; n <= marginRows && len(rows)-n > from && near(rows[len(rows)-n], false); n++ {
		if apart(rows[len(rows)-n-1], rows[len(rows)-n]) {
			to = len(rows) - n
			break
		}
	}
	for _, row := range rows[from:to] {
		body = append(body, row...)
	}
	return marginFlows(rows[:from]), body, marginFlows(rows[to:])
}

// marginFlows separates the left, middle and right parts of a header.
func marginFlows(rows [][]fragment) (out []flow) {
	var all []fragment
	for _, row := range rows {
		all = append(all, row...)
	}
	slices.SortStableFunc(all, func(a, b fragment) int { return cmp.Compare(a.u0, b.u0) })
	end := 0.0
	for i, p := range all {
		if i == 0 || p.u0 > end {
			out = append(out, flow{margin: true})
			end = p.u1
		}
		f := &out[len(out)-1]
		f.fragments = append(f.fragments, p)
		end = max(end, p.u1)
	}
	for i := range out {
		sortFragments(out[i].fragments)
	}
	return out
}

func medianSize(fragments []fragment) float64 {
	if len(fragments) == 0 {
		return 0
	}
	sizes := make([]float64, 0, len(fragments))
	for _, p := range fragments {
		sizes = append(sizes, p.size)
	}
	slices.Sort(sizes)
	return sizes[len(sizes)/2]
}
