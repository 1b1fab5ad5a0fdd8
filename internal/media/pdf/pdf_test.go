// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media/pdftest"
)

// The text of content streams, as people would read it.
func TestMarkdown(t *testing.T) {
	lineAt := func(font string, size, x, y int, text string) string {
		return fmt.Sprintf("BT /%s %d Tf %d %d Td (%s) Tj ET\n", font, size, x, y, text)
	}
	body := lineAt("F1", 11, 50, 100, "Body text that is long enough to be what most of the page is set in.")
	for _, tt := range []struct{ name, content, want string }{
		{"headings by size", lineAt("F2", 24, 50, 700, "Title") + lineAt("F2", 16, 50, 650, "Part") + body,
			"# Title\n\n## Part\n\nBody text"},
		{"a bold line is the lowest heading", lineAt("F2", 11, 50, 700, "Stands alone") + body, "# Stands alone\n\nBody"},
		{"lines join to a paragraph", lineAt("F1", 11, 50, 700, "one") + lineAt("F1", 11, 50, 686, "two") + lineAt("F1", 11, 50, 650, "three"), "one two\n\nthree"},
		{"divided words are joined", lineAt("F1", 11, 50, 700, "docu-") + lineAt("F1", 11, 50, 686, "ment"), "document"},
		{"order is by place, not by time", lineAt("F1", 11, 50, 600, "second") + lineAt("F1", 11, 50, 700, "first"), "first\n\nsecond"},
		{"bullets", lineAt("F1", 11, 50, 700, "\\225 apples") + lineAt("F1", 11, 50, 685, "\\225 pears"), "- apples\n- pears"},
		{"numbers", lineAt("F1", 11, 50, 700, "1. apples") + lineAt("F1", 11, 50, 685, "2. pears"), "1. apples\n2. pears"},
		{"a table", lineAt("F1", 11, 50, 700, "Item") + lineAt("F1", 11, 300, 700, "Price") + lineAt("F1", 11, 50, 682, "A|B") + lineAt("F1", 11, 300, 682, "3"),
			"| Item | Price |\n| --- | --- |\n| A\\|B | 3 |"},
		{"spaces by kerning", "BT /F1 11 Tf 50 700 Td [(two) -300 (words) -20 (s)] TJ ET", "two wordss"},
		{"what looks like Markdown is text", lineAt("F1", 11, 50, 700, "# no *title* <b>"), `\# no \*title\* \<b>`},
		{"drawn twice to look bold", lineAt("F1", 11, 50, 700, "once") + "BT /F1 11 Tf 50.2 700 Td (once) Tj ET\n", "once"},
		{"a space that is taken back", "BT /F1 11 Tf -3.06 Tw 50 700 Td (wor k) Tj ET", "work"},
		{"words parted by the spacing of letters", "BT /F1 11 Tf 3 Tc 50 700 Td (of) Tj ET", "o f"},
		{"words spaced out", "BT /F1 11 Tf 3 Tc 50 700 Td (Heading) Tj ET", "Heading"},
		{"small letters above a line", "BT /F1 11 Tf 50 700 Td (noted) Tj /F1 7 Tf 4 Ts (12) Tj 0 Ts /F1 11 Tf ( here) Tj ET", "noted12 here"},
		{"accents drawn over letters", "BT /F1 11 Tf 50 700 Td [(B) -20 (\\250) 360 (unnig fac) 430 (\\270) 100 (ade)] TJ ET", "Bünnig façade"},
		{"an accent on its own", "BT /F1 11 Tf 50 700 Td (Unnig) Tj ET BT /F1 11 Tf 52.5 702 Td (\\250) Tj ET", "Ünnig"},
		{"turned by a quarter", "BT /F1 11 Tf 0 1 -1 0 100 50 Tm (upwards) Tj ET BT /F1 11 Tf 0 1 -1 0 114 50 Tm (next) Tj ET", "upwards next"},
		{"operators ' and \"", "BT /F1 11 Tf 14 TL 50 700 Td (a) Tj (b) ' 1 1 (c) \" T* (d) Tj ET", "a b c d"},
		{"control characters vanish", lineAt("F1", 11, 50, 700, "a\\033[31mb\\000"), "a[31mb"}, // A22
		{"broken operators are passed over", "Q Q Q /F9 Tf () Tj 1 Td cm Tm TJ BT /F1 11 Tf 50 700 Td (kept) Tj", "kept"},
		{"an inline image is not text", "BI /W 1 /H 1 ID (BT /F1 9 Tf \\(no\\) Tj) EI BT /F1 11 Tf 50 700 Td (yes) Tj ET", "yes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := Text(pdftest.Pages(tt.content), Options{MaxPages: 10})
			if err != nil {
				t.Fatal(err)
			}
			if got := doc.Pages[0].Markdown; !strings.HasPrefix(got, tt.want) || len(got) > len(tt.want) && !strings.Contains(tt.content, "Body") {
				t.Errorf("got  %q\nwant %q (problem %q)", got, tt.want, doc.Pages[0].Problem)
			}
		})
	}
	plain, err := Text(pdftest.Pages(lineAt("F2", 24, 50, 700, "Title *")+body), Options{Plain: true, MaxPages: 10})
	if err != nil || !strings.HasPrefix(plain.Pages[0].Markdown, "Title *\n\nBody") {
		t.Errorf("plain: %+v, %v", plain, err)
	}
}

