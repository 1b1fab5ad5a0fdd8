// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type blockKind uint8

const (
	paragraph blockKind = iota
	heading
	item // of a list
	table
	code
)

// A block is a paragraph, a heading, a list item, a table or lines of code.
type block struct {
	kind  blockKind
	level int      // of a heading from 1; of an item from 0
	mark  string   // of an item: "-", "3." or "3)"
	text  []styled // all but tables and code
	rows  [][]cell
	lines []string // code
}

func (b block) plain() string { return plainOf(b.text) }

func (b block) words() int {
	n := len(strings.Fields(b.plain()))
	for _, row := range b.rows {
		for _, c := range row {
			n += len(strings.Fields(plainOf(c)))
		}
	}
	for _, l := range b.lines {
		n += len(strings.Fields(l))
	}
	return n
}

// blocksOf groups the lines of a flow. Lines run on into a paragraph while they
// have the same look and the distance of lines, not of paragraphs.
func blocksOf(lines []line, st style, margin bool) []block {
	var out []block
	var lists indents
	for i := 0; i < len(lines); {
		if b, n := codeAt(lines[i:], st); n > 0 && !margin {
			out = append(out, b)
			i += n
			continue
		}
		if b, n := tableAt(lines[i:]); n > 0 {
			out = append(out, b)
			i += n
			continue
		}
		l := lines[i]
		b := block{text: l.text()}
		if !margin {
			b.level = st.level(l)
		}
		mark, rest := listMark(l.plain())
		switch {
		case b.level > 0:
			b.kind = heading
		case mark != "":
			b.kind, b.mark = item, mark
			b.text = cutText(b.text, len(l.plain())-len(rest))
			b.level = lists.level(l.u0, l.size)
		}
		j, right := i+1, l.u1
		for n := 1; j < len(lines) && runsOn(para{l, lines[j-1], lines[j], right, n}, b, st); n++ {
			if _, is := tableAt(lines[j:]); is > 0 {
				break
			}
			right = max(right, lines[j].u1)
			b.text = joinText(b.text, lines[j].text())
			j++
		}
		if b.kind != item {
			lists = nil
		}
		out = append(out, b)
		i = j
	}
	return out
}

// para is a paragraph so far and the line that may belong to it.
type para struct {
	first, prev, next line
	right             float64 // where its longest line ends
	lines             int
}

// Distances and indents of paragraphs, in units of the font size.
const (
	maxLeading = 1.65
	minIndent  = 0.8
)

// runsOn says whether the next line goes on with a block.
func runsOn(p para, b block, st style) bool {
	prev, next := p.prev, p.next
	if next.isGrid() || prev.isGrid() || prev.size-next.size > 0.12*prev.size || next.size-prev.size > 0.12*prev.size {
		return false
	}
	gap := prev.v - next.v
	if gap <= 0 || gap > maxLeading*prev.size {
		return false
	}
	if mark, _ := listMark(next.plain()); mark != "" {
		return false
	}
	if b.kind == heading {
		return p.lines < 3 && st.level(next) == b.level && prev.look == next.look
	}
	if st.level(next) != 0 {
		return false
	}
	// An item goes on indented; what follows it at the left may still be it,
	// but only as close as lines stand.
	if b.kind == item {
		return next.u0 > p.first.u0+0.2*p.first.size || gap <= 1.4*prev.size
	}
	// A first line that is indented begins a paragraph, one that could have
	// taken the next word ends it.
	if p.lines > 1 && next.u0-prev.u0 > minIndent*prev.size && next.u0-prev.u0 < 5*prev.size {
		return false
	}
	return !endedEarly(p)
}

// endedEarly says that the first word of the next line would have fitted on the
// last one, so that its break was meant.
func endedEarly(p para) bool {
	text := p.next.plain()
	word, _, _ := strings.Cut(text, " ")
	chars := utf8.RuneCountInString(text)
	if first, _ := utf8.DecodeRuneInString(text); chars == 0 || len(p.next.pieces) > 1 || rightToLeft(text) || unicode.IsLower(first) {
		return false
	}
	width := (p.next.u1 - p.next.u0) * float64(utf8.RuneCountInString(word)+1) / float64(chars)
	room := max(p.right, p.next.u1) - p.prev.u1
	return room > width+1.5*p.prev.size && p.prev.u0-p.next.u0 < 2*p.prev.size
}

