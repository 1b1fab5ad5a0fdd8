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

// pdfcpuInfo is Info by pdfcpu.
func pdfcpuInfo(data []byte) (Document, error) {
	f, pages, err := openOrRebuild(data, maxPages)
	if err != nil {
		return Document{}, err
	}
	info := f.dict(f.info())
	return Document{PageCount: len(pages), Title: oneLine(f.text(info["Title"])), Author: oneLine(f.text(info["Author"]))}, nil
}

// fileWithPages returns a file with the given number of pages and of other
// objects.
func fileWithPages(pages, others int) []byte {
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

// The cost of Info depends on the number of pages, not on the number of
// objects.
func TestLazyInfoReadsPagesOnly(t *testing.T) {
	for _, others := range []int{0, 50_000} {
		data := fileWithPages(117, others)
		g := openLazy(data)
		if g == nil {
			t.Fatal("the lazy reader refused it")
		}
		pages, err := (&file{lazy: g, size: len(data)}).pages(maxPages)
		if err != nil || len(pages) != 117 || g.failed {
			t.Fatalf("%d pages, lost %t, %v", len(pages), g.failed, err)
		}
		if g.objectsRead > 117+2 || g.workBytes > 200*117 {
			t.Errorf("of %d objects %d were read, %d bytes parsed", 120+others, g.objectsRead, g.workBytes)
		}
		doc, err := Info(data, maxPages)
		if err != nil || doc.PageCount != 117 || doc.Title != "A stream of endless pages" || doc.Author != "Ada" {
			t.Errorf("%+v, %v", doc, err)
		}
	}
	if _, err := Info(fileWithPages(30, 0), 20); fault.CodeOf(err) != fault.FileTooLarge {
		t.Errorf("30 pages of at most 20: %v", err)
	}
}

// For every shared file that lazyInfo can read, the result is that of pdfcpu.
func TestLazyInfoOfSharedPDFs(t *testing.T) {
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
			doc, ok, err := tryLazyInfo(data, maxPages)
			if !ok {
				return nil
			}
			answered++
			want, wrong := pdfcpuInfo(data)
			if err != nil || wrong != nil || doc.PageCount != want.PageCount || doc.Title != want.Title || doc.Author != want.Author {
				t.Errorf("%s: %+v, %v; pdfcpu says %+v, %v", filepath.Base(path), doc, err, want, wrong)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if answered < 18 { // the others are damaged or encrypted
		t.Errorf("%d of %d files were read lazily", answered, all)
	}
	t.Logf("%d of %d files were read lazily", answered, all)
}

// Expensive and circular files are left to pdfcpu, quickly.
func TestLazyInfoOfHostileFiles(t *testing.T) {
	sound := fileWithPages(2, 0)
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
			doc, ok, err := tryLazyInfo(data, maxPages)
			if !ok {
				return
			}
			if want, wrong := pdfcpuInfo(data); wrong != nil || err != nil || doc.PageCount != want.PageCount || doc.Title != want.Title {
				t.Errorf("%+v, %v; pdfcpu says %+v, %v", doc, err, want, wrong)
			}
		})
	}
	// An object stream that contains its own length.
	packed, _ := fileWithObjectStreams(t, false)
	packed = bytes.Replace(packed, []byte("/Type /ObjStm"), []byte("/Type/ObjStm "), 1)
	i := bytes.Index(packed, []byte("/Type/ObjStm"))
	j := i + bytes.Index(packed[i:], []byte("/Length ")) + len("/Length ")
	packed[j], packed[j+1] = '1', ' ' // a wrong length
	if _, ok, _ := tryLazyInfo(packed, maxPages); ok {
		t.Error("a stream of a wrong length was read")
	}
}

// Searching for the end of an object is limited: a file with many unended
// objects is given up.
func TestLazyInfoBoundsItsSearch(t *testing.T) {
	const pages = 20_000
	data := bytes.ReplaceAll(fileWithPages(pages, 0), []byte("\nendobj\n"), []byte("\n       \n"))
	data = append(data, make([]byte, maxLazyObject)...)
	g := &lazyFile{data: data, objects: map[int]types.Object{}, streams: map[int]*objectStream{}}
	for i := 0; i < pages && g.workBytes <= maxWork; i++ {
		g.parse(i*60, maxLazyObject)
	}
	if g.workBytes <= maxWork {
		t.Errorf("%d objects without an end were searched for it, %d units", pages, g.workBytes)
	}
}

// Damaged copies give the same result as with pdfcpu, or are left to it.
func TestLazyInfoOfDamagedFiles(t *testing.T) {
	packed, _ := fileWithObjectStreams(t, true)
	rng := rand.New(rand.NewPCG(9, 14))
	n, answered := 0, 0
	for _, source := range [][]byte{fileWithPages(3, 5), packed, pdftest.Pages("BT (first) Tj ET", "BT (second) Tj ET")} {
		for _, m := range pdftest.Mutations {
			for range 40 {
				data := m.Do(rng, bytes.Clone(source))
				n++
				doc, ok, err := tryLazyInfo(data, maxPages)
				if !ok {
					continue
				}
				answered++
				want, wrong := pdfcpuInfo(data)
				switch {
				case err != nil || wrong != nil:
					t.Errorf("%s: %+v, %v; pdfcpu says %+v, %v", m.Name, doc, err, want, wrong)
				case doc.PageCount != want.PageCount || doc.Title != want.Title || doc.Author != want.Author:
					t.Errorf("%s: %+v; pdfcpu says %+v\n%q", m.Name, doc, want, data)
				}
			}
		}
	}
	t.Logf("%d copies, %d were read lazily", n, answered)
	if answered == 0 {
		t.Error("none was read lazily")
	}
}

func BenchmarkInspectPDF(b *testing.B) {
	data := fileWithPages(117, 50_000)
	b.Run("lazy", func(b *testing.B) {
		for b.Loop() {
			if _, ok, err := tryLazyInfo(data, maxPages); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("pdfcpu", func(b *testing.B) {
		for b.Loop() {
			if _, err := pdfcpuInfo(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
