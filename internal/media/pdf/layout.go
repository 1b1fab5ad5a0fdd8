// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// styled is text set in one look.
type styled struct {
	text string
	look emphasis
}

// A piece is what stands together on one baseline, or a table whose cells are
// ruled and which takes part in the layout as a whole.
type piece struct {
	u0, u1 float64
	v      float64 // baseline; of a table its middle
	size   float64
	top    float64 // where it begins, above the baseline
	bottom float64
	text   []styled
	grid   [][]cell
}

func (p piece) plain() string { return plainOf(p.text) }

func plainOf(text []styled) string {
	if len(text) == 1 {
		return text[0].text
	}
	var out strings.Builder
	for _, t := range text {
		out.WriteString(t.text)
	}
	return out.String()
}

// A flow is text that is read from top to bottom: a column, a page without any.
type flow struct {
	pieces []piece
	margin bool // a header or a footer of the page
	turn   int
}

// maxLaid bounds what is searched for columns and tables; a page with more
// pieces is no page of text.
const maxLaid = 20_000

// layout puts what a page shows into reading order: by writing direction, the
// one with most text first, then column by column.
func layout(s sheet) []flow {
	weight, groups := [4]int{}, [4][]run{}
	for _, r := range s.runs {
		weight[r.turn] += len(r.text)
		groups[r.turn] = append(groups[r.turn], r)
	}
	turns := []int{0, 1, 2, 3}
	slices.SortStableFunc(turns, func(a, b int) int { return cmp.Compare(weight[b], weight[a]) })
	var out []flow
	for _, turn := range turns {
		if len(groups[turn]) == 0 {
			continue
		}
		bars := turnRules(s.rules, turn)
		pieces := piecesOf(groups[turn], bars)
		if len(pieces) > maxLaid {
			out = append(out, flow{pieces: pieces, turn: turn})
			continue
		}
		pieces = withGrids(pieces, bars)
		bottom, top := vRange(s.media, turn)
		head, body, foot := margins(pieces, bottom, top)
		flows := append(head, order(body, 0)...)
		flows = append(flows, foot...)
		for i := range flows {
			flows[i].turn = turn
		}
		out = append(out, flows...)
	}
	return out
}

func vRange(m rect, turn int) (bottom, top float64) {
	_, v0 := along(turn, m[0], m[1])
	_, v1 := along(turn, m[2], m[3])
	return min(v0, v1), max(v0, v1)
}

// piecesOf joins the runs of one direction, from top to bottom.
func piecesOf(runs []run, bars []bar) []piece {
	down := joinBars(bars, false)
	if len(down) > maxDown {
		down = nil
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(b.v, a.v) })
	var rows [][]run
	for i := 0; i < len(runs); {
		j := i + 1
		for j < len(runs) && runs[i].v-runs[j].v <= 0.35*min(runs[i].size, runs[j].size) {
			j++
		}
		rows = append(rows, slices.Clone(runs[i:j]))
		i = j
	}
	raiseScripts(rows)
	var out []piece
	for _, row := range rows {
		out = joinRuns(out, row, down)
	}
	return out
}

