// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/roux-engine/roux/internal/media/pdftest"
)

// cffFont is a CFF font program whose glyphs 1, 2, … have the given names, with
// a charset and an encoding as stored in a file.
func cffFont(charset, encoding []byte, glyphs int, names ...string) []byte {
	index := func(items ...string) []byte {
		out := binary.BigEndian.AppendUint16(nil, uint16(len(items)))
		if len(items) == 0 {
			return out
		}
		out = append(out, 2)
		at := 1
		for i := 0; i <= len(items); i++ {
			out = binary.BigEndian.AppendUint16(out, uint16(at))
			if i < len(items) {
				at += len(items[i])
			}
		}
		for _, s := range items {
			out = append(out, s...)
		}
		return out
	}
	shapes := make([]string, glyphs+1)
	for i := range shapes {
		shapes[i] = "\x0e"
	}
	number := func(n int) []byte { return binary.BigEndian.AppendUint32([]byte{29}, uint32(n)) }
	build := func(at int) []byte {
		var top []byte
		top = append(append(top, number(at)...), cffCharset)
		top = append(append(top, number(at+len(charset))...), cffEncoding)
		top = append(append(top, number(at+len(charset)+len(encoding))...), cffCharStrings)
		out := []byte{1, 0, 4, 2}
		out = append(out, index("Own")...)
		out = append(out, index(string(top))...)
		out = append(out, index(names...)...)
		return append(out, index()...) // subroutines
	}
	head := build(len(build(0)))
	return bytes.Join([][]byte{head, charset, encoding, index(shapes...)}, nil)
}

// X160: the built-in encoding of a CFF font.
func TestCFFEncoding(t *testing.T) {
	names := []string{"gamma", "universal", "lessequal"}
	named := []byte{0, 1, 135, 1, 136, 1, 137, 0, 34} // 391, 392, 393 and A
	ranges := []byte{1, 1, 135, 2, 0, 34, 0}
	long := []byte{2, 1, 135, 0, 2, 0, 34, 0, 0}
	for _, tt := range []struct {
		name              string
		charset, encoding []byte
		want              string // of the codes 1 to 4
	}{
		{"codes one by one", named, []byte{0, 4, 1, 2, 3, 4}, "γ∀≤A"},
		{"codes in another order", named, []byte{0, 4, 4, 3, 2, 1}, "A≤∀γ"},
		{"ranges of codes", ranges, []byte{1, 2, 1, 1, 3, 1}, "γ∀≤A"},
		{"long ranges of names", long, []byte{1, 1, 1, 3}, "γ∀≤A"},
		{"codes that are added", named, []byte{0x80, 3, 1, 2, 3, 1, 4, 0, 35}, "γ∀≤B"},
	} {
		program := cffFont(tt.charset, tt.encoding, 4, names...)
		font := "<< /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+Own /FirstChar 1 /LastChar 4 /Widths [500 500 500 500] /FontDescriptor << /Flags 4 /FontFile3 6 0 R >> >>"
		for subtype, data := range map[string][]byte{
			"Type1C":   program,
			"OpenType": append(binary.BigEndian.AppendUint32([]byte("OTTO\x00\x01\x00\x00\x00\x00\x00\x00CFF \x00\x00\x00\x00\x00\x00\x00\x1c"), uint32(len(program))), program...),
		} {
			doc, err := Text(pdftest.OnePage(pdftest.Stream("", []byte("BT /F 11 Tf 50 700 Td <01020304> Tj ET")), "/Font << /F 5 0 R >>", font, pdftest.Stream("/Subtype /"+subtype, data)), Options{MaxPages: 5})
			if err != nil || doc.Pages[0].Markdown != tt.want {
				t.Errorf("%s, %s: %+v, %v; want %q", tt.name, subtype, doc.Pages, err, tt.want)
			}
		}
	}
	for sid, want := range map[int]string{1: " ", 8: "’", 17: "0", 34: "A", 66: "a", 109: "ﬁ", 149: "ß", 150: "¹", 199: "Ž", 228: "ž", 268: "ﬄ"} {
		if cffStandardTexts[sid] != want {
			t.Errorf("standard string %d is %q, want %q", sid, cffStandardTexts[sid], want)
		}
	}
}

// Reading a damaged font program ends, and changes only the encoding.
func TestHostileCFF(t *testing.T) {
	sound := cffFont([]byte{2, 1, 135, 0, 2}, []byte{1, 1, 1, 3}, 3, "gamma", "universal", "lessequal")
	var encoding simpleEncoding
	for end := range sound {
		cffBuiltInEncoding(&encoding, sound[:end])
	}
	dice := rand.New(rand.NewPCG(34, 10))
	for range 20_000 {
		data := bytes.Clone(sound)
		for range 1 + dice.IntN(4) {
			data[dice.IntN(len(data))] = byte(dice.Uint32())
		}
		cffBuiltInEncoding(&encoding, data)
	}
	for _, text := range encoding {
		if len(text) > 64 {
			t.Errorf("a code means %d bytes: %s", len(text), fmt.Sprintf("%.80q", text))
		}
	}
}
