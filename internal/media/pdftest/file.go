// SPDX-License-Identifier: Apache-2.0

// Package pdftest builds PDF files for tests, from objects or from the content of
// pages, and damages them. No program uses it.
package pdftest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
)

// Objects that many small files share. They assume that the catalog is object 1,
// the page tree object 2 and the only page object 3.
const (
	Catalog  = "<< /Type /Catalog /Pages 2 0 R >>"
	PageTree = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
	Font     = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
)

// Zlib returns data compressed as /FlateDecode reads it.
func Zlib(data io.Reader) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	_, _ = io.Copy(w, data)
	_ = w.Close()
	return out.Bytes()
}

// Stream returns a stream object with further entries for its dictionary.
func Stream(dict string, data []byte) string {
	return fmt.Sprintf("<< /Length %d %s >>\nstream\n%s\nendstream", len(data), dict, data)
}

// OnePage returns a file whose only page has the given content and resources,
// with further objects from number 5 on.
func OnePage(content, resources string, more ...string) []byte {
	return Assemble(append([]string{Catalog, PageTree,
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << " + resources + " >> >>", content}, more...))
}

// WithXRefStream returns a file with a cross-reference stream. entries has
// (type, field, field) for objects 0, 1, 2, …; the stream itself is the last
// object.
func WithXRefStream(body string, entries [][3]uint32, dict string) []byte {
	out := bytes.NewBufferString("%PDF-1.5\n" + body)
	at := out.Len()
	var table bytes.Buffer
	entries = append(entries, [3]uint32{1, uint32(at), 0})
	for _, e := range entries {
		table.WriteByte(byte(e[0]))
		_ = binary.Write(&table, binary.BigEndian, e[1])
		_ = binary.Write(&table, binary.BigEndian, uint16(e[2]))
	}
	fmt.Fprintf(out, "%d 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n", len(entries)-1, Stream("/Type /XRef /W [1 4 2] /Root 1 0 R "+dict, table.Bytes()), at)
	return out.Bytes()
}

// Assemble returns a PDF file of the objects, the first of which is the
// catalog.
func Assemble(objects []string) []byte {
	var out bytes.Buffer
	out.WriteString("%PDF-1.4\n")
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
	fmt.Fprintf(&out, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, start)
	return out.Bytes()
}

// Pages returns a PDF file with a page for each content. The fonts are
// Helvetica (F1), Helvetica-Bold (F2), Helvetica-Oblique (F3) and Courier (F4).
func Pages(contents ...string) []byte {
	kids := ""
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", "",
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>",
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Oblique /Encoding /WinAnsiEncoding >>", "<< /Type /Font /Subtype /Type1 /BaseFont /Courier /Encoding /WinAnsiEncoding >>"}
	for _, c := range contents {
		kids += fmt.Sprintf("%d 0 R ", len(objects)+1)
		objects = append(objects,
			fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R /F2 4 0 R /F3 5 0 R /F4 6 0 R >> >> /Contents %d 0 R >>", len(objects)+2),
			fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(c)+1, c))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d >>", kids, len(contents))
	return Assemble(objects)
}
