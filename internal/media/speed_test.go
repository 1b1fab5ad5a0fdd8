// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/media/pdf"
	"github.com/roux-engine/roux/internal/media/pdftest"
)

// maxPageTime is the limit per page, including the start of the child.
const maxPageTime = 60 * time.Millisecond

// longDocument returns n pages of two columns with a heading and a table.
func longDocument(n int) []byte {
	var p pdftest.Page
	p.Centred("F2", 20, 60, 535, 780, "A Heading Across Both Columns")
	p.Column("F1", 10, 60, 740, 230, pdftest.Prose("first", 12))
	p.Column("F1", 10, 305, 740, 230, pdftest.Prose("second", 12))
	for i := range 8 {
		y := 250 - 14*float64(i)
		p.Text("F1", 10, 60, y, "Some of it").Text("F1", 10, 250, y, "1,846").Text("F1", 10, 400, y, "24,118")
	}
	p.Centred("F1", 9, 60, 535, 40, "7")
	contents := make([]string, n)
	for i := range contents {
		contents[i] = p.String()
	}
	return pdftest.Pages(contents...)
}

// manyPaged returns the documents with which the time per page is measured.
func manyPaged(t *testing.T) map[string][]byte {
	files := map[string][]byte{"500 pages in two columns": longDocument(500)}
	dir, facts := sharedFacts(t)
	for name, f := range facts {
		if f.Pages < 5 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	return files
}

// X160: a page takes at most 60 ms of CPU time: all the work in the child,
// median of 3.
func TestX160_TimePerPage(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	if raceEnabled {
		t.Skip("times say nothing under the race detector")
	}
	r := New(Config{})
	for name, data := range manyPaged(t) {
		t.Run(name, func(t *testing.T) {
			var took []time.Duration
			r.childEnded = func(s *os.ProcessState) { took = append(took, s.UserTime()+s.SystemTime()) }
			pages, words := 0, 0
			for range 3 {
				doc, err := r.Text(context.Background(), bytes.NewReader(data), TextOptions{})
				if err != nil {
					t.Fatal(err)
				}
				pages, words = doc.PageCount, 0
				for _, p := range doc.Pages {
					words += p.Words
				}
			}
			slices.Sort(took)
			page := took[1] / time.Duration(pages)
			t.Logf("%d pages, %d words: %v, %v a page", pages, words, took[1].Round(time.Millisecond), page.Round(10*time.Microsecond))
			if page > maxPageTime && !raceEnabled {
				t.Errorf("%v a page, want at most %v", page, maxPageTime)
			}
		})
	}
}

func BenchmarkLongDocument(b *testing.B) {
	data := longDocument(500)
	for b.Loop() {
		if _, err := pdf.Text(data, pdf.Options{MaxPages: 500}); err != nil {
			b.Fatal(err)
		}
	}
}
