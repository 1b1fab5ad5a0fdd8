// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"compress/flate"
	"compress/lzw"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media/pdf"
	"github.com/roux-engine/roux/internal/media/pdftest"
)

// Limits for malicious files.
const (
	maxChildTime   = 5 * time.Second
	maxChildMemory = 256 << 20
)

// flateBomb is a stream that decompresses to n copies of chunk.
func flateBomb(chunk []byte, n int) []byte {
	var out bytes.Buffer
	out.WriteString("\x78\x9c")
	w, _ := flate.NewWriter(&out, flate.BestCompression)
	block := func() []byte {
		at := out.Len()
		_, _ = w.Write(chunk)
		_ = w.Flush()
		return bytes.Clone(out.Bytes()[at:])
	}
	block()
	again := block() // it may refer back to the block before, which is the same for every copy
	for range n - 2 {
		out.Write(again)
	}
	out.WriteString("\x03\x00\x00\x00\x00\x00")
	return out.Bytes()
}

func lzwBomb(size int) []byte {
	var out bytes.Buffer
	w := lzw.NewWriter(&out, lzw.MSB, 8)
	_, _ = io.CopyN(w, zeros{}, int64(size))
	_ = w.Close()
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func bombs() map[string][]byte {
	flated := func(chunk string, n int) string {
		return pdftest.Stream("/Filter /FlateDecode", flateBomb([]byte(chunk), n))
	}
	kids := strings.Repeat("3 0 R ", 1_000_000)
	deep := strings.Repeat("[", 2_000_000)
	dicts := strings.Repeat("<</A ", 1_000_000)
	ranges := "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FFFFFFFF> endcodespacerange\n" +
		strings.Repeat("1 beginbfrange <00000000> <FFFFFFFF> <0041> endbfrange\n1 beginbfrange <0000> <FFFF> ["+strings.Repeat("<0041>", 500)+"] endbfrange\n", 3_000)
	long := pdftest.Assemble([]string{pdftest.Catalog, pdftest.PageTree, "<< /Type /Page /Parent 2 0 R >>"})
	looped := bytes.Replace(long, []byte("/Root"), fmt.Appendf(nil, "/Prev %d /Root", bytes.Index(long, []byte("\nxref"))+1), 1)
	pages := strings.Repeat("3 0 R ", 15_000)
	busy := strings.Repeat("(a) Tj 1 0 0 1 5 5 Tm ", 1000)
	selfStream := "1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
	return map[string][]byte{
		"a page tree that is its own child":      pdftest.Assemble([]string{pdftest.Catalog, "<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 2 >>", "<< /Type /Pages /Parent 2 0 R /Kids [2 0 R 3 0 R] /Count 2 >>"}),
		"a page tree that doubles at each level": doubling(40),
		"tables that refer to themselves":        looped,
		"arrays two million deep":                pdftest.Assemble([]string{pdftest.Catalog, pdftest.PageTree, "<< /Type /Page /Parent 2 0 R /X " + deep + " >>"}),
		"dictionaries a million deep":            pdftest.Assemble([]string{pdftest.Catalog, pdftest.PageTree, "<< /Type /Page /Parent 2 0 R /X " + dicts + " >>"}),
		"content of a GiB":                       pdftest.OnePage(flated(strings.Repeat(" ", 1<<20), 1024), ""),
		"content of 200 MiB in two layers":       pdftest.OnePage(pdftest.Stream("/Filter [/FlateDecode /FlateDecode]", pdftest.Zlib(bytes.NewReader(pdftest.Zlib(io.LimitReader(zeros{}, 200<<20))))), ""),
		"content packed by LZW":                  pdftest.OnePage(pdftest.Stream("/Filter /LZWDecode /DecodeParms << /EarlyChange 0 >>", lzwBomb(300<<20)), ""),
		"ten million operators":                  pdftest.OnePage(flated(strings.Repeat("(a)Tj ", 1<<17), 80), "/Font << /F1 5 0 R >>", pdftest.Font),
		"a length of a TiB":                      pdftest.OnePage("<< /Length 1099511627776 >>\nstream\nBT ET\nendstream", ""),
		"a negative length":                      pdftest.OnePage("<< /Length -5 >>\nstream\nBT ET\nendstream", ""),
		"a million kids":                         pdftest.Assemble([]string{pdftest.Catalog, "<< /Type /Pages /Kids [" + kids + "] /Count 1000000 >>", "<< /Type /Page /Parent 2 0 R >>"}),
		"forms that draw themselves": pdftest.OnePage(pdftest.Stream("", []byte("/X Do")), "/XObject << /X 5 0 R >>",
			pdftest.Stream("/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 5 0 R >> >>", []byte(strings.Repeat("/X Do ", 100)))),
		"absurd ranges of characters": pdftest.OnePage(pdftest.Stream("", []byte("BT /F1 9 Tf "+strings.Repeat("<0001000200030004> Tj ", 20_000)+"ET")), "/Font << /F1 5 0 R >>",
			"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 6 0 R /DescendantFonts [<< /W [0 2147483647 500 0 [1 2] 5 2000000000 3] >>] >>",
			pdftest.Stream("", []byte(ranges))),
		"object streams inside themselves": pdftest.WithXRefStream(selfStream+"3 0 obj\n"+pdftest.Stream("/Type /ObjStm /N 2 /First 10 /Extends 3 0 R", []byte("2 0 3 5   << /Type /Pages >> null"))+"\nendobj\n",
			[][3]uint32{{0, 0, 0}, {1, 9, 0}, {2, 3, 0}, {2, 3, 1}}, "/Size 5"),
		"a table of a billion objects": pdftest.WithXRefStream(selfStream, [][3]uint32{{0, 0, 0}, {1, 9, 0}}, "/Size 1000000000 /Index [0 1000000000]"),
		"predictors of huge rows": pdftest.OnePage(pdftest.Stream("/Filter /FlateDecode /DecodeParms << /Predictor 12 /Columns 2000000000 /Colors 32 /BitsPerComponent 16 >>",
			flateBomb([]byte("x"), 3)), ""),
		"slow pages without end": pdftest.Assemble([]string{pdftest.Catalog, "<< /Type /Pages /Kids [" + pages + "] /Count 15000 >>",
			"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>", flated("BT /F1 9 Tf "+busy+" ET ", 1000), pdftest.Font}),
		"slow forms without end": pdftest.Assemble([]string{pdftest.Catalog, "<< /Type /Pages /Kids [" + pages + "] /Count 15000 >>",
			"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /XObject << /X 5 0 R >> >> >>", pdftest.Stream("", []byte("/X Do")),
			pdftest.Stream("/Type /XObject /Subtype /Form /Resources << /XObject << /X 5 0 R >> >>", []byte(strings.Repeat("/X Do ", 100)))}),
		"text on one spot":                     pdftest.OnePage(flated("BT /F1 9 Tf "+strings.Repeat("1 0 0 1 5 5 Tm (abc) Tj ", 1000)+" ET ", 150), "/Font << /F1 5 0 R >>", pdftest.Font),
		"pieces that are all rows and columns": pdftest.OnePage(pdftest.Stream("", []byte(scattered(15_000))), "/Font << /F1 5 0 R >>", pdftest.Font),
		"rules without end":                    pdftest.OnePage(flated(strings.Repeat("1 1 m 500 1 l S 7 7 80 90 re S ", 1000), 100), ""),
	}
}

// doubling is a page tree in which each node refers to the next one twice.
func doubling(levels int) []byte {
	objects := []string{pdftest.Catalog}
	for i := range levels {
		objects = append(objects, fmt.Sprintf("<< /Type /Pages /Kids [%d 0 R %d 0 R] /Count 2 >>", i+3, i+3))
	}
	return pdftest.Assemble(append(objects, "<< /Type /Page >>"))
}

// scattered is text without any alignment.
func scattered(n int) string {
	var out strings.Builder
	out.WriteString("BT /F1 1 Tf ")
	for i := range n {
		fmt.Fprintf(&out, "1 0 0 1 %d %d Tm (ab) Tj ", i*7919%590, i*104729%840)
	}
	return out.String() + "ET"
}

// harmless are the bombs that may be read, because limits remove their harm.
var harmless = map[string]bool{
	"a page tree that is its own child": true, "tables that refer to themselves": true, "a length of a TiB": true, "a negative length": true,
	"forms that draw themselves": true, "absurd ranges of characters": true, "text on one spot": true, "pieces that are all rows and columns": true,
	"rules without end": true, "arrays two million deep": true, "dictionaries a million deep": true, "predictors of huge rows": true,
	"object streams inside themselves": true, "a table of a billion objects": true,
}

// runAlone runs a test that measures the memory of children in a process of its
// own when this process has grown too large for that. It reports whether it
// has.
func runAlone(t *testing.T) bool {
	t.Helper()
	if ownPeakMemory() < maxChildMemory/2 || raceEnabled {
		return false
	}
	out, err := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v").CombinedOutput()
	t.Logf("in a process of its own:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	return true
}

// I15, I16, F19: a malicious file ends in a typed error, or its harm is
// limited, within 5 s and 256 MiB.
func TestI15_I16_Bombs(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	if raceEnabled {
		t.Skip("time and memory of a child say nothing under the race detector, and take minutes there")
	}
	if runAlone(t) {
		return
	}
	defer goleak.VerifyNone(t)
	files := bombs()
	if dir, facts := sharedFacts(t); facts != nil {
		for _, name := range []string{"broken-unreadable", "encrypted-password-abc", "page-tree-odd"} {
			data, err := os.ReadFile(filepath.Join(dir, "pdf", name+".pdf"))
			if err != nil {
				t.Fatal(err)
			}
			files["shared "+name] = data
			harmless["shared "+name] = true
		}
	}
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			r := New(Config{})
			var memory int64
			var cpu time.Duration
			r.childEnded = func(s *os.ProcessState) { memory, cpu = max(memory, peakMemory(s)), s.UserTime()+s.SystemTime() }
			start := time.Now()
			doc, err := r.Text(context.Background(), bytes.NewReader(data), TextOptions{})
			took := time.Since(start)
			t.Logf("%d KiB: %.2fs, CPU %.2fs, %d MiB, %d pages, %v", len(data)>>10, took.Seconds(), cpu.Seconds(), memory>>20, doc.PageCount, err)
			if err != nil && !isFileFault(err) {
				t.Errorf("error = %v, want one of the file", err)
			}
			if err == nil && !harmless[name] {
				t.Errorf("it was read: %d pages", doc.PageCount)
			}
			// CPU time of the process, because tests of other packages run at the same
			// time.
			if cpu > maxChildTime && !raceEnabled {
				t.Errorf("took %v of computing, want at most %v", cpu, maxChildTime)
			}
			if memory > maxChildMemory && !raceEnabled {
				t.Errorf("took %d MiB, want at most %d", memory>>20, maxChildMemory>>20)
			}
		})
	}
}

