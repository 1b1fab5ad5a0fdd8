// SPDX-License-Identifier: Apache-2.0

// Package media reads untrusted PDF files, images, HTML and Markdown, converts
// and resizes images, and reads the headers of audio and video files.
//
// It decides what a file holds (pages, structured text, pixels) and which fault
// describes a file that cannot be read: FILE_INVALID for damage, FILE_ENCRYPTED
// for a PDF file that needs a password or uses an unsupported encryption,
// FILE_UNSUPPORTED for an image of another format, FILE_TOO_LARGE for a file over
// a limit, STEP_TIMEOUT where the file may be undamaged and the machine too busy.
//
// Parsers of untrusted files hang, exhaust memory and panic, so they run in a
// child process: this program started again (see [Dispatch]) with limits on
// memory and on time without progress. Whatever happens there, the parent
// survives and reports what is wrong with the file. Only the headers of images,
// audio and video are read in the parent, by code of this package, in a limited
// number of small reads (see boundedReader).
//
// A program that never calls Dispatch, such as one that embeds Roux, parses in
// its own process: panics and hangs are still contained, memory use is not.
//
// The package never opens a path and never keeps a file: callers pass bytes.
package media

import (
	"cmp"
	"context"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/confine"
	"github.com/roux-engine/roux/internal/media/pdf"
)

// Defaults of a Config.
const (
	DefaultMaxBytes  = 128 << 20
	DefaultMaxMemory = 768 << 20
	DefaultMaxPages  = 20_000
	DefaultStall     = 3 * time.Second
	// DefaultPDFMemory keeps the child that reads a PDF file below 256 MiB of
	// resident memory in all.
	DefaultPDFMemory = 160 << 20
	// DefaultImageStall is several times what the largest undamaged image needs.
	DefaultImageStall = 30 * time.Second
)

// maxText bounds the text of one document.
const maxText = pdf.MaxText

// Config configures a Reader. Its zero value is ready for use.
type Config struct {
	MaxBytes  int64 // largest file that is parsed. Default 128 MiB
	MaxMemory int64 // memory of the child process. Default 768 MiB
	// PDFMemory limits the child that reads a PDF file, within MaxMemory. A file
	// of more than 24 MiB gets three more bytes for each byte above that. Default
	// 160 MiB.
	PDFMemory int64
	MaxPages  int // Default 20,000
	// Stall limits the CPU time that the parser may use without finishing a page,
	// so that a file on which it loops fails. It is CPU time because a busy
	// machine must not make an undamaged file look damaged. All pages together
	// may use Stall, and a tenth of Stall for each page. Default 3 s.
	Stall time.Duration
	// ImageStall limits the CPU time for all the work on one image. Default 30 s.
	ImageStall time.Duration
	// IdleTimeout is how long, by the clock, the child may send nothing. The
	// default lets the child use all its CPU time on a machine that is overloaded
	// tenfold: 10 × Stall, for an image 10 × ImageStall.
	IdleTimeout time.Duration
	// Processes limits how many children run at once; further callers wait.
	// Default: the number of CPUs.
	Processes int
}

// A Reader reads files under limits. It is safe for concurrent use.
type Reader struct {
	cfg   Config
	slots chan struct{}
	// exe returns the program to start as a child; it is determined at the first
	// use.
	exe          func() (string, error)
	misbehaviour string // see testMisbehave
	// childEnded is set by tests only. It receives the resource usage of a child
	// that has ended.
	childEnded func(*os.ProcessState)
}

// New returns a Reader. It starts nothing.
func New(cfg Config) *Reader {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.MaxMemory <= 0 {
		cfg.MaxMemory = DefaultMaxMemory
	}
	if cfg.PDFMemory <= 0 {
		cfg.PDFMemory = DefaultPDFMemory
	}
	if cfg.MaxPages <= 0 {
		cfg.MaxPages = DefaultMaxPages
	}
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	if cfg.ImageStall <= 0 {
		cfg.ImageStall = DefaultImageStall
	}
	if cfg.Processes <= 0 {
		cfg.Processes = runtime.NumCPU()
	}
	return &Reader{cfg: cfg, slots: make(chan struct{}, cfg.Processes), exe: sync.OnceValues(confine.Executable)}
}

