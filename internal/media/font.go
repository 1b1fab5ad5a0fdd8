// SPDX-License-Identifier: Apache-2.0

package media

import (
	"strings"
	"unicode/utf8"

	"github.com/ledongthuc/pdf"
	"golang.org/x/text/encoding/charmap"
)

// font decodes and measures strings. Simple fonts are turned into a table once.
type font struct {
	bold      bool
	composite bool // codes of two bytes (Type0)
	enc       pdf.TextEncoding
	table     [256]string  // simple fonts
	widths    [256]float64 // simple fonts, in units of the font size
	wide      map[int]float64
	fallback  float64 // width of a composite font's other codes
}

// maxFonts bounds the cache over all pages of a file.
const maxFonts = 2_000

// font returns a font of the resources. Two pages that refer to the same
// objects print the same, so they share it.
func (in *interpreter) font(res pdf.Value, name string) *font {
	v := res.Key("Font").Key(name)
	key := v.String()
	if f, ok := in.fonts[key]; ok {
		return f
	}
	f := newFont(v)
	if len(in.fonts) < maxFonts {
		in.fonts[key] = f
	}
	return f
}

func newFont(v pdf.Value) *font {
	base := v.Key("BaseFont").Name()
	lower := strings.ToLower(base)
	lib := pdf.Font{V: v}
	f := &font{
		bold:      strings.Contains(lower, "bold") || strings.Contains(lower, "black") || strings.Contains(lower, "heavy"),
		composite: v.Key("Subtype").Name() == "Type0",
		enc:       lib.Encoder(),
	}
	if f.composite {
		f.measureComposite(v.Key("DescendantFonts").Index(0))
		return f
	}
	differences := v.Key("Encoding").Kind() == pdf.Dict
	first, last := lib.FirstChar(), lib.LastChar()
	widths := lib.Widths()
	for code := range 256 {
		raw := string([]byte{byte(code)})
		s := f.enc.Decode(raw)
		if code >= 0x80 && (s == raw || differences && s == string(rune(code))) {
			// The library leaves codes that the file does not name alone; in
			// practice they mean Windows' Latin alphabet.
			s = string(charmap.Windows1252.DecodeByte(byte(code)))
		}
		if !utf8.ValidString(s) {
			s = ""
		}
		f.table[code] = expand(s)
		f.widths[code] = guessWidth(lower, s)
		if i := code - first; code >= first && code <= last && i < len(widths) && widths[i] > 0 {
			f.widths[code] = widths[i] / 1000
		}
	}
	if v.Key("Subtype").Name() == "Type3" {
		// Widths of drawn fonts are in units of their own matrix.
		if m := v.Key("FontMatrix"); m.Len() == 6 {
			if scale := m.Index(0).Float64() * 1000; scale > 0 && scale < 1e6 {
				for i := range f.widths {
					f.widths[i] *= scale
				}
			}
		}
	}
	return f
}

// measureComposite reads the width array of a CID font: "c [w …]" and "c c w".
func (f *font) measureComposite(cid pdf.Value) {
	f.wide, f.fallback = map[int]float64{}, 1
	if dw := cid.Key("DW"); !dw.IsNull() {
		f.fallback = dw.Float64() / 1000
	}
	w := cid.Key("W")
	for i := 0; i+1 < w.Len(); {
		from := int(w.Index(i).Int64())
		if list := w.Index(i + 1); list.Kind() == pdf.Array {
			for j := range min(list.Len(), 1<<16) {
				f.wide[from+j] = list.Index(j).Float64() / 1000
			}
			i += 2
			continue
		}
		to := min(int(w.Index(i+1).Int64()), 1<<16)
		width := w.Index(i+2).Float64() / 1000
		for code := max(from, 0); code <= to; code++ {
			f.wide[code] = width
		}
		i += 3
	}
}

// decode returns the text of a string, its width in units of the font size, and
// how many characters and single-byte spaces it has.
func (f *font) decode(raw string) (text string, width float64, chars, spaces int) {
	if f.composite {
		for i := 0; i+1 < len(raw); i += 2 {
			w, ok := f.wide[int(raw[i])<<8|int(raw[i+1])]
			if !ok {
				w = f.fallback
			}
			width += w
			chars++
		}
		return expand(f.enc.Decode(raw)), width, chars, 0
	}
	var b strings.Builder
	for i := range len(raw) {
		b.WriteString(f.table[raw[i]])
		width += f.widths[raw[i]]
		if raw[i] == ' ' {
			spaces++
		}
	}
	return b.String(), width, len(raw), spaces
}

// expand writes ligatures as letters, so that words can be found.
var ligatures = strings.NewReplacer("\uFB00", "ff", "\uFB01", "fi", "\uFB02", "fl", "\uFB03", "ffi", "\uFB04", "ffl")

func expand(s string) string {
	if strings.Contains(s, "\xEF\xAC") {
		return ligatures.Replace(s)
	}
	return s
}

// guessWidth stands in for the metrics of the standard fonts, which files leave
// out; it only has to tell a gap between words from one between columns.
func guessWidth(font, s string) float64 {
	if strings.Contains(font, "courier") || strings.Contains(font, "mono") {
		return 0.6
	}
	switch {
	case s == "":
		return 0.5
	case strings.ContainsAny(s, "ijlI.,;:'|!"):
		return 0.26
	case strings.ContainsAny(s, " ftr()[]-/"):
		return 0.3
	case strings.ContainsAny(s, "mwMW@%"):
		return 0.85
	case s >= "A" && s <= "Z":
		return 0.69
	}
	return 0.55
}
