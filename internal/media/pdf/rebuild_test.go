// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/cputime"
	"github.com/roux-engine/roux/internal/media/pdftest"
)

// A wrong cross-reference table is rebuilt like a missing one.
func TestWrongXRefTable(t *testing.T) {
	sound := pdftest.Pages("BT /F1 11 Tf 50 700 Td (first) Tj ET", "BT /F1 11 Tf 50 700 Td (second) Tj ET")
	table := bytes.Index(sound, []byte("xref\n0 "))
	entries := table + bytes.Index(sound[table:], []byte("65535 f \n")) + len("65535 f \n")
	change := func(fn func(entry []byte, i int) []byte) []byte {
		out := append([]byte{}, sound[:entries]...)
		rest := sound[entries:]
		for i := 0; len(rest) > 20 && rest[17] == 'n'; i++ {
			out = append(out, fn(bytes.Clone(rest[:20]), i)...)
			rest = rest[20:]
		}
		return append(out, rest...)
	}
	for name, data := range map[string][]byte{
		"all of it shifted": change(func(e []byte, _ int) []byte { return append(fmt.Appendf(nil, "%010d", number10(e)+7), e[10:]...) }),
		"all of it zero":    change(func(e []byte, _ int) []byte { return append([]byte("0000000000"), e[10:]...) }),
		"glued entries":     change(func(e []byte, _ int) []byte { return append(e[:10], e[11:]...) }),
		"one entry wrong": change(func(e []byte, i int) []byte {
			if i == 6 {
				return append(fmt.Appendf(nil, "%010d", number10(e)-40), e[10:]...)
			}
			return e
		}),
		"bytes before the header": append([]byte("junk\n"), change(func(e []byte, _ int) []byte { return append([]byte("0000000001"), e[10:]...) })...),
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := Text(data, Options{MaxPages: 5})
			if err != nil || len(doc.Pages) != 2 || doc.Pages[0].Markdown != "first" || doc.Pages[1].Markdown != "second" || !doc.Repaired {
				t.Errorf("%+v, %v; want two pages, repaired", doc, err)
			}
		})
	}
	if doc, err := Info(sound, 5); err != nil || doc.Repaired {
		t.Errorf("a sound file: %+v, %v", doc, err)
	}
}

