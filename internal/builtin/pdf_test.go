// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/media/pdftest"
)

// manyPages is a document of n pages with 2.4 KiB of text each.
func manyPages(n int) []byte {
	var contents []string
	for p := range n {
		var c strings.Builder
		c.WriteString("BT /F1 10 Tf 12 TL 50 800 Td\n")
		for l := range 40 {
			fmt.Fprintf(&c, "(Line %d of page %d says <nothing> that is new to its readers.) Tj T*\n", l, p+1)
		}
		contents = append(contents, c.String()+"ET")
	}
	return pdftest.Pages(contents...)
}

// progressed records what an action reports.
type progressed struct {
	action.Reporter
	fractions []float64
	texts     []string
}

func (p *progressed) Progress(f float64, text string) {
	p.fractions, p.texts = append(p.fractions, f), append(p.texts, text)
}

// X160: a document of 500 pages is read with progress reports; its text of more
// than a MiB becomes a reference, or a file on request.
func TestX160_FiveHundredPages(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	s := store(t)
	info := upload(t, s, "long.pdf", manyPages(500))
	got, err := call(t, s, "pdf-to-markdown", map[string]any{"file": info.Hash})
	if err != nil {
		t.Fatal(err)
	}
	ref, ok := got["content"].(map[string]any)
	if size, _ := ref["size"].(int64); !ok || size < 1<<20 || got["pageCount"] != int64(500) || len(got["pages"].([]any)) != 500 {
		t.Fatalf("content is %.100v, %v pages", got["content"], got["pageCount"])
	}

	s = store(t) // a new store, because the first one has this content already, under the name of the reference
	upload(t, s, "long.pdf", manyPages(500))
	in, err := jsonx.Canonical(map[string]any{"file": info.Hash, "output": "file"})
	if err != nil {
		t.Fatal(err)
	}
	told := progressed{Reporter: action.Discard}
	res, err := find(t, "pdf-to-markdown").Run(context.Background(), &action.Task{Account: "acme", Input: in, Files: s.Files("acme"), Report: &told})
	if err != nil {
		t.Fatal(err)
	}
	out := res.Output.(map[string]any)
	if _, inline := out["content"]; inline {
		t.Error("the text is also inline")
	}
	f, err := s.Open(context.Background(), "acme", out["file"].(string))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil || int64(len(text)) < 1<<20 || !strings.HasPrefix(string(text), `Line 0 of page 1 says \<nothing> that is new`) {
		t.Errorf("%d bytes, %v: %.60s", len(text), err, text)
	}
	if fi := f.Info(); fi.Name != "long.md" || fi.MimeType != "text/markdown" {
		t.Errorf("stored as %+v", fi)
	}
	n := len(told.fractions)
	if n < 2 || n > progressSteps || told.fractions[n-1] != 1 || told.texts[n-1] != "read 500 of 500 pages" {
		t.Fatalf("%d reports of progress, the last %v", n, told.texts)
	}
	for i := 1; i < n; i++ {
		if told.fractions[i] < told.fractions[i-1] {
			t.Fatalf("progress fell from %v to %v", told.fractions[i-1], told.fractions[i])
		}
	}
}

// X160: pages are selected by number, and invalid selections are refused with
// the exact reason.
func TestX160_Pages(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	s := store(t)
	file := upload(t, s, "short.pdf", manyPages(12)).Hash
	for _, tt := range []struct {
		pages string
		want  string // the pages read
		says  string
	}{
		{pages: "1-3,7", want: "1 2 3 7"},
		{pages: "7, 1-3, 2", want: "1 2 3 7"},
		{pages: "10-", want: "10 11 12"},
		{pages: "12", want: "12"},
		{pages: "0", says: `pages "0": pages count from 1: want pages such as "1-3,7"`},
		{pages: "5-2", says: `pages "5-2": the range ends before it begins`},
		{pages: "one", says: `pages "one": it is no page number and no range`},
		{pages: "-3", says: `pages "-3": it is no page number`},
		{pages: "1,,2", says: `pages ""`},
		{pages: "999999999", says: `it is no page number`},
		{pages: "13", says: "pages asks for page 13: the document has 12"},
		{pages: "13-", says: "pages asks for page 13: the document has 12"},
		{pages: "2-13", says: "pages asks for page 13: the document has 12"},
		{pages: strings.Repeat("1,", 100) + "1", says: "more than 100 ranges"},
	} {
		got, err := call(t, s, "pdf-to-markdown", map[string]any{"file": file, "pages": tt.pages})
		if tt.says != "" {
			if !errors.Is(err, fault.InputInvalid) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v, want INPUT_INVALID with %q", tt.pages, err, tt.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.pages, err)
			continue
		}
		var read []string
		for _, p := range got["pages"].([]any) {
			read = append(read, fmt.Sprint(p.(map[string]any)["page"]))
		}
		content := got["content"].(string)
		if strings.Join(read, " ") != tt.want || got["pageCount"] != int64(12) || strings.Count(content, "Line 0 of page") != len(read) ||
			!strings.HasPrefix(content, "Line 0 of page "+read[0]+" ") {
			t.Errorf("%s: pages %v of %v: %.40s", tt.pages, read, got["pageCount"], content)
		}
	}
}

// A file that is not a PDF is refused, whatever its name.
func TestPosingAsPDF(t *testing.T) {
	s := store(t)
	for _, tt := range []struct {
		name, data string
		code       fault.Code
		says       string
	}{
		{"empty.pdf", "", fault.FileUnsupported, "empty.pdf is text/plain: want application/pdf"},
		{"letter.pdf", "Dear all,\nthis is a letter.\n", fault.FileUnsupported, "letter.pdf is text/plain"},
		{"picture.pdf", "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR", fault.FileUnsupported, "picture.pdf is image/png"},
		{"head.pdf", "%PDF-1.7\n", fault.FileInvalid, "damaged"},
	} {
		file := upload(t, s, tt.name, []byte(tt.data)).Hash
		if _, err := call(t, s, "pdf-to-markdown", map[string]any{"file": file}); !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s with %q", tt.name, err, tt.code, tt.says)
		}
	}
}
