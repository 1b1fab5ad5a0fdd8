// SPDX-License-Identifier: Apache-2.0

// Makepdf writes the PDF files of the examples: report.pdf, the document that the
// first command of the README reads, and the receipts. It decides every byte of
// them, so that a test can tell whether the files in the tree are the ones their
// source makes. It reads nothing.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . -o ../..

func main() {
	dir := flag.String("o", ".", "directory to write to")
	flag.Parse()
	for name, data := range documents() {
		path := filepath.Join(*dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// documents are all files by their names below examples.
func documents() map[string][]byte {
	files := map[string][]byte{"report.pdf": makeDocument(documentTitle, report)}
	for _, r := range receipts {
		files["receipts/"+r.name+".pdf"] = makeDocument(r.title, [][]block{r.blocks()})
	}
	// A scanner that stopped half way: the bytes end before any page does.
	whole := files["receipts/bakery.pdf"]
	files["receipts/broken-scan.pdf"] = whole[:60]
	return files
}

// The page is A4, in points.
const (
	pageWidth, pageHeight = 595, 842
	left, top, bottom     = 72, 770, 72
)

// A sheet is the content of one page as it is written from top to bottom.
type sheet struct {
	content bytes.Buffer
	y       float64
}

// maker lays blocks out on sheets.
type maker struct {
	sheets []*sheet
	listed bool // the block before was an item of a list
}

func (m *maker) page() *sheet { return m.sheets[len(m.sheets)-1] }

func (m *maker) newPage() { m.sheets = append(m.sheets, &sheet{y: top}) }

// room begins a new page unless there is space for a block of this height.
func (m *maker) room(height float64) {
	if m.page().y-height < bottom {
		m.newPage()
	}
}

// text shows one line at x and moves nothing.
func (s *sheet) text(font string, size, x float64, line string) {
	fmt.Fprintf(&s.content, "BT /%s %g Tf %g %g Td (%s) Tj ET\n", font, size, x, s.y, literal(line))
}

// literal escapes a string for a PDF file; the text is ASCII and bullets.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, "(", `\(`, ")", `\)`, "•", `\225`, "–", `\226`).Replace(s)
}

func (m *maker) block(b block) {
	switch b.kind {
	case title, section, topic:
		look := map[kind]struct{ size, before, after float64 }{title: {24, 0, 34}, section: {16, 14, 24}, topic: {13, 8, 20}}[b.kind]
		m.room(look.before + look.after + 30)
		m.page().y -= look.before
		m.page().text("F2", look.size, left, b.text)
		m.page().y -= look.after
	case bullet:
		for i, line := range wrap(b.text, 84) {
			m.room(15)
			if i == 0 {
				m.page().text("F1", 11, left+8, "• "+line)
			} else {
				m.page().text("F1", 11, left+17, line)
			}
			m.page().y -= 15
		}
		m.page().y -= 2
	case table:
		m.room(18 * float64(len(b.rows)))
		for i, row := range b.rows {
			font := "F1"
			if i == 0 {
				font = "F2"
			}
			for j, cell := range row {
				x := left + float64(j)*95
				if j > 0 {
					x += 55 // the first column holds names
				}
				m.page().text(font, 11, x, cell)
			}
			s := m.page()
			fmt.Fprintf(&s.content, "0.5 w %d %g m %d %g l S\n", left, s.y-5, pageWidth-left, s.y-5)
			s.y -= 18
		}
		m.page().y -= 8
	default:
		if m.listed {
			m.page().y -= 9
		}
		for _, line := range wrap(b.text, 88) {
			m.room(15)
			m.page().text("F1", 11, left, line)
			m.page().y -= 15
		}
		m.page().y -= 9
	}
	m.listed = b.kind == bullet
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

func makeDocument(title string, chapters [][]block) []byte {
	m := &maker{}
	for _, chapter := range chapters {
		m.newPage()
		for _, b := range chapter {
			m.block(b)
		}
	}
	return assemble(title, m.sheets)
}

// assemble writes the objects of the file and the table of where they begin.
// Streams are not compressed: what a compressor writes may change with a release.
func assemble(title string, sheets []*sheet) []byte {
	const firstPage = 6 // after catalog, page tree, two fonts and information
	kids := make([]string, len(sheets))
	for i := range sheets {
		kids[i] = fmt.Sprintf("%d 0 R", firstPage+2*i)
	}
	objects := []string{
		"<< /Type /Catalog /Pages 2 0 R /Lang (en) >>",
		fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d >>", strings.Join(kids, " "), len(sheets)),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>",
		"<< /Title (" + literal(title) + ") /Author (The Roux authors) /Producer (examples/internal/makepdf) /CreationDate (D:20260101000000Z) >>",
	}
	for i, s := range sheets {
		s.y = 40
		s.text("F1", 9, left, fmt.Sprintf("%s, page %d of %d", title, i+1, len(sheets)))
		objects = append(objects,
			fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> /Contents %d 0 R >>",
				pageWidth, pageHeight, firstPage+2*i+1),
			fmt.Sprintf("<< /Length %d >>\nstream\n%sendstream", s.content.Len(), s.content.String()))
	}
	var out bytes.Buffer
	// The comment of high bytes tells transfer programs that the file is binary.
	out.WriteString("%PDF-1.4\n%\xE2\xE3\xCF\xD3\n")
	offsets := make([]int, len(objects))
	for i, o := range objects {
		offsets[i] = out.Len()
		fmt.Fprintf(&out, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	start := out.Len()
	fmt.Fprintf(&out, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, at := range offsets {
		fmt.Fprintf(&out, "%010d 00000 n \n", at)
	}
	fmt.Fprintf(&out, "trailer\n<< /Size %d /Root 1 0 R /Info 5 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, start)
	return out.Bytes()
}