// indents are the left edges of the lists around an item, from the outside.
type indents []float64

// level is how deep the item at u0 is nested, from 0.
func (in *indents) level(u0, size float64) int {
	list := *in
	for len(list) > 0 && u0 < list[len(list)-1]-0.4*size {
		list = list[:len(list)-1]
	}
	if len(list) == 0 || u0 > list[len(list)-1]+0.6*size {
		list = append(list, u0)
	}
	*in = list
	return min(len(list)-1, 5)
}

// listMark splits "• text", "3. text" and "3) text" into a Markdown mark and the
// text.
func listMark(s string) (mark, rest string) {
	first, after, ok := strings.Cut(s, " ")
	if !ok || strings.TrimSpace(after) == "" || len(first) > 4 {
		return "", s
	}
	switch first {
	case "•", "‣", "◦", "▪", "●", "■", "–", "-", "*", "·", "\u2043", "○", "□", "▫", "➢", "❖", "✓", "➔", "►", "▶", "◆", "◻", "—":
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
	return first, after
}

// cutText leaves out the first n bytes.
func cutText(text []styled, n int) []styled {
	for i, t := range text {
		if n < len(t.text) {
			out := append([]styled{{t.text[n:], t.look}}, text[i+1:]...)
			return out
		}
		n -= len(t.text)
	}
	return nil
}

// joinText puts two lines together: with a space, or without any where a word
// was divided.
func joinText(a, b []styled) []styled {
	if len(a) == 0 || len(b) == 0 {
		return append(a[:len(a):len(a)], b...)
	}
	out := append([]styled(nil), a...)
	last, first := &out[len(out)-1], b[0]
	r, size := utf8.DecodeLastRuneInString(last.text)
	next, _ := utf8.DecodeRuneInString(first.text)
	glue := " "
	switch {
	case r == softHyphen:
		last.text, glue = last.text[:len(last.text)-size], ""
	case (r == '-' || r == '‐') && unicode.IsLower(next) && unicode.IsLetter(before(last.text, size)):
		last.text, glue = last.text[:len(last.text)-size], ""
	case wide(r) && wide(next):
		glue = "" // scripts that are written without spaces
	}
	if last.look == first.look {
		last.text += glue + first.text
		return append(out, b[1:]...)
	}
	last.text += glue
	return append(out, b...)
}

// before is the character before the last one, which has size bytes.
func before(s string, size int) rune {
	r, _ := utf8.DecodeLastRuneInString(s[:len(s)-size])
	return r
}

func wide(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0x3000 && r <= 0x303F || r >= 0xFF00 && r <= 0xFF60
}

// codeAt takes lines that are set in a font of equal widths, as listings are.
// Their breaks and indents are kept.
func codeAt(lines []line, st style) (block, int) {
	if st.look&mono != 0 {
		return block{}, 0
	}
	n := 0
	for n < len(lines) && lines[n].look&mono != 0 && !lines[n].isGrid() {
		if n > 0 && lines[n-1].v-lines[n].v > 2.6*lines[n-1].size {
			break
		}
		n++
	}
	if n < 2 {
		return block{}, 0
	}
	left := lines[0].u0
	for _, l := range lines[:n] {
		left = min(left, l.u0)
	}
	b := block{kind: code}
	for i, l := range lines[:n] {
		unit := 0.6 * max(l.size, 1)
		if i > 0 && lines[i-1].v-l.v > 1.8*l.size {
			b.lines = append(b.lines, "")
		}
		var out strings.Builder
		at := left
		for _, p := range l.pieces {
			out.WriteString(strings.Repeat(" ", min(80, max(0, int((p.u0-at)/unit+0.5)))))
			out.WriteString(p.plain())
			at = p.u1
		}
		b.lines = append(b.lines, out.String())
	}
	return b, n
}
