// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode"
)

// isRTL says whether a character is of a script that runs from right to left.
func isRTL(r rune) bool {
	return r >= 0x590 && r <= 0x8FF || r >= 0xFB1D && r <= 0xFDFF || r >= 0xFE70 && r <= 0xFEFC || r >= 0x10800 && r <= 0x10FFF || r >= 0x1E800 && r <= 0x1EEFF
}

func rightToLeft(s string) bool {
	return strings.IndexFunc(s, isRTL) >= 0
}

// reverse turns a text round, marks included: writers place the glyphs of a line
// from left to right, so that a mark comes before its letter.
func reverse(s string) string {
	r := []rune(s)
	for a, b := 0, len(r)-1; a < b; a, b = a+1, b-1 {
		r[a], r[b] = r[b], r[a]
	}
	return string(r)
}

// mirrored are the brackets that look the other way in text turned round.
var mirrored = strings.NewReplacer("(", ")", ")", "(", "[", "]", "]", "[", "{", "}", "}", "{", "<", ">", ">", "<", "«", "»", "»", "«")

// logical turns words in the order in which they stand on the page into the
// order in which they are read. Words of scripts from right to left are spelled
// backwards there. Numbers and Latin words keep their letters, and their order
// among each other.
func logical(words []string) []string {
	rtl, ltr := 0, 0
	for _, w := range words {
		if rightToLeft(w) {
			rtl++
		} else if strings.IndexFunc(w, unicode.IsLetter) >= 0 {
			ltr++
		}
	}
	if rtl == 0 {
		return words
	}
	out := make([]string, len(words))
	for i, w := range words {
		if out[i] = w; rightToLeft(w) {
			out[i] = mirrored.Replace(turnWord(w))
		}
	}
	if rtl < ltr {
		// A line from left to right with some foreign words in it: only their
		// sequences are turned round.
		for i := 0; i < len(out); {
			j := i
			for j < len(out) && rightToLeft(out[j]) {
				j++
			}
			flip(out[i:j])
			i = max(j, i+1)
		}
		return out
	}
	flip(out)
	for i := 0; i < len(out); {
		j := i
		for j < len(out) && !rightToLeft(out[j]) && strings.IndexFunc(out[j], func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			j++
		}
		flip(out[i:j])
		i = max(j, i+1)
	}
	return out
}

// turnWord turns a word round, but for the digits and Latin letters in it.
func turnWord(w string) string {
	r := []rune(reverse(w))
	for i := 0; i < len(r); {
		j := i
		for j < len(r) && (unicode.IsDigit(r[j]) || unicode.Is(unicode.Latin, r[j])) {
			j++
		}
		for a, b := i, j-1; a < b; a, b = a+1, b-1 {
			r[a], r[b] = r[b], r[a]
		}
		i = max(j, i+1)
	}
	return string(r)
}

func flip(words []string) {
	for a, b := 0, len(words)-1; a < b; a, b = a+1, b-1 {
		words[a], words[b] = words[b], words[a]
	}
}
