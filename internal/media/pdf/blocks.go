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
	kind   blockKind
	level  int          // of a heading, from 1; of a list item, from 0
	marker string       // of a list item: "-", "3." or "3)"
	text   []styledText // of all kinds but table and code
	rows   [][]cell
	lines  []string // code
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

// blocksOf groups the lines of a flow into blocks. Lines continue a paragraph
// while they have the same style and the line spacing of a paragraph.
func blocksOf(lines []line, st docStyle, margin bool) []block {
	var out []block
	var lists indents
	for i := 0; i < len(lines); {
		if b, n := codeBlock(lines[i:], st); n > 0 && !margin {
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
		marker, rest := listMarker(l.plain())
		switch {
		case b.level > 0:
			b.kind = heading
		case marker != "":
			b.kind, b.marker = item, marker
			b.text = dropPrefix(b.text, len(l.plain())-len(rest))
			b.level = lists.level(l.u0, l.size)
		}
		j, right := i+1, l.u1
		for n := 1; j < len(lines) && continuesBlock(openParagraph{l, lines[j-1], lines[j], right, n}, b, st); n++ {
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

// An openParagraph is a paragraph so far, and the line that may continue it.
type openParagraph struct {
	first, prev, next line
	rightEdge         float64 // right edge of its longest line
	lines             int
}

// Distances and indents of paragraphs, in units of the font size.
const (
	maxLeading = 1.65
	minIndent  = 0.8
)

// continuesBlock reports whether the next line continues a block.
func continuesBlock(p openParagraph, b block, st docStyle) bool {
	prev, next := p.prev, p.next
	if next.isGrid() || prev.isGrid() || prev.size-next.size > 0.12*prev.size || next.size-prev.size > 0.12*prev.size {
		return false
	}
	gap := prev.v - next.v
	if gap <= 0 || gap > maxLeading*prev.size {
		return false
	}
	if marker, _ := listMarker(next.plain()); marker != "" {
		return false
	}
	if b.kind == heading {
		return p.lines < 3 && st.level(next) == b.level && prev.style == next.style
	}
	if st.level(next) != 0 {
		return false
	}
	// The further lines of a list item are indented. A line at the left edge may
	// still belong to it, but only within normal line spacing.
	if b.kind == item {
		return next.u0 > p.first.u0+0.2*p.first.size || gap <= 1.4*prev.size
	}
	// An indented first line begins a paragraph. A line that had room for the next
	// word ends one.
	if p.lines > 1 && next.u0-prev.u0 > minIndent*prev.size && next.u0-prev.u0 < 5*prev.size {
		return false
	}
	return !endedEarly(p)
}

// endedEarly reports whether the first word of the next line would have fitted
// on the previous one, so that the line break was intended.
func endedEarly(p openParagraph) bool {
	text := p.next.plain()
	word, _, _ := strings.Cut(text, " ")
	chars := utf8.RuneCountInString(text)
	if first, _ := utf8.DecodeRuneInString(text); chars == 0 || len(p.next.fragments) > 1 || isRTLText(text) || unicode.IsLower(first) {
		return false
	}
	width := (p.next.u1 - p.next.u0) * float64(utf8.RuneCountInString(word)+1) / float64(chars)
	room := max(p.rightEdge, p.next.u1) - p.prev.u1
	return room > width+1.5*p.prev.size && p.prev.u0-p.next.u0 < 2*p.prev.size
}

// indents are the left edges of the enclosing lists, from the outermost.
type indents []float64

// level is the nesting depth of a list item at u0, from 0.
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

// listMarker splits "• text", "3. text" and "3) text" into a Markdown list
// marker and the text.
func listMarker(s string) (marker, rest string) {
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

// dropPrefix removes the first n bytes.
func dropPrefix(text []styledText, n int) []styledText {
	for i, t := range text {
		if n < len(t.text) {
			out := append([]styledText{{t.text[n:], t.style}}, text[i+1:]...)
			return out
		}
		n -= len(t.text)
	}
	return nil
}

// joinText joins two lines with a space, or without one where a word was
// hyphenated.
func joinText(a, b []styledText) []styledText {
	if len(a) == 0 || len(b) == 0 {
		return append(a[:len(a):len(a)], b...)
	}
	out := append([]styledText(nil), a...)
	last, first := &out[len(out)-1], b[0]
	r, size := utf8.DecodeLastRuneInString(last.text)
	next, _ := utf8.DecodeRuneInString(first.text)
	glue := " "
	switch {
	case r == softHyphen:
		last.text, glue = last.text[:len(last.text)-size], ""
	case (r == '-' || r == '‐') && unicode.IsLower(next) && unicode.IsLetter(runeBeforeLast(last.text, size)):
		last.text, glue = last.text[:len(last.text)-size], ""
	case isUnspacedScript(r) && isUnspacedScript(next):
		glue = "" // no space between characters of these scripts
	}
	if last.style == first.style {
		last.text += glue + first.text
		return append(out, b[1:]...)
	}
	last.text += glue
	return append(out, b...)
}

// runeBeforeLast returns the rune before the last one, which has size bytes.
func runeBeforeLast(s string, size int) rune {
	r, _ := utf8.DecodeLastRuneInString(s[:len(s)-size])
	return r
}

func isUnspacedScript(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0x3000 && r <= 0x303F || r >= 0xFF00 && r <= 0xFF60
}

// codeBlock recognises lines in a monospaced font, as in listings, and returns
// how many there are. It keeps their line breaks and indents.
func codeBlock(lines []line, st docStyle) (block, int) {
	if st.bodyStyle&mono != 0 {
		return block{}, 0
	}
	n := 0
	for n < len(lines) && lines[n].style&mono != 0 && !lines[n].isGrid() {
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
		for _, p := range l.fragments {
			out.WriteString(strings.Repeat(" ", min(80, max(0, int((p.u0-at)/unit+0.5)))))
			out.WriteString(p.plain())
			at = p.u1
		}
		b.lines = append(b.lines, out.String())
	}
	return b, n
}
