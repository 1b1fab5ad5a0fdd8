// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// writer collects the glyphs of one text operator into runs.
type writer struct {
	d       *drawing
	run     run
	buf     []byte
	u       float64 // where the pen is
	unit    float64 // length of a unit of text space on the page
	blank   bool    // a space was shown since the last letter,
	blankAt float64 // and begins here
	blankIs float64 // its width before it is stretched or taken back
	loose   float64 // space between the letters of a word
	visible bool
}

// string shows a string and returns how far the pen moved, in text space.
func (w *writer) string(f *face, raw []byte) (moved float64) {
	s := &w.d.state
	// Writers that space out the letters of words do so for whole words; others
	// use the same to put a space between words.
	if w.loose = 0; len(raw) > maxSpaced {
		w.loose = max(0, s.char*s.scale*w.unit)
	}
	for len(raw) > 0 {
		g := f.next(raw)
		raw = raw[max(1, g.bytes):]
		step := g.width*s.size + s.char
		if f.vertical {
			step = s.size + s.char
		} else {
			if g.space {
				step += s.word
			}
			step *= s.scale
		}
		if w.visible {
			w.glyph(g, g.width*s.size*s.scale*w.unit)
		}
		w.u += step * w.unit
		moved += step
	}
	return moved
}

func (w *writer) glyph(g glyph, width float64) {
	text, blank := g.text, g.blank
	if n := len(w.d.marks); n > 0 && w.d.marks[n-1].is {
		m := &w.d.marks[n-1]
		text, blank = "", m.told
		if !m.told {
			text, m.told = m.actual, true
			blank = strings.TrimSpace(text) == ""
		}
		if text == "" && !blank || text == "" && len(w.buf) > 0 {
			w.run.u1 = max(w.run.u1, w.u+width) // covered by the text of the mark
			return
		}
	}
	if blank {
		if text != "" && !w.blank {
			w.blank, w.blankAt, w.blankIs = true, w.u, g.width
		}
		return
	}
	if len(w.buf) > 0 && w.overlay(text) {
		w.run.u1, w.blank = max(w.run.u1, w.u+width), false
		return
	}
	if len(w.buf) > 0 {
		gap := (w.u - w.run.u1) / w.run.size
		switch {
		case gap > gapPiece || gap < -1.5:
			w.flush()
		case w.spaced() || gap > gapSpace:
			w.buf = append(w.buf, ' ')
		}
	}
	if len(w.buf) == 0 {
		w.run.u0, w.run.before = w.u, w.spaced()
	}
	w.blank = false
	w.buf = append(w.buf, text...)
	w.run.u1 = w.u + max(width, 0) + w.loose
}

// minSpace is how wide a space is at least, in units of the font size; some
// writers take it back by negative spacing, to break words where no space is.
const minSpace = 0.06

// maxSpaced is how many letters a string has at most whose wide spacing is a gap
// between words.
const maxSpaced = 4

// spaced says whether a space was shown that can be seen.
func (w *writer) spaced() bool {
	return w.blank && (w.blankIs < 0.01 || (w.u-w.blankAt)/w.run.size > minSpace)
}

func (w *writer) flush() {
	if len(w.buf) == 0 {
		return
	}
	r := w.run
	r.text, r.after = strings.TrimSpace(strings.ToValidUTF8(string(w.buf), "")), w.spaced()
	w.buf = w.buf[:0]
	if r.text == "" || !w.d.in.onPage(r) {
		return
	}
	w.d.in.text += len(r.text)
	w.d.sheet.runs = append(w.d.sheet.runs, r)
}

// onPage says whether any of a run can be seen on the page.
func (in *interpreter) onPage(r run) bool {
	m := in.media
	u0, v0 := along(r.turn, m[0], m[1])
	u1, v1 := along(r.turn, m[2], m[3])
	return r.u1 >= min(u0, u1)-1 && r.u0 <= max(u0, u1)+1 && r.v+r.size >= min(v0, v1) && r.v-r.size/4 <= max(v0, v1)
}

// printable drops what must not reach a terminal or a page: control characters,
// invisible direction marks, private and unassigned glyph codes. The soft hyphen
// stays until lines are joined.
func printable(r rune) rune {
	switch {
	case r == '\t' || r == '\n' || r == '\r' || r == 0xA0 || r >= 0x2000 && r <= 0x200A || r == 0x3000:
		return ' '
	case r == softHyphen || r == 0x200C || r == 0x200D: // joiners decide how words of some scripts look
		return r
	case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) || r == 0x2028 || r == 0x2029:
		return -1
	}
	return r
}

const softHyphen = '\u00AD'
