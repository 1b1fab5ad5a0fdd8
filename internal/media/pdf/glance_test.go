// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media/pdftest"
)

// parsed is what the parser says of a file as a whole.
func parsed(data []byte) (Document, error) {
	f, pages, err := openSound(data, maxPages)
	if err != nil {
		return Document{}, err
	}
	info := f.dict(f.info())
	return Document{PageCount: len(pages), Title: oneLine(f.text(info["Title"])), Author: oneLine(f.text(info["Author"]))}, nil
}

// glancedFile is a file of so many pages, and as many objects beside them as wanted.
func glancedFile(pages, others int) []byte {
	var kids strings.Builder
	for i := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+i)
	}
	objects := []string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d >>", kids.String(), pages),
		"<< /Title (A stream of endless pages) /Author (Ada) >>",
	}
	for range pages {
		objects = append(objects, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>")
	}
	for i := range others {
		objects = append(objects, fmt.Sprintf("<< /Kind /Other /N %d /Text (%s) >>", i, strings.Repeat("x", i%50)))
	}
	return bytes.Replace(pdftest.Assemble(objects), []byte("/Root 1 0 R"), []byte("/Root 1 0 R /Info 3 0 R"), 1)
}

// What a file is asked for as a whole costs what its pages cost, and not what all of
// its objects do.
func TestGlanceReadsPagesOnly(t *testing.T) {
	for _, others := range []int{0, 50_000} {
		data := glancedFile(117, others)
		g := openGlance(data)
		if g == nil {
			t.Fatal("it is not for a glance")
		}
		pages, err := (&file{glance: g, size: len(data)}).pages(maxPages)
		if err != nil || len(pages) != 117 || g.lost {
			t.Fatalf("%d pages, lost %t, %v", len(pages), g.lost, err)
		}
		if g.read > 117+2 || g.worked > 200*117 {
			t.Errorf("of %d objects %d were read, %d bytes parsed", 120+others, g.read, g.worked)
		}
		doc, err := Info(data, maxPages)
		if err != nil || doc.PageCount != 117 || doc.Title != "A stream of endless pages" || doc.Author != "Ada" {
			t.Errorf("%+v, %v", doc, err)
		}
	}
	if _, err := Info(glancedFile(30, 0), 20); fault.CodeOf(err) != fault.FileTooLarge {
		t.Errorf("30 pages of at most 20: %v", err)
	}
}

