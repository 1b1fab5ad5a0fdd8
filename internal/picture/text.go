// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxTextBytes limits a text in any form.
const maxTextBytes = 400

// oneLine makes an untrusted text fit for one line of any form (A31). White
// space and line breaks become one space. Runes that could control a terminal,
// break XML or change the reading direction become visible escapes. A long text
// is cut.
func oneLine(s string) string {
	cut := len(s) > maxTextBytes
	if cut {
		s = s[:maxTextBytes]
	}
	s = strings.Join(strings.Fields(s), " ")
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			if len(s)-i >= utf8.UTFMax || !cut {
				fmt.Fprintf(&b, "\\x%02x", s[i])
			}
		case unsafeRune(r) && r < 0x100:
			fmt.Fprintf(&b, "\\x%02x", r)
		case unsafeRune(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	if cut {
		b.WriteString("…")
	}
	return b.String()
}

// unsafeRune reports whether r is a control character, a format character
// (which is invisible or changes the direction), or not allowed in XML.
func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == 0x2028 || r == 0x2029 || r == 0xFFFE || r == 0xFFFF
}

// widths are the widths of the printable ASCII characters in DejaVu Sans, the
// widest of common interface fonts, in thousandths of the font size.
var widths = [95]int{
	318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, // space to /
	636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, // 0 to ?
	1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787, // @ to O
	603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, // P to _
	500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, // ` to o
	635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838, // p to ~
}

// runeWidth is the width of a character in thousandths of the font size.
func runeWidth(r rune) int {
	switch {
	case r >= ' ' && r <= '~':
		return widths[r-' ']
	case unicode.Is(unicode.Mn, r):
		return 0
	case isWide(r), r == '…':
		return 1000
	}
	return 700
}

// isWide reports whether a character takes two columns, as East Asian
// characters and emoji do.
func isWide(r rune) bool {
	return r >= 0x1100 && (r <= 0x115F || r >= 0x2E80 && r <= 0xA4CF || r >= 0xAC00 && r <= 0xD7A3 ||
		r >= 0xF900 && r <= 0xFAFF || r >= 0xFE30 && r <= 0xFE6F || r >= 0xFF00 && r <= 0xFF60 ||
		r >= 0xFFE0 && r <= 0xFFE6 || r >= 0x1F300 && r <= 0x1FAFF || r >= 0x20000 && r <= 0x3FFFD)
}

// pixels is the width of a text at a font size.
func pixels(s string, size int) int {
	total := 0
	for _, r := range s {
		total += runeWidth(r)
	}
	return (total*size + 999) / 1000
}

// fit cuts a text to a width in pixels.
func fit(s string, size, room int) string {
	return cutTo(s, room*1000, func(r rune) int { return runeWidth(r) * size })
}

// fitBold is fit for bold text, which is wider.
func fitBold(s string, size, room int) string { return fit(s, size, room*100/112) }

// wrap breaks a long text into two rows, at a space if there is one in the
// second half of the first row. The second row is cut.
func wrap(s string, size, room int) []string {
	if s == "" || pixels(s, size) <= room {
		return []string{s}
	}
	at, used := len(s), 0
	for i, r := range s {
		if used += runeWidth(r) * size; used > room*1000 {
			at = i
			break
		}
	}
	if space := strings.LastIndexByte(s[:at], ' '); space > at/2 {
		at = space
	}
	return []string{strings.TrimRight(s[:at], " "), fit(strings.TrimLeft(s[at:], " "), size, room)}
}

// columns is the number of terminal columns of a text.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += column(r)
	}
	return n
}

func column(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r):
		return 0
	case isWide(r):
		return 2
	}
	return 1
}

// fitColumns cuts a text to a number of columns.
func fitColumns(s string, room int) string { return cutTo(s, room, column) }

func cutTo(s string, room int, width func(rune) int) string {
	dots := width('…')
	used, keep := 0, 0
	for i, r := range s {
		if used+dots <= room {
			keep = i
		}
		if used += width(r); used > room {
			return strings.TrimRight(s[:keep], " ") + "…"
		}
	}
	return s
}