// maxPages is the limit that media sets.
const maxPages = 20_000

func report(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "report.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sharedData returns the folder of files that other tools have read too.
func sharedData(t *testing.T) string {
	t.Helper()
	dir := cmp.Or(os.Getenv("ROUX_SHARED"), filepath.Join("..", "..", "..", "..", "shared")) // beside the module
	if _, err := os.Stat(filepath.Join(dir, "data", "FACTS.json")); err != nil {
		t.Skip("no shared test data: set ROUX_SHARED to the folder that has data/FACTS.json")
	}
	return filepath.Join(dir, "data")
}

func isFileFault(err error) bool {
	return errors.Is(err, fault.FileInvalid) || errors.Is(err, fault.FileEncrypted) || errors.Is(err, fault.FileTooLarge)
}

func BenchmarkText(b *testing.B) {
	data := report(b)
	for b.Loop() {
		if _, err := Text(data, Options{MaxPages: 10}); err != nil {
			b.Fatal(err)
		}
	}
}

// A file with unsupported encryption is not reported as damaged, because its
// owner can remove the encryption.
func TestEncryptedInOtherWays(t *testing.T) {
	objects := []string{pdftest.Catalog, pdftest.PageTree, "<< /Type /Page /Parent 2 0 R >>"}
	o, u := strings.Repeat("6f", 32), strings.Repeat("75", 32)
	for name, tt := range map[string]struct{ object, trailer string }{
		"by certificates":       {"<< /Filter /Adobe.PubSec /SubFilter /adbe.pkcs7.s5 /V 4 /R 4 >>", "/Encrypt 4 0 R"},
		"by a newer cipher":     {"<< /Filter /Standard /V 6 /R 7 /Length 256 /P -4 /O <" + o + "> /U <" + u + "> >>", "/Encrypt 4 0 R"},
		"in the trailer itself": {"null", "/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <" + o + "> /U <" + u + "> >>"},
	} {
		data := bytes.Replace(pdftest.Assemble(append(objects[:3:3], tt.object)), []byte("/Root"), []byte(tt.trailer+" /ID [<01> <01>] /Root"), 1)
		if doc, err := Text(data, Options{MaxPages: 5}); !errors.Is(err, fault.FileEncrypted) || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: %+v, %v, want FILE_ENCRYPTED with a remedy", name, doc, err)
		}
	}
}