// A glance says what the parser says, for every file of the shared data that it
// does not leave to the parser.
func TestGlanceOfSharedPDFs(t *testing.T) {
	dir := sharedData(t)
	answered, all := 0, 0
	for _, folder := range []string{"pdf", "pdf-fresh"} {
		err := filepath.WalkDir(filepath.Join(dir, folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".pdf" {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all++
			doc, ok, err := glanced(data, maxPages)
			if !ok {
				return nil
			}
			answered++
			want, wrong := parsed(data)
			if err != nil || wrong != nil || doc.PageCount != want.PageCount || doc.Title != want.Title || doc.Author != want.Author {
				t.Errorf("%s: %+v, %v; the parser says %+v, %v", filepath.Base(path), doc, err, want, wrong)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if answered < 18 { // the others are damaged or encrypted
		t.Errorf("%d of %d files took a glance", answered, all)
	}
	t.Logf("%d of %d files took a glance", answered, all)
}

// Files that are made to cost much, or to go in circles, are left to the parser, and
// the glance ends soon.
func TestGlanceOfHostileFiles(t *testing.T) {
	sound := glancedFile(2, 0)
	from := bytes.LastIndex(sound, []byte("xref\n0"))
	at := bytes.LastIndex(sound, []byte("trailer"))
	xref := func(table string) []byte {
		return append(append(bytes.Clone(sound[:from]), table...), fmt.Sprintf("\nstartxref\n%d\n%%%%EOF\n", from)...)
	}
	stream := func(dict, data string) []byte {
		return xref(fmt.Sprintf("9 0 obj\n<< %s >>\nstream\n%s\nendstream\nendobj\n", dict, data))
	}
	for name, data := range map[string][]byte{
		"tables in a circle":     bytes.Replace(sound, []byte("/Root"), fmt.Appendf(nil, "/Prev %d /Root", from), 1),
		"a table far away":       bytes.Replace(sound, []byte("/Root"), []byte("/Prev 9999999999 /Root"), 1),
		"a table before":         bytes.Replace(sound, []byte("/Root"), []byte("/Prev -5 /Root"), 1),
		"many entries":           xref("xref\n0 9999999999\n"),
		"many numbers":           xref("xref\n9999999999 1\n0000000000 00000 n \ntrailer\n<< /Root 1 0 R >>"),
		"no trailer":             bytes.Clone(sound[:at]),
		"hidden encryption":      bytes.Replace(sound, []byte("/Root"), []byte("/Encr#79pt 3 0 R /Root"), 1),
		"encryption":             bytes.Replace(sound, []byte("/Root"), []byte("/Encrypt 3 0 R /Root"), 1),
		"wide fields":            stream("/Type /XRef /W [1 99 1] /Size 3 /Length 9 /Root 1 0 R", "012345678"),
		"no fields":              stream("/Type /XRef /W [0 0 0] /Size 2000000 /Length 9 /Root 1 0 R", "012345678"),
		"a range past its bytes": stream("/Type /XRef /W [1 2 1] /Index [0 2000000] /Length 8 /Root 1 0 R", "01234567"),
		"a length of itself":     stream("/Type /XRef /W [1 2 1] /Size 3 /Length 9 0 R /Root 1 0 R", "01234567"),
		"a long length":          stream("/Type /XRef /W [1 2 1] /Size 3 /Length 9999999999 /Root 1 0 R", "01234567"),
		"deep lists":             bytes.Replace(sound, []byte("/Root"), []byte("/X "+strings.Repeat("[", 50_000)+" /Root"), 1),
		"no root":                bytes.Replace(sound, []byte("/Root 1 0 R"), []byte("/Toot 1 0 R"), 1),
		"a root that is no page": bytes.Replace(sound, []byte("/Root 1 0 R"), []byte("/Root 4 0 R"), 1),
		"pages in a circle":      bytes.Replace(sound, []byte("/Kids [4 0 R 5"), []byte("/Kids [2 0 R 5"), 1),
		"a page that is absent":  bytes.Replace(sound, []byte("/Kids [4 0 R 5"), []byte("/Kids [4 0 R 9"), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if bytes.Equal(data, sound) {
				t.Fatal("nothing was changed")
			}
			doc, ok, err := glanced(data, maxPages)
			if !ok {
				return
			}
			if want, wrong := parsed(data); wrong != nil || err != nil || doc.PageCount != want.PageCount || doc.Title != want.Title {
				t.Errorf("%+v, %v; the parser says %+v, %v", doc, err, want, wrong)
			}
		})
	}
	// The length of a stream of objects that stands in that stream itself.
	packed, _ := packedFile(t, false)
	packed = bytes.Replace(packed, []byte("/Type /ObjStm"), []byte("/Type/ObjStm "), 1)
	i := bytes.Index(packed, []byte("/Type/ObjStm"))
	j := i + bytes.Index(packed[i:], []byte("/Length ")) + len("/Length ")
	packed[j], packed[j+1] = '1', ' ' // no number any more that fits
	if _, ok, _ := glanced(packed, maxPages); ok {
		t.Error("a stream of a wrong length was read")
	}
}

// Objects that do not end cost their search: a file of many is given up.
func TestGlanceBoundsItsSearch(t *testing.T) {
	const pages = 20_000
	data := bytes.ReplaceAll(glancedFile(pages, 0), []byte("\nendobj\n"), []byte("\n       \n"))
	data = append(data, make([]byte, maxGlanced)...)
	g := &glance{data: data, objects: map[int]types.Object{}, streams: map[int]*objectStream{}}
	for i := 0; i < pages && g.worked <= maxWork; i++ {
		g.parse(i*60, maxGlanced)
	}
	if g.worked <= maxWork {
		t.Errorf("%d objects without an end were searched for it, %d units", pages, g.worked)
	}
}

// Damaged copies are read as the parser reads them, or left to it.
func TestGlanceOfDamagedFiles(t *testing.T) {
	packed, _ := packedFile(t, true)
	rng := rand.New(rand.NewPCG(9, 14))
	n, answered := 0, 0
	for _, source := range [][]byte{glancedFile(3, 5), packed, pdftest.Pages("BT (first) Tj ET", "BT (second) Tj ET")} {
		for _, m := range pdftest.Mutations {
			for range 40 {
				data := m.Do(rng, bytes.Clone(source))
				n++
				doc, ok, err := glanced(data, maxPages)
				if !ok {
					continue
				}
				answered++
				want, wrong := parsed(data)
				switch {
				case err != nil || wrong != nil:
					t.Errorf("%s: %+v, %v; the parser says %+v, %v", m.Name, doc, err, want, wrong)
				case doc.PageCount != want.PageCount || doc.Title != want.Title || doc.Author != want.Author:
					t.Errorf("%s: %+v; the parser says %+v\n%q", m.Name, doc, want, data)
				}
			}
		}
	}
	t.Logf("%d copies, %d took a glance", n, answered)
	if answered == 0 {
		t.Error("none took a glance")
	}
}

func BenchmarkInspectPDF(b *testing.B) {
	data := glancedFile(117, 50_000)
	b.Run("glance", func(b *testing.B) {
		for b.Loop() {
			if _, ok, err := glanced(data, maxPages); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("parser", func(b *testing.B) {
		for b.Loop() {
			if _, err := parsed(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
