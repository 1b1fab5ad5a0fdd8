// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/pdfcpu/pdfcpu/pkg/font"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/unicode/norm"
)

// A fontStyle is a set of bold, italic and mono.
type fontStyle uint8

const (
	bold fontStyle = 1 << iota
	italic
	mono
)

// A glyph is the meaning of one code of a font: its text, its width in units of
// the font size, and the number of bytes of the code. A space of one byte is
// widened by the word spacing.
type glyph struct {
	text  string
	width float64
	bytes int
	blank bool // shows nothing
	space bool
}

// A face decodes and measures the strings of one font.
type face struct {
	style    fontStyle
	vertical bool
	scale    float64 // of the font size, for Type 3 fonts, which define their own unit
	// Simple fonts: one byte per glyph.
	simple *[256]glyph
	// Composite fonts: glyphs are decoded when they are first used.
	glyphs       map[uint64]glyph // by code and its number of bytes
	codes        *cmap            // how bytes form codes; nil = two bytes each
	unicode      *cmap            // what codes mean; nil = unknown
	utf16        bool             // codes are UTF-16
	legacy       encoding.Encoding
	widths       map[int]float64
	defaultWidth float64
}

// maxFonts limits the font cache for all pages of a file; maxCIDWidths limits
// the widths that one composite font may list.
const (
	maxFonts     = 2_000
	maxCIDWidths = 1 << 16
)

// font returns a font of the resources, or nil when there is none of that name.
func (in *interpreter) font(res types.Dict, name string) *face {
	d := in.f.dict(in.f.dict(res["Font"])[name])
	if d == nil {
		return nil
	}
	id := identityOf(d)
	if f, ok := in.fonts[id]; ok {
		return f
	}
	f := in.f.newFace(d)
	if len(in.fonts) < maxFonts {
		in.fonts[id] = f
	}
	return f
}

func (f *file) newFace(d types.Dict) *face {
	fc := &face{scale: 1}
	base := f.name(d["BaseFont"])
	if i := strings.IndexByte(base, '+'); i == 6 {
		base = base[i+1:]
	}
	if sd, ok := f.stream(d["ToUnicode"]); ok {
		if b, err := f.content(sd, maxCMap); err == nil || len(b) > 0 {
			fc.unicode = readCMap(b)
		}
	}
	if f.name(d["Subtype"]) == "Type0" {
		var descendant types.Dict
		if a := f.array(d["DescendantFonts"]); len(a) > 0 {
			descendant = f.dict(a[0])
		}
		fc.style = fontStyleOf(base, f, f.dict(descendant["FontDescriptor"]))
		f.compositeFace(fc, d, descendant)
		return fc
	}
	descriptor := f.dict(d["FontDescriptor"])
	fc.style = fontStyleOf(base, f, descriptor)
	f.simpleFace(fc, d, descriptor, base)
	return fc
}

// Flags of a font descriptor.
const (
	flagFixed    = 1 << 0
	flagSymbolic = 1 << 2
	flagItalic   = 1 << 6
	flagBold     = 1 << 18
)

func fontStyleOf(base string, f *file, descriptor types.Dict) fontStyle {
	lower := strings.ToLower(base)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(lower, p) {
				return true
			}
		}
		return false
	}
	flags := int(f.float(descriptor["Flags"]))
	var l fontStyle
	if has("bold", "black", "heavy", "-bd") || flags&flagBold != 0 || f.float(descriptor["FontWeight"]) >= 600 {
		l |= bold
	}
	if has("italic", "oblique", "-it") || flags&flagItalic != 0 {
		l |= italic
	}
	if has("courier", "mono", "consol", "typewriter", "cmtt") || flags&flagFixed != 0 {
		l |= mono
	}
	return l
}

func (f *file) simpleFace(fc *face, d, descriptor types.Dict, base string) {
	enc := f.encodingOf(d, descriptor, base)
	core := coreName(base, fc.style)
	first := int(f.float(d["FirstChar"]))
	widths := f.array(d["Widths"])
	unit := 0.001
	if f.name(d["Subtype"]) == "Type3" {
		m := f.matrix(d["FontMatrix"])
		if unit = m[0]; unit < 0 {
			unit = -unit
		}
		fc.scale = max(m[3], -m[3]) * 1000
		if b, ok := f.box(d["FontBBox"]); ok && b[3]-b[1] > 0 {
			fc.scale = max(m[3], -m[3]) * (b[3] - b[1])
		}
		if fc.scale < 1e-3 || fc.scale > 1e3 {
			fc.scale = 1
		}
	}
	fc.simple = new([256]glyph)
	for c := range fc.simple {
		text := enc[c]
		if fc.unicode != nil {
			if t, ok := fc.unicode.text(uint32(c)); ok {
				text = t
			}
		}
		g := newGlyph(text, 1)
		g.space = c == ' '
		w := 0.0
		if i := c - first; i >= 0 && i < len(widths) {
			w = f.float(widths[i]) * unit
		}
		if w <= 0 && len(widths) == 0 {
			w = coreWidth(core, c, text)
		}
		if w <= 0 && len(widths) > 0 {
			w = f.float(descriptor["MissingWidth"]) * unit
		}
		g.width = w
		fc.simple[c] = g
	}
}

