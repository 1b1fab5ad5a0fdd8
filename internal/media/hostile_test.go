// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
)

// report is the document of the examples.
func report(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "report.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fileFaults are the codes that may come of a file, whatever is in it.
var fileFaults = []fault.Code{fault.FileInvalid, fault.FileEncrypted, fault.FileTooLarge}

func isFileFault(err error) bool {
	for _, code := range fileFaults {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// I16, F19: whatever a file does to the parser, the parent gets a typed error in
// time, leaks nothing and reads the next file.
func TestI16_F19_ChildMisbehaves(t *testing.T) {
	for _, tt := range []struct {
		probe string
		want  fault.Code
	}{
		{"hang", fault.FileInvalid},
		{"panic", fault.FileInvalid},
		{"goroutine panic", fault.FileInvalid},
		{"stack", fault.FileTooLarge},
		{"memory", fault.FileTooLarge},
		{"exit", fault.FileInvalid},
		{"garbage", fault.FileInvalid},
	} {
		t.Run(tt.probe, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			cfg := Config{MaxMemory: 256 << 20, Silence: time.Minute}
			if tt.probe == "hang" {
				cfg.Stall = time.Second
			}
			r := New(cfg)
			r.probe = tt.probe
			var took time.Duration
			r.ended = func(s *os.ProcessState) { took = s.UserTime() + s.SystemTime() }
			_, err := r.Info(context.Background(), bytes.NewReader(report(t)))
			if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
			if took > 20*time.Second { // by the clock of the child: the machine may be busy
				t.Errorf("took %v", took)
			}
			if msg := fault.Message(err); strings.Contains(msg, "goroutine ") || strings.Contains(msg, ".go") {
				t.Errorf("the message shows a stack: %s", msg)
			}
			r.probe = ""
			if doc, err := r.Info(context.Background(), bytes.NewReader(report(t))); err != nil || doc.PageCount != 4 {
				t.Errorf("the next file: %+v, %v", doc, err)
			}
		})
	}
}

// I18, I19: the child sees none of our environment and writes no file.
func TestI18_I19_ChildIsConfined(t *testing.T) {
	t.Setenv("ROUX_TEST_SECRET", "do not hand on")
	r := New(Config{})
	for _, probe := range []string{"environment", "write"} {
		r.probe = probe
		if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); err != nil {
			t.Errorf("%s: %v", probe, err)
		}
	}
}

// A child that says nothing without computing is not called a damaged file.
func TestSilentChild(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := New(Config{Silence: 300 * time.Millisecond})
	r.probe = "sleep"
	if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); !errors.Is(err, fault.StepTimeout) {
		t.Errorf("error = %v, want STEP_TIMEOUT", err)
	}
}

func TestCancelEndsTheChild(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := New(Config{Stall: time.Minute, Silence: time.Minute})
	r.probe = "hang"
	why := fault.New(fault.ExecutionCancelled, "cancelled")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	if _, err := r.Info(ctx, bytes.NewReader(report(t))); !errors.Is(err, why) {
		t.Errorf("%v, want %v, and not that it hangs", err, why)
	}
}

// A source that fails is not the file's fault.
func TestSourceFailureKeepsItsError(t *testing.T) {
	broken := fault.New(fault.StoreFailed, "the disk is gone")
	r := New(Config{})
	src := &failing{data: report(t)[:2000], err: broken}
	if _, err := r.Info(context.Background(), src); !errors.Is(err, broken) {
		t.Errorf("error = %v, want the source's", err)
	}
}

