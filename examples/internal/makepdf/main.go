// SPDX-License-Identifier: Apache-2.0

// Makepdf writes the PDF files of the examples: report.pdf, which the first
// command of the README reads, and the receipts. It decides every byte of them, so
// that a test can compare the files in the tree with their source. It reads
// nothing.
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

// documents are all files, by their names below examples.
func documents() map[string][]byte {
	files := map[string][]byte{"report.pdf": makeDocument(documentTitle, report)}
	for _, r := range receipts {
		files["receipts/"+r.name+".pdf"] = makeDocument(r.title, [][]block{r.blocks()})
	}
	// A scan that was cut off: the file ends before the first page does.
	whole := files["receipts/bakery.pdf"]
	files["receipts/broken-scan.pdf"] = whole[:60]
	return files
}

// The page size is A4, in points.
const (
	pageWidth, pageHeight = 595, 842
	left, top, bottom     = 72, 770, 72
)

// A page is the content of one page, written from top to bottom.
type page struct {
	content bytes.Buffer
	y       float64
}

// A maker lays out blocks on pages.
type maker struct {
	pages  []*page
	listed bool // the previous block was a list item
}

func (m *maker) page() *page { return m.pages[len(m.pages)-1] }

func (m *maker) newPage() { m.pages = append(m.pages, &page{y: top}) }

// room begins a new page unless there is space for a block of this height.
func (m *maker) room(height float64) {
	if m.page().y-height < bottom {
		m.newPage()
	}
}

// text shows one line at x and does not move the position.
func (s *page) text(font string, size, x float64, line string) {
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
					x += 55 // the first column has names
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
	return assemble(title, m.pages)
}

// assemble writes the objects of the file and its cross-reference table.
// Streams are not compressed, because the output of a compressor may change
// with a Go release.
func assemble(title string, pages []*page) []byte {
	const firstPage = 6 // after catalog, page tree, two fonts and information
	kids := make([]string, len(pages))
	for i := range pages {
		kids[i] = fmt.Sprintf("%d 0 R", firstPage+2*i)
	}
	objects := []string{
		"<< /Type /Catalog /Pages 2 0 R /Lang (en) >>",
		fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d >>", strings.Join(kids, " "), len(pages)),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>",
		"<< /Title (" + literal(title) + ") /Author (The Roux authors) /Producer (examples/internal/makepdf) /CreationDate (D:20260101000000Z) >>",
	}
	for i, s := range pages {
		s.y = 40
		s.text("F1", 9, left, fmt.Sprintf("%s, page %d of %d", title, i+1, len(pages)))
		objects = append(objects,
			fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> /Contents %d 0 R >>",
				pageWidth, pageHeight, firstPage+2*i+1),
			fmt.Sprintf("<< /Length %d >>\nstream\n%sendstream", s.content.Len(), s.content.String()))
	}
	var out bytes.Buffer
	// The comment with high bytes tells transfer programs that the file is binary.
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
