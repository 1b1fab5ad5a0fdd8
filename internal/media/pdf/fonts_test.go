// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"compress/lzw"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/media/pdftest"
)

// X160: the texts of font codes, by every means that files use.
func TestFonts(t *testing.T) {
	tounicode := func(body string) string {
		return pdftest.Stream("", []byte("/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n1 begincodespacerange <0000> <FFFF> endcodespacerange\n"+body+"\nendcmap"))
	}
	cid := "<< /Type /Font /Subtype /Type0 /BaseFont /ABCDEF+X /Encoding /Identity-H /ToUnicode 6 0 R /DescendantFonts [<< /Type /Font /Subtype /CIDFontType2 /DW 500 /W [1 [600 600] 3 9 700] >>] >>"
	for _, tt := range []struct {
		name, content, font string
		more                []string
		want                string
	}{
		{"differences from an encoding", "BT /F 11 Tf 50 700 Td (A\\001\\002\\003\\004) Tj ET",
			"<< /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+Own /FirstChar 1 /LastChar 65 /Widths [" + strings.Repeat("500 ", 65) + "] /Encoding << /BaseEncoding /WinAnsiEncoding /Differences [1 /Zcaron /f_i /uni20AC /afii10017] >> >>",
			nil, "AŽfi€А"},
		{"a ligature is letters", "BT /F 11 Tf 50 700 Td (e\\256cient) Tj ET", "<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>", nil, "eficient"},
		{"two-byte codes with ToUnicode", "BT /F 11 Tf 50 700 Td <000100020003> Tj ET", cid,
			[]string{tounicode("1 beginbfchar <0001> <0047> endbfchar\n2 beginbfrange <0002> <0002> [<00FC>] <0003> <0009> <0061> endbfrange")}, "Güa"},
		{"codes beyond the basic plane", "BT /F 11 Tf 50 700 Td <0001> Tj ET", cid, []string{tounicode("1 beginbfchar <0001> <D83DDE00> endbfchar")}, "😀"},
		{"ToUnicode of a simple font", "BT /F 11 Tf 50 700 Td (ab) Tj ET", "<< /Type /Font /Subtype /TrueType /BaseFont /X /FirstChar 97 /LastChar 98 /Widths [500 500] /ToUnicode 6 0 R >>",
			[]string{pdftest.Stream("", []byte("1 beginbfrange <61> <62> <0391> endbfrange"))}, "ΑΒ"},
		{"a predefined map of UTF-16", "BT /F 11 Tf 50 700 Td <65E5672C> Tj ET", "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /UniJIS-UTF16-H /DescendantFonts [<< /DW 1000 >>] >>", nil, "日本"},
		{"a predefined map of Shift JIS", "BT /F 11 Tf 50 700 Td <93FA967B41> Tj ET", "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /90ms-RKSJ-H /DescendantFonts [<< /DW 1000 >>] >>", nil, "日本A"},
		{"vertical writing", "BT /F 11 Tf 500 700 Td <65E5672C> Tj -16 0 Td <8A9E> Tj ET", "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /UniJIS-UTF16-V /DescendantFonts [<< /DW 1000 >>] >>", nil, "日本語"},
		{"glyphs that are drawn", "BT /F 10 Tf 50 700 Td (ab) Tj 14 0 Td (a) Tj ET",
			"<< /Type /Font /Subtype /Type3 /FontMatrix [0.01 0 0 0.01 0 0] /FontBBox [0 0 60 100] /FirstChar 97 /LastChar 98 /Widths [50 50] /Encoding << /Differences [97 /X /Y] >> /CharProcs << >> >>", nil, "XY X"},
		{"symbols", "BT /F 11 Tf 50 700 Td (abg) Tj ET", "<< /Type /Font /Subtype /Type1 /BaseFont /Symbol >>", nil, "αβγ"},
		{"bullets of word processors", "BT /F 11 Tf 50 700 Td <00010002> Tj ET", cid, []string{tounicode("2 beginbfchar <0001> <F0B7> <0002> <0020> endbfchar")}, "•"},
		{"from right to left, as it stands on the page", "BT /F 11 Tf 50 700 Td <0004000300020001> Tj ET", cid,
			[]string{tounicode("4 beginbfchar <0001> <05E9> <0002> <05DC> <0003> <05D5> <0004> <05DD> endbfchar")}, "שלום"},
		{"Arabic forms are letters", "BT /F 11 Tf 50 700 Td <00020001> Tj ET", cid, []string{tounicode("2 beginbfchar <0001> <FEE3> <0002> <FEEE> endbfchar")}, "مو"},
		{"a text that stands for glyphs", "BT /F 11 Tf 50 700 Td /Span << /ActualText (office) >> BDC (xyz) Tj EMC ( hours) Tj ET", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>", nil, "office hours"},
		{"codes of two and four bytes", "BT /F 11 Tf 50 700 Td <0041C130004181300041> Tj ET",
			"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding 7 0 R /ToUnicode 6 0 R /DescendantFonts [<< /DW 500 >>] >>",
			[]string{pdftest.Stream("", []byte("3 beginbfchar <0041> <0061> <C1300041> <0062> <81300041> <0063> endbfchar")),
				pdftest.Stream("/Type /CMap", []byte("2 begincodespacerange <0000> <00FF> <81300000> <FFFFFFFF> endcodespacerange"))}, "abc"},
		{"control characters of eight bits", "BT /F 11 Tf 50 700 Td <0001> Tj ET", cid, []string{tounicode("1 beginbfchar <0001> <0061009B00330031006D061C0062> endbfchar")}, "a31mb"}, // A22
		{"the alphabet of a Type 1 program", "BT /F 11 Tf 50 700 Td (\\001\\002) Tj ET", "<< /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+Own /FirstChar 1 /LastChar 2 /Widths [500 500] /FontDescriptor << /Flags 4 /FontFile 6 0 R >> >>",
			[]string{pdftest.Stream("", []byte("%!PS\n/Encoding 256 array\ndup 1 /Q put\ndup 2 /adieresis put\nreadonly def\ncurrentfile eexec\nxx"))}, "Qä"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := Text(pdftest.OnePage(pdftest.Stream("", []byte(tt.content)), "/Font << /F 5 0 R >>", append([]string{tt.font}, tt.more...)...), Options{MaxPages: 5})
			if err != nil {
				t.Fatal(err)
			}
			if got := doc.Pages[0].Markdown; got != tt.want {
				t.Errorf("got %q, want %q (problem %q)", got, tt.want, doc.Pages[0].Problem)
			}
		})
	}
}

