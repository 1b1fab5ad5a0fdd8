// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode"
)

// isRTL reports whether a character belongs to a right-to-left script.
func isRTL(r rune) bool {
	return r >= 0x590 && r <= 0x8FF || r >= 0xFB1D && r <= 0xFDFF || r >= 0xFE70 && r <= 0xFEFC || r >= 0x10800 && r <= 0x10FFF || r >= 0x1E800 && r <= 0x1EEFF
}

func isRTLText(s string) bool {
	return strings.IndexFunc(s, isRTL) >= 0
}

// reverseRunes reverses a text by runes. Combining marks are reversed too,
// because glyphs are stored from left to right, so that a mark precedes its
// letter.
func reverseRunes(s string) string {
	r := []rune(s)
	for a, b := 0, len(r)-1; a < b; a, b = a+1, b-1 {
		r[a], r[b] = r[b], r[a]
	}
	return string(r)
}

// mirrored exchanges brackets, which are mirrored in reversed text.
var mirrored = strings.NewReplacer("(", ")", ")", "(", "[", "]", "]", "[", "{", "}", "}", "{", "<", ">", ">", "<", "«", "»", "»", "«")

// logicalOrder converts words from visual order to reading order. In visual
// order, right-to-left words are spelled backwards. Numbers and Latin words
// keep their letters, and their order among each other.
func logicalOrder(words []string) []string {
	rtl, ltr := 0, 0
	for _, w := range words {
		if isRTLText(w) {
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
		if out[i] = w; isRTLText(w) {
			out[i] = mirrored.Replace(reverseWord(w))
		}
	}
	if rtl < ltr {
		// A left-to-right line with some right-to-left words: only sequences of those
		// are reversed.
		for i := 0; i < len(out); {
			j := i
			for j < len(out) && isRTLText(out[j]) {
				j++
			}
			reverseWords(out[i:j])
			i = max(j, i+1)
		}
		return out
	}
	reverseWords(out)
	for i := 0; i < len(out); {
		j := i
		for j < len(out) && !isRTLText(out[j]) && strings.IndexFunc(out[j], func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			j++
		}
		reverseWords(out[i:j])
		i = max(j, i+1)
	}
	return out
}

// reverseWord reverses a word, except for the digits and Latin letters in it.
func reverseWord(w string) string {
	r := []rune(reverseRunes(w))
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

func reverseWords(words []string) {
	for a, b := 0, len(words)-1; a < b; a, b = a+1, b-1 {
		words[a], words[b] = words[b], words[a]
	}
}