// fileWithObjectStreams is a file of two pages whose catalog, page tree and
// fonts are in object streams, with a cross-reference stream. Numbers are those
// of pdftest.Pages; 20 and 21 are the object streams, 22 is the table.
func fileWithObjectStreams(t *testing.T, flated bool) (file []byte, table int) {
	t.Helper()
	content := func(text string) string { return pdftest.Stream("", []byte("BT /F1 11 Tf 50 700 Td ("+text+") Tj ET")) }
	page := func(contents int) string {
		return fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>", contents)
	}
	pack := func(numbers []int, objects ...string) string {
		var head, body bytes.Buffer
		for i, o := range objects {
			fmt.Fprintf(&head, "%d %d ", numbers[i], body.Len())
			body.WriteString(o + "\n")
		}
		dict, data := fmt.Sprintf("/Type /ObjStm /N %d /First %d", len(objects), head.Len()), append(head.Bytes(), body.Bytes()...)
		if flated {
			dict += " /Filter /FlateDecode"
			var z bytes.Buffer
			w := zlib.NewWriter(&z)
			if _, err := w.Write(data); err != nil || w.Close() != nil {
				t.Fatal(err)
			}
			data = z.Bytes()
		}
		return pdftest.Stream(dict, data)
	}
	var body strings.Builder
	entries := make([][3]uint32, 22)
	put := func(number int, text string) {
		entries[number] = [3]uint32{1, uint32(len("%PDF-1.5\n") + body.Len()), 0}
		fmt.Fprintf(&body, "%d 0 obj\n%s\nendobj\n", number, text)
	}
	put(6, content("first"))
	put(8, content("second"))
	put(20, pack([]int{1, 2, 3}, "<< /Pages 2 0 R /Type /Catalog >>", "<< /Type /Pages /Kids [5 0 R 7 0 R] /Count 2 >>", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"))
	put(21, pack([]int{5, 7}, page(6), page(8)))
	for i, number := range []int{1, 2, 3} {
		entries[number] = [3]uint32{2, 20, uint32(i)}
	}
	for i, number := range []int{5, 7} {
		entries[number] = [3]uint32{2, 21, uint32(i)}
	}
	return pdftest.WithXRefStream(body.String(), entries, "/Size 23"), len("%PDF-1.5\n") + body.Len()
}

// Objects in object streams are found when the table is rebuilt, even without a
// reference to the catalog.
func TestWrongXRefOfObjectStreams(t *testing.T) {
	for _, flated := range []bool{false, true} {
		sound, table := fileWithObjectStreams(t, flated)
		cut := func(from, to int) []byte { return append(bytes.Clone(sound[:from]), sound[to:]...) }
		raw := table + bytes.Index(sound[table:], []byte("stream\n")) + len("stream\n")
		plain := bytes.Index(sound, []byte("6 0 obj"))
		short := bytes.Index(sound, []byte("endstream\n")) + len("endstream")
		set := func(data []byte, at int, b byte) []byte {
			out := bytes.Clone(data)
			out[at] = b
			return out
		}
		scramble := func(at, n int) []byte {
			out := bytes.Clone(sound)
			for i := range n {
				out[at+i] ^= 0x55
			}
			return out
		}
		again := fmt.Sprintf("3 0 obj\n%s\nendobj\n", pdftest.Font)
		for name, data := range map[string][]byte{
			"no table":                sound[:table],
			"no end":                  sound[:raw],
			"a byte too few":          cut(short, short+1),
			"bytes too many":          append(append(bytes.Clone(sound[:plain]), "% a remark\n"...), sound[plain:]...),
			"a wrong place":           bytes.Replace(sound, fmt.Appendf(nil, "startxref\n%d", table), fmt.Appendf(nil, "startxref\n%d", table-200), 1),
			"entries of nothing":      scramble(raw, 7*22),
			"one entry wrong":         scramble(raw+7*6+4, 1),
			"an index past the end":   scramble(raw+7*5+6, 1),
			"indexes of each other":   set(set(sound, raw+7*5+6, 1), raw+7*7+6, 0),
			"another object stream":   set(sound, raw+7*5+4, 20),
			"an update, and no table": append(bytes.Clone(sound[:table]), again...),
			"an object stream that another object replaced": append(bytes.Replace(sound[:table:table], []byte("%PDF-1.5\n"),
				[]byte("%PDF-1.5\n21 0 obj\n<< /Type /ObjStm /N 1 /First 4 /Length 12 >>\nstream\n9 0 (useless)\nendstream\nendobj\n"), 1), again...),
			"a damaged object stream beside": append(bytes.Clone(sound[:table]),
				"9 0 obj\n<< /Type /ObjStm /N 9 /First 4 /Filter /FlateDecode >>\nstream\nnonsense\nendstream\nendobj\n"...),
		} {
			t.Run(fmt.Sprint(name, ", flated ", flated), func(t *testing.T) {
				doc, err := Text(data, Options{MaxPages: 5})
				if err != nil || len(doc.Pages) != 2 || doc.Pages[0].Markdown != "first" || doc.Pages[1].Markdown != "second" || !doc.Repaired {
					t.Errorf("%+v, %v; want two pages, repaired", doc, err)
				}
			})
		}
		if doc, err := Text(sound, Options{MaxPages: 5}); err != nil || doc.Repaired || len(doc.Pages) != 2 || doc.Pages[1].Markdown != "second" {
			t.Errorf("a sound file: %+v, %v", doc, err)
		}
	}
}

// Object streams with impossible headers are skipped.
func TestObjectStreamHeaders(t *testing.T) {
	const two = "/Type /ObjStm /N 2 /First 8"
	for _, tt := range []struct {
		dict, body string
		want       int
	}{
		{two, "\n7 0 9 3 (a)(b)", 2},
		{two, "\r\n7 0 9 3 (a)(b)", 2},
		{"/Type /XObject /N 2 /First 8", "\n7 0 9 3 (a)(b)", 0},
		{"/Type /ObjStm /N 3 /First 8", "\n7 0 9 3 (a)(b)", 0},
		{"/Type /ObjStm /N -1 /First 8", "\n7 0 9 3 (a)(b)", 0},
		{"/Type /ObjStm /N 2 /First 80", "\n7 0 9 3 (a)(b)", 0},
		{"/Type /ObjStm /N 2 /First -8", "\n7 0 9 3 (a)(b)", 0},
		{"/Type /ObjStm /N 2", "\n7 0 9 3 (a)(b)", 0},
		{two, "\n7 3 9 0 (a)(b)", 0},
		{two, "\n7 0 9 9 (a)(b)", 0},
		{two, "\nx 0 9 3 (a)(b)", 0},
		{two + " /Filter /Unknown", "\n7 0 9 3 (a)(b)", 0},
		{two + " /X (" + strings.Repeat("x", maxStreamDict) + ")", "\n7 0 9 3 (a)(b)", 0},
	} {
		u := objectStreamReader{left: maxDecompressed}
		if got := u.objects([]byte("<< "+tt.dict+" >>"), []byte(tt.body)); len(got) != tt.want {
			t.Errorf("%.60s, %q: %v, want %d objects", tt.dict, tt.body, got, tt.want)
		}
	}
	u := objectStreamReader{left: 20}
	for i, want := range []int{2, 2, 0} {
		if got := u.objects([]byte("<< "+two+" >>"), []byte("\n7 0 9 3 (a)(b)")); len(got) != want {
			t.Errorf("stream %d within 20 bytes: %v, want %d objects", i, got, want)
		}
	}
}

func number10(entry []byte) (n int) {
	for _, c := range entry[:10] {
		n = n*10 + int(c-'0')
	}
	return n
}

// The search for objects takes linear time, whatever the file contains.
func TestRebuildIsLinear(t *testing.T) {
	for _, word := range []string{"1 0 obj ", "1 0 obj stream ", "obj", "endobj", "9999999999 99999 obj ", "1 0 obj endstream ",
		"1 0 obj <</Type/ObjStm/N 1/First 4>> stream\n1 0 (a) endstream ", "1 0 obj <</Type/ObjStm stream endstream "} {
		took := cputime.Of(1, func() { _, _ = findObjects([]byte(strings.Repeat(word, 16<<20/len(word)))) })
		if took > 10*time.Second { // it takes a fraction of a second; quadratic time would be hours
			t.Errorf("16 MiB of %q took %v", word, took)
		}
	}
}

// A file can be read when only its attachments need a password.
func TestOnlyAttachmentsEncrypted(t *testing.T) {
	file := func(event, filters string) []byte {
		data := pdftest.OnePage(pdftest.Stream("", []byte("BT /F 11 Tf 50 700 Td (open) Tj ET")), "/Font << /F 5 0 R >>", pdftest.Font,
			"<< /Filter /Standard /V 4 /R 4 /Length 128 /P -4 /CF << /StdCF << /CFM /AESV2 /AuthEvent "+event+" /Length 16 >> >> "+filters+
				" /O <"+strings.Repeat("5A", 32)+"> /U <"+strings.Repeat("A5", 32)+"> >>")
		return bytes.Replace(data, []byte("/Root 1 0 R"), []byte("/Root 1 0 R /Encrypt 6 0 R /ID [<0011> <0011>]"), 1)
	}
	doc, err := Text(file("/EFOpen", "/StmF /Identity /StrF /Identity /EFF /StdCF"), Options{MaxPages: 5})
	if err != nil || len(doc.Pages) != 1 || doc.Pages[0].Markdown != "open" {
		t.Errorf("attachments only: %+v, %v", doc, err)
	}
	for _, filters := range []string{"/StmF /StdCF /StrF /StdCF", "/StmF /Identity /StrF /StdCF", "/StmF /StdCF"} {
		if _, err := Text(file("/DocOpen", filters), Options{MaxPages: 5}); !errors.Is(err, fault.FileEncrypted) {
			t.Errorf("%s: %v, want FILE_ENCRYPTED", filters, err)
		}
	}
}

// A field with an empty appearance keeps its value where the form has
// NeedAppearances.
func TestEmptyAppearance(t *testing.T) {
	for form, want := range map[string]string{
		"/AcroForm << /Fields [5 0 R] /NeedAppearances true >>":  "typed",
		"/AcroForm << /Fields [5 0 R] /NeedAppearances false >>": "",
		"": "",
	} {
		data := pdftest.Assemble([]string{"<< /Type /Catalog /Pages 2 0 R " + form + " >>", pdftest.PageTree,
			"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Annots [5 0 R] >>", pdftest.Stream("", nil),
			"<< /Subtype /Widget /FT /Tx /V (typed) /Rect [100 500 300 520] /AP << /N 6 0 R >> >>",
			pdftest.Stream("/Type /XObject /Subtype /Form /BBox [0 0 200 20]", []byte("/Tx BMC EMC"))})
		doc, err := Text(data, Options{MaxPages: 5})
		if err != nil || len(doc.Pages) != 1 || doc.Pages[0].Markdown != want {
			t.Errorf("%s: %+v, %v; want %q", form, doc, err, want)
		}
	}
}
