// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// spacing are accents that stand for themselves, with the mark that puts them on
// a letter. Typesetters of old, TeX among them, draw letter and accent one over
// the other.
var spacing = map[rune]rune{
	'¨': 0x308, '´': 0x301, '`': 0x300, 'ˆ': 0x302, '˜': 0x303, '˚': 0x30A, 'ˇ': 0x30C, '¸': 0x327, '¯': 0x304, '˘': 0x306,
	'˙': 0x307, '˝': 0x30B, '˛': 0x328,
}

// accentOf is the mark of a text that is one accent and nothing else, 0 = none.
func accentOf(text string) rune {
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 || size != len(text) {
		return 0
	}
	return spacing[r]
}

// composed puts a mark on a letter; false when there is no such letter.
func composed(letter, mark rune) (string, bool) {
	if letter == 'ı' {
		letter = 'i'
	}
	s := norm.NFC.String(string([]rune{letter, mark}))
	return s, utf8.RuneCountInString(s) == 1
}

// overlay puts a glyph over the one before when one of them is an accent; true
// when it has.
func (w *writer) overlay(text string) bool {
	last, size := utf8.DecodeLastRune(w.buf)
	if overlap := w.run.u1 - w.u; size == 0 || overlap < 0.12*w.run.size {
		return false
	}
	first, n := utf8.DecodeRuneInString(text)
	rest := text[n:]
	var s string
	var ok bool
	if mark := spacing[last]; mark != 0 {
		s, ok = composed(first, mark)
	} else if mark := accentOf(text); mark != 0 {
		s, ok = composed(last, mark)
	}
	if ok {
		w.buf = append(append(w.buf[:len(w.buf)-size], s...), rest...)
	}
	return ok
}

// putAccents moves accents that were shown on their own onto the letter of their
// line that they stand over. The runs are in order from left to right.
func putAccents(row []run) []run {
	var done []int
	for i, a := range row {
		if mark := accentOf(a.text); mark != 0 && putAccent(row, (a.u0+a.u1)/2, mark) {
			done = append(done, i)
		}
	}
	for n, i := range done {
		row = slices.Delete(row, i-n, i-n+1)
	}
	return row
}

func putAccent(row []run, middle float64, mark rune) bool {
	for i := range row {
		r := &row[i]
		if accentOf(r.text) != 0 || middle < r.u0 || middle > r.u1 {
			continue
		}
		first, n := utf8.DecodeRuneInString(r.text)
		last, m := utf8.DecodeLastRuneInString(r.text)
		letter := r.size * 0.9
		if s, ok := composed(first, mark); ok && middle < r.u0+letter {
			r.text = s + r.text[n:]
			return true
		}
		if s, ok := composed(last, mark); ok && middle > r.u1-letter {
			r.text = r.text[:len(r.text)-m] + s
			return true
		}
	}
	return false
}
