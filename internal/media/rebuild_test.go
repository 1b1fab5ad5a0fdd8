// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A table of objects that is there and wrong is made anew, as a missing one is.
func TestWrongTable(t *testing.T) {
	sound := assemblePages("BT /F1 11 Tf 50 700 Td (first) Tj ET", "BT /F1 11 Tf 50 700 Td (second) Tj ET")
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
			doc, err := readHere(data, request{Op: opText, MaxPages: 5})
			if err != nil || len(doc.Pages) != 2 || doc.Pages[0].Markdown != "first" || doc.Pages[1].Markdown != "second" || !doc.Repaired {
				t.Errorf("%+v, %v; want two pages, repaired", doc, err)
			}
		})
	}
	if doc, err := readHere(sound, request{Op: opInfo, MaxPages: 5}); err != nil || doc.Repaired {
		t.Errorf("a sound file: %+v, %v", doc, err)
	}
}

func number10(entry []byte) (n int) {
	for _, c := range entry[:10] {
		n = n*10 + int(c-'0')
	}
	return n
}

// Looking for objects takes time that grows with the file, whatever it is
// filled with.
func TestRebuildIsLinear(t *testing.T) {
	for _, word := range []string{"1 0 obj ", "1 0 obj stream ", "obj", "endobj", "9999999999 99999 obj ", "1 0 obj endstream "} {
		start := time.Now()
		_, _ = objectsIn([]byte(strings.Repeat(word, 16<<20/len(word))))
		if took := time.Since(start); took > 10*time.Second { // a fraction of a second on a free machine
			t.Errorf("16 MiB of %q took %v", word, took)
		}
	}
}

// A file is read when the password is for its attachments only.
func TestOnlyAttachmentsEncrypted(t *testing.T) {
	file := func(event, filters string) []byte {
		data := onePage(streamOf("", []byte("BT /F 11 Tf 50 700 Td (open) Tj ET")), "/Font << /F 5 0 R >>", bombFont,
			"<< /Filter /Standard /V 4 /R 4 /Length 128 /P -4 /CF << /StdCF << /CFM /AESV2 /AuthEvent "+event+" /Length 16 >> >> "+filters+
				" /O <"+strings.Repeat("5A", 32)+"> /U <"+strings.Repeat("A5", 32)+"> >>")
		return bytes.Replace(data, []byte("/Root 1 0 R"), []byte("/Root 1 0 R /Encrypt 6 0 R /ID [<0011> <0011>]"), 1)
	}
	doc, err := readHere(file("/EFOpen", "/StmF /Identity /StrF /Identity /EFF /StdCF"), request{Op: opText, MaxPages: 5})
	if err != nil || len(doc.Pages) != 1 || doc.Pages[0].Markdown != "open" {
		t.Errorf("attachments only: %+v, %v", doc, err)
	}
	for _, filters := range []string{"/StmF /StdCF /StrF /StdCF", "/StmF /Identity /StrF /StdCF", "/StmF /StdCF"} {
		if _, err := readHere(file("/DocOpen", filters), request{Op: opText, MaxPages: 5}); !errors.Is(err, fault.FileEncrypted) {
			t.Errorf("%s: %v, want FILE_ENCRYPTED", filters, err)
		}
	}
}

// A field with an empty appearance keeps its value where the form asks for its
// fields to be drawn anew.
func TestEmptyAppearance(t *testing.T) {
	for form, want := range map[string]string{
		"/AcroForm << /Fields [5 0 R] /NeedAppearances true >>":  "typed",
		"/AcroForm << /Fields [5 0 R] /NeedAppearances false >>": "",
		"": "",
	} {
		data := assemble([]string{"<< /Type /Catalog /Pages 2 0 R " + form + " >>", bombPages,
			"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Annots [5 0 R] >>", streamOf("", nil),
			"<< /Subtype /Widget /FT /Tx /V (typed) /Rect [100 500 300 520] /AP << /N 6 0 R >> >>",
			streamOf("/Type /XObject /Subtype /Form /BBox [0 0 200 20]", []byte("/Tx BMC EMC"))})
		doc, err := readHere(data, request{Op: opText, MaxPages: 5})
		if err != nil || len(doc.Pages) != 1 || doc.Pages[0].Markdown != want {
			t.Errorf("%s: %+v, %v; want %q", form, doc, err, want)
		}
	}
}