type failing struct {
	data []byte
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if len(f.data) == 0 {
		return 0, f.err
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

// A program that is not its own child still survives panics and hangs.
func TestWithoutChild(t *testing.T) {
	wired.Store(false)
	defer wired.Store(true)
	r := New(Config{Silence: time.Second})
	done := 0
	doc, err := r.Text(context.Background(), bytes.NewReader(report(t)), TextOptions{Progress: func(n, _ int) { done = n }})
	if err != nil || doc.PageCount != 4 || done != 4 {
		t.Fatalf("%d pages, progress %d, %v", doc.PageCount, done, err)
	}
	r.probe = "panic"
	if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); !errors.Is(err, fault.FileInvalid) {
		t.Errorf("panic: %v", err)
	}
	r.probe = "wait"
	released = make(chan struct{})
	defer close(released)
	if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); !errors.Is(err, fault.FileInvalid) {
		t.Errorf("hang: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Info(ctx, bytes.NewReader(report(t))); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// I15: sizes are bounded by configuration, not by the file.
func TestI15_Limits(t *testing.T) {
	data := report(t)
	for name, cfg := range map[string]Config{
		"bytes": {MaxBytes: int64(len(data)) - 1},
		"pages": {MaxPages: 3},
	} {
		if _, err := New(cfg).Info(context.Background(), bytes.NewReader(data)); !errors.Is(err, fault.FileTooLarge) {
			t.Errorf("%s: %v, want FILE_TOO_LARGE", name, err)
		}
	}
	if _, err := New(Config{MaxBytes: int64(len(data)), MaxPages: 4}).Info(context.Background(), bytes.NewReader(data)); err != nil {
		t.Errorf("exactly the limits: %v", err)
	}
}

// Page trees that lie: counts from the file are never believed.
func TestOddPageTrees(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	page := "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] >>"
	catalog := "<< /Type /Catalog /Pages 2 0 R >>"
	for _, tt := range []struct {
		name    string
		objects []string
		pages   int // 0 = a typed error
	}{
		{"one page", []string{catalog, "<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page}, 1},
		{"a count of a billion", []string{catalog, "<< /Type /Pages /Kids [3 0 R] /Count 1000000000 >>", page}, 1},
		{"a negative count", []string{catalog, "<< /Type /Pages /Kids [3 0 R] /Count -5 >>", page}, 1},
		{"the same page twice", []string{catalog, "<< /Type /Pages /Kids [3 0 R 3 0 R] /Count 2 >>", page}, 2},
		{"no kids", []string{catalog, "<< /Type /Pages /Kids [] /Count 0 >>"}, 0},
		{"no pages at all", []string{"<< /Type /Catalog >>"}, 0},
		{"its own parent", []string{catalog, "<< /Type /Pages /Kids [2 0 R] /Count 1 >>"}, 0},
		{"an endless chain of parents for resources", []string{catalog, "<< /Type /Pages /Kids [3 0 R] /Count 1 /Parent 3 0 R >>",
			"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>", "<< /Length 17 >>\nstream\nBT /F1 9 Tf (x) Tj\nendstream"}, 1},
		{"a form that draws itself", []string{catalog, "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
			"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /X 5 0 R >> >> >>",
			"<< /Length 5 >>\nstream\n/X Do\nendstream",
			"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 5 0 R >> >> /Length 5 >>\nstream\n/X Do\nendstream"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := New(Config{}).Text(context.Background(), bytes.NewReader(assemble(tt.objects)), TextOptions{})
			if tt.pages == 0 {
				// A reader may also make one empty page of a tree without any.
				if err == nil && doc.PageCount > 1 || err != nil && !isFileFault(err) {
					t.Errorf("%+v, %v", doc, err)
				}
				return
			}
			if err != nil || doc.PageCount != tt.pages {
				t.Errorf("%d pages, %v, want %d", doc.PageCount, err, tt.pages)
			}
		})
	}
}

// readHere reads a file without a child.
func readHere(data []byte, req request) (Document, error) {
	var pages []Page
	doc, err := readPDF(data, req, func(m message) error {
		if m.Page != nil {
			pages = append(pages, *m.Page)
		}
		return nil
	})
	doc.Pages = pages
	return doc, err
}

// assemble makes a PDF file of objects, the first of which is the catalog.
func assemble(objects []string) []byte {
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

// assemblePages makes a PDF file of pages of content in Helvetica (F1) and
// Helvetica-Bold (F2).
func assemblePages(contents ...string) []byte {
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
	return assemble(objects)
}

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
			doc, err := readHere(assemblePages(tt.content), request{Op: opText, MaxPages: 10})
			if err != nil {
				t.Fatal(err)
			}
			if got := doc.Pages[0].Markdown; !strings.HasPrefix(got, tt.want) || len(got) > len(tt.want) && !strings.Contains(tt.content, "Body") {
				t.Errorf("got  %q\nwant %q (problem %q)", got, tt.want, doc.Pages[0].Problem)
			}
		})
	}
	plain, err := readHere(assemblePages(lineAt("F2", 24, 50, 700, "Title *")+body), request{Op: opText, Plain: true, MaxPages: 10})
	if err != nil || !strings.HasPrefix(plain.Pages[0].Markdown, "Title *\n\nBody") {
		t.Errorf("plain: %+v, %v", plain, err)
	}
}

func TestNoPDF(t *testing.T) {
	for _, data := range []string{"", "x", "<html>", strings.Repeat(" ", 2000) + "%PDF-1.4"} {
		if _, err := New(Config{}).Info(context.Background(), strings.NewReader(data)); !errors.Is(err, fault.FileInvalid) {
			t.Errorf("%.10q: %v, want FILE_INVALID", data, err)
		}
	}
}

func BenchmarkTextInChild(b *testing.B) {
	data := report(b)
	r := New(Config{})
	for b.Loop() {
		if _, err := r.Text(context.Background(), bytes.NewReader(data), TextOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkText(b *testing.B) {
	data := report(b)
	for b.Loop() {
		if _, err := readHere(data, request{Op: opText, MaxPages: 10}); err != nil {
			b.Fatal(err)
		}
	}
}

// A file whose encryption cannot be read is no damaged one: its owner can help.
func TestEncryptedInOtherWays(t *testing.T) {
	objects := []string{bombCatalog, bombPages, "<< /Type /Page /Parent 2 0 R >>"}
	o, u := strings.Repeat("6f", 32), strings.Repeat("75", 32)
	for name, tt := range map[string]struct{ object, trailer string }{
		"by certificates":       {"<< /Filter /Adobe.PubSec /SubFilter /adbe.pkcs7.s5 /V 4 /R 4 >>", "/Encrypt 4 0 R"},
		"by a newer cipher":     {"<< /Filter /Standard /V 6 /R 7 /Length 256 /P -4 /O <" + o + "> /U <" + u + "> >>", "/Encrypt 4 0 R"},
		"in the trailer itself": {"null", "/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <" + o + "> /U <" + u + "> >>"},
	} {
		data := bytes.Replace(assemble(append(objects[:3:3], tt.object)), []byte("/Root"), []byte(tt.trailer+" /ID [<01> <01>] /Root"), 1)
		if doc, err := readHere(data, request{Op: opText, MaxPages: 5}); !errors.Is(err, fault.FileEncrypted) || !strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: %+v, %v, want FILE_ENCRYPTED with a remedy", name, doc, err)
		}
	}
}
