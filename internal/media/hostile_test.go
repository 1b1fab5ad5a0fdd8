// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media/pdftest"
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

// fileFaults are the codes that any file may cause.
var fileFaults = []fault.Code{fault.FileInvalid, fault.FileEncrypted, fault.FileTooLarge}

func isFileFault(err error) bool {
	for _, code := range fileFaults {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// I16, F19: whatever a file does to the parser, the parent gets a typed error
// in time, leaks nothing and reads the next file.
func TestI16_F19_ChildMisbehaves(t *testing.T) {
	for _, tt := range []struct {
		misbehaviour string
		want         fault.Code
	}{
		{"hang", fault.FileInvalid},
		{"panic", fault.FileInvalid},
		{"goroutine panic", fault.FileInvalid},
		{"stack", fault.FileTooLarge},
		{"memory", fault.FileTooLarge},
		{"exit", fault.FileInvalid},
		{"garbage", fault.FileInvalid},
	} {
		t.Run(tt.misbehaviour, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			cfg := Config{MaxMemory: 256 << 20, IdleTimeout: time.Minute}
			if tt.misbehaviour == "hang" {
				cfg.Stall = time.Second
			}
			r := New(cfg)
			r.misbehaviour = tt.misbehaviour
			var took time.Duration
			r.childEnded = func(s *os.ProcessState) { took = s.UserTime() + s.SystemTime() }
			_, err := r.Info(context.Background(), bytes.NewReader(report(t)))
			if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
			if took > 20*time.Second { // CPU time of the child, because the machine may be busy
				t.Errorf("took %v", took)
			}
			if msg := fault.Message(err); strings.Contains(msg, "goroutine ") || strings.Contains(msg, ".go") {
				t.Errorf("the message shows a stack: %s", msg)
			}
			r.misbehaviour = ""
			if doc, err := r.Info(context.Background(), bytes.NewReader(report(t))); err != nil || doc.PageCount != 4 {
				t.Errorf("the next file: %+v, %v", doc, err)
			}
		})
	}
}

// I18, I19: the child sees nothing of our environment and cannot write files.
func TestI18_I19_ChildIsConfined(t *testing.T) {
	t.Setenv("ROUX_TEST_SECRET", "do not hand on")
	r := New(Config{})
	for _, misbehaviour := range []string{"environment", "write"} {
		r.misbehaviour = misbehaviour
		if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); err != nil {
			t.Errorf("%s: %v", misbehaviour, err)
		}
	}
}

// A child that sends nothing and uses no CPU time is not reported as a damaged
// file.
func TestIdleChild(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := New(Config{IdleTimeout: 300 * time.Millisecond})
	r.misbehaviour = "sleep"
	if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); !errors.Is(err, fault.StepTimeout) {
		t.Errorf("error = %v, want STEP_TIMEOUT", err)
	}
}

func TestCancelEndsTheChild(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := New(Config{Stall: time.Minute, IdleTimeout: time.Minute})
	r.misbehaviour = "hang"
	why := fault.New(fault.ExecutionCancelled, "cancelled")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	if _, err := r.Info(ctx, bytes.NewReader(report(t))); !errors.Is(err, why) {
		t.Errorf("%v, want %v, and not that it hangs", err, why)
	}
}

// A failing source is not reported as damage of the file.
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

// A program that cannot start itself as a child still survives panics and
// hangs.
func TestWithoutChild(t *testing.T) {
	canStartItself.Store(false)
	defer canStartItself.Store(true)
	r := New(Config{IdleTimeout: time.Second})
	done := 0
	doc, err := r.Text(context.Background(), bytes.NewReader(report(t)), TextOptions{Progress: func(n, _ int) { done = n }})
	if err != nil || doc.PageCount != 4 || done != 4 {
		t.Fatalf("%d pages, progress %d, %v", doc.PageCount, done, err)
	}
	r.misbehaviour = "panic"
	if _, err := r.Info(context.Background(), bytes.NewReader(report(t))); !errors.Is(err, fault.FileInvalid) {
		t.Errorf("panic: %v", err)
	}
	r.misbehaviour = "wait"
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

// I15: sizes are limited by configuration, not by the file.
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

// Malformed page trees: counts in the file are never trusted.
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
			doc, err := New(Config{}).Text(context.Background(), bytes.NewReader(pdftest.Assemble(tt.objects)), TextOptions{})
			if tt.pages == 0 {
				// Some PDF readers make one empty page of a page tree that has none.
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
