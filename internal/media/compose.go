// SPDX-License-Identifier: Apache-2.0

package media

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxHeadings bounds the list of headings of a document.
const maxHeadings = 500

// compose turns pages of runs into Markdown, or into plain paragraphs.
func compose(sheets []sheet, plain bool) ([]Page, []Heading) {
	laid := make([][]line, len(sheets))
	for i, s := range sheets {
		laid[i] = lines(s.runs)
	}
	st := styleOf(laid)
	pages := make([]Page, len(sheets))
	var headings []Heading
	for i := range sheets {
		blocks := blocksOf(laid[i], st)
		pages[i].Problem = sheets[i].problem
		pages[i].Markdown = render(blocks, plain)
		for _, b := range blocks {
			pages[i].Words += b.words()
			if b.kind == heading && len(headings) < maxHeadings {
				headings = append(headings, Heading{Level: b.level, Text: b.text(), Page: i + 1})
			}
		}
	}
	return pages, headings
}

type blockKind uint8

const (
	paragraph blockKind = iota
	heading
	item // of a list
	table
)

// A block is a paragraph, a heading, a list item or a table.
type block struct {
	kind  blockKind
	level int
	mark  string     // of an item: "-" or "3."
	lines []string   // all but tables
	rows  [][]string // tables
}

func (b block) text() string {
	var out strings.Builder
	for i, l := range b.lines {
		if i == 0 {
			out.WriteString(l)
			continue
		}
		// A word divided at the end of a line is put together again.
		so := out.String()
		if next, _ := utf8.DecodeRuneInString(l); strings.HasSuffix(so, "-") && len(so) > 2 && unicode.IsLower(next) &&
			unicode.IsLetter(rune(so[len(so)-2])) {
			out.Reset()
			out.WriteString(so[:len(so)-1] + l)
			continue
		}
		out.WriteString(" " + l)
	}
	return out.String()
}

func (b block) words() int {
	n := len(strings.Fields(b.text()))
	for _, row := range b.rows {
		for _, cell := range row {
			n += len(strings.Fields(cell))
		}
	}
	return n
}

// blocksOf groups the lines of a page. Lines run on into a paragraph while they
// have the same look and the distance of lines, not of paragraphs.
func blocksOf(page []line, st style) []block {
	var out []block
	for i := 0; i < len(page); {
		if n := tableAt(page[i:]); n > 0 {
			b := block{kind: table}
			for _, l := range page[i : i+n] {
				b.rows = append(b.rows, l.cells)
			}
			out = append(out, b)
			i += n
			continue
		}
		l := page[i]
		b := block{level: st.level(l)}
		mark, rest := listMark(l.text())
		switch {
		case b.level > 0:
			b.kind, b.lines = heading, []string{l.text()}
		case mark != "":
			b.kind, b.mark, b.lines = item, mark, []string{rest}
		default:
			b.lines = []string{l.text()}
		}
		j := i + 1
		for ; j < len(page) && runsOn(l, page[j-1], page[j], b, st); j++ {
			if tableAt(page[j:]) > 0 {
				break
			}
			b.lines = append(b.lines, page[j].text())
		}
		out = append(out, b)
		i = j
	}
	return out
}

// runsOn says whether next goes on with the block that first begins and prev is
// the last line of so far.
func runsOn(first, prev, next line, b block, st style) bool {
	if prev.turn != next.turn || math.Abs(prev.size-next.size) > 0.08*prev.size {
		return false
	}
	gap := prev.v - next.v
	if gap <= 0 || gap > 1.65*prev.size {
		return false
	}
	// An item goes on indented; what follows it at the left may still be it,
	// but only as close as lines stand.
	if b.kind == item && next.u0 <= first.u0+0.2*first.size && gap > 1.4*prev.size {
		return false
	}
	if mark, _ := listMark(next.text()); mark != "" {
		return false
	}
	if b.kind == heading {
		return len(b.lines) < 3 && st.level(next) == b.level && prev.bold == next.bold
	}
	return st.level(next) == 0
}

// Cells of a table are short; columns of running text are not.
const maxCell = 40

// tableAt counts the lines at the start of page that are rows of one table:
// at least two, with the same number of cells, of which three are enough, and
// two only when they are short.
func tableAt(page []line) int {
	columns := len(page[0].cells)
	if columns < 2 {
		return 0
	}
	n := 0
	for n < len(page) && len(page[n].cells) == columns && page[n].turn == page[0].turn {
		for _, cell := range page[n].cells {
			if utf8.RuneCountInString(cell) > maxCell {
				return 0
			}
		}
		n++
	}
	if n < 2 {
		return 0
	}
	return n
}

// listMark splits "• text" and "3. text" into a Markdown mark and the text.
func listMark(s string) (mark, rest string) {
	first, after, ok := strings.Cut(s, " ")
	if !ok || strings.TrimSpace(after) == "" {
		return "", s
	}
	switch first {
	case "•", "‣", "◦", "▪", "●", "■", "–", "-", "*", "·", "\u2043":
		return "-", after
	}
	digits := strings.TrimRight(first, ".)")
	if len(digits) == 0 || len(digits) > 3 || len(first) != len(digits)+1 {
		return "", s
	}
	for _, r := range digits {
		if r < '0' || r > '9' {
			return "", s
		}
	}
	return digits + ".", after
}

func render(blocks []block, plain bool) string {
	var out strings.Builder
	for i, b := range blocks {
		if i > 0 {
			out.WriteString("\n")
			if plain || b.kind != item || blocks[i-1].kind != item {
				out.WriteString("\n")
			}
		}
		if plain {
			out.WriteString(b.plain())
		} else {
			out.WriteString(b.markdown())
		}
	}
	return out.String()
}

func (b block) plain() string {
	if b.kind != table {
		return b.text()
	}
	rows := make([]string, len(b.rows))
	for i, row := range b.rows {
		rows[i] = strings.Join(row, " ")
	}
	return strings.Join(rows, "\n")
}

func (b block) markdown() string {
	switch b.kind {
	case heading:
		return strings.Repeat("#", b.level) + " " + escape(b.text())
	case item:
		return b.mark + " " + escape(b.text())
	case table:
		var out strings.Builder
		for i, row := range b.rows {
			for _, cell := range row {
				out.WriteString("| " + strings.ReplaceAll(escape(cell), "|", `\|`) + " ")
			}
			out.WriteString("|")
			if i == 0 {
				out.WriteString("\n" + strings.Repeat("| --- ", len(row)) + "|")
			}
			if i < len(b.rows)-1 {
				out.WriteByte('\n')
			}
		}
		return out.String()
	}
	return escapeStart(escape(b.text()))
}

// marks are the characters that would be read as Markdown or HTML in mid-text.
var marks = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "<", `\<`)

func escape(s string) string { return marks.Replace(s) }

// escapeStart keeps a paragraph from becoming a heading, a quote, a list or a rule.
func escapeStart(s string) string {
	if s == "" {
		return s
	}
	switch s[0] {
	case '#', '>', '+', '-', '=', '_', '~', '|':
		return `\` + s
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i > 0 && i < 10 && (s[i] == '.' || s[i] == ')') {
		return s[:i] + `\` + s[i:]
	}
	return s
}