// I15: the memory limit of a child is lower for PDF files than for others, and
// it holds for the whole process.
func TestI15_MemoryOfAPDF(t *testing.T) {
	if runAlone(t) {
		return
	}
	r := New(Config{})
	r.misbehaviour = "memory"
	var memory int64
	r.childEnded = func(s *os.ProcessState) { memory = peakMemory(s) }
	_, err := r.Info(context.Background(), bytes.NewReader(report(t)))
	if !errors.Is(err, fault.FileTooLarge) || !strings.Contains(err.Error(), "within 160 MiB of memory") {
		t.Errorf("error = %v, want FILE_TOO_LARGE within 160 MiB: %v", err, errors.Unwrap(err))
	}
	if memory > maxChildMemory && !raceEnabled {
		t.Errorf("took %d MiB, want at most %d", memory>>20, maxChildMemory>>20)
	}
	t.Logf("%d MiB", memory>>20)
	// A large file is read completely before it is parsed, so it gets more memory.
	if _, err := r.Info(context.Background(), bytes.NewReader(append(bytes.Clone(report(t)), make([]byte, pdf.Large+10<<20)...))); !errors.Is(err, fault.FileTooLarge) || strings.Contains(err.Error(), "within 160 MiB") {
		t.Errorf("a file of 34 MiB: %v: %v", err, errors.Unwrap(err))
	}
}