// newGlyph normalizes the text of a glyph: ligatures and presentation forms
// become letters, bullets of symbol fonts become bullets.
func newGlyph(text string, n int) glyph {
	text = normalizeGlyphText(text)
	return glyph{text: text, bytes: n, blank: strings.TrimSpace(text) == ""}
}

func normalizeGlyphText(s string) string {
	plain := true
	for _, r := range s {
		if r >= 0x2000 || printable(r) != r {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case r >= 0xFB00 && r <= 0xFB06, r >= 0xFB1D && r <= 0xFDFF, r >= 0xFE70 && r <= 0xFEFE, r >= 0x2F00 && r <= 0x2FDF:
			out.WriteString(norm.NFKC.String(string(r)))
		case r >= 0xF000 && r <= 0xF0FF:
			if p, ok := privateUse[r]; ok {
				out.WriteRune(p)
			}
		default:
			if r = printable(r); r >= 0 {
				out.WriteRune(r)
			}
		}
	}
	s = out.String()
	if isRTLText(s) && utf8.RuneCountInString(s) > 1 {
		// Lines are composed in visual order and reversed as a whole, so the text of
		// one glyph must be in visual order too.
		s = reverseRunes(s)
	}
	return s
}

// encodingOf returns the encoding of a simple font without regard to ToUnicode.
func (f *file) encodingOf(d, descriptor types.Dict, base string) simpleEncoding {
	lower := strings.ToLower(base)
	var enc simpleEncoding
	switch {
	case strings.HasPrefix(lower, "symbol"):
		enc = symbol
	case strings.Contains(lower, "dingbats") && !strings.Contains(lower, "webdings"):
		enc = dingbats
	case f.name(d["Subtype"]) == "TrueType":
		enc = winAnsi
	default:
		enc = standard
		for c := 0x80; c < 0x100; c++ {
			if enc[c] == "" { // in practice, unassigned codes are those of Windows-1252
				enc[c] = winAnsi[c]
			}
		}
		if sd, ok := f.stream(descriptor["FontFile"]); ok {
			if b, _ := f.content(sd, maxFontProgram); len(b) > 0 {
				type1Encoding(&enc, b)
			}
		}
		if sd, ok := f.stream(descriptor["FontFile3"]); ok {
			if b, _ := f.content(sd, maxFontProgram); len(b) > 0 {
				cffBuiltInEncoding(&enc, b)
			}
		}
	}
	name := f.name(d["Encoding"])
	dict := f.dict(d["Encoding"])
	if name == "" {
		name = f.name(dict["BaseEncoding"])
	}
	switch name {
	case "WinAnsiEncoding":
		enc = winAnsi
	case "MacRomanEncoding":
		enc = macRoman
	case "StandardEncoding":
		enc = standard
	}
	at := 0
	for _, o := range f.array(dict["Differences"]) {
		if n, ok := f.number(o); ok {
			at = int(n)
			continue
		}
		if at >= 0 && at < 256 {
			if t := glyphText(f.name(o)); t != "" {
				enc[at] = t
			} else if n := f.name(o); n == ".notdef" {
				enc[at] = ""
			}
		}
		at++
	}
	return enc
}

// type1Encoding reads the built-in encoding of a Type 1 font program from its
// clear-text part: "dup 65 /A put".
func type1Encoding(enc *simpleEncoding, program []byte) {
	head, _, _ := bytes.Cut(program, []byte("eexec"))
	_, head, ok := bytes.Cut(head, []byte("/Encoding"))
	if !ok || bytes.HasPrefix(bytes.TrimSpace(head), []byte("StandardEncoding")) {
		return
	}
	fields := bytes.Fields(head[:min(len(head), 64<<10)])
	for i := 0; i+3 < len(fields); i++ {
		if string(fields[i]) != "dup" || string(fields[i+3]) != "put" || len(fields[i+2]) < 2 {
			continue
		}
		if n, ok := number(fields[i+1]); ok && n >= 0 && n < 256 {
			if t := glyphText(string(fields[i+2][1:])); t != "" {
				enc[int(n)] = t
			}
		}
	}
}

