// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// spacingAccents are accents that have a character of their own, with the
// combining mark that belongs to each. Old typesetting programs, TeX among
// them, draw a letter and an accent over each other.
var spacingAccents = map[rune]rune{
	'¨': 0x308, '´': 0x301, '`': 0x300, 'ˆ': 0x302, '˜': 0x303, '˚': 0x30A, 'ˇ': 0x30C, '¸': 0x327, '¯': 0x304, '˘': 0x306,
	'˙': 0x307, '˝': 0x30B, '˛': 0x328,
}

// combiningMarkOf returns the combining mark for a text that is a single
// spacing accent, or 0.
func combiningMarkOf(text string) rune {
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 || size != len(text) {
		return 0
	}
	return spacingAccents[r]
}

// compose combines a letter and a mark. It reports false when there is no such
// letter.
func compose(letter, mark rune) (string, bool) {
	if letter == 'ı' {
		letter = 'i'
	}
	s := norm.NFC.String(string([]rune{letter, mark}))
	return s, utf8.RuneCountInString(s) == 1
}

// overlay combines a glyph with the one before it when they overlap and one of
// them is an accent. It reports whether it has.
func (w *runBuilder) overlay(text string) bool {
	last, size := utf8.DecodeLastRune(w.buf)
	if overlap := w.run.u1 - w.u; size == 0 || overlap < 0.12*w.run.size {
		return false
	}
	first, n := utf8.DecodeRuneInString(text)
	rest := text[n:]
	var s string
	var ok bool
	if mark := spacingAccents[last]; mark != 0 {
		s, ok = compose(first, mark)
	} else if mark := combiningMarkOf(text); mark != 0 {
		s, ok = compose(last, mark)
	}
	if ok {
		w.buf = append(append(w.buf[:len(w.buf)-size], s...), rest...)
	}
	return ok
}

// placeAccents moves accents that were shown on their own to the letter of the
// row they are above. The runs are ordered from left to right.
func placeAccents(row []textRun) []textRun {
	var done []int
	for i, a := range row {
		if mark := combiningMarkOf(a.text); mark != 0 && placeAccent(row, (a.u0+a.u1)/2, mark) {
			done = append(done, i)
		}
	}
	for n, i := range done {
		row = slices.Delete(row, i-n, i-n+1)
	}
	return row
}

func placeAccent(row []textRun, middle float64, mark rune) bool {
	for i := range row {
		r := &row[i]
		if combiningMarkOf(r.text) != 0 || middle < r.u0 || middle > r.u1 {
			continue
		}
		first, n := utf8.DecodeRuneInString(r.text)
		last, m := utf8.DecodeLastRuneInString(r.text)
		letter := r.size * 0.9
		if s, ok := compose(first, mark); ok && middle < r.u0+letter {
			r.text = s + r.text[n:]
			return true
		}
		if s, ok := compose(last, mark); ok && middle > r.u1-letter {
			r.text = r.text[:len(r.text)-m] + s
			return true
		}
	}
	return false
}