// TextOptions shape the result of Text.
type TextOptions struct {
	// Pages selects the pages to read, in the order of the document; nil = all. A page that the
	// document does not have is INPUT_INVALID.
	Pages []pdf.PageRange
	// Plain leaves out all Markdown, so that the text is paragraphs only.
	Plain bool
	// Progress is called after every finished page. Optional.
	Progress func(done, total int)
}

// Info returns the facts of a PDF file.
func (r *Reader) Info(ctx context.Context, src io.Reader) (pdf.Document, error) {
	return r.read(ctx, src, request{Op: opInfo}, nil)
}

// Text returns the text of a PDF file as Markdown, page by page.
func (r *Reader) Text(ctx context.Context, src io.Reader, opts TextOptions) (pdf.Document, error) {
	return r.read(ctx, src, request{Op: opText, Plain: opts.Plain, Pages: opts.Pages}, opts.Progress)
}

func (r *Reader) read(ctx context.Context, src io.Reader, req request, progress func(done, total int)) (pdf.Document, error) {
	req.StallMS = r.cfg.Stall.Milliseconds()
	req.Size = sizeOf(src)
	req.MaxMemory = min(r.cfg.MaxMemory, r.cfg.PDFMemory+3*max(0, req.Size-pdf.Large))
	var pages []pdf.Page
	last, err := r.run(ctx, src, req, func(m message) error {
		if m.Page != nil {
			pages = append(pages, *m.Page)
		}
		if m.Total > 0 && progress != nil {
			progress(m.Done, m.Total)
		}
		return nil
	})
	if err != nil {
		return pdf.Document{}, err
	}
	if last.Doc == nil {
		return pdf.Document{}, fault.New(fault.InternalError, "the media child replied without a document")
	}
	last.Doc.Pages = pages
	return *last.Doc, nil
}

// sizeOf returns how many bytes src has, or 0 when that is unknown.
func sizeOf(src io.Reader) int64 {
	seeker, ok := src.(io.Seeker)
	if !ok {
		return 0
	}
	at, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	end, err := seeker.Seek(0, io.SeekEnd)
	if _, back := seeker.Seek(at, io.SeekStart); err != nil || back != nil {
		return 0 // reading it will fail with the reason
	}
	return end - at
}

// run carries out a request on the bytes of src within all limits. It calls
// handle for every message but the final one, which it returns.
func (r *Reader) run(ctx context.Context, src io.Reader, req request, handle func(message) error) (message, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
	req.MaxPages, req.Misbehaviour = r.cfg.MaxPages, r.misbehaviour
	req.MaxMemory = cmp.Or(req.MaxMemory, r.cfg.MaxMemory)
	req.MaxBytes = cmp.Or(req.MaxBytes, r.cfg.MaxBytes)
	if canStartItself.Load() {
		return r.runInChild(ctx, src, req, handle)
	}
	return r.runInProcess(ctx, src, req, handle)
}

// idleTimeout is how long the work on a request may send nothing.
func (r *Reader) idleTimeout(req request) time.Duration {
	if r.cfg.IdleTimeout > 0 {
		return r.cfg.IdleTimeout
	}
	return 10 * max(req.stall(), r.cfg.Stall)
}

func errTooSlow(limit time.Duration, req request) error {
	part := "a part of it"
	switch {
	case req.Markup != nil:
		return fault.New(fault.FileTooLarge, "%s takes more than %s of computing to convert, which is the limit: split it, or look for one mark repeated thousands of times", req.subject(), limit)
	case req.Op == opImage:
		part = "it"
	}
	return fault.New(fault.FileInvalid, "%s cannot be read: %s took more than %s of computing, as damaged files do", req.subject(), part, limit)
}

func errIdle(timeout time.Duration, req request) error {
	return fault.New(fault.StepTimeout, "reading %s made no progress for %s", req.subject(), timeout)
}

func errTooLarge(req request) error {
	return fault.New(fault.FileTooLarge, "%s has more than %d MiB, which is the limit of what is parsed", req.subject(), req.MaxBytes>>20)
}