// raiseScripts moves small letters above or below a baseline (powers, marks of
// footnotes) to the baseline of the letter they stand at.
func raiseScripts(rows [][]run) {
	const manyRuns = 500
	for i := range rows {
		for _, j := range []int{i + 1, i - 1} {
			if j < 0 || j >= len(rows) || len(rows[i]) > manyRuns || len(rows[j]) > manyRuns {
				continue
			}
			rows[i] = slices.DeleteFunc(rows[i], func(small run) bool {
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

// joinRuns adds the runs of one baseline as pieces.
func joinRuns(out []piece, row []run, down []bar) []piece {
	slices.SortStableFunc(row, func(a, b run) int { return cmp.Compare(a.u0, b.u0) })
	if len(row) <= maxRowRuns {
		row = putAccents(row)
	}
	first := len(out)
	var last run
	for i, r := range row {
		if i > 0 && r.text == last.text && math.Abs(r.u0-last.u0) < 0.1*r.size && math.Abs(r.v-last.v) < 0.1*r.size {
			continue // drawn twice to look bold, or to cast a shadow
		}
		p := len(out) - 1
		gap := 0.0
		if p >= first {
			gap = (r.u0 - out[p].u1) / max(r.size, last.size)
		}
		if p < first || gap > gapPiece || gap > 0 && barBetween(down, out[p].u1, r) {
			out = append(out, piece{u0: r.u0, u1: r.u1, v: r.v, size: r.size, text: []styled{{r.text, r.look}}})
		} else {
			apart := gap > gapSpace || gap < -0.5 || (r.before || last.after) && math.Abs(gap) > minSpace
			out[p].add(r, apart)
		}
		last = r
	}
	for i := first; i < len(out); i++ {
		out[i].settle()
	}
	return out
}

// maxRowRuns bounds the runs of a baseline that are compared with each other.
const maxRowRuns = 2_000

// maxDown bounds the rules that runs are compared with.
const maxDown = 500

// barBetween says whether a rule of a table stands between two runs.
func barBetween(down []bar, end float64, r run) bool {
	return slices.ContainsFunc(down, func(b bar) bool {
		return b.at > end-0.5 && b.at < r.u0+0.5 && b.from <= r.v && b.to >= r.v
	})
}

func (p *piece) add(r run, apart bool) {
	text := r.text
	if apart {
		text = " " + text
	}
	if n := len(p.text); p.text[n-1].look == r.look {
		p.text[n-1].text += text
	} else {
		p.text = append(p.text, styled{text, r.look})
	}
	p.u1 = max(p.u1, r.u1)
	if r.size > p.size {
		p.size, p.v = r.size, r.v
	}
}

// settle works out what follows from all of a piece: its height, and the order
// of words that run from right to left.
func (p *piece) settle() {
	p.top, p.bottom = p.v+0.8*p.size, p.v-0.2*p.size
	if s := p.plain(); rightToLeft(s) {
		p.text = []styled{{strings.Join(logical(strings.Fields(s)), " "), p.text[0].look}}
	}
}

// rowsOf groups pieces, which are in order from top to bottom, by baseline.
func rowsOf(pieces []piece) [][]piece {
	var rows [][]piece
	for i := 0; i < len(pieces); {
		j := i + 1
		for j < len(pieces) && sameRow(pieces[i:j], pieces[j]) {
			j++
		}
		row := slices.Clone(pieces[i:j])
		slices.SortStableFunc(row, func(a, b piece) int { return cmp.Compare(a.u0, b.u0) })
		rows = append(rows, row)
		i = j
	}
	return rows
}

// sameRow: pieces beside each other may differ more in their baselines (a label
// and the field it belongs to) than pieces that would cover each other.
func sameRow(row []piece, p piece) bool {
	first := row[0]
	if first.grid != nil || p.grid != nil {
		return false
	}
	apart := (first.v - p.v) / min(first.size, p.size)
	if apart <= 0.35 || apart > 0.6 {
		return apart <= 0.35
	}
	return !slices.ContainsFunc(row[:min(len(row), maxRowPieces)], func(r piece) bool { return r.u0 < p.u1 && p.u0 < r.u1 })
}

// maxRowPieces bounds what is compared with each other.
const maxRowPieces = 50

func sortPieces(pieces []piece) {
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(b.v, a.v) })
}

// Margins of a page: a row or two near its edge, well apart from the rest.
const (
	marginShare = 0.12
	marginGap   = 1.8
	marginRows  = 3
	marginChars = 160
)

// margins sets headers and footers apart, so that they neither end a column nor
// are read between two.
func margins(pieces []piece, bottom, top float64) (head []flow, body []piece, foot []flow) {
	rows := rowsOf(pieces)
	height := top - bottom
	median := medianSize(pieces)
	near := func(row []piece, upper bool) bool {
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
	apart := func(a, b []piece) bool { return a[0].v-b[0].v > marginGap*max(a[0].size, b[0].size) }
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

// marginFlows keeps what stands at the left, in the middle and at the right of a
// header apart.
func marginFlows(rows [][]piece) (out []flow) {
	var all []piece
	for _, row := range rows {
		all = append(all, row...)
	}
	slices.SortStableFunc(all, func(a, b piece) int { return cmp.Compare(a.u0, b.u0) })
	end := 0.0
	for i, p := range all {
		if i == 0 || p.u0 > end {
			out = append(out, flow{margin: true})
			end = p.u1
		}
		f := &out[len(out)-1]
		f.pieces = append(f.pieces, p)
		end = max(end, p.u1)
	}
	for i := range out {
		sortPieces(out[i].pieces)
	}
	return out
}

func medianSize(pieces []piece) float64 {
	if len(pieces) == 0 {
		return 0
	}
	sizes := make([]float64, 0, len(pieces))
	for _, p := range pieces {
		sizes = append(sizes, p.size)
	}
	slices.Sort(sizes)
	return sizes[len(sizes)/2]
}
