// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A runBuilder joins the glyphs of one text operator into text runs.
type runBuilder struct {
	d             *contentState
	run           textRun
	buf           []byte
	u             float64 // pen position
	unit          float64 // length of a text space unit on the page
	pendingSpace  bool    // a space was shown since the last letter
	spaceStart    float64 // start of that space
	spaceWidth    float64 // its width without word and character spacing
	letterSpacing float64 // extra space between the letters of a word
	visible       bool
}

// string adds the glyphs of a string and returns how far the pen moved, in text
// space.
func (w *runBuilder) string(f *face, raw []byte) (moved float64) {
	s := &w.d.state
	// Character spacing over a whole word is letter-spacing. Over a short string,
	// some programs use it as a space between words.
	if w.letterSpacing = 0; len(raw) > maxSpacedLetters {
		w.letterSpacing = max(0, s.char*s.scale*w.unit)
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

func (w *runBuilder) glyph(g glyph, width float64) {
	text, blank := g.text, g.blank
	if n := len(w.d.marked); n > 0 && w.d.marked[n-1].hasActual {
		m := &w.d.marked[n-1]
		text, blank = "", m.shown
		if !m.shown {
			text, m.shown = m.actual, true
			blank = strings.TrimSpace(text) == ""
		}
		if text == "" && !blank || text == "" && len(w.buf) > 0 {
			w.run.u1 = max(w.run.u1, w.u+width) // replaced by the actual text
			return
		}
	}
	if blank {
		if text != "" && !w.pendingSpace {
			w.pendingSpace, w.spaceStart, w.spaceWidth = true, w.u, g.width
		}
		return
	}
	if len(w.buf) > 0 && w.overlay(text) {
		w.run.u1, w.pendingSpace = max(w.run.u1, w.u+width), false
		return
	}
	if len(w.buf) > 0 {
		gap := (w.u - w.run.u1) / w.run.size
		switch {
		case gap > gapFragment || gap < -1.5:
			w.flush()
		case w.hasVisibleSpace() || gap > gapSpace:
			w.buf = append(w.buf, ' ')
		}
	}
	if len(w.buf) == 0 {
		w.run.u0, w.run.before = w.u, w.hasVisibleSpace()
	}
	w.pendingSpace = false
	w.buf = append(w.buf, text...)
	w.run.u1 = w.u + max(width, 0) + w.letterSpacing
}

// minSpace is the minimum width of a space, in units of the font size. Some
// programs cancel a space by negative spacing, to allow line breaks where there
// is no space.
const minSpace = 0.06

// maxSpacedLetters is the maximum length of a string whose character spacing is
// a space between words.
const maxSpacedLetters = 4

// hasVisibleSpace reports whether a visible space is pending.
func (w *runBuilder) hasVisibleSpace() bool {
	return w.pendingSpace && (w.spaceWidth < 0.01 || (w.u-w.spaceStart)/w.run.size > minSpace)
}

func (w *runBuilder) flush() {
	if len(w.buf) == 0 {
		return
	}
	r := w.run
	r.text, r.after = strings.TrimSpace(strings.ToValidUTF8(string(w.buf), "")), w.hasVisibleSpace()
	w.buf = w.buf[:0]
	if r.text == "" || !w.d.in.onPage(r) {
		return
	}
	w.d.in.textBytes += len(r.text)
	w.d.page.runs = append(w.d.page.runs, r)
}

// onPage reports whether any part of a run is on the page.
func (in *interpreter) onPage(r textRun) bool {
	m := in.media
	u0, v0 := toTextAxes(r.rotation, m[0], m[1])
	u1, v1 := toTextAxes(r.rotation, m[2], m[3])
	return r.u1 >= min(u0, u1)-1 && r.u0 <= max(u0, u1)+1 && r.v+r.size >= min(v0, v1) && r.v-r.size/4 <= max(v0, v1)
}

// printable drops characters that must not reach a terminal or a page: control
// characters, invisible direction marks, private-use and unassigned codes. Soft
// hyphens stay until lines are joined.
func printable(r rune) rune {
	switch {
	case r == '\t' || r == '\n' || r == '\r' || r == 0xA0 || r >= 0x2000 && r <= 0x200A || r == 0x3000:
		return ' '
	case r == softHyphen || r == 0x200C || r == 0x200D: // joiners affect the shape of words in some scripts
		return r
	case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) || r == 0x2028 || r == 0x2029:
		return -1
	}
	return r
}

const softHyphen = '\u00AD'