// X160: annotations, forms, and layers that are off.
func TestWhatAPageShows(t *testing.T) {
	font := "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
	page := func(annots, content string, more ...string) string {
		objects := append([]string{"<< /Type /Catalog /Pages 2 0 R /OCProperties << /D << /OFF [6 0 R] >> >> >>", pdftest.PageTree,
			"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Annots [" + annots + "] /Resources << /Font << /F 5 0 R >> /Properties << /Off 6 0 R /On 7 0 R >> /XObject << /X 8 0 R >> >> >>",
			pdftest.Stream("", []byte(content)), font, "<< /Type /OCG /Name (off) >>", "<< /Type /OCG /Name (on) >>"}, more...)
		doc, err := Text(pdftest.Assemble(objects), Options{MaxPages: 5})
		if err != nil {
			t.Fatal(err)
		}
		return doc.Pages[0].Markdown
	}
	form := pdftest.Stream("/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Matrix [1 0 0 1 50 600]", []byte("BT /F 11 Tf (in a form) Tj ET"))
	for _, tt := range []struct{ name, annots, content, want string }{
		{"a form", "", "BT /F 11 Tf 50 700 Td (page) Tj ET /X Do", "page\n\nin a form"},
		{"a layer that is off", "", "/OC /Off BDC BT /F 11 Tf 50 700 Td (hidden) Tj ET EMC /OC /On BDC BT /F 11 Tf 50 650 Td (shown) Tj ET EMC", "shown"},
		{"a field's appearance", "<< /Subtype /Widget /FT /Tx /V (old) /Rect [100 500 300 520] /AP << /N 8 0 R >> >>", "", "in a form"},
		{"a field's value", "<< /Subtype /Widget /FT /Tx /V (typed) /Rect [100 500 300 520] >>", "", "typed"},
		{"a field's value from its parent", "<< /Subtype /Widget /Rect [100 500 300 520] /Parent << /FT /Ch /V (chosen) >> >>", "", "chosen"},
		{"a password stays out", "<< /Subtype /Widget /FT /Tx /Ff 8192 /V (secret) /Rect [100 500 300 520] >>", "", ""},
		{"a hidden annotation", "<< /Subtype /Widget /F 2 /FT /Tx /V (typed) /Rect [100 500 300 520] >>", "", ""},
		{"text beside the page", "", "BT /F 11 Tf 50 700 Td (seen) Tj 700 0 Td (unseen) Tj ET", "seen"},
	} {
		if got := page(tt.annots, tt.content, form); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Rare filters, and content in several streams.
func TestContentStreams(t *testing.T) {
	text := []byte("BT /F 11 Tf 50 700 Td (packed) Tj ET")
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.MSB, 8)
	_, _ = w.Write(text)
	_ = w.Close()
	font := "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
	for name, stream := range map[string]string{
		"LZW":       pdftest.Stream("/Filter /LZWDecode /DecodeParms << /EarlyChange 0 >>", packed.Bytes()),
		"hex":       pdftest.Stream("/Filter /ASCIIHexDecode", fmt.Appendf(nil, "%x>", text)),
		"runs":      pdftest.Stream("/Filter /RunLengthDecode", append(append([]byte{byte(len(text) - 1)}, text...), 128)),
		"flate cut": pdftest.Stream("/Filter /FlateDecode", pdftest.Zlib(bytes.NewReader(append(text, bytes.Repeat([]byte(" q Q"), 5000)...)))[:60]),
	} {
		doc, err := Text(pdftest.OnePage(stream, "/Font << /F 5 0 R >>", font), Options{MaxPages: 5})
		if err != nil || doc.Pages[0].Markdown != "packed" {
			t.Errorf("%s: %+v, %v", name, doc.Pages, err)
		}
	}
	many := pdftest.Assemble([]string{pdftest.Catalog, pdftest.PageTree, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents [4 0 R 5 0 R] /Resources << /Font << /F 6 0 R >> >> >>",
		pdftest.Stream("", []byte("BT /F 11 Tf 50 700 Td (one) Tj")), pdftest.Stream("", []byte("( two) Tj ET")), font})
	if doc, err := Text(many, Options{MaxPages: 5}); err != nil || doc.Pages[0].Markdown != "one two" {
		t.Errorf("two streams: %+v, %v", doc.Pages, err)
	}
}