// coreName returns the standard font that resembles a font. Its widths serve
// fonts that leave out their own.
func coreName(base string, l fontStyle) string {
	if font.IsCoreFont(base) {
		return base
	}
	lower := strings.ToLower(base)
	family := [4]string{"Helvetica", "Helvetica-Bold", "Helvetica-Oblique", "Helvetica-BoldOblique"}
	switch {
	case l&mono != 0:
		family = [4]string{"Courier", "Courier-Bold", "Courier-Oblique", "Courier-BoldOblique"}
	case strings.Contains(lower, "times") || strings.Contains(lower, "serif") && !strings.Contains(lower, "sans"):
		family = [4]string{"Times-Roman", "Times-Bold", "Times-Italic", "Times-BoldItalic"}
	}
	return family[l&(bold|italic)]
}

// coreWidth returns a width from the metrics of a standard font, by
// Windows-1252 code, or by the font's own code in the two symbol fonts.
func coreWidth(core string, c int, text string) float64 {
	if core != "Symbol" && core != "ZapfDingbats" {
		r := []rune(text)
		if len(r) == 0 {
			return 0
		}
		b, ok := charmap.Windows1252.EncodeRune(r[0])
		if !ok {
			return 0.55
		}
		c = int(b)
	}
	w, err := font.CharWidth(core, rune(c))
	if err != nil {
		return 0.55
	}
	return float64(w) / 1000
}

func (f *file) compositeFace(fc *face, d, descendant types.Dict) {
	fc.glyphs = map[uint64]glyph{}
	name := f.name(d["Encoding"])
	fc.vertical = strings.HasSuffix(name, "-V")
	fc.utf16, fc.legacy = predefined(name)
	if sd, ok := f.stream(d["Encoding"]); ok {
		if b, err := f.content(sd, maxCMap); err == nil || len(b) > 0 {
			fc.codes = readCMap(b)
		}
		fc.vertical = f.float(sd.Dict["WMode"]) == 1
	}
	fc.defaultWidth = 1
	if dw, ok := f.number(descendant["DW"]); ok {
		fc.defaultWidth = dw / 1000
	}
	f.cidWidths(fc, f.array(descendant["W"]))
}

// cidWidths reads the width array of a CID font: "c [w …]" and "c c w".
func (f *file) cidWidths(fc *face, w types.Array) {
	fc.widths = map[int]float64{}
	for i := 0; i+1 < len(w) && len(fc.widths) < maxCIDWidths; {
		from := int(f.float(w[i]))
		if list := f.array(w[i+1]); list != nil {
			for j, width := range list[:min(len(list), maxCIDWidths)] {
				fc.widths[from+j] = f.float(width) / 1000
			}
			i += 2
			continue
		}
		if i+2 >= len(w) {
			return
		}
		width := f.float(w[i+2]) / 1000
		for c := max(from, 0); c <= min(int(f.float(w[i+1])), maxCIDWidths); c++ {
			fc.widths[c] = width
		}
		i += 3
	}
}

// next returns the glyph at the start of raw, which must not be empty.
func (fc *face) next(raw []byte) glyph {
	if fc.simple != nil {
		return fc.simple[raw[0]]
	}
	n := 2
	switch {
	case fc.codes != nil:
		n = fc.codes.length(raw)
	case fc.legacy != nil && raw[0] < 0x80:
		n = 1
	}
	n = min(n, len(raw))
	c := codeOf(raw[:n])
	key := uint64(n)<<32 | uint64(c)
	g, ok := fc.glyphs[key]
	if !ok {
		g = fc.decode(raw[:n], c)
		if len(fc.glyphs) < maxCIDWidths {
			fc.glyphs[key] = g
		}
	}
	return g
}

func (fc *face) decode(raw []byte, c uint32) glyph {
	text, known := "", false
	if fc.unicode != nil {
		text, known = fc.unicode.text(c)
	}
	if !known && fc.utf16 {
		text = utf16Text(raw)
	}
	if !known && fc.legacy != nil {
		if b, err := fc.legacy.NewDecoder().Bytes(raw); err == nil {
			text = strings.ToValidUTF8(string(b), "")
		}
	}
	g := newGlyph(text, len(raw))
	g.space = len(raw) == 1 && raw[0] == ' '
	cid := int(c)
	if fc.codes != nil {
		if id, ok := fc.codes.cid(c); ok {
			cid = id
		}
	}
	w, ok := fc.widths[cid]
	if !ok {
		w = fc.defaultWidth
		if (fc.utf16 || fc.legacy != nil) && c < 0x80 {
			w = 0.5
		}
	}
	g.width = w
	return g
}
